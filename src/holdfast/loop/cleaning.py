"""The disk cleaner: a station that watches the file systems a job uses, and asks for the end of the biggest user.

Off unless configured (`--disk-limit`). Every supervisor watches for its own job and leaves its share in the job's
directory; when the limit is passed, the job with the largest share is stopped by its own supervisor, with the reason in
numbers (OpenPAI's exit 198). So no job is stopped for another one's files, and no server is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.loop.stations import Quiet
from holdfast.model import events as ev
from holdfast.model.base import Noun
from holdfast.model.evidence import StopRequest
from holdfast.observe.disk import DiskUse, disk_use, taken, written_files
from holdfast.record.liveness import Life, life_of

EVERY_S = 10.0
SHARE_NAME = "disk-share.json"
MOST_WRITTEN = 50_000
"""Files remembered as written by the job; beyond that only the latest look counts."""


class Limit(Protocol):
    """Which part of a file system may be taken: one of these is set."""

    @property
    def percent(self) -> float | None: ...

    @property
    def size_bytes(self) -> int | None: ...

    @property
    def inodes(self) -> int | None: ...


class Share(Noun, frozen=True, kw_only=True):
    """What one job takes of one file system."""

    device: int
    size_bytes: int
    inodes: int


class Cleaning(Quiet):
    """Watches the file systems of `places` (directories the job writes to) for one job."""

    def __init__(
        self,
        limit: Limit,
        *,
        job_dir: Path,
        places: Iterable[Path],
        own: Iterable[Path],
        pids: Callable[[], Iterable[int]],
        now: float,
    ) -> None:
        """`own`: directories that belong to this job alone, counted whole. `pids`: the job's processes."""
        self._limit = limit
        self._job_dir = job_dir
        self._places = tuple(places)
        self._own = tuple(own)
        self._pids = pids
        self._written: set[str] = set()
        self._next_at = now + EVERY_S / 10
        self._asked = False

    def next_wake(self) -> float | None:
        return None if self._asked else self._next_at

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        return []

    def tick(self, now: float) -> list[ev.Event]:
        self._next_at = now + EVERY_S
        written = written_files(self._pids())
        self._written = (self._written | written) if len(self._written) < MOST_WRITTEN else written
        watched: dict[int, DiskUse] = {}
        for place in (*self._places, *{Path(path).parent for path in self._written}):
            use = disk_use(place)
            if use is not None:
                watched.setdefault(use.device, use)
        for use in watched.values():
            if self._over(use):
                return self._weigh(use, now)
        return []

    def _over(self, use: DiskUse) -> bool:
        limit = self._limit
        if limit.percent is not None:
            return use.percent > limit.percent
        if limit.size_bytes is not None:
            return use.used_bytes > limit.size_bytes
        return limit.inodes is not None and use.used_inodes > limit.inodes

    def _weigh(self, use: DiskUse, now: float) -> list[ev.Event]:
        """Over the limit: is this job the one? Ties go to the newer job, whose number sorts higher."""
        size, inodes = taken(self._own, self._written, use.device)
        mine = Share(device=use.device, size_bytes=size, inodes=inodes)
        self._publish(mine)
        by_inodes = self._limit.inodes is not None
        me = (mine.inodes if by_inodes else mine.size_bytes, self._job_dir.name)
        for name, share in self._others():
            if share.device == use.device and (share.inodes if by_inodes else share.size_bytes, name) > me:
                return []
        self._asked = True
        return [ev.StopRequested(request=self._request(use, mine, now))]

    def _publish(self, share: Share) -> None:
        fresh = self._job_dir / f".{SHARE_NAME}"
        try:
            fresh.write_bytes(msgspec.json.encode(share))
            fresh.replace(self._job_dir / SHARE_NAME)
        except OSError:
            pass  # the disk may be full already: others then see the share of before

    def _others(self) -> list[tuple[str, Share]]:
        found = []
        for path in self._job_dir.parent.glob(f"*/{SHARE_NAME}"):
            if path.parent != self._job_dir and life_of(path.parent) is Life.ALIVE:
                try:
                    found.append((path.parent.name, msgspec.json.decode(path.read_bytes(), type=Share)))
                except (OSError, msgspec.MsgspecError):
                    continue
        return found

    def _request(self, use: DiskUse, mine: Share, now: float) -> StopRequest:
        limit = self._limit
        if limit.inodes is not None:
            said = f"this job has {mine.inodes} inodes, all users {use.used_inodes}, limit {limit.inodes}"
            over = f"{use.used_inodes - limit.inodes} inodes"
        else:
            own = 100 * mine.size_bytes / use.total_bytes if use.total_bytes else 0.0
            if limit.percent is not None:
                most = f"{limit.percent:g} % ({_gb(int(limit.percent / 100 * use.total_bytes))})"
                over = _gb(use.used_bytes - int(limit.percent / 100 * use.total_bytes))
            else:
                most = _gb(limit.size_bytes or 0)
                over = _gb(use.used_bytes - (limit.size_bytes or 0))
            said = (
                f"this job uses {own:.0f} % ({_gb(mine.size_bytes)}), all users {use.percent:.0f} % "
                f"({_gb(use.used_bytes)}), limit {most}"
            )
        return StopRequest(
            reason=f"the disk cleaner stopped this job, the biggest user of the disk at {use.path}: {said}",
            solution=f"{over} too much is taken on that disk: write less or elsewhere (checkpoints, logs, caches; "
            f"du -xh {use.path} | sort -h | tail shows what is large), or run on another node.",
            source="disk cleaner",
            phrase="KilledByDiskCleaner",
            at=now,
            who=f"disk cleaner, uid {os.getuid()}",
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size < 1e11 else f"{size / 1e9:.0f} GB"
