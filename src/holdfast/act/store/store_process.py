"""The supervisor's side of the store process, which is started on demand and outlives attempts.

The supervisor listens on an attempt's port before any worker exists, so no other process can take the port and no
worker finds it closed. It passes the listening socket to the store process, which needs some time to import torch.
Workers that connect early wait in the socket's queue. If the store process fails to start, the supervisor closes the
socket, and rank 0 hosts the store in later attempts. No call in this module blocks.
"""

from __future__ import annotations

import _socket  # used instead of `socket`, which creates enums of a hundred constants and so loads slowly
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.act.linux import how_ended
from holdfast.act.spawn import spawn
from holdfast.act.store.store_choice import CHOICE, Torch, opens_itself, speaks_of_torch, torch_in, torch_of
from holdfast.children import Child
from holdfast.model.job_spec import JobSpec

if TYPE_CHECKING:
    from holdfast.reactor import Reactor

#: Time limit for the start of the store process, in seconds.
UP_S = 60.0
#: After this many deaths of the store process in a job, rank 0 hosts the store instead.
MOST_LOSSES = 3
_SCRIPT = Path(__file__).with_name("store_server.py")
#: Number of connections that may wait for the store; the kernel may allow fewer (net.core.somaxconn).
_QUEUE = 65535
_LAST_WORDS = 2048


class Store:
    """Hosts the rendezvous store in a child process. No method blocks."""

    def __init__(
        self,
        spec: JobSpec,
        env: Mapping[str, str],
        cwd: Path,
        reactor: Reactor,
        processes: Callable[[], list[int]],
        say: Callable[[str], None],
    ) -> None:
        """Find the torch for the store. The store process starts later.

        `spec`: the job. `env`, `cwd`: the workers' environment and directory. `reactor`: waits for connections.
        `processes`: returns the pids of the job's processes. `say`: prints a message about the store.
        """
        self._env = env
        self._cwd = cwd
        self._reactor = reactor
        self._processes = processes
        self._say = say
        self._torch = _wanted(spec, env, cwd)
        self._off = self._torch is None
        #: Whether the store process starts together with the workers; otherwise it starts when the first worker
        #: connects.
        self._soon = any(speaks_of_torch(role.command, cwd) for role in spec.roles)
        self._attempt = 0
        self._port = 0
        #: The listening socket of the attempt's port, until the store process serves the port.
        self._listener: _socket.socket | None = None
        self._process: Child | None = None
        self._control: _socket.socket | None = None
        self._output = -1
        self._how = "core"
        self._is_up = False
        self._losses = 0
        self._due: float | None = None
        self._deadline: float | None = None
        self._troubles: dict[int, str] = {}

    # ------------------------------------------------------------------------ methods that other parts of the node call

    def hold(self, attempt: int, port: int) -> int | None:
        """Listen on a port for this attempt (0: any). Return the port; None if rank 0 hosts the store."""
        self._drop_listener()
        if self._off:
            return None
        try:
            listener = _listen(port)
        except OSError:
            return None  # hold no port, because it is in use; rank 0 gets the same error and reports it
        self._attempt, self._port, self._listener = attempt, listener.getsockname()[1], listener
        if self._process is not None:
            self._hand_over()
        elif self._soon:
            self._due = 0.0
        if self._process is None:
            self._reactor.watch(listener.fileno(), self._knocked)
        return self._port

    def trouble(self, attempt: int) -> str:
        """Return a sentence about a failure of the store in this attempt; "" if there was none."""
        return self._troubles.get(attempt, "")

    # ----------------------------------------------------------------------------------- methods that check time limits

    def next_wake(self) -> float | None:
        return self._deadline if self._due is None else self._due

    def tick(self, now: float) -> None:
        if self._due is not None:
            self._due = None
            if self._process is None and self._listener is not None and self._torch is not None:
                self._start(self._torch, now)
        elif self._deadline is not None and self._process is not None:
            self._deadline = None
            self._process.kill()
            self._ended(f"did not answer within {UP_S:g} s", now)

    def close(self) -> None:
        self._off = True
        self._drop_listener()
        if self._process is not None:
            self._forget()

    # ------------------------------------------------------------------- methods that start and end the store's process

    def _knocked(self, fd: int, now: float) -> None:
        """Handle the first connection. Start the store if a process with torch has connected; otherwise drop the
        connection.
        """
        found = next((torch for pid in self._processes() if (torch := torch_in(pid)) is not None), None)
        if found is not None:
            self._start(found, now)
            return
        # No process of the job has loaded torch, so this connection is not for the rendezvous store.
        assert self._listener is not None
        os.close(self._listener._accept()[0])  # type: ignore[attr-defined] # the public call would import `socket`

    def _start(self, torch: Torch, now: float) -> None:
        assert self._listener is not None
        self._torch = torch
        self._reactor.forget(self._listener.fileno())
        mine, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        null = os.open(os.devnull, os.O_RDONLY)
        output = os.memfd_create("store")
        command = (torch.python, "-I", "-S", str(_SCRIPT), str(theirs.fileno()), torch.package, self._how)
        env = {**self._env, "OMP_NUM_THREADS": "1"}
        try:
            os.set_inheritable(theirs.fileno(), True)
            process = spawn(
                command,
                env,
                cwd=Path("/"),
                stdin_fd=null,
                stdout_fd=output,
                stderr_fd=output,
                keep=(theirs.fileno(),),
                deaf=True,
            )
        except OSError as error:
            mine.close()
            os.close(output)
            self._give_up(f"the rendezvous store could not be started: {error.strerror}")
            return
        finally:
            theirs.close()
            os.close(null)
        os.write(process.go_fd, b"g")
        os.close(process.go_fd)
        os.close(process.status_fd)
        child = self._process = Child(process.pid, process.pidfd)
        self._control, self._output, self._is_up = mine, output, False
        self._deadline = now + UP_S
        self._reactor.watch(mine.fileno(), self._on_readable)
        self._reactor.watch(child.pidfd, self._died)
        self._hand_over()

    def _hand_over(self) -> None:
        assert self._control is not None and self._listener is not None
        fds = struct.pack("i", self._listener.fileno())
        try:
            self._control.sendmsg([str(self._port).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
        except OSError:
            pass  # ignore the error: the store process has died, and its pidfd reports that

    def _on_readable(self, fd: int, now: float) -> None:
        assert self._control is not None
        try:
            said = self._control.recv(64)
        except ConnectionResetError:
            said = b""  # the store process exited before it read the supervisor's message
        if not said:
            self._reactor.forget(fd)  # ignore the error: the store process is exiting, and its pidfd reports that
        elif said == b"up %d" % self._port:
            self._is_up, self._deadline = True, None
            self._soon = True
            self._drop_listener()

    def _died(self, fd: int, now: float) -> None:
        how = how_ended(fd)
        self._ended(f"died{how}{self._last_words()}", now)

    def _ended(self, how: str, now: float) -> None:
        assert self._process is not None
        pid, was_up = self._process.pid, self._is_up
        self._forget()
        if was_up:
            self._losses += 1
            self._lost(pid, how, now)
        elif self._how == "core" and self._torch is not None and self._listener is not None:
            self._how = "whole"
            self._start(self._torch, now)
        else:
            self._give_up(f"the rendezvous store (pid {pid}) {how}")

    def _lost(self, pid: int, how: str, now: float) -> None:
        text = f"the rendezvous store (pid {pid}) {how}"
        if self._listener is not None and self._losses < MOST_LOSSES:
            # This attempt's port was not served yet, so no worker has used the store, and a restart is safe.
            self._say(f"{text}; a new one is started")
            self._start_again(now)
            return
        self._troubles[self._attempt] = text
        self._say(f"attempt {self._attempt}: {text}: workers that need it now will fail")
        if self._losses >= MOST_LOSSES:
            self._give_up(f"it has died {self._losses} times")

    def _start_again(self, now: float) -> None:
        assert self._torch is not None
        self._start(self._torch, now)

    def _give_up(self, why: str) -> None:
        self._off = True
        self._drop_listener()
        self._troubles.setdefault(self._attempt, why)
        self._say(f"{why}: rank 0 hosts the store from the next attempt on")

    def _last_words(self) -> str:
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ""

    def _forget(self) -> None:
        assert self._process is not None and self._control is not None
        self._reactor.forget(self._control.fileno())
        self._reactor.forget(self._process.pidfd)
        self._control.close()
        self._process.end()
        os.close(self._output)
        self._process, self._control, self._deadline, self._is_up = None, None, None, False

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._reactor.forget(listener.fileno())
        listener.close()


def _wanted(spec: JobSpec, env: Mapping[str, str], cwd: Path) -> Torch | None:
    """Return the torch package for the job's store; None if holdfast must not host a store, or finds no torch.

    A single worker needs no store that outlives it. If the user sets `CHOICE` to `False`, or if a script opens the port
    itself, the workers use the port.
    """
    if spec.world_size < 2:
        return None
    # TORCHELASTIC_RUN_ID means that another launcher has started holdfast, and has set `CHOICE` for its own port.
    if env.get(CHOICE) == "False" and "TORCHELASTIC_RUN_ID" not in env:
        return None
    if any(CHOICE in role.env or "MASTER_PORT" in role.env or opens_itself(role.command, cwd) for role in spec.roles):
        return None
    found = (torch_of(role.command, {**env, **role.env}, cwd) for role in spec.roles)
    return next((torch for torch in found if torch is not None), None)


def _listen(port: int) -> _socket.socket:
    """Return a socket that listens on this port with IPv6 and IPv4, like torch's. Raises OSError if the port is in
    use.
    """
    try:
        listener = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM)
    except OSError:
        # this kernel has no IPv6, so use IPv4 alone
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if listener.family == _socket.AF_INET6:
            listener.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(_QUEUE)
    except OSError:
        listener.close()
        raise
    return listener
