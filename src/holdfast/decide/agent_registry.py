"""Keeps the owner's facts about each node's agent: its boot number, the last attempt that ended on the node, and
whether the agent has reported since the owner's restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.job_state import GangState
from holdfast.model.gang_protocol import ALIVE, Report


class AgentRegistry:
    """The owner's knowledge about each node's agent. It is kept over all attempts of the job."""

    def __init__(self, gang: GangState) -> None:
        self._gang = gang
        #: Node → the boot number of its present agent. The number rises with each start of an agent on the node.
        self.boots: dict[str, int] = {}
        #: Node → the newest attempt that has ended on the node, with all older ones: no process of them is alive.
        self.stopped: dict[str, int] = {}
        #: The nodes whose agents have not reported since the owner restarted. The owner waits for them until
        #: `hears_until`.
        self.unheard: set[str] = set()
        self.hears_until = 0.0
        #: Node → the highest boot number of its agents in earlier runs of the job. Late reports of such agents are
        #: ignored.
        self.dead: dict[str, int] = {}
        #: Node → the attempt whose workers are alive on it. Nodes without live workers are left out.
        self.busy: dict[str, int] = {}

    def is_of_before(self, report: Report) -> bool:
        """Return whether the report comes from a replaced agent of the node, or from an agent of an earlier run of the
        job.
        """
        return report.boot < self.boots.get(report.node, report.boot) or self.is_dead(report.node, report.boot)

    def is_dead(self, node: str, boot: int) -> bool:
        """Return whether this agent belongs to an earlier run of the job. `boot`: the agent's start number."""
        return 0 < boot <= self.dead.get(node, 0)

    def bury(self, nodes: Iterable[str]) -> None:
        """Record that the present run of the job has ended on these nodes. Later reports of their agents are
        ignored.
        """
        for node in {*nodes, *self.boots}:
            self.dead[node] = max(self.boots.get(node, 0), self.dead.get(node, 0))
        self.boots.clear()
        self.stopped.clear()
        self.busy.clear()
        self.unheard = set()

    def hear(self, report: Report) -> bool:
        """Record an agent's report. Return True if the report comes from a new agent of the node."""
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
        """Record an agent's hello, which is its first message. Return True if the node has a new agent. `boot`: the
        agent's start number.
        """
        anew = boot > self.boots.get(node, boot)
        self.boots[node] = max(boot, self.boots.get(node, boot))
        return anew

    def speaks(self, node: str, boot: int) -> bool:
        """Return whether the agent with this boot is the node's present one."""
        return boot == self.boots.get(node, boot) and not self.is_dead(node, boot)

    def began_anew(self, node: str, over: int) -> None:
        """Record that the node has a new agent. `over`: the newest attempt that has ended there, because the guard of
        the earlier agent killed its processes.
        """
        self.stopped[node] = max(self.stopped.get(node, 0), over)
        self.busy.pop(node, None)

    def outlived(self, attempt: int) -> list[str]:
        """Return the nodes with live workers of an attempt older than `attempt`. That can only happen if the owner's
        journal lost an attempt.
        """
        return [node for node, number in self.busy.items() if number < attempt]

    def is_stopped(self, node: str) -> bool:
        """Return whether no process of the job is alive on the node. Its agent has reported that, or its lease has
        ended.
        """
        gang = self._gang
        return self.stopped.get(node, 0) >= gang.highest or node in gang.attempt_state.fenced

    def forget(self, nodes: Iterable[str], until: float) -> None:
        """Forget the agents' reports from before the owner's restart. Each node counts as absent until its agent
        reports again. `until`: when the owner stops waiting for them.
        """
        self.unheard = set(nodes)
        self.hears_until = until

    def may_be_waited_for(self, now: float) -> bool:
        """Return whether the owner still waits for first reports since its restart.

        In a job that nodes can join, the owner waits even if every node in the journal has reported: the journal may
        have lost the latest joins.
        """
        return (bool(self.unheard) or self._gang.spec.nodes.many) and now < self.hears_until
