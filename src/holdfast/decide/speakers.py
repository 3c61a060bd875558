"""Who speaks for each node, up to which attempt a node has stopped, and who was not heard since the owner came back."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.course import Course
from holdfast.model.commands import ALIVE, Report


class Speakers:
    """What is known of each node's agent, over all attempts."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self.boots: dict[str, int] = {}
        """The agent that speaks for each node now: the highest boot heard."""
        self.stopped: dict[str, int] = {}
        """Every process of attempts up to this one is known to be reaped there."""
        self.unheard: set[str] = set()
        """Nodes of which nothing was heard since the owner came back, until `hears_until`."""
        self.hears_until = 0.0
        self.dead: dict[str, int] = {}
        """Agents of a run of the job that is over: of each node the highest boot. What they said may still arrive."""
        self.busy: dict[str, int] = {}
        """The attempt of each node on which some worker lives, as its agent says."""

    def is_of_before(self, report: Report) -> bool:
        """Whether a later agent speaks for its node already."""
        return report.boot < self.boots.get(report.node, report.boot) or self.is_dead(report.node, report.boot)

    def is_dead(self, node: str, boot: int) -> bool:
        """Whether this agent belongs to a run of the job that is over."""
        return 0 < boot <= self.dead.get(node, 0)

    def bury(self, nodes: Iterable[str]) -> None:
        """The platform has ended a run of the job: every agent of it is gone, with all that it had."""
        for node in {*nodes, *self.boots}:
            self.dead[node] = max(self.boots.get(node, 0), self.dead.get(node, 0))
        self.boots.clear()
        self.stopped.clear()
        self.busy.clear()
        self.unheard = set()

    def hear(self, report: Report) -> bool:
        """An agent speaks. Whether it is another one than the node had before."""
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
        """An agent has said hello. Whether it is another one than the node had before."""
        anew = boot > self.boots.get(node, boot)
        self.boots[node] = max(boot, self.boots.get(node, boot))
        return anew

    def speaks(self, node: str, boot: int) -> bool:
        """Whether what is said of this agent is said of the one that the node has now."""
        return boot == self.boots.get(node, boot) and not self.is_dead(node, boot)

    def began_anew(self, node: str, over: int) -> None:
        """A new agent has no process of attempts up to `over`: the guard of the one before saw to that."""
        self.stopped[node] = max(self.stopped.get(node, 0), over)
        self.busy.pop(node, None)

    def outlived(self, attempt: int) -> list[str]:
        """The nodes on which workers of an older attempt live: only an owner that has forgotten it finds any."""
        return [node for node, number in self.busy.items() if number < attempt]

    def is_stopped(self, node: str) -> bool:
        """Whether nothing of the attempt can live there: its agent said so, or its lease has surely ended."""
        course = self._course
        return self.stopped.get(node, 0) >= course.highest or node in course.trial.fenced

    def forget(self, nodes: Iterable[str], until: float) -> None:
        """The owner is back: no agent counts as there before it speaks, or before `until`."""
        self.unheard = set(nodes)
        self.hears_until = until

    def may_be_waited_for(self, now: float) -> bool:
        """Whether an agent may still be about to speak for the first time since the owner came back.

        Where nodes join, a journal that lost its tail may have forgotten one of them, and what it runs.
        """
        return (bool(self.unheard) or self._course.spec.nodes.many) and now < self.hears_until
