"""The processes beside the workers of one attempt on one node: its hooks, its daemons and sshd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.runtime_plan import Daemon, Hook, HookMoment, RuntimePlan
from holdfast.model.sidecar_ends import AttemptEnd, SideFailure, SideKind, named_hooks
from holdfast.node.sidecars.daemon_run import DaemonRun
from holdfast.node.sidecars.hook_run import HookRun
from holdfast.node.sidecars.sidecar_process import NoSshServer, SidecarEnd, SidecarProcess
from holdfast.runtime.name_expansion import NameValues, expand_command, has_names

if TYPE_CHECKING:
    from holdfast.act.host import LocalHost
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.job_spec import Placement
    from holdfast.model.process_messages import Fact, StartWorker
    from holdfast.node.sidecars.ssh_server import SshServer
    from holdfast.observe.worker_stream import StreamLog
    from holdfast.reactor import News, Reactor

#: A worker's variables that sidecars do not get, because they are only about this worker.
NOT_OF_A_NODE = (
    "RANK",
    "LOCAL_RANK",
    "ROLE_RANK",
    "TORCHELASTIC_ERROR_FILE",
    "HOLDFAST_PROGRESS",
    "HOLDFAST_DRAIN",
    "HOLDFAST_LOGS",
    "PAI_TASK_INDEX",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
    "FC_TASK_INDEX",
)
#: Seconds that daemons may take to exit after the attempt's workers have ended.
DAEMON_GRACE_S = 5.0


class SidecarContext(msgspec.Struct, frozen=True):
    """The facts about the job and this node that all sidecars share."""

    launch: LaunchSpec
    #: The directory that contains the log directories of the attempts.
    logs: Path
    #: This node's name in messages; "" if the job has one node.
    node: str
    #: The host that starts the workers. It has their environments and the reserved ports.
    host: LocalHost
    reactor: Reactor
    #: Opens a log, from the path and the source's name.
    open_log: Callable[[Path, str], StreamLog]
    #: The ssh server for debugging; None if there is none.
    ssh_server: SshServer | None
    #: Prints a message.
    say: Callable[[str], None]

    @property
    def plan(self) -> RuntimePlan:
        """Return the job's hooks, daemons and ssh options."""
        return self.launch.spec.runtime


class AttemptSidecars:
    """The sidecars of one attempt.

    `around`: the settings that all sidecars of the node share. `opened(now)`: called when the hooks before the workers
    have succeeded and every daemon runs; the workers may then go on. `failed(failure, now)`: called for a failure that
    ends the attempt. `ended(now)`: called when the last sidecar has exited on request.
    """

    def __init__(
        self,
        around: SidecarContext,
        attempt: int,
        *,
        opened: Callable[[float], News],
        failed: Callable[[SideFailure, float], News],
        ended: Callable[[float], News],
    ) -> None:
        self._around = around
        self.attempt = attempt
        self._opened = opened
        self._failed = failed
        self._ended = ended
        #: The start commands of this node's workers, one for each.
        self.orders: list[StartWorker] = []
        #: Facts about prepared workers. They are delayed until the hooks before the workers have ended and the daemons
        #: run.
        self.held: list[Fact] = []
        self.open = self.stopping = self.leaving = self.over = False
        self.failures: list[SideFailure] = []
        self._before: HookRun | None = None
        self._daemons: list[DaemonRun] = []
        #: ROLE-INDEX → pid, for the workers that have a process.
        self._pids: dict[str, int] = {}
        self._sshd_runs = False

    @property
    def first_rank(self) -> int:
        return self.orders[0].placement.rank

    @property
    def placements(self) -> list[Placement]:
        return [order.placement for order in self.orders]

    @property
    def alive(self) -> bool:
        """Return whether a daemon runs, or a hook from before the workers."""
        before = self._before is not None and not self._before.over
        return before or any(daemon.alive for daemon in self._daemons)

    # ---------------------------------------------------------------- methods that begin and end the attempt's sidecars

    def begin(self, now: float) -> News:
        """Run the hooks before the workers. Called when all workers of this node are known."""
        if self.stopping:
            return None
        hooks = [(name, hook) for name, hook in self.hooks() if hook.when is HookMoment.BEFORE]
        self._before = self._run(hooks, self._hooked, go_on=False)
        return self._before.begin(now)

    def stop(self, *, hard: bool) -> None:
        """Stop the running hook, because the attempt is being stopped. Daemons run until the workers have ended.
        `hard`: kill the hook and the daemons now.
        """
        self.stopping = True
        if self._before is not None:
            if hard:
                self._before.kill()
            else:
                self._before.stop()
        if hard:
            for daemon in self._daemons:
                daemon.kill()

    def workers_ended(self, now: float) -> None:
        """Ask the daemons to exit, because the last worker of the stopped attempt on this node has ended."""
        for daemon in self._daemons:
            daemon.terminate()
        if self.alive:
            self._around.reactor.at(now + DAEMON_GRACE_S, self._kill_daemons)

    def after(self, end: AttemptEnd, done: Callable[[tuple[SideFailure, ...], float], News]) -> HookRun:
        """Prepare the hooks after the attempt, in the reverse order of the job file."""
        wanted = [(name, hook) for name, hook in self.hooks() if hook.when in end.moments]
        told = {
            "HOLDFAST_OUTCOME": end.outcome.value,
            "HOLDFAST_PHRASE": end.phrase,
            "HOLDFAST_EXIT_CODE": str(end.code),
            "HOLDFAST_REASON": end.reason,
        }
        return self._run(list(reversed(wanted)), done, go_on=True, told=told)

    def close(self) -> None:
        if self._before is not None:
            self._before.close()
        for daemon in self._daemons:
            daemon.close()

    # ------------------------------------------------------------------------------------------ methods that run hooks

    def hooks(self) -> list[tuple[str, Hook]]:
        """Return (name, hook) for each hook of a role with a worker on this node."""
        return [(name, hook) for name, hook in named_hooks(self._around.plan) if self._concerns(hook.roles)]

    def _concerns(self, roles: tuple[str, ...]) -> bool:
        return not roles or any(placement.role in roles for placement in self.placements)

    def _run(
        self,
        hooks: list[tuple[str, Hook]],
        done: Callable[[tuple[SideFailure, ...], float], News],
        *,
        go_on: bool,
        told: Mapping[str, str] | None = None,
    ) -> HookRun:
        around = self._around

        def start(name: str, hook: Hook, ended: Callable[[SidecarProcess, SidecarEnd, float], News]) -> SidecarProcess:
            env = self._environment(hook.roles) | {"HOLDFAST_HOOK": name} | dict(told or {})
            return self._start(f"hook-{name}", hook.command, env, ended)

        return HookRun(hooks, start, done, around.reactor, around.say, node=around.node, go_on=go_on)

    def _hooked(self, failures: tuple[SideFailure, ...], now: float) -> News:
        if self.stopping:
            return self.left(now)
        if failures:
            self.failures += failures
            return self._failed(failures[0], now)
        return self._start_daemons(now)

    # ----------------------------------------------------------------------------------------- methods that run daemons

    def _start_daemons(self, now: float) -> News:
        around = self._around
        for daemon in around.plan.daemons:
            if self._concerns(daemon.roles):
                self._daemons.append(
                    DaemonRun(
                        daemon,
                        self._starter(daemon),
                        around.reactor,
                        owner=self,
                        node=around.node,
                    )
                )
        news = [*(self._start_sshd(now) or ())]
        news += [event for daemon in self._daemons for event in daemon.begin(now) or ()]
        return [*news, *(self.settled(now) or ())]

    def _start_sshd(self, now: float) -> News:
        around, ssh, peers = self._around, self._around.plan.ssh, self.orders[0].peers
        if ssh is None or around.ssh_server is None or peers is None:
            return None
        port = peers.ssh[self.orders[0].shape.index]
        around.host.ports.give_up((port,))
        trouble = ""
        try:
            command = around.ssh_server.prepare(peers, port)
        except NoSshServer as error:
            command, trouble = (), str(error)
        self._sshd_runs = True
        for worker, pid in self._pids.items():
            around.ssh_server.note(worker, pid)
        daemon = Daemon(name="sshd", command=command, required=ssh.required)
        sshd = DaemonRun(
            daemon,
            lambda ended, up: self._start("sshd", command, self._environment(()), ended, up),
            around.reactor,
            owner=self,
            node=around.node,
            kind=SideKind.SSHD,
        )
        self._daemons.append(sshd)
        return sshd.give_up(trouble, now) if trouble else None

    def ready(self, rank: int, pid: int) -> None:
        """Store the pid of a worker's process, because an ssh login may name the worker."""
        placement = next((placement for placement in self.placements if placement.rank == rank), None)
        if placement is None or self._around.ssh_server is None:
            return
        name = f"{placement.role}-{placement.role_rank}"
        self._pids[name] = pid
        if self._sshd_runs:
            self._around.ssh_server.note(name, pid)

    def _starter(
        self, daemon: Daemon
    ) -> Callable[[Callable[[SidecarProcess, SidecarEnd, float], News], Callable[[float], News]], SidecarProcess]:
        def start(
            ended: Callable[[SidecarProcess, SidecarEnd, float], News], up: Callable[[float], News]
        ) -> SidecarProcess:
            env = self._environment(daemon.roles) | {"HOLDFAST_DAEMON": daemon.name} | daemon.env
            return self._start(f"daemon-{daemon.name}", daemon.command, env, ended, up)

        return start

    def settled(self, now: float) -> News:
        """Let the workers go on when every daemon runs or has been given up."""
        if self.open or self.stopping or self.failures or not all(daemon.settled for daemon in self._daemons):
            return None
        self.open = True
        return self._opened(now)

    def gone(self, run: DaemonRun, failure: SideFailure, now: float) -> News:
        if not run.daemon.required:
            self._around.say(f"{failure.sentence}; the job goes on without it ({failure.log or 'it has no log'})")
            return None
        self.failures.append(failure)
        return self._failed(failure, now)

    def _kill_daemons(self, now: float) -> None:
        for daemon in self._daemons:
            daemon.kill()

    def left(self, now: float) -> News:
        """Report the end, if no sidecar of the attempt is left after a daemon's exit."""
        return None if self.alive else self._ended(now)

    # ------------------------------------------------------------ methods that start the processes of hooks and daemons

    def _environment(self, roles: tuple[str, ...]) -> dict[str, str]:
        """Return the environment for a sidecar: that of a worker of these roles on this node, without the variables
        about that worker alone.
        """
        order = next((order for order in self.orders if order.placement.role in roles), self.orders[0])
        env = self._around.host.environment(order)
        for name in NOT_OF_A_NODE:
            env.pop(name, None)
        directory = self._around.logs / f"attempt-{self.attempt}"
        return env | {"HOLDFAST_ATTEMPT_LOGS": str(directory)}

    def _start(
        self,
        name: str,
        command: tuple[str, ...],
        env: Mapping[str, str],
        ended: Callable[[SidecarProcess, SidecarEnd, float], News],
        up: Callable[[float], News] | None = None,
    ) -> SidecarProcess:
        around = self._around
        if any(map(has_names, command)):
            what = f"the command of {name.replace('-', ' ', 1)}"
            command = expand_command(command, NameValues.of(env, around.launch.spec.parameters), what)
        # Nodes with a shared home directory share the log directory, so put the node's name into the file's name.
        whose = f"@{''.join(c if c.isalnum() or c in '-_.' else '_' for c in around.node)}" if around.node else ""
        log = around.open_log(around.logs / f"attempt-{self.attempt}" / f"{name}{whose}.log", name)
        return SidecarProcess(around.reactor, command, env, around.launch.cwd, log, ended=ended, up=up)
