"""`holdfast logs` for a job over nodes: decides which logs are read from this machine, and which through the owner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.job_access.remote_owner import is_elsewhere
from holdfast.cli.job_logs.followed_logs import Follower
from holdfast.cli.job_logs.local_logs import LogOptions
from holdfast.cli.job_logs.remote_logs import FarLogs, RemoteLog
from holdfast.cli.output.printing import say
from holdfast.errors import HoldfastError
from holdfast.owner.nodes.operator_client import OperatorClient
from holdfast.report.log_files import LogPart, attempts_of, parts_of

if TYPE_CHECKING:
    from holdfast.record.job_views import JobView
    from holdfast.record.owner_address import OwnerAddress


def logs_over_nodes(
    home: Path, view: JobView, note: OwnerAddress, wish: LogOptions, *, following: bool, paths: bool
) -> bool:
    """Print or follow the logs of a job that has them on several nodes.

    Return False if all logs are on this machine, or if no owner answers, so that only the local logs can be printed.
    Raise HoldfastError if a request fails.

    `note`: the address of the job's owner. `wish`: the typed options. `following`: print later lines too. `paths`:
    print the logs' paths instead.
    """
    # Only the owner's machine notices when the job ends, so on another machine follow the logs through the owner.
    told_there = following and is_elsewhere(view)
    if wish.rank is not None and not told_there and _here(home, view, wish, wish.rank):
        return False
    try:
        owner = OperatorClient(note, os.environ, home)
    except HoldfastError as error:
        return _only_here(error, wish, told_there)
    with owner:
        far = FarLogs(owner, view, wish, following=following)
        return _with_owner(far, home, paths=paths, told_there=told_there)


def _only_here(error: HoldfastError, wish: LogOptions, told_there: bool) -> bool:
    if wish.rank is not None or told_there:
        raise error
    say(f"{error.message.rstrip('.')}: only the logs on this machine follow")
    return False


def _here(home: Path, view: JobView, wish: LogOptions, rank: int) -> bool:
    """Return whether this machine has this rank's logs of all attempts that the user asks for."""
    every = attempts_of(home, view.id)
    meant = [wish.attempt] if wish.attempt is not None else every if wish.in_time else every[-1:]
    return bool(meant) and all(rank in {part.rank for part in parts_of(home, view.id, each)} for each in meant)


def _with_owner(far: FarLogs, home: Path, *, paths: bool, told_there: bool) -> bool:
    wish, view = far.wish, far.view
    if wish.rank is not None and not (wish.in_time and wish.attempt is None):
        ranks = {wish.attempt or 0: [wish.rank]}
    else:
        try:
            ranks = _wanted(far, wait=far.following)
        except HoldfastError as error:
            return _only_here(error, wish, told_there)
    if not ranks:
        return False  # the owner reports that the job has ended since
    here = {attempt: parts_of(home, view.id, attempt) for attempt in ranks}
    if not told_there and all(set(ranks[each]) <= {part.rank for part in here[each]} for each in ranks):
        return False
    if far.following:
        Follower(far).run(ranks)
        return True
    parts: list[LogPart] = []
    logs: list[RemoteLog] = []
    for attempt, wanted in ranks.items():
        lie_here = {part.rank for part in here[attempt]}
        parts += [part for part in here[attempt] if part.rank in wanted and part.stream in wish.streams]
        logs += far.logs(attempt, [rank for rank in wanted if rank not in lie_here])
    far.show(parts, logs, paths=paths)
    return True


def _wanted(far: FarLogs, *, wait: bool) -> dict[int, list[int]]:
    """Return a map from attempt to the ranks whose logs the user asks for; empty if the job has ended. Raise
    HoldfastError.
    """
    wish = far.wish
    last = far.ranks(wish.attempt or 0, wait=wait)
    if last.ended:
        return {}
    before = [number for number in last.attempts if number < last.attempt] if wish.in_time else []
    every = [*(far.ranks(number) for number in (before if wish.attempt is None else [])), last]
    return {each.attempt: [at.rank for at in each.ranks if wish.rank in (None, at.rank)] for each in every}
