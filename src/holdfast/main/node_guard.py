"""The guard of one node of a multi-node job. It starts the node's owner and agent, and restarts them when they die.

On the owner's node the guard holds three things that each owner inherits, so that they survive an owner's death: the
listening socket, the job's directory with its lock, and the clock that dates the journal. The guard holds the lock as
long as it lives, so `holdfast jobs` sees that the job is alive.
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
from holdfast.act.guard import PASSED_ON
from holdfast.act.guarded_children import ChildContext, Guard, ManagedChild
from holdfast.act.linux import in_background, name_process
from holdfast.clock import Clock
from holdfast.decide.attempt_timers import timers_for
from holdfast.explain.text.sentences import kill_words
from holdfast.main.job_preparation import job_directory_for
from holdfast.main.run_guard import lost
from holdfast.node.agent.agent_process import serve
from holdfast.observe.memory_watch import MemoryWatch
from holdfast.owner.nodes.owner_socket import owner_socket
from holdfast.platforms.platform import JobAlreadyOver
from holdfast.platforms.platform_registry import platform_here

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.model.evidence import MemoryKill
    from holdfast.record.job_directory import JobPlace

AGENT = "holdfast-agent"
#: Signals that the guard passes on to the agent. Other signals request the end of the job.
OF_THE_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


def take_part(launch: LaunchSpec) -> int:
    """Run this node's part of the job, with this process as the node's guard. Return the job's final code."""
    assert launch.nodes is not None, "a job over many nodes"
    name_process("holdfast-guard")
    timed = replace(launch.spec, timers=timers_for(launch.spec))
    return _Node(replace(launch, spec=timed), launch.nodes, Clock()).guard()


class _Node:
    """The state of a node's guard."""

    def __init__(self, launch: LaunchSpec, order: NodesOrder, clock: Clock) -> None:
        self._launch = launch
        self._order = order
        self._clock = clock
        self._agent_id = order.agent or os.urandom(8).hex()
        #: The number of this node's first agent: the present time in milliseconds. Later agents count up from it, so
        #: that no number is used twice, even after a reboot.
        self._born_ms = int(clock.now() * 1000)
        self._listener: socket.socket | None = None
        self._place: JobPlace | None = None
        self._memory: MemoryWatch | None = None
        #: The OOM kill that ended the previous agent, if any.
        self._memory_kill: MemoryKill | None = None

    def guard(self) -> int:
        """Guard the node until its part of the job has ended. Return the exit status."""
        self._listener = owner_socket(self._order)
        if self._listener is not None:
            if (over := self._taken_over()) is not None:
                return over
            self._place = self._place or job_directory_for(self._launch, self._clock.now())
        # Children are forked, so import the owner's modules before the fork. A restarted owner then starts without the
        # imports.
        if self._listener:
            for name in ("holdfast.owner.nodes.owner_process", "sqlite3"):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # the collector then never touches existing objects, so children share their pages
        # nohup makes this process ignore SIGHUP. Then the guard must ignore SIGHUP too.
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
        """Take over the job from an owner on another machine. Return the exit status if the job has already ended."""
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
            wards.append(
                ManagedChild("holdfast-start", lambda guard_link: starter(host, port, guard_link.fd), counts=False)
            )
        return wards

    def _killed(self, name: str, number: int) -> str:
        """Describe the OOM kill that explains a child's SIGKILL, or return "".

        The kernel's counters do not tell which process was killed.
        """
        kills = self._memory.kills({}, 0.0) if self._memory is not None and number == signal.SIGKILL else ()
        if self._memory is not None:
            self._memory.mark()
        if name == AGENT:
            self._memory_kill = kills[0] if kills else None
        return kill_words(kills[0]) if kills else ""

    def _owner(self, guard_link: ChildContext) -> int:
        from holdfast.owner.nodes.owner_process import run_owner  # imported late: only one node has an owner

        assert self._listener is not None and self._place is not None, "this is the owner's node"
        return run_owner(
            self._launch, self._order, self._place, self._listener, self._clock, guard_link, agent_id=self._agent_id
        )

    def _agent(self, guard_link: ChildContext) -> int:
        port, home = self._order.port, None
        if self._listener is not None:
            port = self._listener.getsockname()[1]
            self._listener.close()
        if self._place is not None:
            home = self._place
            # The agent releases the lock, because only the guard and an owner may hold it.
            home.lock.release()
        return serve(
            self._launch,
            self._order,
            self._clock,
            guard_link,
            agent_id=self._agent_id,
            boot=self._born_ms + guard_link.number,
            port=port,
            owners_place=home,
            memory_kill=self._memory_kill,
        )


def _say(text: str) -> None:
    os.write(2, f"holdfast: {text}\n".encode())
