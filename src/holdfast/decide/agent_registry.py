"""The present agent of each node, the attempts that a node has stopped, and the nodes that have not reported yet."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.job_state import GangState
from holdfast.model.gang_protocol import ALIVE, Report


class AgentRegistry:
    """What the owner knows about each node's agent, over all attempts."""

    def __init__(self, course: GangState) -> None:
        self._course = course
        self.boots: dict[str, int] = {}
        """The present agent of each node: the highest boot heard."""
        self.stopped: dict[str, int] = {}
        """Every process of attempts up to this one is known to be reaped on the node."""
        self.unheard: set[str] = set()
        """Nodes that have not reported since the owner came back, until `hears_until`."""
        self.hears_until = 0.0
        self.dead: dict[str, int] = {}
        """Agents of a run of the job that is over: each node's highest boot. Late reports may still arrive."""
        self.busy: dict[str, int] = {}
        """The attempt of each node on which some worker lives, as its agent reports."""

    def is_of_before(self, report: Report) -> bool:
        """Whether the node already has a later agent."""
        return report.boot < self.boots.get(report.node, report.boot) or self.is_dead(report.node, report.boot)

    def is_dead(self, node: str, boot: int) -> bool:
        """Whether this agent belongs to a run of the job that is over."""
        return 0 < boot <= self.dead.get(node, 0)

    def bury(self, nodes: Iterable[str]) -> None:
        """The platform has ended a run of the job: every agent of it is gone, with all its processes."""
        for node in {*nodes, *self.boots}:
            self.dead[node] = max(self.boots.get(node, 0), self.dead.get(node, 0))
        self.boots.clear()
        self.stopped.clear()
        self.busy.clear()
        self.unheard = set()

    def hear(self, report: Report) -> bool:
        """An agent was heard. Returns whether it is another one than the node had before."""
        anew = report.boot > self.boots.get(report.node, report.boot)
        self.boots[report.node] = report.boot
        self.unheard.discard(report.node)
        self.stopped[report.node] = max(self.stopped.get(report.node, 0), report.stopped)
        if any(member.state in ALIVE for member in report.members):
            self.busy[report.node] = report.attempt
        else:
            self.busy.pop(report.node, None)
        return anew

    def speaks_anew(self, node: str, boot: int) -> bool:
        """An agent has sent its hello. Returns whether it is another one than the node had before."""
        anew = boot > self.boots.get(node, boot)
        self.boots[node] = max(boot, self.boots.get(node, boot))
        return anew

    def speaks(self, node: str, boot: int) -> bool:
        """Whether this agent is the node's present one."""
        return boot == self.boots.get(node, boot) and not self.is_dead(node, boot)

    def began_anew(self, node: str, over: int) -> None:
        """A new agent has no process of attempts up to `over`: the guard of the earlier agent killed them."""
        self.stopped[node] = max(self.stopped.get(node, 0), over)
        self.busy.pop(node, None)

    def outlived(self, attempt: int) -> list[str]:
        """The nodes on which workers of an older attempt live: only an owner that forgot the attempt finds any."""
        return [node for node, number in self.busy.items() if number < attempt]

    def is_stopped(self, node: str) -> bool:
        """Whether no process of the attempt can live there: its agent reported it, or its lease has surely ended."""
        course = self._course
        return self.stopped.get(node, 0) >= course.highest or node in course.trial.fenced

    def forget(self, nodes: Iterable[str], until: float) -> None:
        """The owner is back: no agent counts as present before it is heard, or before `until`."""
        self.unheard = set(nodes)
        self.hears_until = until

    def may_be_waited_for(self, now: float) -> bool:
        """Whether an agent may still have to report for the first time since the owner came back.

        Where nodes join, a journal that lost its tail may have forgotten a node and its workers.
        """
        return (bool(self.unheard) or self._course.spec.nodes.many) and now < self.hears_until
