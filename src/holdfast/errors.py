"""The exceptions of holdfast, for bad input and for bugs of holdfast.

The failure of a worker is data, not an exception.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """The base of all exceptions that holdfast raises on purpose. `hint`: a command that the user can type.

    `message`: one sentence for the user.
    """

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class BadUsage(HoldfastError):
    """The input is wrong.

    The message names the mistake, its place and the expected value. The exit status is 2, and nothing was started.
    """

    exit_status = 2
