"""Stories of a job that its platform starts again, for the tests of the gang."""

from __future__ import annotations

from typing import Any

from builders import PREEMPTED
from gang_play import Play, spec
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.actions import Requeue
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan, Requeuing, Role

POSSIBLE = Requeuing(possible=True)
ALWAYS_TWO = NodePlan(least=2, most=2, last_call_s=30.0, join_s=600.0, replace_s=30.0)


def requeued_job(plan: NodePlan = ALWAYS_TWO, **changes: Any) -> JobSpec:
    role = Role(name="worker", count=1, command=("x",), per_node=True)
    fields: dict[str, Any] = {"roles": (role,), "nodes": plan, "requeue": POSSIBLE}
    return spec(**(fields | changes))


class Platform(Play):
    """A play in which nodes join one by one, and the platform starts the job again."""

    def start(self, *nodes: str, plan: NodePlan = ALWAYS_TWO, **changes: Any) -> None:
        self.tell(ev.JobSubmitted(job_id="j", spec=requeued_job(plan, **changes), nodes=(), seed=7))
        self.join(*nodes)

    def join(self, *names: str, boot: int = 1, **more: Any) -> None:
        for name in names:
            self.tell(ev.NodeJoined(node=NodeInfo(name=name, slots=1, address=f"10.0.0.{name}", **more), boot=boot))

    def run(self, *nodes: str, plan: NodePlan = ALWAYS_TWO, **changes: Any) -> None:
        """Running on these."""
        self.start(*nodes, plan=plan, **changes)
        self.to(Phase.RUNNING)

    def fall(self, node: str, boot: int = 1) -> None:
        """Its power is lost; the others of its attempt are stopped, and the end is decided."""
        self.tell(ev.NodeSilent(node=node, boot=boot, silent_s=6.0))
        self.tell(ev.NodeFenced(node=node, boot=boot))
        for other in self.gang.attempt_state.roster.nodes:
            if other != node:
                self.report(other, stopped=self.gang.attempt, boot=boot)
        if not self.gang.attempt_state.collecting:
            self.wait(1.5)
        self.collect()
        self.wait(0.0)

    def resume(self, run: int = 1, reason: str = "node n3 failed", **changes: Any) -> None:
        self.now += 100.0
        self.tell(ev.JobResumed(platform="Slurm job 7", run=run, reason=reason, **changes))
        self.wait(0.0)

    def report(self, node: str, *given: Any, **changes: Any) -> Any:
        """By the agent that speaks for the node now."""
        return super().report(node, *given, **{"boot": self.gang.agents.boots.get(node, 1), **changes})

    @property
    def requeues(self) -> list[Requeue]:
        return [a for _, _, out in self.history for a in out if isinstance(a, Requeue)]


def preempted_and_refused(play: Platform) -> None:
    play.run("a", "b")
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    assert play.at(Phase.QUEUED)
    play.tell(ev.RequeueRefused(run=0, reason="Requeue=0"))


def preempted_in_the_pause_and_stopped(play: Platform) -> None:
    play.run("a", "b")
    for _ in range(2):
        play.to(Phase.RUNNING)
        play.crash()
        play.drain()
        play.wait(0.0)
    assert play.at(Phase.BACKOFF)
    play.tell(ev.StopRequested(request=PREEMPTED))
    assert play.at(Phase.QUEUED)
    play.stop()


def too_few_nodes_and_no_end_of_this_run(play: Platform) -> None:
    play.run("a", "b")
    play.fall("b")
    assert play.at(Phase.ASSEMBLING)
    play.wait(31.0)
    assert play.at(Phase.QUEUED)
    play.wait(300.0)


def started_again_while_checks_run(play: Platform) -> None:
    play.start("a", "b")
    assert play.at(Phase.CHECKING)
    play.resume()
    play.stop()


def started_again_while_nodes_are_awaited(play: Platform) -> None:
    play.start("a")
    play.resume()
    play.stop()


def preempted_while_checks_run(play: Platform) -> None:
    play.start("a", "b")
    play.tell(ev.StopRequested(request=PREEMPTED))
    assert play.at(Phase.QUEUED)
    play.stop()


def preempted_and_stopped_in_the_next_run(play: Platform) -> None:
    play.run("a", "b")
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    play.resume()
    play.stop()


REQUEUE_STORIES = (
    preempted_and_stopped_in_the_next_run,
    preempted_and_refused,
    preempted_in_the_pause_and_stopped,
    too_few_nodes_and_no_end_of_this_run,
    started_again_while_checks_run,
    started_again_while_nodes_are_awaited,
    preempted_while_checks_run,
)
