"""Start the agents of a Slurm job through one step, `srun holdfast agent`, with an agent on each node.

The starter is a process of its own beside the owner. Slurm copies srun's standard input to every task, so one line with
the settings reaches all agents. Workers' output comes back through srun's streams. Messages of srun on standard error
tell which agent was killed and which node Slurm has given up.
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

#: Pauses before the successive retries for nodes without an agent, in seconds. After the last retry these nodes get no
#: agent.
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: How long to retry while slurmctld does not answer, in seconds. A backup controller takes minutes to take over.
AWAY_S = 600.0
#: Agents that live this many seconds reset the count of retries. For failed steps the limit is `AWAY_S`.
HEALTHY_S = 60.0
#: How long to wait before a missing step becomes the reason for the job's end, in seconds. Until then the owner may
#: learn why Slurm ends the job.
ENDING_S = 20.0
#: srun's words about a task with exit status 1, which is always a failure of holdfast itself.
CRASHED = "Exited with exit code 1"
#: How long the agents may take to send their workers' last output after the job's end, in seconds.
LAST_S = 5.0


class SrunStarter:
    """Starts the agents through srun. The guard creates the object, and `__call__` runs in a process of its own.

    `steps`: the settings that all srun steps of the job share.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._once = FirstToken()
        self._news = StarterPipe()
        self.news_fd = self._news.reader

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Start an agent on each node, and replace agents that are killed.

        Return 0 when the job or the last step has ended.
        """
        if not self._once.first():
            # The first starter process has died. Its agents still run, and new agents wait until these exit.
            words = "the workers' output is not shown any more: the process that started the agents was killed"
            self._news.say(StarterReport(words=words, hint="holdfast logs JOB --rank 0 -f"))
        return _Keeper(self._steps, self._steps.order(address, port), self._news).keep(guard_fd)


class _Keeper:
    """Starts the srun steps of one job and observes them, while the job runs."""

    def __init__(self, steps: Steps, order: bytes, news: StarterPipe) -> None:
        """`steps`: the settings that all steps share.

        `order`: the agents' settings, as bytes for srun's standard input. `news`: the pipe for reports to the owner.
        """
        self.steps = steps
        self.order = order
        self.news = news
        self.reactor = Reactor(Clock().now)
        self._asking = SlurmCommands(self.reactor)
        #: Number of Slurm commands that still run.
        self._waiting = 0
        self._running: list[AgentStep] = []
        self._again: DueCall | None = None
        #: Nodes whose agent has to be started again.
        self._without_agent: set[str] = set()
        #: Nodes on which no agent is started any more.
        self._out: set[str] = set()
        #: How many steps have failed in a row.
        self._failed = 0
        self._failed_at = self._failing_since = 0.0
        self._last_words = ""
        #: Maps a node to slurmstepd's last message about its task.
        self._stepd: dict[str, str] = {}
        #: Number of agents whose exit has not been reported yet.
        self._telling = 0
        #: `_over`: whether the job has ended. `_left`: whether this process must exit now.
        self._over = self._left = False

    def keep(self, guard_fd: int) -> int:
        """Run until all steps have ended and no retry is due, or until `guard_fd` reports the job's end."""
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
        """Handle a message from the guard.

        Zero bytes mean that the job has ended. End of file means that the guard has exited.
        """
        # Ignore signals: the owner acts on them and stops the job, and then the agents exit by themselves.
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
            self._without_agent.update(only or self.steps.nodes)
            self._give_up(f"srun cannot be run: {error.strerror}", "which srun")
            return
        self._running.append(step)

    def stepd_said(self, node: str, words: str) -> None:
        """Store slurmstepd's message about the task on a node."""
        if node in self.steps.nodes:
            self._stepd[node] = words

    def told(self, line: str) -> bool:
        """Handle a line that srun printed. Return whether to show the line."""
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
            self._without_agent.update(mine)
        elif mine:
            self._telling += 1
            self.reactor.at(self.reactor.now() + HOLD_S, partial(self._ended_alone, mine, said.words))
        if self._without_agent:
            self._try_again(None, self.reactor.now())
        return False

    def _ended_alone(self, nodes: list[str], how: str, now: float) -> None:
        """Report that these agents have exited by themselves.

        Only agents that crashed are started again: others would exit again for the same reason. The report is delayed,
        so that the agents or Slurm can print the reason first.
        """
        self._telling -= 1
        if self._over:
            return
        if how == CRASHED and not any(node in self._stepd for node in nodes):
            words = f"{', '.join(nodes)}: the agent has ended (srun: {how})"
            self.news.say(StarterReport(words=words, hint=f"sacct -j {self.steps.job}", anew=tuple(nodes)))
            self._without_agent.update(nodes)
            self._try_again(None, now)
            return
        self._out.update(nodes)
        why = next((self._stepd[node] for node in nodes if node in self._stepd), "")
        words = f"{', '.join(nodes)}: the agent {f'did not start: {why}' if why else f'has ended: {how}'}"
        try_it = f"srun --jobid={self.steps.job} --overlap -N1 -n1 -w {nodes[0]} {self.steps.python} -P -m holdfast"
        self.news.say(StarterReport(words=words, hint=f"{try_it} --version", nodes=tuple(nodes)))

    def ended(self, step: AgentStep, status: int | None) -> None:
        """Handle the end of a step, whether it had agents or not. Retry if a retry may help."""
        self._running.remove(step)
        if self._over or status == 0:
            return
        now = self.reactor.now()
        if step.told_of_tasks and status is not None and status >= 0:
            return  # `told` has handled srun's message about each task
        self._without_agent.update(node for node in step.only or self.steps.nodes if node not in self._out)
        if status is None or status < 0:
            by = "" if status is None else f" by {signal.Signals(-status).name}"
            what = f"srun was ended{by}: the output of workers whose agents go on is not shown any more"
            self._try_again(StepFailure(words=what, hint=f"scontrol show step {self.steps.job}"), now)
            return
        why = failure(step.lines, self.steps.job, status)
        if why.nodes_unavailable:
            words = ("scontrol", "show", "job", self.steps.job)
            self._waiting += 1
            self._asking.ask(words, partial(self._nodes_now, why))
        else:
            self._try_again(why, now)

    def _nodes_now(self, why: StepFailure, answer: CommandOutput, now: float) -> None:
        """Read the job's nodes again, because Slurm could not create a step.

        Slurm may have removed some nodes from the job.
        """
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
        self._without_agent.difference_update(nodes)
        self.news.say(StarterReport(words=words, hint=f"scontrol show node {','.join(nodes)}", nodes=nodes, lost=True))

    def _try_again(self, why: StepFailure | None, now: float) -> None:
        """Schedule another step for the nodes without an agent.

        `why`: the last step's failure; None if the agents were killed.
        """
        if self._again is not None:
            return
        if self._failed and now - self._failed_at > (HEALTHY_S if why is None else AWAY_S):
            self._failed = 0
        if not self._failed:
            self._failing_since = now
        tried, self._failed_at = self._failed, now
        self._failed += 1
        if why is not None and why.ending:
            # Slurm also signals the owner, which then queries the reason. That answer explains more than this failure.
            self._again = self.reactor.at(now + ENDING_S, lambda now: self._ends(why))
            return
        late = why is not None and why.retry_may_help and now - self._failing_since < AWAY_S
        if (why is not None and why.final) or (tried >= len(PAUSES_S) and not late):
            times = f" ({tried + 1} times in a row)" if tried else ""
            lacking = ", ".join(sorted(self._without_agent))
            words = why.words if why is not None else f"the agents on {lacking} were killed or have crashed"
            self._give_up(f"{words}{times}", why.hint if why is not None else "")
            return
        pause_s = PAUSES_S[min(tried, len(PAUSES_S) - 1)]
        if why is not None and why.words != self._last_words:
            self._last_words = why.words
            self.news.say(StarterReport(words=f"{why.words}; srun is tried again", hint=why.hint))
        self._again = self.reactor.at(now + pause_s, self._due)

    def _ends(self, why: StepFailure) -> None:
        self._again = None
        self._give_up(why.words, why.hint)

    def _due(self, now: float) -> None:
        self._again = None
        nodes = tuple(node for node in self.steps.nodes if node in self._without_agent and node not in self._out)
        self._without_agent.clear()
        if nodes:
            self._begin(nodes if len(nodes) < len(self.steps.nodes) else ())

    def _give_up(self, words: str, hint: str) -> None:
        nodes = tuple(node for node in self.steps.nodes if node in self._without_agent)
        self._out.update(nodes)
        self._without_agent.clear()
        self.news.say(StarterReport(words=words, hint=hint, nodes=nodes))
