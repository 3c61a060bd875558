"""The guard of a node of a job over many: it starts the node's owner and agent, and outlives their deaths.

On the owner's node it has three things that each owner inherits from it, so that an owner's death lets go of none: the
listening socket, the job's directory with its lock, and the clock by which the journal is dated. `holdfast jobs` thus
finds the lock held for as long as the guard lives.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act import standard_streams
from holdfast.act.cgroups import ControlGroups
from holdfast.act.guard import PASSED_ON, HandBack
from holdfast.act.guarded_children import ChildContext, Guard, ManagedChild
from holdfast.act.linux import in_background, name_process
from holdfast.clock import Clock
from holdfast.decide.attempt_timers import timers_for
from holdfast.explain.memory_kill_cause import kill_words
from holdfast.main.job_preparation import job_directory_for
from holdfast.main.run_guard import lost
from holdfast.observe.memory_watch import MemoryWatch
from holdfast.owner.nodes.owner_socket import owner_socket
from holdfast.platforms.platform import JobAlreadyOver
from holdfast.platforms.platform_registry import platform_here

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.model.evidence import MemoryKill
    from holdfast.record.job_directory import JobPlace

AGENT = "holdfast-agent"
#: What is told to the agent: the rest asks for the end of the job.
OF_THE_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


def take_part(launch: LaunchSpec, guard_fd: int | None) -> int:
    """This node's part of the job; the job's final code.

    In a process under guard (`guard_fd` is its pipe) nothing is begun: the guard itself goes on.
    """
    if guard_fd is not None and guard_fd >= 0:
        raise HandBack
    assert launch.nodes is not None, "a job over many nodes"
    name_process("holdfast-guard")
    timed = replace(launch.spec, timers=timers_for(launch.spec))
    return _Node(replace(launch, spec=timed), launch.nodes, Clock()).guard()


class _Node:
    """One node, as its guard knows it."""

    def __init__(self, launch: LaunchSpec, order: NodesOrder, clock: Clock) -> None:
        self._launch = launch
        self._order = order
        self._clock = clock
        self._agent_id = order.agent or os.urandom(8).hex()
        self._born_ms = int(clock.now() * 1000)
        """Agents of this node are numbered from here: higher than those of any guard before, after a reboot too."""
        self._listener: socket.socket | None = None
        self._place: JobPlace | None = None
        self._memory: MemoryWatch | None = None
        self._memory_kill: MemoryKill | None = None
        """What the agent of before died of."""

    def guard(self) -> int:
        """Until the node's part is over; the exit status."""
        self._listener = owner_socket(self._order)
        if self._listener is not None:
            if (over := self._taken_over()) is not None:
                return over
            self._place = self._place or job_directory_for(self._launch, self._clock.now())
        # A child that is started again must be there at once: it finds all its modules in this process's memory.
        for name in (
            "holdfast.node.agent.agent_process",
            *(("holdfast.owner.nodes.owner_process", "sqlite3") if self._listener else ()),
        ):
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # what is there now stays, and is shared with every child
        # Under nohup a hang-up is not for us.
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heard = {*PASSED_ON, signal.SIGWINCH} - ({signal.SIGHUP} if nohup else set())
        signal.pthread_sigmask(signal.SIG_BLOCK, {*heard, signal.SIGCHLD})
        before = standard_streams.modes(0)
        wards = self._wards()
        self._memory = MemoryWatch(ControlGroups.make("").container)
        status = Guard(wards, self._clock.now, _say, self._killed).keep({*heard, signal.SIGCHLD})
        if before is not None and not in_background(os.getpid()):
            standard_streams.restore(0, before)
        if status < 0:
            _say("the job cannot go on here, and what was left of it on this node is killed\n  try: holdfast jobs")
            if self._place is not None:
                self._place.lock.release()
                lost(os.getpid(), -status)
            return 128 - status
        return status

    def _taken_over(self) -> int | None:
        """Another machine may have hosted the job's owner before this one. The status, where the job is over."""
        platform = platform_here(os.environ)
        if platform is None:
            return None
        try:
            self._place = platform.adopted(self._launch.home, self._clock, _say)
        except JobAlreadyOver as over:
            _say(over.words)
            return over.status
        return None

    def _wards(self) -> list[ManagedChild]:
        if self._listener is None:
            return [ManagedChild(AGENT, self._agent)]
        wards = [ManagedChild("holdfast-owner", self._owner)]
        if self._order.takes_part:
            wards.append(ManagedChild(AGENT, self._agent, hears=OF_THE_WORKERS))
        if (starter := self._order.starter) is not None:
            host, port = self._order.host, self._listener.getsockname()[1]
            wards.append(ManagedChild("holdfast-start", lambda birth: starter(host, port, birth.fd), counts=False))
        return wards

    def _killed(self, name: str, number: int) -> str:
        """A memory kill since the last look, where SIGKILL has ended a ward: the counters name no process."""
        kills = self._memory.kills({}, 0.0) if self._memory is not None and number == signal.SIGKILL else ()
        if self._memory is not None:
            self._memory.mark()
        if name == AGENT:
            self._memory_kill = kills[0] if kills else None
        return kill_words(kills[0]) if kills else ""

    def _owner(self, birth: ChildContext) -> int:
        from holdfast.owner.nodes.owner_process import run_owner  # the agent needs none of it

        assert self._listener is not None and self._place is not None, "this is the owner's node"
        return run_owner(
            self._launch, self._order, self._place, self._listener, self._clock, birth, agent_id=self._agent_id
        )

    def _agent(self, birth: ChildContext) -> int:
        from holdfast.node.agent.agent_process import serve  # the owner needs none of it

        port, home = self._order.port, None
        if self._listener is not None:
            port = self._listener.getsockname()[1]
            self._listener.close()
        if self._place is not None:
            home = self._place
            # The lock says that the guard or an owner lives: an agent must not hold it.
            home.lock.release()
        return serve(
            self._launch,
            self._order,
            self._clock,
            birth,
            agent_id=self._agent_id,
            boot=self._born_ms + birth.number,
            port=port,
            owners_place=home,
            memory_kill=self._memory_kill,
        )


def _say(text: str) -> None:
    os.write(2, f"holdfast: {text}\n".encode())
