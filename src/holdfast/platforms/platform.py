"""The interface of a platform. A platform is where jobs run: ssh, Slurm, Kubernetes, or an installed package's own.

The rest of holdfast knows platforms by these classes alone (`platform_registry.py` finds them): a job's processes use
`Platform`, and commands about jobs use its base `PlatformAccess`. `job` and `launch` have no default; nor have
`submission`, `agent_join` and `end_of_run`, which are needed only if the platform takes submissions, passes an agent's
order in the environment, or restarts jobs. docs/internals/platforms.md shows how to write one.
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

#: Signals that a platform sends, and that it must be able to explain.
OF_A_PLATFORM = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: Exit status of a run that ends because its platform restarts the job: EX_TEMPFAIL of sysexits.h.
QUEUED_AGAIN = 75


class LaunchRequest(msgspec.Struct, frozen=True):
    """The command as the user typed it, for the platform that starts its agents."""

    #: The typed options; a platform may add the number of workers.
    options: RunOptions
    settings: Settings
    #: Builds the job; its argument is True for a job over many nodes.
    job_of: Callable[[bool], JobFile]
    #: `--nnodes`: minimum and maximum.
    nodes: tuple[int, int]
    home: Path
    #: Descriptor on which the guard reports signals to the process that looks at the nodes. The guard itself has -1.
    guard_fd: int | None

    @property
    def look(self) -> bool:
        """Whether this process only checks the nodes and then returns the job to its guard. Nothing is started."""
        return self.guard_fd is None or self.guard_fd >= 0


class OneMachineJob(msgspec.Struct, frozen=True):
    """A job that the platform's words place on this machine alone."""

    job: JobFile
    #: Why it runs here, for the user.
    note: str


class EndOfRun(msgspec.Struct, frozen=True):
    """How the previous run of a restarted job ended."""

    #: The reason as a clause.
    reason: str
    #: The cause of the attempt that was cut short.
    phrase: str
    said: tuple[PlatformSaid, ...] = ()


class JobAlreadyOver(Exception):
    """The job of this process has already ended."""

    def __init__(self, words: str, status: int) -> None:
        """`words`: the message. `status`: this process's exit status."""
        super().__init__(words)
        self.words = words
        self.status = status


class PlatformAccess:
    """The part of a platform that commands about jobs use, such as `jobs` and `submit`.

    For a built-in platform they import only this part, which is small, so that they start fast.
    """

    #: Name in options, job files and records: `slurm`.
    name = ""
    #: Name in messages: `Slurm`.
    title = ""

    # ------------------------------------------------------------------------------------------------ submitting a job

    #: Whether the platform's server can validate a job file before submission: `submit --dry-run=server`.
    judges_submissions = False
    #: Where a job file puts settings that `submit` has no option for: `batch script`.
    beyond_options = ""

    def submit_options(self) -> tuple[SubmitOption, ...]:
        """Return the options of `holdfast submit` for this platform."""
        return ()

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        """Validate a job file for submission. `text`: the file's contents. Raises `BadUsage`."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------- jobs seen from outside

    def queue(self) -> JobQueue | None:
        """Return the queue of waiting jobs; None: the platform has no queue to query."""
        return None

    def remote(self) -> RemoteJobs | None:
        """Return access to the user's jobs from outside the cluster; None: jobs are visible on this machine."""
        return None

    # ------------------------------------------------------------------------------------------------ node checks

    def node_hooks(self) -> NodeHooks | None:
        """Return the hooks that check this platform's nodes (`holdfast check`); None: it has none."""
        return None


class Platform(PlatformAccess):
    """A whole platform, for the processes of a job. One object serves the process; it keeps no state of a job.

    `environment`: the variables of the process, or of the job.
    """

    #: The platform explains signals (`watch`), so a signal does not make a node leave the job.
    explains_signals = False
    #: How an agent receives the job's key, for messages: `srun, on standard input`.
    key_from = ""
    #: Default time that an agent waits for a lost owner, in seconds.
    owner_wait_s = 60.0

    # ------------------------------------------------------------------------------------------------ detecting the job

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        """Return this process's job in the platform's terms.

        None: it belongs to no job, or the platform has no job ids.
        """
        raise NotImplementedError

    def described(self, spec: JobSpec, environment: Mapping[str, str], *, at_time_limit: bool) -> JobSpec:
        """Add this platform to the job. `at_time_limit`: the user wants a restart at the job's time limit."""
        return msgspec.structs.replace(spec, platform=self.job(environment))

    def hosts_only(self, environment: Mapping[str, str]) -> bool:
        """Whether this process hosts a job's owner while the workers run on other machines."""
        return False

    def user(self, environment: Mapping[str, str]) -> str:
        """Return the user's name that all nodes of a job know; empty: use this process's user."""
        return ""

    # ------------------------------------------------------------------------------------------------ starting agents

    def launch(self, request: LaunchRequest) -> MultiNodeJob | OneMachineJob | None:
        """Return the job over the platform's nodes, with the owner's host and the agents' starter. Raises `BadUsage`.

        OneMachineJob: the user's list of machines has this one alone.

        None: the job stays on this machine, or it is started in another way.
        """
        raise NotImplementedError

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        """Return an agent's environment. `sent`: variables in its order. `there`: variables of its process."""
        return {**there, **sent}

    def joining(self, options: RunOptions) -> tuple[str, ...]:
        """Return the topology labels of an agent's node, the widest first.

        May set the number of workers in `options`.
        """
        return ()

    def agent_join(self) -> AgentJoin:
        """Return an agent's order, if the platform passes it in the environment and not on standard input."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- watching and ending a job

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        """Return the owner's watch over its job; None: this platform watches no job."""
        return None

    def orphaned(
        self, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
    ) -> bool:
        """An agent has lost its owner for good: ask the platform to restart the job, or to end it.

        `done` is called when nothing is left to do. False: the platform is not asked.
        """
        return False

    def exit_status(self, code: int) -> int:
        """Return the owner process's exit status for a job that ended with `code`."""
        return code

    # ------------------------------------------------------------------------------------------- runs after a requeue

    def restarts(self, environment: Mapping[str, str]) -> int:
        """Return how often the platform has restarted the job."""
        return 0

    def end_of_run(self, job: PlatformJob, before: GangView) -> EndOfRun:
        """Return how the previous run ended. `before`: the gang's state after the journal."""
        raise NotImplementedError

    def adopted(self, home: Path, clock: Clock, say: Callable[[str], None]) -> JobPlace | None:
        """Return the job's state directory if an owner on another machine had the job before; None: the job is new.

        Raises `JobAlreadyOver`.
        """
        return None
