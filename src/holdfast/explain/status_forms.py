"""Decodes exit statuses as launchers and schedulers write them: a plain status, or a signal in one of several forms."""

from __future__ import annotations

#: Statuses of crashes on Windows, each with the corresponding signal on Linux.
_NT = {0xC0000005: 11, 0xC00000FD: 11, 0xC0000374: 6, 0xC0000409: 6, 0xC000001D: 4, 0xC0000094: 8, 0xC000013A: 2}
#: The largest signal number.
_REAL_TIME = 64


def signal_of(code: int) -> int | None:
    """Return the signal that a status encodes; None for a plain status.

    137 and -9 → 9 (shells, Python); 265 → 9 (PBS and Torque add 256); 3221225477 → 11 (Windows).
    """
    if -_REAL_TIME <= code < 0:
        return -code
    if 128 < code <= 128 + 31:
        return code - 128
    if 256 < code <= 256 + _REAL_TIME:
        return code - 256
    return _NT.get(code & 0xFFFFFFFF) if not -_REAL_TIME <= code <= 0xFFFF else None


def plain_of(code: int) -> int | None:
    """Return the plain status from 0 to 255 that a code encodes, such as 1 for 256 (from wait(2)); None: none."""
    if 0 <= code <= 255:
        return code
    return code >> 8 if 0 < code <= 0xFF00 and code % 256 == 0 else None
