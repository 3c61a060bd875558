"""The platform class for the processes of a job in Slurm: its owner and its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model.job_spec import Requeuing
from holdfast.platforms.platform import EndOfRun, LaunchRequest, Platform
from holdfast.platforms.slurm import job_identity
from holdfast.platforms.slurm.interface.slurm_access import SlurmAccess
from holdfast.platforms.slurm.owner.orphan_agent import orphan
from holdfast.platforms.slurm.owner.previous_run import end_of_run
from holdfast.platforms.slurm.owner.slurm_watch import watch
from holdfast.platforms.slurm.slurm_launch import joined_here, over_allocation
from holdfast.platforms.slurm.text.srun_command import environment_in_step

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.model.job_spec import JobSpec, PlatformJob
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.reactor import Reactor
    from holdfast.settings.run_options import RunOptions


class SlurmPlatform(SlurmAccess, Platform):
    """Runs the processes of a job in a Slurm allocation."""

    explains_signals = True
    key_from = "srun, on standard input"

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        return job_identity.platform_job(environment)

    def job_name(self, environment: Mapping[str, str]) -> str:
        return job_identity.job_name(environment)

    def described(self, spec: JobSpec, environment: Mapping[str, str], *, at_time_limit: bool) -> JobSpec:
        found = self.job(environment)
        # Assume that a requeue is possible. Slurm is asked only when one is due, because its answer may change.
        return replace(spec, platform=found, requeue=Requeuing(possible=found is not None, at_time_limit=at_time_limit))

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        return over_allocation(request)

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        return environment_in_step(sent, there)

    def joining(self, options: RunOptions) -> tuple[str, ...]:
        return joined_here(options)

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        return watch(spec, reactor, say, environment)

    def orphaned(
        self, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
    ) -> bool:
        return orphan(reactor, say, environment, done) is not None

    def restarts(self, environment: Mapping[str, str]) -> int:
        return job_identity.restarts(environment)

    def end_of_run(self, job: PlatformJob, before: GangView) -> EndOfRun:
        end, said = end_of_run(job.id, before)
        return EndOfRun(end.reason, end.phrase, said)
