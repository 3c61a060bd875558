"""Start the agents of a job through ssh: run `ssh HOST holdfast agent` for every other host, and watch these processes.

The starter is a process of its own beside the owner. Each ssh gets the settings for its host on standard input, which
stays open. At end of file the agent knows that this process has exited, or that the network is down. Workers' output
comes back through ssh's output, which is the output of this process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.children import Child, start
from holdfast.clock import Clock
from holdfast.errors import BadUsage
from holdfast.platforms.ssh.host_lists import ListedHost
from holdfast.platforms.ssh.ssh_command import OF_SSH, HostLook, host_check_command, start_command, trouble
from holdfast.reactor import DescriptorWatch, DueCall, Reactor
from holdfast.safe_files import read_file
from holdfast.safe_text import one_line
from holdfast.wire.starter_reports import FirstToken

#: Time limit for the check of one host, including its login shell, in seconds.
CHECK_S = 60.0
#: Maximum number of connections that are opened at the same time. sshd drops some of a larger burst (MaxStartups).
AT_ONCE = 64
#: Pauses before the successive retries of a host, in seconds. After the last retry the host gets no agent.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: A connection that lasts this many seconds resets the count of retries.
HEALTHY_S = 60.0
#: How long the hosts may take to send their workers' last output after the job's end, in seconds.
LAST_S = 5.0
_TAIL = 64 * 1024
_MOST_TOLD = 10
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class HostOrder:
    """The settings that all hosts share, and the function that makes the settings for each host's agent."""

    def __init__(
        self,
        ssh: Sequence[str],
        listed: Sequence[tuple[int, ListedHost]],
        order: Callable[[ListedHost, int, str, int], bytes],
        *,
        directory: str,
        python: str,
        output: int,
        say: Callable[[str], None],
    ) -> None:
        """Collect the settings.

        `ssh`: words of the ssh command.
        `listed`: the hosts to reach, each with its rank.
        `order(host, rank, address, port)`: returns the settings for one host's agent, as a line of bytes. `address` and
            `port` are the owner's.
        `directory`, `python`: paths of the working directory and of Python, the same on every host.
        `output`: descriptor for the workers' output.
        `say`: prints a message.
        """
        self.ssh = tuple(ssh)
        self.listed = tuple(listed)
        self.order = order
        self.directory = directory
        self.python = python
        self.output = output
        self.say = say


# -------------------------------------------------------------------------------------- checking hosts before the start


def look_at(
    sent: HostOrder, paths: Sequence[str], version: str, may_lack: int, guard_fd: int | None = None
) -> tuple[str, ...]:
    """Check every host before anything starts. Return a sentence for each host with trouble.

    `sent`: the hosts and their settings.
    `paths`: further paths that must exist on every host.
    `version`: holdfast's version, which every host must have.
    `may_lack`: how many hosts the job can do without.
    `guard_fd`: descriptor on which the guard reports signals.
    Raises `BadUsage` if more hosts than `may_lack` have trouble, and KeyboardInterrupt at a signal that ends the run.
    """
    looks = _Looks(sent, paths).all(guard_fd)
    wrong = []
    for look in looks:
        found = trouble(look, directory=sent.directory, python=sent.python, version=version, ssh=" ".join(sent.ssh))
        if found is not None:
            wrong.append((look.host, *found))
    if len(wrong) <= may_lack:
        return tuple(f"{words}: the job can begin without it" for _, words, _ in wrong)
    told = [words for _, words, _ in wrong[:_MOST_TOLD]]
    more = [f"and {len(wrong) - _MOST_TOLD} further hosts"] if len(wrong) > _MOST_TOLD else []
    raise BadUsage("\n  ".join([*told, *more]), hint=wrong[0][2])


class _Looks:
    """Checks all hosts, at most `AT_ONCE` at a time."""

    def __init__(self, sent: HostOrder, paths: Sequence[str]) -> None:
        self._sent = sent
        self._paths = paths
        self._reactor = Reactor(Clock().now)
        self._waiting = [listed for _, listed in sent.listed]
        self._running: set[_Look] = set()
        self._found: dict[str, HostLook] = {}

    def all(self, guard_fd: int | None) -> list[HostLook]:
        """Check all hosts. Return one result per host, in the order of the list."""
        if guard_fd is not None:
            self._reactor.watch(guard_fd, _interrupted)
        order = [listed.host for listed in self._waiting]
        self._waiting.reverse()
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < AT_ONCE:
                    host = self._waiting.pop().host
                    words = host_check_command(
                        self._sent.ssh, host, self._sent.directory, self._sent.python, self._paths
                    )
                    self._running.add(_Look(host, words, self._reactor, self._over))
                self._reactor.wait()
        finally:
            for look in self._running:
                look.end()
            self._reactor.close()
        return [self._found[host] for host in order]

    def _over(self, look: _Look, found: HostLook) -> None:
        self._running.discard(look)
        self._found[look.host] = found


def _interrupted(fd: int, now: float) -> None:
    """Raise KeyboardInterrupt at a signal that ends the run.

    No worker runs yet, so the signal is meant for this process.
    """
    word = os.read(fd, 2)
    if not word or word[0] in _ENDS:
        raise KeyboardInterrupt


class _Look:
    """One ssh process that checks one host."""

    def __init__(
        self, host: str, words: Sequence[str], reactor: Reactor, over: Callable[[_Look, HostLook], None]
    ) -> None:
        """`words`: command line of ssh. `over`: called with the result. Raises `BadUsage` if ssh cannot be started."""
        self.host = host
        self._over = over
        self._texts: dict[int, bytearray] = {}
        self._watches: list[DescriptorWatch] = []
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            self._child = start(words, output=out_end, errors=err_end)
        except OSError as error:
            for fd in (out, err):
                os.close(fd)
            raise BadUsage(
                f"{words[0]} cannot be run: {error.strerror}: expected OpenSSH's client, or another one with --ssh",
                hint="apt-get install openssh-client; or holdfast run --ssh /path/to/ssh …",
            ) from None
        finally:
            os.close(out_end)
            os.close(err_end)
        for fd in (out, err):
            self._texts[fd] = bytearray()
            self._watches.append(reactor.watch(fd, self._read))
        self._watches.append(reactor.watch(self._child.pidfd, self._ended))
        self._limit = reactor.at(reactor.now() + CHECK_S, lambda now: self._child.kill())

    def _read(self, fd: int, now: float) -> None:
        data = os.read(fd, _TAIL)
        kept = self._texts[fd]
        kept += data
        del kept[:-_TAIL]
        if not data:
            next(watch for watch in self._watches if watch.fd == fd).close()

    def _ended(self, fd: int, now: float) -> None:
        """Handle ssh's exit: read the rest of its output, and report the result."""
        # Do not block: a process that ssh has left behind may keep the pipes open.
        for pipe in self._texts:
            os.set_blocking(pipe, False)
            try:
                while data := os.read(pipe, _TAIL):
                    self._texts[pipe] += data
            except BlockingIOError:
                pass  # the pipe is empty
        status = self._close(self._child.reap)
        out, err = (bytes(text[-_TAIL:]).decode("utf-8", "replace") for text in self._texts.values())
        self._over(self, HostLook(host=self.host, status=OF_SSH if status is None else status, out=out, err=err))

    def end(self) -> None:
        """Kill ssh and stop waiting for the host."""
        self._close(self._child.end)

    def _close(self, done: Callable[[], int | None]) -> int | None:
        self._limit.close()
        for watch in self._watches:
            watch.close()
        status = done()
        for fd in self._texts:
            os.close(fd)
        return status


# ---------------------------------------------------------------------------------- connections while the job runs


class SshStarter:
    """Starts the agents through ssh. The guard creates the object, and `__call__` runs in a process of its own.

    `sent`: the hosts and their settings.
    """

    news_fd = -1

    def __init__(self, sent: HostOrder) -> None:
        self._sent = sent
        self._once = FirstToken()

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Start an agent on each host, and reconnect if needed.

        Return 0 when the job or the last host's agent has ended.
        """
        if not self._once.first():
            # The first starter process has died while its agents still run, so this process must not start more.
            self._sent.say("the output of workers on other hosts is not shown any more: the ssh starter was killed")
            os.read(guard_fd, 1)
            return 0
        import tempfile  # imported late: the import loads three compression modules, which agents do not need

        with tempfile.TemporaryDirectory(prefix="holdfast-ssh-", ignore_cleanup_errors=True) as place:
            return _Hosts(self._sent, address, port, Path(place)).keep(guard_fd)


class _Hosts:
    """Keeps one ssh connection to each host of a job, while the job runs."""

    def __init__(self, sent: HostOrder, address: str, port: int, place: Path) -> None:
        """`sent`: the hosts and their settings. `address`, `port`: address and port of the owner.

        `place`: path of a folder for ssh's log files.
        """
        self.sent = sent
        self.reactor = Reactor(Clock().now)
        self.place = place
        #: Whether the job has ended. Then an ssh that exits is not restarted.
        self.over = False
        self._left = False
        self._hosts = [
            _Host(self, listed, rank, sent.order(listed, rank, address, port)) for rank, listed in sent.listed
        ]
        #: Hosts that wait for their first connection. The last one is started first.
        self._queue: list[_Host] = list(reversed(self._hosts))
        #: Hosts whose ssh has not read its settings yet.
        self._beginning: set[_Host] = set()

    def keep(self, guard_fd: int) -> int:
        """Run until every host's agent has ended, or until `guard_fd` reports the job's end."""
        self._guard = self.reactor.watch(guard_fd, self._word)
        self._begin_some()
        while not self._left and any(host.open for host in self._hosts):
            self.reactor.wait()
        for host in self._hosts:
            host.close()
        self.reactor.close()
        return 0

    def _word(self, fd: int, now: float) -> None:
        """Handle a message from the guard.

        Zero bytes mean that the job has ended. End of file means that the guard has exited.
        """
        # Bytes that are not zero are numbers of signals. Nothing is done for them here: the owner stops the job, and
        # then the agents exit by themselves.
        word = os.read(fd, 128)
        if word and any(word):
            return
        self.over = True
        if not word:
            self._leave(now)
        self.reactor.at(now + LAST_S, self._leave)
        for host in self._hosts:
            host.last()

    def _leave(self, now: float) -> None:
        self._left = True

    def _begin_some(self) -> None:
        while self._queue and len(self._beginning) < AT_ONCE:
            host = self._queue.pop()
            self._beginning.add(host)
            host.begin(self.reactor.now())

    def begun(self, host: _Host) -> None:
        """Start the next host, because this one has read its settings or has ended."""
        self._beginning.discard(host)
        self._begin_some()


class _Host:
    """One host, with its ssh process and its retries."""

    def __init__(self, hosts: _Hosts, listed: ListedHost, rank: int, order: bytes) -> None:
        """`rank`: index of the host in the list. `order`: the agent's order, as bytes for ssh's standard input."""
        self._hosts = hosts
        self._sent = hosts.sent
        self._host = listed.host
        self._order = order
        self._log = hosts.place / f"{rank}.log"
        self._child: Child | None = None
        self._writer = -1
        self._unsent = b""
        self._watch: DescriptorWatch | None = None
        self._again: DueCall | None = None
        #: How many connections to the host have failed in a row.
        self._failed = 0
        #: Start of the current connection, in seconds on the reactor's clock.
        self._since = 0.0
        #: Whether the host has an agent, or will get one.
        self.open = True

    def begin(self, now: float) -> None:
        """Start ssh and send it the agent's order."""
        self._again = None
        self._since = now
        sent = self._sent
        # ssh writes its own messages to a file, so that its output streams contain only the host's output.
        words = start_command((*sent.ssh, "-E", str(self._log)), self._host, sent.directory, sent.python)
        reader, self._writer = os.pipe()
        try:
            self._child = start(words, output=sent.output, errors=2, given=reader)
        except OSError as error:
            os.close(self._writer)
            sent.say(f"{self._host}: {words[0]} cannot be run: {error.strerror}: the host is left out")
            self.open = False
            self._hosts.begun(self)
            return
        finally:
            os.close(reader)
        os.set_blocking(self._writer, False)
        self._unsent = self._order
        self._watch = self._hosts.reactor.watch(self._writer, self._write, writable=True)
        self._hosts.reactor.watch(self._child.pidfd, self._ended)

    def _write(self, fd: int, now: float) -> None:
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # ssh has exited, and `_ended` handles the exit
        if not self._unsent and self._watch is not None:
            self._watch.close()
            self._hosts.begun(self)

    def _ended(self, fd: int, now: float) -> None:
        """Handle ssh's exit: retry, unless the agent exited by itself or no retry is left."""
        assert self._child is not None, "it was watched"
        self._hosts.reactor.forget(fd)
        status = self._child.reap()
        self._child = None
        self._hang_up()
        self._hosts.begun(self)
        if self._hosts.over or (status is not None and 0 <= status < OF_SSH):
            self.open = False  # the agent exited by itself, at the job's end or after it printed an error
            return
        if now - self._since >= HEALTHY_S:
            self._failed = 0
        if self._failed == len(PAUSES_S):
            self._sent.say(f"{self._host}: ssh failed {self._failed + 1} times in a row: the host is left out")
            self.open = False
            return
        pause_s = PAUSES_S[self._failed]
        self._failed += 1
        self._sent.say(f"{self._host}: the connection of ssh has ended: {self._words()}; again in {pause_s:g} s")
        self._again = self._hosts.reactor.at(now + pause_s, self.begin)

    def _words(self) -> str:
        try:
            lines = read_file(self._log, _TAIL, cut=True).decode("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        said = [line.strip() for line in lines if line.strip()]
        self._log.unlink(missing_ok=True)
        return one_line(said[-1])[:300].rstrip(". ") if said else "it said nothing"

    def _hang_up(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def last(self) -> None:
        """Stop retrying and close standard input, because the job has ended.

        Agents that have not started will then never start.
        """
        self._hang_up()
        if self._child is None:
            self.open = False

    def close(self) -> None:
        """Kill ssh, because the job has ended or this process exits. The agent then reads the end of its input."""
        if self._again is not None:
            self._again.close()
        self._hang_up()
        if self._child is not None:
            self._hosts.reactor.forget(self._child.pidfd)
            self._child.end()
            self._child = None
