"""Reads the options about workers' output: `--redirects` and `--tee` select streams, `--log-size` limits the logs."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.observe.log_file import Rotation

if TYPE_CHECKING:
    from holdfast.settings.resolved_settings import Settings

#: The smallest size, in bytes, at which a log is rotated.
LEAST_LOG_BYTES = 4096


class Std(enum.IntFlag):
    """A set of streams, with torchrun's numbers: 0 none, 1 stdout, 2 stderr, 3 both."""

    NONE = 0
    OUT = 1
    ERR = 2
    BOTH = 3


class StdChoice(Noun, frozen=True, kw_only=True):
    """One value for every worker, or a value for each local rank. A local rank that is not listed gets `every`."""

    every: Std = Std.NONE
    by_local_rank: dict[int, Std] = {}

    def of(self, local_rank: int) -> Std:
        return self.by_local_rank.get(local_rank, self.every)


def parse_std(text: str, option: str = "--redirects") -> StdChoice:
    """Parse `3` or `0:1,1:2` (local rank : value).

    Raises:
        BadUsage: for any other text, a value above 3, and a local rank that is named twice.

    `option`: the option's name, for messages.
    """
    text = text.strip()
    if text in ("0", "1", "2", "3"):
        return StdChoice(every=Std(int(text)))
    chosen: dict[int, Std] = {}
    for entry in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6}):([0-3])\s*", entry)
        if match is None:
            raise _bad(option, text, f"{entry.strip()!r} is neither" if entry.strip() else "an entry is empty")
        rank = int(match[1])
        if rank in chosen:
            raise _bad(option, text, f"local rank {rank} is named twice")
        chosen[rank] = Std(int(match[2]))
    return StdChoice(by_local_rank=chosen)


def shown(redirects: StdChoice, tee: StdChoice, local_rank: int) -> tuple[bool, bool]:
    """Return whether the worker's stdout and stderr go to the terminal.

    As in torchrun, a redirected stream goes only to its file, and a teed stream goes to both, even if it is also
    redirected. A stream that neither option selects goes to the terminal, and in holdfast also to its file.
    """
    on = (~redirects.of(local_rank) | tee.of(local_rank)) & Std.BOTH
    return bool(on & Std.OUT), bool(on & Std.ERR)


def rotation_of(settings: Settings) -> Rotation | None:
    """Return the rotation of logs; None if the user set no size."""
    most_bytes = settings.size_bytes("log-size")
    if most_bytes is None:
        return None
    return Rotation(most_bytes=max(most_bytes, LEAST_LOG_BYTES), kept=settings.count("log-kept") or 0)


def _bad(option: str, text: str, why: str) -> BadUsage:
    return BadUsage(
        f"{option} {text!r}: {why}. Expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for every worker, "
        "or a list LOCAL_RANK:VALUE,…",
        hint=f"holdfast run {option} 0:3,1:2 …",
    )
