"""The Slurm starter: one step of the job, `srun holdfast agent`, with an agent on each node.

It runs in a process of its own beside the owner. Slurm copies what srun reads to every task, so one order reaches all
agents. What workers print comes back through srun's own streams. srun's own lines on its standard error tell which
agent was killed and which node Slurm has given up; they are passed on like all others.
"""

from __future__ import annotations

import os
import signal
from functools import partial

from holdfast.clock import Clock
from holdfast.platforms.slurm.agent_step import HOLD_S, AgentStep, Steps
from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.hostlist import hosts_in
from holdfast.platforms.slurm.text.scontrol_records import job as job_of
from holdfast.platforms.slurm.text.srun_command import StepFailure, failure, is_noise, meaning
from holdfast.reactor import DueCall, Reactor
from holdfast.wire.starter_reports import FirstToken, StarterPipe, StarterReport

#: Before each further step for nodes that lack an agent; after the last one they are left out.
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: How long Slurm's controller may be away before they are: another one takes over after minutes.
AWAY_S = 600.0
#: Agents that lived this long were well: the tries begin anew. A step that did not start counts for `AWAY_S`.
WELL_S = 60.0
#: How long the agents may take to send what their workers have printed last, once the job is over.
LAST_S = 5.0


class SrunStarter:
    """A `Starter`. It is made in the guard; what is called runs in a process of its own."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._once = FirstToken()
        self._news = StarterPipe()
        self.news_fd = self._news.reader

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Have an agent on each node and keep it there; 0 when the job is over, or the last step has ended."""
        if not self._once.first():
            # The agents go on, and what srun starts now waits beside each until it has ended.
            words = "what the workers print is not shown any more: the process that started the agents was killed"
            self._news.say(StarterReport(words=words, hint="holdfast logs JOB --rank 0 -f"))
        return _Keeper(self._steps, self._steps.order(address, port), self._news).keep(guard_fd)


class _Keeper:
    """All steps of a job, while it runs."""

    def __init__(self, steps: Steps, order: bytes, news: StarterPipe) -> None:
        self.steps = steps
        self.order = order
        self.news = news
        self.reactor = Reactor(Clock().now)
        self._asking = SlurmCommands(self.reactor)
        self._waiting = 0
        """So many answers of Slurm's are still to come."""
        self._running: list[AgentStep] = []
        self._again: DueCall | None = None
        self._lacking: set[str] = set()
        self._out: set[str] = set()
        """Nodes that get no further agent."""
        self._failed = 0
        self._failed_at = self._failing_since = 0.0
        self._last_words = ""
        self._stepd: dict[str, str] = {}
        """What Slurm said last of the task on a node."""
        self._telling = 0
        """So many ends of agents are still to be told."""
        self._over = self._left = False

    def keep(self, guard_fd: int) -> int:
        """Until every step has ended and none is due, or `guard_fd` has."""
        self.reactor.watch(guard_fd, self._word)
        self._begin(())
        while not self._left and (self._running or self._telling or self._waiting or self._again is not None):
            self.reactor.wait()
        for step in self._running:
            step.close()
        self._asking.close()
        self.reactor.close()
        return 0

    def _word(self, fd: int, now: float) -> None:
        # A signal is the owner's affair: it stops the job, and the agents leave by themselves.
        word = os.read(fd, 128)
        if word and any(word):
            return
        self._over = True
        if self._again is not None:
            self._again.close()
            self._again = None
        if not word:
            self._leave(now)
        self.reactor.at(now + LAST_S, self._leave)
        for step in self._running:
            step.hang_up()

    def _leave(self, now: float) -> None:
        self._left = True

    def _begin(self, only: tuple[str, ...]) -> None:
        step = AgentStep(self.steps, self.order, self.reactor, self, only)
        try:
            step.begin()
        except OSError as error:
            self._lacking.update(only or self.steps.nodes)
            self._give_up(f"srun cannot be run: {error.strerror}", "which srun")
            return
        self._running.append(step)

    def stepd_said(self, node: str, words: str) -> None:
        """What Slurm says of the task on a node."""
        if node in self.steps.nodes:
            self._stepd[node] = words

    def told(self, line: str) -> bool:
        """A line of srun's own. Whether it is shown."""
        said = meaning(line)
        if said is None:
            return not is_noise(line)
        if self._over:
            return said.lost
        mine = [node for node in said.nodes if node in self.steps.nodes and node not in self._out]
        if said.lost:
            self._lose(tuple(mine), f"Slurm: {line.partition('error: ')[2]}")
            return False
        if said.killed:
            self._lacking.update(mine)
        elif mine:
            self._out.update(mine)
            self._telling += 1
            self.reactor.at(self.reactor.now() + HOLD_S, partial(self._ended_alone, mine, said.words))
        if self._lacking:
            self._try_again(None, self.reactor.now())
        return False

    def _ended_alone(self, nodes: list[str], how: str, now: float) -> None:
        """The agents there have said why, or Slurm has, a moment later: another one would end the same way."""
        self._telling -= 1
        if self._over:
            return
        why = next((self._stepd[node] for node in nodes if node in self._stepd), "")
        words = f"{', '.join(nodes)}: the agent {f'did not start: {why}' if why else f'has ended: {how}'}"
        try_it = f"srun --jobid={self.steps.job} --overlap -N1 -n1 -w {nodes[0]} {self.steps.python} -P -m holdfast"
        self.news.say(StarterReport(words=words, hint=f"{try_it} --version", nodes=tuple(nodes)))

    def ended(self, step: AgentStep, status: int | None) -> None:
        """A step has ended: its agents have, or it had none."""
        self._running.remove(step)
        if self._over or status == 0:
            return
        now = self.reactor.now()
        if step.told_of_tasks and status is not None and status >= 0:
            return  # each task has its own word
        self._lacking.update(node for node in step.only or self.steps.nodes if node not in self._out)
        if status is None or status < 0:
            by = "" if status is None else f" by {signal.Signals(-status).name}"
            what = f"srun was ended{by}: what the workers of agents that go on print is not shown any more"
            self._try_again(StepFailure(words=what, hint=f"scontrol show step {self.steps.job}"), now)
            return
        why = failure(step.lines, self.steps.job, status)
        if why.of_nodes:
            words = ("scontrol", "show", "job", self.steps.job)
            self._waiting += 1
            self._asking.ask(words, partial(self._nodes_now, why))
        else:
            self._try_again(why, now)

    def _nodes_now(self, why: StepFailure, answer: CommandOutput, now: float) -> None:
        """Slurm has no step for these nodes: it may have taken some out of the job, of which srun says nothing."""
        self._waiting -= 1
        if self._over:
            return
        record = job_of(answer.out, int(self.steps.job)) if answer.ok else None
        try:
            left = {*hosts_in(record.nodes)} if record is not None and record.nodes else {*self.steps.nodes}
        except ValueError:
            left = {*self.steps.nodes}
        gone = tuple(node for node in self.steps.nodes if node not in left and node not in self._out)
        if gone:
            self._lose(gone, f"Slurm has taken {', '.join(gone)} out of the job")
            self._again = self._again or self.reactor.at(now, self._due)
        else:
            self._try_again(why, now)

    def _lose(self, nodes: tuple[str, ...], words: str) -> None:
        self._out.update(nodes)
        self._lacking.difference_update(nodes)
        self.news.say(StarterReport(words=words, hint=f"scontrol show node {','.join(nodes)}", nodes=nodes, lost=True))

    def _try_again(self, why: StepFailure | None, now: float) -> None:
        """Another step for the nodes that lack an agent. `why`: None: their agents were killed."""
        if self._again is not None:
            return
        if self._failed and now - self._failed_at > (WELL_S if why is None else AWAY_S):
            self._failed = 0
        if not self._failed:
            self._failing_since = now
        tried, self._failed_at = self._failed, now
        self._failed += 1
        late = why is not None and why.passes and now - self._failing_since < AWAY_S
        if (why is not None and why.final) or (tried >= len(PAUSES_S) and not late):
            times = f" ({tried + 1} times in a row)" if tried else ""
            words = why.words if why is not None else f"the agents on {', '.join(sorted(self._lacking))} were killed"
            self._give_up(f"{words}{times}", why.hint if why is not None else "")
            return
        pause_s = PAUSES_S[min(tried, len(PAUSES_S) - 1)]
        if why is not None and why.words != self._last_words:
            self._last_words = why.words
            self.news.say(StarterReport(words=f"{why.words}; srun is tried again", hint=why.hint))
        self._again = self.reactor.at(now + pause_s, self._due)

    def _due(self, now: float) -> None:
        self._again = None
        nodes = tuple(node for node in self.steps.nodes if node in self._lacking and node not in self._out)
        self._lacking.clear()
        if nodes:
            self._begin(nodes if len(nodes) < len(self.steps.nodes) else ())

    def _give_up(self, words: str, hint: str) -> None:
        nodes = tuple(node for node in self.steps.nodes if node in self._lacking)
        self._out.update(nodes)
        self._lacking.clear()
        self.news.say(StarterReport(words=words, hint=hint, nodes=nodes))
