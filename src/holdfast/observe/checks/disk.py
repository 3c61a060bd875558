"""Checks whether the directories that the job writes to have free space."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Note, Verdict
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size, size_of, temporary
from holdfast.observe.checks.quota import quota_left

_NOTHING_BYTES, _NOTHING_INODES = 65_536, 4


class DiskParams(Params, frozen=True, kw_only=True):
    paths: Annotated[
        tuple[str, ...], Meta(description="where the job writes; none: working, state and temporary directory")
    ] = ()
    min_free: Annotated[Bytes, Meta(description="room that must be left on each")] = Bytes(100_000_000)
    min_free_percent: Annotated[float, Meta(ge=0, le=100, description="the same, in percent of the whole")] = 0.0
    low: Annotated[
        Literal["fail", "warn"], Meta(description="what less than asked means; next to nothing left is always fail")
    ] = "fail"
    min_inodes: Annotated[int, Meta(ge=0, description="files that can still be created on each")] = 1000


class Disk(BuiltIn):
    name = "disk"
    question = "Is there room left, in bytes, files and quota, where the job writes?"
    cost = "1 ms"
    blame = "storage"
    Params = DiskParams
    lane = "outside"
    running_s = 60.0

    def look(self, context: Context) -> Verdict:
        params: DiskParams = self.params
        problems: list[str] = []
        self._grave = False
        figures: dict[str, int] = {}
        seen: set[tuple[int, int]] = set()
        for path in params.paths or (context.site.cwd, context.site.home, temporary()):
            if not path:
                continue
            if params.paths and not Path(path).exists():
                problems.append(f"{path} does not exist")
                self._grave = True
                continue
            place = existing(path)
            facts = os.statvfs(place)
            if facts.f_flag & os.ST_RDONLY and not params.paths:
                continue  # skip a read-only image with the program, because the job does not write to it
            # Report a file system once, even if several directories are on it.
            key = (facts.f_fsid, facts.f_blocks)
            if key in seen and not params.paths:
                continue
            seen.add(key)
            free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
            left = quota_left(place)
            if left is not None and left < free:
                free = left
            asked = max(params.min_free, round(whole * params.min_free_percent / 100))
            figures[f"{path} free_bytes"] = free
            # If only the state directory cannot be written, the job starts all the same and reports that.
            grave = bool(params.paths) or path != context.site.home
            limited = " within your quota" if left is not None and left == free else ""
            if free < asked:
                problems.append(f"{size_of(free, whole)} free on {path}{limited}, {size(asked)} asked")
                self._grave |= grave and (params.low == "fail" or free < _NOTHING_BYTES)
            # Some file systems (btrfs, many network ones) count no inodes and report 0 of 0, so ignore that.
            if facts.f_files and facts.f_favail < params.min_inodes:
                problems.append(f"{facts.f_favail} of {facts.f_files} inodes free on {path}, {params.min_inodes} asked")
                self._grave |= grave and (params.low == "fail" or facts.f_favail < _NOTHING_INODES)
        if problems:
            return self.bad(
                context,
                problems,
                "Remove what is not needed there (old checkpoints, caches, logs), or let the job write elsewhere.",
                figures=figures,
            )
        return good(f"enough space on {len(seen)} file system{'s'[: len(seen) != 1]}", figures)

    def failed_actions(self, *args: object, **kwargs: object) -> Sequence[DiagnosisAction]:
        return [AvoidNode()] if self._grave else [Note()]


def existing(path: str) -> Path:
    """Return the path if it exists, or else its nearest existing ancestor, where it would be created."""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return place
