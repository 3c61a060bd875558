"""LSF as a platform: inside of `bsub`, `blaunch` starts an agent on each host of the job. Not tried on a real LSF."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from holdfast.children import Child, start
from holdfast.clock import Clock
from holdfast.errors import BadUsage
from holdfast.file_modes import users_umask
from holdfast.launch.agent_launch import AgentOrder, line_of, order_for_agents, owner_port
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.multi_node import (
    MultiNodeJob,
    identity,
    owner_wait_s,
    plan_of,
    port_range,
    readable_again,
    with_plan,
)
from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.platform import LaunchRequest, Platform
from holdfast.reactor import Reactor
from holdfast.wire.starter_reports import StarterPipe, StarterReport

#: So often an agent is started on a host that loses it.
TRIES = 3
PAUSE_S = 2.0
#: How long agents may take, once the job is over, to pass on the last lines of their workers.
LAST_S = 5.0
#: With one of these options the user starts the command on each host.
_MEETING = ("rdzv_endpoint", "master_addr", "standalone")


class Lsf(Platform):
    """A `Platform`. It detects its jobs and starts agents; all else is as without a platform."""

    name = "lsf"
    title = "LSF"
    key_from = "blaunch, on standard input"

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        number, index = environment.get("LSB_JOBID", ""), environment.get("LSB_JOBINDEX", "0")
        if not number.isdigit() or "HOLDFAST_ATTEMPT" in environment:
            return None  # a run that a worker starts is a job of its own
        return PlatformJob(platform=self.name, id=number if index == "0" else f"{number}[{index}]")

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        options, settings = request.options, request.settings
        hosts = hosts_in(os.environ)
        if len(hosts) < 2 or any(getattr(options, option) for option in _MEETING):
            return None
        if shutil.which("blaunch") is None:
            raise BadUsage(
                f"blaunch is not in PATH here, and starts the agents on the {len(hosts)} hosts of the LSF job: "
                "expected LSF's commands",
                hint="source $LSF_ENVDIR/profile.lsf",
            )
        readable_again(options)
        job = request.job_of(True)
        spares = settings.count("spares") or 0
        nodes = request.nodes if options.nnodes is not None else (len(hosts) - spares, len(hosts) - spares)
        if not 1 <= nodes[1] <= len(hosts) - spares:
            raise BadUsage(
                f"{nodes[1]} nodes and {spares} spares: the LSF job has {len(hosts)} hosts: expected as many or fewer",
                hint=f"bsub -n {nodes[1] + spares} -R 'span[ptile=1]' holdfast run …",
            )
        plan = replace(plan_of(settings, {}, nodes, len(hosts) - nodes[1]), names=hosts)
        key = os.urandom(32)
        # blaunch gives each agent the environment of the job: the order has none.
        text = order_for_agents(self.name, options, job.spec.name, replace(plan, names=()), key, environment={})
        order = NodesOrder(
            host=text.addresses[0],
            port=owner_port(options),
            key=key,
            key_from="this run, which made it",
            job=identity(options, job.spec),
            slots=1,  # without meaning: this process has no worker
            hosts=True,
            hosts_why="the command was started here",
            is_host=True,
            port_range=port_range(settings),
            owner_wait_s=owner_wait_s(settings),
            starter=BlaunchStarter(hosts, partial(_line, text), 2 if settings.flag("json") else 1),
            takes_part=False,
        )
        return MultiNodeJob(with_plan(options, job, plan, 1), order, ())


def hosts_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of this job, each once: LSB_MCPU_HOSTS is `host1 8 host2 8`."""
    return tuple(dict.fromkeys(environment.get("LSB_MCPU_HOSTS", "").split()[::2]))


def _line(text: AgentOrder, host: str, rank: int, port: int) -> bytes:
    """The order for one host."""
    return line_of(replace(text, host=host, rank=rank, port=port))


class BlaunchStarter:
    """A `Starter`: it is made in the guard, and called in a process of its own."""

    def __init__(self, hosts: Sequence[str], order: Callable[[str, int, int], bytes], output: int) -> None:
        """`order(host, rank, port)`: what an agent reads. `output`: where workers' lines go."""
        self.hosts = hosts
        self.order = order
        self.output = output
        self.news = StarterPipe()
        self.news_fd = self.news.reader

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        os.umask(users_umask())  # what workers save is as readable as the user has it
        reactor = Reactor(Clock().now)
        agents = _Agents(self, port, reactor)
        reactor.watch(guard_fd, agents.guard_said)
        for rank in range(len(self.hosts)):
            agents.begin(rank, reactor.now())
        while agents.running:
            reactor.wait()
        agents.close()
        reactor.close()
        return 0


class _Agents:
    """One blaunch for each host. An agent reads its order from standard input, which stays open while it is wanted."""

    def __init__(self, starter: BlaunchStarter, port: int, reactor: Reactor) -> None:
        self._starter = starter
        self._port = port
        self._reactor = reactor
        #: By rank, with the writing end of its standard input.
        self._children: dict[int, tuple[Child, int]] = {}
        self._tries = [0] * len(starter.hosts)
        self._due = 0
        self._over = self._left = False

    @property
    def running(self) -> bool:
        return not self._left and bool(self._children or self._due)

    def begin(self, rank: int, now: float) -> None:
        host = self._starter.hosts[rank]
        self._tries[rank] += 1
        command = ("blaunch", host, sys.executable, "-P", "-m", "holdfast", "agent")
        reader, writer = os.pipe()
        try:
            child = start(command, output=self._starter.output, errors=2, given=reader)
        except OSError as error:
            os.close(writer)
            self._give_up(rank, f"blaunch cannot be run: {error.strerror}")
            return
        finally:
            os.close(reader)
        self._children[rank] = child, writer
        self._reactor.watch(child.pidfd, partial(self._ended, rank))
        try:
            os.write(writer, self._starter.order(host, rank, self._port))  # fewer bytes than a pipe takes at once
        except BrokenPipeError:
            pass  # blaunch has ended, and its pidfd says so

    def _ended(self, rank: int, fd: int, now: float) -> None:
        child, writer = self._children.pop(rank)
        self._reactor.forget(fd)
        status = child.reap()
        os.close(writer)
        if self._over or status == 0:
            return
        if self._tries[rank] >= TRIES:
            self._give_up(rank, f"its agent has ended {TRIES} times, the last time with status {status}")
            return
        self._due += 1
        self._reactor.at(now + PAUSE_S, partial(self._again, rank))

    def _again(self, rank: int, now: float) -> None:
        self._due -= 1
        if not self._over:
            self.begin(rank, now)

    def _give_up(self, rank: int, why: str) -> None:
        host = self._starter.hosts[rank]
        hint = f"blaunch {host} {sys.executable} -P -m holdfast --version"
        self._starter.news.say(StarterReport(words=f"{host}: {why}", hint=hint, nodes=(host,)))

    def guard_said(self, fd: int, now: float) -> None:
        """A signal is the owner's affair. Zeros mean that the job is over, the end of the pipe that the guard is."""
        word = os.read(fd, 128)
        if word and any(word):
            return
        self._over = True
        self._left = not word
        if not word:
            self._reactor.forget(fd)
        self._reactor.at(now + LAST_S, self._leave)

    def _leave(self, now: float) -> None:
        self._left = True

    def close(self) -> None:
        for child, writer in self._children.values():
            os.close(writer)
            child.end()
