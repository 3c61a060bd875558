"""The disk cleaner watches the file systems of a job. If one is too full, the job that uses most of it is stopped.

It is off unless configured (`--disk-limit`). Every supervisor watches for its own job, and lists the job's files in a
file in the job's directory (`disk_shares`). Above the limit each supervisor measures all jobs, stopped ones too. The
supervisor of the largest job stops that job, with the numbers as the reason (OpenPAI's exit 198). A lock lets only one
supervisor decide at a time, so that two jobs never stop at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.phrases import Phrase
from holdfast.node.disk_shares import DiskShares, User
from holdfast.observe.disk_usage import DiskUse, disk_use, in_units, written_files
from holdfast.safe_files import open_file
from holdfast.settings.value_kinds import DiskLimit as Limit

EVERY_S = 10.0
#: Seconds until the next check while another job decides, or while this job is being stopped and may still write.
SOON_S = 1.0
LOCK_NAME = ".disk-cleaner.lock"


class DiskCleaner:
    """Watches the file systems of one job's directories, and requests the job's stop if it uses the most of a full
    one.
    """

    def __init__(
        self,
        limit: Limit,
        *,
        job_dir: Path,
        places: Iterable[Path],
        own: Iterable[Path],
        pids: Callable[[], Iterable[int]],
        now: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Start to watch.

        `limit`: the disk limit. `job_dir`: the job's directory. `places`: directories that the job writes to. `own`:
        directories that only this job uses; their whole content counts. `pids()`: the job's processes. `say`: prints a
        message to the user.
        """
        self._limit = limit
        self._job_dir = job_dir
        self._places = tuple(places)
        self._pids = pids
        self._say = say
        self._shares = DiskShares(job_dir, tuple(str(path) for path in own))
        # Create this job's share file. With it, other jobs know that the disk cleaner may stop this job.
        self._shares.note({})
        self._next_at = now + EVERY_S / 10
        self._asked = False
        self._told = ""

    def next_wake(self) -> float | None:
        return self._next_at

    def tick(self, now: float) -> list[ev.Event]:
        self._next_at = now + (SOON_S if self._asked else EVERY_S)
        self._shares.note(written_files(self._pids()))
        if self._asked:
            return []
        watched: dict[int, DiskUse] = {}
        for place in (*self._places, *{Path(path).parent for path in self._shares.files}):
            use = disk_use(place)
            if use is not None:
                watched.setdefault(use.device, use)
        over = [use for use in watched.values() if self._over(use)]
        if not over:
            return []
        with _turn(self._job_dir.parent.parent) as mine:
            if not mine:
                self._next_at = now + SOON_S
                return []
            for use in over:
                if found := self._weigh(use, now):
                    return found
        return []

    def close(self) -> None:
        if not self._asked:
            self._shares.withdraw()

    def _over(self, use: DiskUse) -> bool:
        limit = self._limit
        if limit.percent is not None:
            return use.percent > limit.percent
        if limit.size_bytes is not None:
            return use.used_bytes > limit.size_bytes
        return limit.inodes is not None and use.used_inodes > limit.inodes

    def _weigh(self, use: DiskUse, now: float) -> list[ev.Event]:
        """Request this job's stop if it uses the most disk space. Of two equal jobs, the one with the higher id (the
        newer one) stops.
        """
        users = self._shares.users(use.device)
        for text in self._shares.news:
            self._say(text)
        self._shares.news.clear()
        by_inodes = self._limit.inodes is not None
        ranked = sorted(users, key=lambda user: (user.inodes if by_inodes else user.size_bytes, user.job), reverse=True)
        biggest = ranked[0]
        if biggest.job != self._job_dir.name:
            self._tell(use, biggest)
            return []
        self._asked = True
        self._shares.mark_stopped()
        self._next_at = now + SOON_S
        return [ev.StopRequested(request=self._request(use, ranked, now))]

    def _tell(self, use: DiskUse, biggest: User) -> None:
        if self._told == biggest.job:
            return
        self._told = biggest.job
        if biggest.stopped:
            end = "it was stopped by the disk cleaner and its files are still there; this job goes on"
        elif biggest.limited:
            end = "the disk cleaner stops that one; this job goes on"
        else:
            end = "it runs without --disk-limit, so nothing is stopped; holdfast stop ends it"
        self._say(
            f"the disk at {use.path} is over its limit ({self._said(use)}); the biggest user is job {biggest.job} "
            f"({self._share(use, biggest)}): {end}"
        )

    def _request(self, use: DiskUse, ranked: list[User], now: float) -> StopRequest:
        limit, mine = self._limit, ranked[0]
        if limit.inodes is not None:
            over = f"{use.used_inodes - limit.inodes} inodes"
        else:
            over = in_units(use.used_bytes - self._most(use))
        others = [user for user in ranked[1:] if user.size_bytes]
        next_one = f"; the next user is job {others[0].job} with {self._share(use, others[0])}" if others else ""
        return StopRequest(
            reason=f"the disk cleaner stopped this job, the biggest user of the disk at {use.path}: "
            f"this job uses {self._share(use, mine)}, {self._said(use)}{next_one}",
            solution=f"{over} too much is taken on that disk: write less or elsewhere (checkpoints, logs, caches; "
            f"du -xh {use.path} | sort -h | tail shows what is large), or run on another node. While these files "
            "remain, they count as this job's, and no smaller user is stopped.",
            source=StopSource.DISK_CLEANER,
            phrase=Phrase.KILLED_BY_DISK_CLEANER,
            at=now,
            who=f"disk cleaner, uid {os.getuid()}",
        )

    def _most(self, use: DiskUse) -> int:
        """Return the disk limit in bytes."""
        if self._limit.percent is not None:
            return int(self._limit.percent / 100 * use.total_bytes)
        return self._limit.size_bytes or 0

    def _said(self, use: DiskUse) -> str:
        """Format the disk use of all jobs together, and the limit."""
        limit = self._limit
        if limit.inodes is not None:
            return f"all users {use.used_inodes} inodes, limit {limit.inodes}"
        most = in_units(self._most(use))
        if limit.percent is not None:
            most = f"{limit.percent:g} % ({most})"
        return f"all users {_percent(use.percent)} ({in_units(use.used_bytes)}), limit {most}"

    def _share(self, use: DiskUse, user: User) -> str:
        if self._limit.inodes is not None:
            return f"{user.inodes} inodes"
        own = 100 * user.size_bytes / use.total_bytes if use.total_bytes else 0.0
        return f"{_percent(own)} ({in_units(user.size_bytes)})"


def _percent(share: float) -> str:
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.2g} %"


@contextmanager
def _turn(home: Path) -> Iterator[bool]:
    """Yield whether this job may decide now which job stops, because only one job may decide at a time.

    This never blocks. If no lock is possible (the disk is full, or the file system has no locks), the job may decide.
    """
    try:
        fd = open_file(home / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True
        else:
            yield True
    finally:
        os.close(fd)
