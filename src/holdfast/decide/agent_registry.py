"""The present agent of each node, the attempts that it has stopped, and the nodes that have not reported yet."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.job_state import GangState
from holdfast.model.gang_protocol import ALIVE, Report


class AgentRegistry:
    """The owner's knowledge of each node's agent, over all attempts."""

    def __init__(self, course: GangState) -> None:
        self._course = course
        #: The boot of each node's present agent, the highest received; the number rises with each start of the agent.
        self.boots: dict[str, int] = {}
        #: For each node an attempt's number: all processes of this attempt and of older ones have ended there.
        self.stopped: dict[str, int] = {}
        #: The nodes that have not reported since the owner restarted. The owner waits for them until `hears_until`.
        self.unheard: set[str] = set()
        self.hears_until = 0.0
        #: Each node's highest boot in an ended run of the job. Late reports of these agents may still arrive.
        self.dead: dict[str, int] = {}
        #: The attempt's number for each node whose agent reports a live worker.
        self.busy: dict[str, int] = {}

    def is_of_before(self, report: Report) -> bool:
        """Return whether an earlier agent of the node, or an agent of an ended run, sent the report."""
        return report.boot < self.boots.get(report.node, report.boot) or self.is_dead(report.node, report.boot)

    def is_dead(self, node: str, boot: int) -> bool:
        """Return whether this agent belongs to an ended run of the job."""
        return 0 < boot <= self.dead.get(node, 0)

    def bury(self, nodes: Iterable[str]) -> None:
        """Mark all agents as belonging to an ended run of the job: they are gone with all their processes."""
        for node in {*nodes, *self.boots}:
            self.dead[node] = max(self.boots.get(node, 0), self.dead.get(node, 0))
        self.boots.clear()
        self.stopped.clear()
        self.busy.clear()
        self.unheard = set()

    def hear(self, report: Report) -> bool:
        """Record an agent's report. Return whether the node has a new agent."""
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
        """Record an agent's hello. Return whether the node has a new agent."""
        anew = boot > self.boots.get(node, boot)
        self.boots[node] = max(boot, self.boots.get(node, boot))
        return anew

    def speaks(self, node: str, boot: int) -> bool:
        """Return whether this agent is the node's present one."""
        return boot == self.boots.get(node, boot) and not self.is_dead(node, boot)

    def began_anew(self, node: str, over: int) -> None:
        """Record that the node has a new agent, and no process of attempts up to `over`: the guard killed them."""
        self.stopped[node] = max(self.stopped.get(node, 0), over)
        self.busy.pop(node, None)

    def outlived(self, attempt: int) -> list[str]:
        """Return the nodes with live workers of an older attempt. Only an owner that lost an attempt finds any."""
        return [node for node, number in self.busy.items() if number < attempt]

    def is_stopped(self, node: str) -> bool:
        """Return whether no process of the attempt can live on the node: its agent said so, or its lease ended."""
        course = self._course
        return self.stopped.get(node, 0) >= course.highest or node in course.trial.fenced

    def forget(self, nodes: Iterable[str], until: float) -> None:
        """Forget the agents after a restart of the owner: each counts as absent until it reports, or until `until`."""
        self.unheard = set(nodes)
        self.hears_until = until

    def may_be_waited_for(self, now: float) -> bool:
        """Return whether the owner must still wait for first reports since its restart.

        If nodes can join, the journal may have lost a node that joined last, with its workers.
        """
        return (bool(self.unheard) or self._course.spec.nodes.many) and now < self.hears_until
