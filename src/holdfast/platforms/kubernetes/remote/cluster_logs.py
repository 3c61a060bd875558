"""Read the logs of a job's pods through the API server, for `holdfast logs`."""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

from holdfast.errors import BadUsage, HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient, BrokenAnswer
from holdfast.platforms.kubernetes.client.pod_log_tail import (
    MOST_PODS,
    LogStart,
    Tail,
    follow,
    lines_in,
    query_of,
    timed,
)
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Pod
from holdfast.platforms.kubernetes.objects.job_status import pod_in_words, rank_at
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.remote.cluster_jobs import ClusterJobView, look
from holdfast.platforms.remote_jobs import RemoteLine, RemoteLineFilter

#: Matches the prefix that names the worker, at the start of a line of a pod's log.
_OF_A_RANK = re.compile(rb"\[([A-Za-z0-9._-]+)-(\d+)\] ")


class PodLogFilter:
    """Selects pods, and lines of their logs."""

    def __init__(self, found: ClusterJobView, wanted: RemoteLineFilter) -> None:
        """`found`: the job. `wanted`: selects the lines. Raises `BadUsage` if the job has no rank `wanted.rank`."""
        self.wanted = wanted
        self.index: int | None = None
        #: Whether the pod of the selected rank has only one worker. Then lines without a prefix belong to this worker.
        self.alone = False
        if wanted.rank is not None:
            place = rank_at(_plan(found), wanted.rank)
            if place is None:
                workers = sum(shape.pods * shape.workers for shape in _plan(found).shapes)
                raise BadUsage(
                    f"--rank {wanted.rank}: job {found.job.name} has the ranks 0 to {workers - 1}",
                    hint=f"holdfast logs {found.job.name} --platform kubernetes -n {found.job.namespace} --rank 0",
                )
            self.index, workers = place
            self.alone = workers == 1

    def pod(self, found: Pod) -> bool:
        if self.wanted.rank is None:
            return True
        return found.labels.get(object_names.PART) == object_names.AGENT and found.labels.get(object_names.NODE) == str(
            self.index
        )

    def line(self, of: Pod, came: int | None, line: bytes) -> RemoteLine | None:
        """Parse a line of a pod's log. Return None if `wanted` does not select the line.

        `of`: the pod. `came`: the line's time, in nanoseconds since the epoch; None if unknown.
        """
        # Round down to milliseconds, as in the output. A printed time that the user passes as `--since` then selects
        # its own line.
        wanted, at = self.wanted, None if came is None else came // 1_000_000 / 1000
        if at is not None and ((wanted.since or 0.0) > at or (wanted.until is not None and at >= wanted.until)):
            return None
        said = _OF_A_RANK.match(line)
        text = line[said.end() if said else 0 :].removesuffix(b"\n")
        if wanted.fits is not None and not wanted.fits(text):
            return None
        rank = int(said[2]) if said else wanted.rank if self.alone and not line.startswith(b"holdfast: ") else None
        if wanted.rank is not None and rank != wanted.rank:
            return None
        role = said[1].decode() if said else ""
        return RemoteLine(pod=of.name, at=at, role=role, rank=rank, whole=line, text=text)


def _plan(found: ClusterJobView) -> PodPlan:
    if found.plan is None:
        raise HoldfastError(
            f"the plan of job {found.job.name} cannot be read, and ranks stand in it",
            hint=f"kubectl get configmap {object_names.job_config(found.job.name)} -n {found.job.namespace} -o yaml",
        )
    return found.plan


def logs(
    api: BlockingClient,
    namespace: str | None,
    name: str,
    wanted: RemoteLineFilter,
    *,
    out: Callable[[RemoteLine], None],
    say: Callable[[str], None],
    following: bool,
) -> None:
    """Pass the log lines of a job's pods to `out`, sorted by time.

    `wanted`: selects the lines. `say`: prints a message. `following`: also pass new lines until the job ends, in the
    order of their arrival. Raises `BadUsage` if there is no such job or rank, and HoldfastError if a request fails.
    """
    found = look(api, namespace, name)
    chosen = PodLogFilter(found, wanted)
    if following:

        def take(of: Pod, came: int | None, line: bytes) -> None:
            if (shown := chosen.line(of, came, line)) is not None:
                out(shown)

        tail = Tail(
            found.job.namespace,
            found.job.name,
            take=take,
            say=say,
            wanted=chosen.pod,
            start=LogStart(
                since=wanted.since,
                lines=wanted.tail,
                fits=None if wanted.all else lambda of, came, line: chosen.line(of, came, line) is not None,
            ),
        )
        follow(tail)
        return
    every = [*([found.job.owner] if found.job.owner is not None else []), *found.job.pods]
    pods = [each for each in every if chosen.pod(each)]
    if not pods:
        say(f"job {found.job.name} has no such pod now; a pod's log ends with the pod")
    if len(pods) > MOST_PODS:
        say(f"the job has {len(pods)} pods: the logs of the first {MOST_PODS} are shown; type --rank for another one")
    with ExitStack() as stack:
        merged = [_lines(stack, api, each, chosen, say) for each in pods[:MOST_PODS]]
        for line in heapq.merge(*merged, key=lambda line: line.at or 0.0):
            out(line)


def _lines(
    stack: ExitStack, api: BlockingClient, of: Pod, chosen: PodLogFilter, say: Callable[[str], None]
) -> Iterator[RemoteLine]:
    """Yield the selected lines of one pod's log. `stack`: closes the open request at the end."""
    wanted = chosen.wanted
    query = query_of(of, since=wanted.since, lines=wanted.tail if wanted.all else None)
    path = f"/api/v1/namespaces/{of.namespace}/pods/{of.name}/log"

    def shown() -> Generator[RemoteLine]:
        try:
            with api.log(path, query) as blocks:
                for line in lines_in(blocks):
                    if (found := chosen.line(of, *timed(line))) is not None:
                        yield found
        except BrokenAnswer as error:
            refused = error.answer.status == 400
            say(f"pod {of.name} has no log: it {pod_in_words(of)}" if refused else f"pod {of.name}: {error}")

    lines = shown()
    stack.callback(lines.close)
    return iter(deque(lines, maxlen=wanted.tail)) if wanted.tail is not None and not wanted.all else lines
