"""Run Slurm commands as child processes, so that the owner never blocks on slurmctld.

    SlurmCommands(reactor).ask(["scontrol", "show", "job", "42"], done)     calls done(answer, now) → events

A command is killed at its time limit. While slurmctld does not answer, the command is retried with a doubling pause
until `patience_s` has passed. Output beyond `OUTPUT_BYTES` is dropped.
"""

from __future__ import annotations

import enum
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.children import start
from holdfast.model.noun_base import Noun
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.reactor import DescriptorWatch, DueCall, News, Reactor

    Done = Callable[["CommandOutput", float], News]

#: Time limit of one try, in seconds. A Slurm command itself may try for MessageTimeout (10 s by default) or longer.
LIMIT_S = 5.0
FIRST_PAUSE_S = 0.5
#: Longest pause between two tries while slurmctld does not answer, in seconds.
LONGEST_PAUSE_S = 10.0
#: How many tries may be killed by a signal from outside before the command counts as failed.
MOST_KILLED = 3
#: Maximum size of a command's output and of its errors, in bytes. The rest is dropped. A job takes about 1 KiB.
OUTPUT_BYTES = 4 << 20

_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_OF_SLURM = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SCONTROL_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")
_FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/opt/slurm/bin",
    "/opt/slurm/current/bin",
    "/cm/shared/apps/slurm/current/bin",
)
_AWAY = (
    "unable to contact slurm controller",
    "unable to connect to slurm daemon",
    "unable to establish controller machine",
    "socket timed out",
    "connection refused",
    "connect failure",
    "communication connection failure",
    "slurm backup controller in standby",
    "communications connection failure",
    "unexpected message received",
    "zero bytes were transmitted",
)
_MUNGE = ("munge", "protocol authentication error", "invalid authentication credential", "authentication plugin")
_UNKNOWN = ("invalid job id", "invalid node name", "not found", "unknown node")
_REFUSED = ("access/permission denied", "invalid user id", "permission denied", "not permitted", "access denied")
_LATE = ("already finished", "already completing", "job is pending execution", "transition")


class CommandTrouble(enum.StrEnum):
    """Why a Slurm command failed."""

    NONE = "none"
    #: The Slurm command is not installed.
    MISSING = "missing"
    #: slurmctld does not answer.
    AWAY = "away"
    #: The command reached its time limit.
    SLOW = "slow"
    #: munge failed, so the node cannot prove the user's identity to slurmctld.
    MUNGE = "munge"
    #: Slurm does not permit the command to this user.
    REFUSED = "refused"
    #: Slurm does not know the job or node, or has already deleted its record.
    UNKNOWN = "unknown"
    #: The command came too late for the job's state.
    LATE = "late"
    #: Any other failure of a command.
    FAILED = "failed"


#: Kinds of failure that may go away if the command is repeated later.
TEMPORARY = frozenset({CommandTrouble.AWAY, CommandTrouble.SLOW})


class CommandOutput(Noun, frozen=True, kw_only=True):
    """The output of a command, and the reason if it failed."""

    #: The command line.
    words: tuple[str, ...]
    out: str = ""
    err: str = ""
    #: Exit status, or minus the signal number. None: the command did not start, or reached its time limit.
    status: int | None = None
    trouble: CommandTrouble = CommandTrouble.NONE
    #: The failure as a clause for a message, such as "slurmctld does not answer (…)".
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.trouble is CommandTrouble.NONE

    @property
    def unknown(self) -> bool:
        """Whether Slurm does not know the job or node."""
        return self.trouble is CommandTrouble.UNKNOWN

    @property
    def command(self) -> str:
        """The command line as a person would type it."""
        return shlex.join(self.words)


class SlurmCommands:
    """Runs Slurm commands for one process. Several commands may run at the same time."""

    def __init__(self, reactor: Reactor, environment: Mapping[str, str] = os.environ) -> None:
        self.reactor = reactor
        self.environment = scrubbed(environment)
        self._running: set[_OpenCommand] = set()

    def ask(
        self, words: Sequence[str], done: Done, *, limit_s: float = LIMIT_S, patience_s: float = 0.0
    ) -> Callable[[], None]:
        """Run a command. Return a function that cancels the command.

        `done`: called once, by the reactor, with the output.
        `limit_s`: time limit of one try.
        `patience_s`: how long to retry while slurmctld does not answer.
        `words`: the command line.
        """
        question = _OpenCommand(self, tuple(words), done, limit_s, self.reactor.now() + patience_s, self._running)
        self._running.add(question)
        question.begin(self.reactor.now())
        return question.close

    def close(self) -> None:
        """Kill the commands that still run, without calling their `done`."""
        for question in tuple(self._running):
            question.close()


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Slurm commands, without variables that change their actions or output."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_OF_SLURM)}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def program(name: str, environment: Mapping[str, str]) -> str:
    """Return the path of a Slurm command, from PATH or else from the usual folders. Return its name if none has it."""
    if "/" in name:
        return name
    folders = [folder for folder in environment.get("PATH", "").split(":") if folder]
    for folder in (*folders, *_FOLDERS):
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK):
            return path
    return name


def meant(words: Sequence[str], status: int | None, err: str, limit_s: float) -> tuple[CommandTrouble, str]:
    """Classify and describe the exit of a Slurm command. Return the kind of failure, and a clause for messages.

    `words`: the command line. `status`: None if the command was killed after `limit_s` seconds.
    `err`: what the command printed about its failure.
    """
    last = one_line(next((line for line in reversed(err.splitlines()) if line.strip()), "").strip())[:300]
    lower, name = err.lower(), words[0].rpartition("/")[2]
    quoted = f" ({last})" if last else ""
    if status is None:
        return CommandTrouble.SLOW, f"slurmctld has not answered `{name}` within {limit_s:g} s{quoted}"
    if status == 0:
        return CommandTrouble.NONE, ""
    table = (
        (_MUNGE, CommandTrouble.MUNGE),
        (_AWAY, CommandTrouble.AWAY),
        (_REFUSED, CommandTrouble.REFUSED),
        (_UNKNOWN, CommandTrouble.UNKNOWN),
    )
    for patterns, trouble in (*table, (_LATE, CommandTrouble.LATE)):
        if any(pattern in lower for pattern in patterns):
            return trouble, f"{_SAID[trouble]}{quoted}"
    ended = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    return CommandTrouble.FAILED, f"`{shlex.join(words)}` ended with {ended}{quoted}"


_SAID = {
    CommandTrouble.MUNGE: "munge does not work on this node",
    CommandTrouble.AWAY: "slurmctld does not answer",
    CommandTrouble.REFUSED: "Slurm does not allow it to this user",
    CommandTrouble.UNKNOWN: "Slurm does not know it",
    CommandTrouble.LATE: "Slurm cannot do that any more",
}


class _OpenCommand:
    """One Slurm command, with its retries."""

    def __init__(
        self,
        asking: SlurmCommands,
        words: tuple[str, ...],
        done: Done,
        limit_s: float,
        until: float,
        running: set[_OpenCommand],
    ) -> None:
        """Prepare the command. `begin` starts it.

        `done`: called once, with the output.
        `limit_s`: time limit of one try.
        `until`: end of the retries, in seconds on the reactor's clock.
        `running`: the set of unfinished commands, from which this command removes itself.
        """
        self._asking = asking
        self._reactor = asking.reactor
        self._words = words
        self._done = done
        self._limit_s = limit_s
        self._until = until
        self._pause_s = FIRST_PAUSE_S
        self._killed = 0
        self._running = running
        self._try: _Try | None = None
        self._moment: DueCall | None = None

    def begin(self, now: float) -> News:
        """Start a try of the command."""
        self._moment = None
        try:
            self._try = _Try(self._asking, self._words, self._ended)
        except FileNotFoundError:
            # Report the failure from the reactor, because the caller has not returned from `ask` yet.
            self._moment = self._reactor.at(now, self._missing)
        except OSError as error:
            self._why = f"`{self._words[0]}` cannot be run: {error.strerror}"
            self._moment = self._reactor.at(now, self._not_run)
        else:
            self._moment = self._reactor.at(now + self._limit_s, self._slow)
        return None

    def close(self) -> None:
        if self._moment is not None:
            self._moment.close()
            self._moment = None
        if self._try is not None:
            self._try.abandon()
            self._try = None
        self._running.discard(self)

    def _missing(self, now: float) -> News:
        said = f"`{self._words[0]}` is not on this node (looked in PATH, {', '.join(_FOLDERS)})"
        return self._answer(CommandOutput(words=self._words, trouble=CommandTrouble.MISSING, said=said), now)

    def _not_run(self, now: float) -> News:
        return self._answer(CommandOutput(words=self._words, trouble=CommandTrouble.FAILED, said=self._why), now)

    def _slow(self, now: float) -> News:
        assert self._try is not None, "its time is set with it"
        out, err = self._try.printed()
        self._try.abandon()
        return self._found(None, out, err, now)

    def _ended(self, status: int | None, out: str, err: str, now: float) -> News:
        if self._moment is not None:
            self._moment.close()
        return self._found(1 if status is None else status, out, err, now)

    def _found(self, status: int | None, out: str, err: str, now: float) -> News:
        """Handle the end of a try: retry the command, or answer. `status` None: the try reached its time limit."""
        self._try = self._moment = None
        if status is not None and status < 0:
            # Without cgroups, a signal that Slurm sends to a step also reaches Slurm commands that run in the step.
            self._killed += 1
            if self._killed < MOST_KILLED:
                return self.begin(now)
        # scontrol prints `Node n9 not found` to standard output, but other errors to standard error.
        spoken = err if err.strip() or status is None else out
        trouble, said = meant(self._words, status, spoken, self._limit_s)
        if trouble in TEMPORARY and now + self._pause_s < self._until:
            self._moment = self._reactor.at(now + self._pause_s, self.begin)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return None
        return self._answer(
            CommandOutput(words=self._words, out=out, err=err, status=status, trouble=trouble, said=said), now
        )

    def _answer(self, answer: CommandOutput, now: float) -> News:
        self._running.discard(self)
        return self._done(answer, now)


class _Try:
    """One process of a command, with its output. The constructor raises OSError if the process cannot be started."""

    def __init__(
        self, asking: SlurmCommands, words: Sequence[str], ended: Callable[[int | None, str, str, float], News]
    ) -> None:
        self._reactor = asking.reactor
        self._ended = ended
        self._streams: dict[int, bytearray] = {}
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            out_in, out_out, err_in, err_out = pipes
            command = [program(words[0], asking.environment), *words[1:]]
            # Ignore SIGTERM, which Slurm may send to every process of the step, so that the answer is not lost.
            child = start(command, output=out_out, errors=err_out, env=asking.environment, deaf=(signal.SIGTERM,))
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        self._child = child
        os.close(out_out)
        os.close(err_out)
        self._out, self._err = out_in, err_in
        self._watches: list[DescriptorWatch] = []
        for fd in (out_in, err_in):
            os.set_blocking(fd, False)
            self._streams[fd] = bytearray()
            self._watches.append(self._reactor.watch(fd, self._readable))
        self._watch = self._reactor.watch(child.pidfd, self._over)

    def printed(self) -> tuple[str, str]:
        """Return standard output and standard error so far."""
        return self._streams[self._out].decode(errors="replace"), self._streams[self._err].decode(errors="replace")

    def abandon(self) -> None:
        """Kill the process. The reactor reaps it later."""
        self._release()
        self._ended = _no_matter
        self._child.kill()

    def _readable(self, fd: int, now: float) -> News:
        if not self._read(fd):
            self._reactor.forget(fd)
        return None

    def _read(self, fd: int) -> bool:
        """Read the available data. Return False at the end of the stream."""
        kept = self._streams[fd]
        for _ in range(64):  # limited, so that other events are not delayed
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            kept += data[: OUTPUT_BYTES - len(kept)]
        return True

    def _over(self, fd: int, now: float) -> News:
        self._watch.close()
        for each in (self._out, self._err):
            if self._watches:
                self._read(each)
        self._release()
        status = self._child.reap()
        return self._ended(status, *self.printed(), now)

    def _release(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
            os.close(watch.fd)


def _no_matter(status: int | None, out: str, err: str, now: float) -> News:
    return None
