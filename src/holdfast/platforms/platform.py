"""The interface of a platform, which runs jobs: ssh, Slurm, Kubernetes, or a platform from an installed package.

The rest of holdfast knows platforms only by these classes (`platform_registry.py` finds them). A job's processes use
`Platform`. Commands about jobs use its base `PlatformAccess`. `job` and `launch` have no default. `submission`,
`agent_join` and `end_of_run` have none either, but a platform needs them only if it takes submissions, passes an
agent's order in the environment, or restarts jobs. docs/internals/platforms.md shows how to write a platform.
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

#: Signals that a platform sends to a job's processes. A watch must be able to find out their reasons.
PLATFORM_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: Exit status of a run that ends because its platform restarts the job; it is EX_TEMPFAIL of sysexits.h.
QUEUED_AGAIN = 75


class LaunchRequest(msgspec.Struct, frozen=True):
    """The command that the user typed, for the platform that starts the job's agents."""

    #: The options that the user typed. A platform may add the number of workers.
    options: RunOptions
    settings: Settings
    #: Function that builds the job. Its argument is true for a job on several nodes.
    job_of: Callable[[bool], JobFile]
    #: Minimum and maximum number of nodes, from `--nnodes`.
    nodes: tuple[int, int]
    home: Path
    #: Descriptor on which the process that checks the nodes receives signals from its guard. None if there is no guard;
    #: -1 in the guard itself.
    guard_fd: int | None
    #: Lines for the user, to which a platform may add.
    notes: list[str] = []  # msgspec copies the default for each object

    @property
    def look(self) -> bool:
        """Whether this process only checks the nodes. The guard starts the job after that."""
        return self.guard_fd is None or self.guard_fd >= 0


class OneMachineJob(msgspec.Struct, frozen=True):
    """A job that runs on this machine alone, because of the platform's settings."""

    job: JobFile
    #: A line for the user that explains why the job runs on this machine.
    note: str


class EndOfRun(msgspec.Struct, frozen=True):
    """How the previous run of a restarted job ended."""

    #: Why the run ended, as a clause for messages.
    reason: str
    #: Failure class for the attempt that was running when the run ended.
    phrase: str
    said: tuple[PlatformSaid, ...] = ()


class JobAlreadyOver(Exception):
    """The job of this process has already ended."""

    def __init__(self, words: str, status: int) -> None:
        """`words`: the message for the user. `status`: this process's exit status."""
        super().__init__(words)
        self.words = words
        self.status = status


class PlatformAccess:
    """The part of a platform that commands about jobs use, such as `jobs` and `submit`.

    This part of a built-in platform is a small module of its own, so that these commands start fast.
    """

    #: The platform's name in options, job files and records, such as `slurm`.
    name = ""
    #: The platform's name in messages, such as `Slurm`.
    title = ""

    # ------------------------------------------------------------------------------------------------ submitting a job

    #: Whether the platform's server can validate a job file before submission: `submit --dry-run=server`.
    judges_submissions = False
    #: Where settings belong for which `submit` has no option, in words for a message, such as `batch script`.
    beyond_options = ""

    def submit_options(self) -> tuple[SubmitOption, ...]:
        """Return the options of `holdfast submit` for this platform."""
        return ()

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        """Validate a job file for its submission. Raises `BadUsage` for a user's mistake.

        `request`: the typed command line. `text`: contents of the job file.
        """
        raise NotImplementedError

    # ----------------------------------------------------------------------------- access to jobs of other processes

    def presence(self, environment: Mapping[str, str]) -> str | None:
        """Find out whether jobs can be submitted here without `--platform`.

        Return None if the platform is not configured on this machine, "" if it answers, and else why it does not, as a
        clause.
        """
        return None

    def queue(self) -> JobQueue | None:
        """Return the queue of waiting jobs. Return None if the platform has no queue that holdfast can read."""
        return None

    def remote(self) -> RemoteJobs | None:
        """Return access to the user's jobs in a cluster. Return None if jobs are visible on this machine."""
        return None

    # --------------------------------------------------------------------------------------------- checking nodes

    def node_hooks(self) -> NodeHooks | None:
        """Return the hooks with which `holdfast check` checks this platform's nodes. Return None if there are none."""
        return None


class Platform(PlatformAccess):
    """A whole platform, for the processes of a job. A process has one such object, which stores nothing about a job.

    `environment`: the variables of the process, or of the job.
    """

    #: Whether the platform's watch can explain signals. Then a signal does not make a node leave the job.
    explains_signals = False
    #: Words for messages: how an agent receives the secret key of the job, such as `srun, on standard input`.
    key_from = ""
    #: How long an agent waits for a lost owner by default, in seconds.
    owner_wait_s = 60.0

    # ------------------------------------------------------------------------------------------------ detecting the job

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        """Return this process's job as the platform knows it.

        Return None if the process belongs to no job, or if the platform has no job ids.
        """
        raise NotImplementedError

    def job_name(self, environment: Mapping[str, str]) -> str:
        """Return the name of the platform's job, which a job without a name takes. Return "" if it has none."""
        return ""

    def described(self, spec: JobSpec, environment: Mapping[str, str], *, at_time_limit: bool) -> JobSpec:
        """Return the job with this platform's facts added.

        `at_time_limit`: restart the job when it reaches its time limit.
        """
        return msgspec.structs.replace(spec, platform=self.job(environment))

    def outside(self, command: str, job: str, environment: Mapping[str, str]) -> str:
        """Return a command of a report as it can be typed outside of the job. `job`: the job's id in holdfast."""
        return command

    def hosts_only(self, environment: Mapping[str, str]) -> bool:
        """Whether this process hosts the owner of a job whose workers all run on other machines."""
        return False

    def user(self, environment: Mapping[str, str]) -> str:
        """Return a user name that is the same on all nodes of the job. Return "" to use this process's user."""
        return ""

    # ------------------------------------------------------------------------------------------------ starting agents

    def launch(self, request: LaunchRequest) -> MultiNodeJob | OneMachineJob | None:
        """Return the multi-node job, with the owner's host and the starter of agents on the platform's nodes.

        Return a OneMachineJob if the user's list of machines contains only this machine. Return None if the job runs on
        this machine, or if it is started in another way. Raises `BadUsage` for a user's mistake.
        """
        raise NotImplementedError

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        """Return an agent's environment.

        `sent`: variables from the agent's order. `there`: variables of the agent's process.
        """
        return {**there, **sent}

    def joining(self, options: RunOptions) -> tuple[str, ...]:
        """Return the topology labels of an agent's node, the widest first.

        The method may also set the number of workers in `options`.
        """
        return ()

    def agent_join(self) -> AgentJoin:
        """Return an agent's order, if the platform passes them in the environment and not on standard input."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- watching and ending a job

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        """Return the owner's watch over its job. Return None if this platform watches no jobs."""
        return None

    def orphaned(
        self, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
    ) -> bool:
        """Ask the platform to restart or end the job, because an agent has lost its owner for good.

        `done` is called when nothing is left to do. Return False if the platform is not asked.
        """
        return False

    def exit_status(self, code: int) -> int:
        """Return the owner process's exit status for a job that ended with `code`."""
        return code

    # --------------------------------------------------------------------------- when the platform has requeued a job

    def restarts(self, environment: Mapping[str, str]) -> int:
        """Return how often the platform has restarted the job."""
        return 0

    def reserved(self, environment: Mapping[str, str]) -> str:
        """Return the id of the job whose directory the platform has made before this run. Return "" if it has not."""
        return ""

    def end_of_run(self, job: PlatformJob, before: GangView) -> EndOfRun:
        """Return how the previous run ended. `before`: the gang's state after replaying the journal."""
        raise NotImplementedError

    def adopted(self, home: Path, clock: Clock, say: Callable[[str], None]) -> JobPlace | None:
        """Return the job's state directory if an owner on another machine ran the job before.

        Return None if the job is new.

        Raises `JobAlreadyOver`.
        """
        return None
