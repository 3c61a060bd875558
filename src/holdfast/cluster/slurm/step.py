"""The Slurm starter: one step of the job, `srun holdfast agent`, with an agent on each node.

It runs in a process of its own beside the owner. Slurm copies what srun reads to every task, so one order reaches all
agents. What workers print comes back through srun's own streams. srun's own lines on its standard error tell which
agent was killed and which node Slurm has given up; they are passed on like all others.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from holdfast.children import Child, start
from holdfast.clock import Clock
from holdfast.cluster.slurm.step_words import Failure, failure, is_noise, meaning, step_command, word_of_stepd
from holdfast.cluster.starting import News, Once, StarterSaid
from holdfast.reactor import Moment, Reactor, Watch

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Before each further step for nodes that lack an agent; after the last one they are left out."""
AWAY_S = 600.0
"""How long Slurm's controller may be away before they are: another one takes over after minutes."""
WELL_S = 60.0
"""A step that held this long was well: the tries begin anew."""
LAST_S = 5.0
"""How long the agents may take to send what their workers have printed last, once the job is over."""
_BLOCK = 64 * 1024
_MOST_LINE = 4096
_LINES = 16
_HOLD_S = 0.5
"""How long a line of srun's waits for those that explain it: where srun ends meanwhile, one sentence says why."""
_OWN = (b"srun: ", b"slurmstepd-")


class Steps(msgspec.Struct, frozen=True):
    """What the steps of a job have in common. `order(address, port)`: what each agent is sent, with a line end."""

    job: str
    nodes: tuple[str, ...]
    order: Callable[[str, int], bytes]
    environment: Mapping[str, str]
    python: str
    output: int
    """Where what workers print goes."""


class Srun:
    """A `Starter`. It is made in the guard; what is called runs in a process of its own."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._once = Once()
        self._news = News()
        self.news_fd = self._news.reader

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Have an agent on each node and keep it there; 0 when the job is over, or the last step has ended."""
        if not self._once.first():
            # The agents go on, and what srun starts now waits beside each until it has ended.
            words = "what the workers print is not shown any more: the process that started the agents was killed"
            self._news.say(StarterSaid(words=words, hint="holdfast logs JOB --rank 0 -f"))
        return _Keeper(self._steps, self._steps.order(address, port), self._news).keep(guard_fd)


class _Keeper:
    """All steps of a job, while it runs."""

    def __init__(self, steps: Steps, order: bytes, news: News) -> None:
        self.steps = steps
        self.order = order
        self.news = news
        self.reactor = Reactor(Clock().now)
        self._running: list[_Step] = []
        self._again: Moment | None = None
        self._lacking: set[str] = set()
        self._out: set[str] = set()
        """Nodes that get no further agent."""
        self._failed = 0
        self._failing_since: float | None = None
        self._last_words = ""
        self.stepd: dict[str, str] = {}
        """What Slurm said last of the task on a node."""
        self._telling = 0
        """So many ends of agents are still to be told."""
        self._over = self._left = False

    def keep(self, guard_fd: int) -> int:
        """Until every step has ended and none is due, or `guard_fd` has."""
        self.reactor.watch(guard_fd, self._word)
        self._begin(())
        while not self._left and (self._running or self._telling or self._again is not None):
            self.reactor.wait()
        for step in self._running:
            step.close()
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
        step = _Step(self, only)
        if step.begin(self.reactor.now()):
            self._running.append(step)

    def told(self, line: str) -> bool:
        """A line of srun's own. Whether it is shown."""
        said = meaning(line)
        if said is None:
            return not is_noise(line)
        if self._over:
            return said.lost
        mine = [node for node in said.nodes if node in self.steps.nodes and node not in self._out]
        if said.lost:
            self._out.update(mine)
            words = f"Slurm: {line.partition('error: ')[2]}"
            self.news.say(
                StarterSaid(words=words, hint=f"scontrol show node {','.join(mine)}", nodes=tuple(mine), lost=True)
            )
            return False
        if said.killed:
            self._lacking.update(mine)
        elif mine:
            self._out.update(mine)
            self._telling += 1
            self.reactor.at(self.reactor.now() + _HOLD_S, partial(self._ended_alone, mine, said.words))
        if self._lacking:
            self._try_again(None, self.reactor.now())
        return False

    def _ended_alone(self, nodes: list[str], how: str, now: float) -> None:
        """The agents there have said why, or Slurm has, a moment later: another one would end the same way."""
        self._telling -= 1
        if self._over:
            return
        why = next((self.stepd[node] for node in nodes if node in self.stepd), "")
        words = f"{', '.join(nodes)}: the agent {f'did not start: {why}' if why else f'has ended: {how}'}"
        try_it = f"srun --jobid={self.steps.job} --overlap -N1 -n1 -w {nodes[0]} {self.steps.python} -P -m holdfast"
        self.news.say(StarterSaid(words=words, hint=f"{try_it} --version", nodes=tuple(nodes)))

    def ended(self, step: _Step, status: int | None, lines: list[str], lasted_s: float) -> None:
        """A step has ended: its agents have, or it had none."""
        self._running.remove(step)
        if self._over or status == 0:
            return
        now = self.reactor.now()
        if lasted_s >= WELL_S:
            self._failed, self._failing_since = 0, None
        if step.told_of_tasks and status is not None and status >= 0:
            return  # each task has its own word
        nodes = [node for node in step.only or self.steps.nodes if node not in self._out]
        self._lacking.update(nodes)
        if status is None or status < 0:
            by = "" if status is None else f" by {signal.Signals(-status).name}"
            what = f"srun was ended{by}: what the workers of agents that go on print is not shown any more"
            self._try_again(Failure(words=what, hint=f"scontrol show step {self.steps.job}"), now)
        else:
            self._try_again(failure(lines, self.steps.job, status), now)

    def _try_again(self, why: Failure | None, now: float) -> None:
        """Another step for the nodes that lack an agent. `why`: None: their agents were killed."""
        if self._again is not None:
            return
        self._failing_since = self._failing_since or now
        tried = self._failed
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
            self.news.say(StarterSaid(words=f"{why.words}; srun is tried again", hint=why.hint))
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
        self.news.say(StarterSaid(words=words, hint=hint, nodes=nodes))


class _Step:
    """One srun."""

    def __init__(self, keeper: _Keeper, only: tuple[str, ...]) -> None:
        self._keeper = keeper
        self.only = only
        """Some nodes of the job; empty: all."""
        self.told_of_tasks = False
        self._lines: list[str] = []
        self._line = bytearray()
        self._passing = False
        """The rest of a line is not srun's own."""
        self._held = bytearray()
        self._flush: Moment | None = None
        self._child: Child | None = None
        self._writer = -1
        self._unsent = keeper.order
        self._watches: list[Watch] = []
        self._since = 0.0

    def begin(self, now: float) -> bool:
        """Start srun, and give it the order."""
        keeper, steps = self._keeper, self._keeper.steps
        self._since = now
        command = step_command(steps.job, len(self.only or steps.nodes), steps.python, only=self.only)
        reader, self._writer = os.pipe()
        self._errors, errors = os.pipe()
        try:
            self._child = start(command, output=steps.output, errors=errors, given=reader, env=steps.environment)
        except OSError as error:
            for fd in (self._writer, self._errors):
                os.close(fd)
            words = f"srun cannot be run: {error.strerror}"
            keeper.news.say(StarterSaid(words=words, hint="which srun", nodes=self.only or steps.nodes))
            return False
        finally:
            os.close(reader)
            os.close(errors)
        os.set_blocking(self._writer, False)
        self._sending: Watch | None = keeper.reactor.watch(self._writer, self._send, writable=True)
        self._reading = keeper.reactor.watch(self._errors, self._read)
        keeper.reactor.watch(self._child.pidfd, self._ended)
        return True

    def _send(self, fd: int, now: float) -> None:
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # srun has ended, which its pidfd tells
        if not self._unsent and self._sending is not None:
            self._sending.close()
            self._sending = None

    def _read(self, fd: int, now: float) -> None:
        data = os.read(fd, _BLOCK)
        if not data:
            self._reading.close()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass on what came; a line of srun's own is looked at first."""
        shown = bytearray()
        *ended, rest = data.split(b"\n")
        for part in (*(line + b"\n" for line in ended), rest):
            if self._passing:
                shown += part
                self._passing = not part.endswith(b"\n")
                continue
            self._line += part
            if any(own.startswith(self._line[: len(own)]) for own in _OWN):
                if part.endswith(b"\n") or len(self._line) > _MOST_LINE:
                    self._line_of_srun()
            else:
                shown += self._line
                self._passing = not part.endswith(b"\n")
                self._line.clear()
        _write(bytes(shown))

    def _line_of_srun(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        text = line.decode("utf-8", "replace").rstrip("\n")
        if (word := word_of_stepd(text)) is not None:
            if word[0] in self._keeper.steps.nodes:
                self._keeper.stepd[word[0]] = word[1]
            _write(line)
            return
        self._lines = [*self._lines[1 - _LINES :], text]
        self.told_of_tasks = self.told_of_tasks or meaning(text) is not None
        if self._keeper.told(text):
            self._held += line
            if self._flush is None:
                self._flush = self._keeper.reactor.at(self._keeper.reactor.now() + _HOLD_S, self._show)

    def _show(self, now: float) -> None:
        self._flush = None
        _write(bytes(self._held))
        self._held.clear()

    def _ended(self, fd: int, now: float) -> None:
        assert self._child is not None, "it was watched"
        self._keeper.reactor.forget(fd)
        # What the pipe still holds was written before the end; what srun has left behind may keep it open.
        os.set_blocking(self._errors, False)
        try:
            while data := os.read(self._errors, _BLOCK):
                self._take(data)
        except BlockingIOError:
            pass  # all that there is
        _write(bytes(self._line))
        if self._flush is not None:
            self._flush.close()
        if self.told_of_tasks:
            self._show(now)
        status = self._child.reap()
        self._child = None
        self._close_pipes()
        self._keeper.ended(self, status, self._lines, now - self._since)

    def hang_up(self) -> None:
        """The job is over: an agent that has not begun will not."""
        if self._sending is not None:
            self._sending.close()
            self._sending = None
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def _close_pipes(self) -> None:
        self.hang_up()
        self._reading.close()
        os.close(self._errors)

    def close(self) -> None:
        """The job is over, or this process is to end."""
        if self._child is not None:
            self._keeper.reactor.forget(self._child.pidfd)
            self._child.end()
            self._child = None
            self._close_pipes()


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # there is no reader any more
