"""The part of a job's page about the running attempt: progress, pace over time, nodes, and a rank's last lines."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path

from holdfast.decide.gang_view import GangView, MemberView
from holdfast.model.events import Event, JobResumed, JobSubmitted, NodeJoined
from holdfast.model.gang_protocol import MemberState
from holdfast.model.human_format import ranks, with_address
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.model.noun_base import Noun
from holdfast.node.attempt_progress import AttemptProgress, last_outputs, printed_steps, progress_of
from holdfast.record.job_directory import logs_of
from holdfast.record.job_views import JobView
from holdfast.report.log_files import attempts_of, parts_of
from holdfast.safe_files import end_of_file
from holdfast.web.log_excerpt import shown
from holdfast.web.page_parts import Home, PageRequest

#: Number of lines shown of the chosen rank's log.
MOST_TAIL = 12
#: Number of bytes at the end of each log of a running rank that are read, and of ranks to choose from.
MOST_LIVE_BYTES = 16 << 10
MOST_CHOICES = 64
#: Maximum number of nodes in the table. Those whose ranks are not all up come first.
MOST_NODES = 50
MOST_DEVICES = 16
#: Number of intervals of the pace curve, and the curve's size in units of its picture.
INTERVALS = 60
WIDTH, HEIGHT = 600, 80
#: Number of steps of a job, and of jobs, that this server remembers for the curve.
MOST_STEPS = 720
MOST_JOBS = 64

Step = tuple[float, float]


class PaceCurve(Noun, frozen=True, kw_only=True):
    """The steps per second over time. `begin`, `end`: seconds since the epoch."""

    begin: float
    end: float
    slowest: float
    fastest: float
    last: float
    #: The curve's points in its picture, as an SVG polyline has them.
    points: str


class NodeRow(Noun, frozen=True, kw_only=True):
    """One node of the running attempt."""

    node: str
    #: The states of its ranks, such as `4 up`.
    state: str
    well: bool
    ranks: str
    devices: tuple[str, ...] = ()
    more_devices: int = 0
    #: When a rank of this node last wrote output, in seconds since the epoch; None: its logs are not on this machine.
    last_output: float | None = None


class RunningAttempt(Noun, frozen=True, kw_only=True):
    """The attempt that runs now."""

    #: Step, pace and age of the last output, in words; empty: nothing is known yet.
    progress: str = ""
    #: When the job's time limit ends it, in seconds since the epoch; None: it has none.
    limit_at: float | None = None
    pace: PaceCurve | None = None
    nodes: tuple[NodeRow, ...] = ()
    more_nodes: int = 0
    #: The rank whose last lines are shown, its page, and the ranks to choose from; None: no logs are here.
    rank: int | None = None
    href: str = ""
    ranks: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()


class StepMemory:
    """The steps of running jobs that this server has seen. A job that reports steps without printing them has no other
    record of them over time. Several threads may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[Path, str, int], deque[Step]] = OrderedDict()

    def with_step(self, home: Path, job: str, progress: AttemptProgress, at: float) -> list[Step]:
        """Remember the step of now, and return all that are remembered of this attempt, oldest first."""
        if progress.step is None:
            return []
        key = (home, job, progress.attempt)
        with self._lock:
            steps = self._seen.pop(key, deque(maxlen=MOST_STEPS))
            if not steps or at > steps[-1][0]:
                steps.append((at, progress.step))
            self._seen[key] = steps
            while len(self._seen) > MOST_JOBS:
                self._seen.popitem(last=False)
            return list(steps)


#: The steps that all pages of this process share.
STEPS = StepMemory()


def running_attempt(
    ask: PageRequest,
    home: Home,
    view: JobView,
    spec: JobSpec | None,
    owners: GangView,
    history: Sequence[tuple[float, Event]],
) -> RunningAttempt:
    """Collect what is known of the attempt that runs now. `owners`: the owner's view, with all members."""
    progress = progress_of(home.path, view)
    attempt = max(attempts_of(home.path, view.id), default=0)
    folder = logs_of(home.path, view.id) / f"attempt-{attempt}"
    parts = parts_of(home.path, view.id, attempt) if attempt else []
    numbers = sorted({part.rank for part in parts})
    chosen = ask.query.get("rank", "")
    rank = int(chosen[:9]) if chosen.isascii() and chosen.isdigit() else None
    if rank not in numbers:
        rank = numbers[0] if numbers else None
    lines: list[str] = []
    for part in parts:
        if part.rank == rank:
            with contextlib.suppress(OSError):
                lines += [shown(line) for line in end_of_file(part.path, MOST_LIVE_BYTES).splitlines()[-MOST_TAIL:]]
    seen = STEPS.with_step(home.path, view.id, progress, ask.now) if progress is not None else []
    nodes = node_rows(owners.members, nodes_of(history), last_outputs(folder) if attempt else {})
    return RunningAttempt(
        progress=progress.words(ask.now) if progress is not None else "",
        limit_at=view.created + spec.time_limit_s if spec is not None and spec.time_limit_s is not None else None,
        pace=(pace_curve(printed_steps(folder)) or pace_curve(seen)) if progress is not None else None,
        nodes=tuple(nodes[:MOST_NODES]),
        more_nodes=max(len(nodes) - MOST_NODES, 0),
        rank=rank,
        href=f"/job/{view.id}/{attempt}/{rank}{ask.at(home)}" if rank is not None else "",
        ranks=tuple(numbers[:MOST_CHOICES]),
        lines=tuple(lines),
    )


def nodes_of(history: Sequence[tuple[float, Event]]) -> dict[str, NodeInfo]:
    """Return name → node, for all nodes that the job has had."""
    found: dict[str, NodeInfo] = {}
    for _, event in history:
        if isinstance(event, JobSubmitted | JobResumed):
            found |= {node.name: node for node in event.nodes}
        elif isinstance(event, NodeJoined):
            found[event.node.name] = event.node
    return found


def node_rows(members: Sequence[MemberView], nodes: dict[str, NodeInfo], heard: dict[int, float]) -> list[NodeRow]:
    """Return a row for each node with its ranks. Nodes whose ranks are not all up come first.

    `heard`: rank → time of its last output, for ranks whose logs are on this machine.
    """
    by_node: defaultdict[str, list[MemberView]] = defaultdict(list)
    for member in members:
        by_node[member.placement.node].append(member)
    rows = [_row(name, own, nodes.get(name), heard) for name, own in by_node.items()]
    return sorted(rows, key=lambda row: row.well)


def _row(name: str, members: Sequence[MemberView], node: NodeInfo | None, heard: dict[int, float]) -> NodeRow:
    states = Counter("not heard yet" if member.state is None else member.state.value for member in members)
    bound = {device for member in members for device in (member.placement.device, *member.placement.visible) if device}
    devices = sorted(bound) or list(node.devices if node is not None else ())
    numbers = [member.placement.rank for member in members]
    return NodeRow(
        node=with_address(name, node.address) if node is not None else name,
        state=", ".join(f"{count} {state}" for state, count in states.most_common()),
        well=set(states) <= {MemberState.UP.value, MemberState.DONE.value},
        ranks=ranks(numbers),
        devices=tuple(devices[:MOST_DEVICES]),
        more_devices=max(len(devices) - MOST_DEVICES, 0),
        last_output=max((heard[rank] for rank in numbers if rank in heard), default=None),
    )


def pace_curve(steps: Sequence[Step]) -> PaceCurve | None:
    """Return the pace between these steps, (time, step) oldest first; None if fewer than two intervals are known.

    A step that is lower than the one before it begins a new count, as each epoch does.
    """
    if len(steps) < 3 or steps[-1][0] <= steps[0][0]:
        return None
    begin, end = steps[0][0], steps[-1][0]
    paces: list[Step] = []
    since = steps[0]
    for before, step in itertools.pairwise(steps):
        if step[1] < before[1]:
            since = step
        elif step[0] - since[0] >= (end - begin) / INTERVALS and step[0] > since[0]:
            paces.append((step[0], (step[1] - since[1]) / (step[0] - since[0])))
            since = step
    if len(paces) < 2:
        return None
    fastest = max(pace for _, pace in paces)
    if fastest <= 0:
        return None
    points = [
        f"{WIDTH * (at - begin) / (end - begin):.1f},{HEIGHT - (HEIGHT - 6) * pace / fastest:.1f}" for at, pace in paces
    ]
    return PaceCurve(
        begin=begin,
        end=end,
        slowest=min(pace for _, pace in paces),
        fastest=fastest,
        last=paces[-1][1],
        points=" ".join(points),
    )
