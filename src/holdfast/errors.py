"""Our own exceptions. A worker's death is data and is never raised; these are for bad input and for bugs of ours."""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of everything holdfast raises on purpose. `hint` is a command that can be typed."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class BadUsage(HoldfastError):
    """The input is wrong: what, where, what was expected, what to type. Exit status 2; nothing was started."""

    exit_status = 2
