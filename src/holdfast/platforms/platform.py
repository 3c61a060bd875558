"""What a platform must answer. A platform is where jobs run: ssh, Slurm, Kubernetes, or one that a package brings.

The rest of holdfast knows platforms by this class alone (`platform_registry.py` finds them). Every method but `job` and
`launch` has a default; docs/internals/platforms.md shows how to write one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.agent_launch import AgentJoin
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.model.events import PlatformSaid
    from holdfast.model.job_spec import JobSpec, PlatformJob
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.platforms.node_hooks import NodeHooks
    from holdfast.platforms.remote_jobs import RemoteJobs
    from holdfast.platforms.submission import Submission, SubmitOption, SubmitRequest
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions

#: The signals that a platform sends, and which it is asked to explain.
OF_A_PLATFORM = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: The exit status of a run that ends because its platform starts the job again: EX_TEMPFAIL of sysexits.h.
QUEUED_AGAIN = 75


class LaunchRequest(msgspec.Struct, frozen=True):
    """The command that a user has typed, for the platform that starts its agents."""

    #: The typed options; a platform may add the number of workers.
    options: RunOptions
    settings: Settings
    #: Makes the job: True for one over many nodes.
    job_of: Callable[[bool], JobFile]
    #: `--nnodes`: the least and the most.
    nodes: tuple[int, int]
    home: Path
    #: Negative in the guard itself, to which the process under it hands the job back after a look at the nodes.
    guard_fd: int | None

    @property
    def look(self) -> bool:
        """This process only looks, before anything starts, and hands the job back to its guard."""
        return self.guard_fd is None or self.guard_fd >= 0


class EndOfRun(msgspec.Struct, frozen=True):
    """How the run before ended, of a job that its platform has started again."""

    #: A clause.
    reason: str
    #: What the attempt that it cut short died of.
    phrase: str
    said: tuple[PlatformSaid, ...] = ()


class JobAlreadyOver(Exception):
    """The job that this process was started for has its end already."""

    def __init__(self, words: str, status: int) -> None:
        """`status`: the exit status of this process."""
        super().__init__(words)
        self.words = words
        self.status = status


class Platform:
    """A platform. One object serves a process; it keeps no state of a job.

    `environment`: of the process, or of the job.
    """

    #: How options, job files and records call it: `slurm`.
    name = ""
    #: How people call it: `Slurm`.
    title = ""
    #: It knows why a signal came (`watch`): no node leaves the job because of one.
    explains_signals = False
    #: How an agent gets the job's key, for messages: `srun, on standard input`.
    key_from = ""
    #: How long an agent waits for a lost owner unless the user says it.
    owner_wait_s = 60.0

    # ------------------------------------------------------------------------------------------------ detect

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        """The platform's name for the job of this process. None: it belongs to none, or the platform has no names."""
        raise NotImplementedError

    def described(self, spec: JobSpec, environment: Mapping[str, str], *, at_time_limit: bool) -> JobSpec:
        """The job as one of this platform's. `at_time_limit`: the user wants it started again at its time limit."""
        return msgspec.structs.replace(spec, platform=self.job(environment))

    def hosts_only(self, environment: Mapping[str, str]) -> bool:
        """This process hosts a job's owner, and the job's workers run on other machines."""
        return False

    def user(self, environment: Mapping[str, str]) -> str:
        """The user as all nodes of a job know him; empty: by the name of this process's user."""
        return ""

    # ------------------------------------------------------------------------------------------------ start agents

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        """The job over the platform's nodes: who hosts the owner, and what starts the agents. Raises `BadUsage`.

        None: the job stays on this machine, or another way of starting applies.
        """
        raise NotImplementedError

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        """An agent's environment. `sent`: of its order. `there`: of its process."""
        return {**there, **sent}

    def joining(self, options: RunOptions) -> tuple[str, ...]:
        """The neighbourhood of an agent's node, the widest first; `options` gets its workers."""
        return ()

    def agent_join(self) -> AgentJoin:
        """An agent's order, where the platform passes it in the environment and not on standard input."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------ watch, end

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        """The owner's watch over its job; None: this platform watches no job."""
        return None

    def orphaned(
        self, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
    ) -> bool:
        """An agent has no owner any more: ask the platform to start the job again, or to end it.

        `done` is called when nothing is left to do. False: nothing is asked.
        """
        return False

    def exit_status(self, code: int) -> int:
        """The exit status of the owner's process where the job's final code is `code`."""
        return code

    # ------------------------------------------------------------------------------------------------ submit

    #: A server judges a job file before it is submitted: `submit --dry-run=server`.
    judges_submissions = False
    #: Where `submit` takes what is no option: `batch script`.
    beyond_options = ""

    def submit_options(self) -> tuple[SubmitOption, ...]:
        """The options of `holdfast submit` for this platform."""
        return ()

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        """The job file, judged and ready to be handed over. `text`: of the file. Raises `BadUsage`."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------ look from outside

    def queue(self) -> JobQueue | None:
        """The jobs that wait to begin; None: the platform has no queue that can be asked."""
        return None

    def remote(self) -> RemoteJobs | None:
        """The jobs of the user's cluster, seen from outside it; None: jobs are seen on this machine."""
        return None

    # ------------------------------------------------------------------------------------------------ nodes

    def node_hooks(self) -> NodeHooks | None:
        """How the platform has its nodes checked (`holdfast check`); None: it has no hooks for that."""
        return None

    # ------------------------------------------------------------------------------------------------ requeue

    def restarts(self, environment: Mapping[str, str]) -> int:
        """How often the platform has started the job again."""
        return 0

    def end_of_run(self, job: PlatformJob, before: GangView) -> EndOfRun:
        """How the run before this one ended. `before`: the gang as the journal leaves it."""
        raise NotImplementedError

    def adopted(self, home: Path, clock: Clock, say: Callable[[str], None]) -> JobPlace | None:
        """The place of the job, where another machine has hosted its owner before; None: it is new.

        Raises `JobAlreadyOver`.
        """
        return None
