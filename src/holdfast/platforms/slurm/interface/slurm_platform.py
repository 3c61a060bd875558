"""Slurm as a platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model.job_spec import Requeuing
from holdfast.platforms.platform import EndOfRun, LaunchRequest, Platform
from holdfast.platforms.slurm import job_identity
from holdfast.platforms.slurm.submit.sbatch_options import SUBMIT_OPTIONS

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.model.job_spec import JobSpec, PlatformJob
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.platforms.node_hooks import NodeHooks
    from holdfast.platforms.submission import Submission, SubmitOption, SubmitRequest
    from holdfast.reactor import Reactor
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions


class SlurmPlatform(Platform):
    """Runs jobs in Slurm allocations. Each method imports its own modules, because few processes need more than one."""

    name = job_identity.NAME
    title = "Slurm"
    explains_signals = True
    beyond_options = "batch script"
    key_from = "srun, on standard input"

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        return job_identity.platform_job(environment)

    def described(self, spec: JobSpec, environment: Mapping[str, str], *, at_time_limit: bool) -> JobSpec:
        found = self.job(environment)
        # Slurm is asked at the requeue itself whether it allows one: that can change while the job runs.
        return replace(spec, platform=found, requeue=Requeuing(possible=found is not None, at_time_limit=at_time_limit))

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        from holdfast.platforms.slurm.slurm_launch import over_allocation

        return over_allocation(request)

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        from holdfast.platforms.slurm.text.srun_command import environment_in_step

        return environment_in_step(sent, there)

    def joining(self, options: RunOptions) -> tuple[str, ...]:
        from holdfast.platforms.slurm.slurm_launch import joined_here

        return joined_here(options)

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        from holdfast.platforms.slurm.owner.slurm_watch import watch

        return watch(spec, reactor, say, environment)

    def orphaned(
        self, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
    ) -> bool:
        from holdfast.platforms.slurm.owner.orphan_agent import orphan

        return orphan(reactor, say, environment, done) is not None

    def submit_options(self) -> tuple[SubmitOption, ...]:
        return SUBMIT_OPTIONS

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        from holdfast.platforms.slurm.submit.slurm_submission import SlurmSubmission

        return SlurmSubmission(request, settings, text)

    def queue(self) -> JobQueue | None:
        from holdfast.platforms.slurm.submit.slurm_queue import QUEUE

        return QUEUE

    def node_hooks(self) -> NodeHooks | None:
        from holdfast.platforms.slurm.node_health import SlurmHooks

        return SlurmHooks()

    def restarts(self, environment: Mapping[str, str]) -> int:
        return job_identity.restarts(environment)

    def end_of_run(self, job: PlatformJob, before: GangView) -> EndOfRun:
        from holdfast.platforms.slurm.owner.previous_run import end_of_run

        end, said = end_of_run(job.id, before)
        return EndOfRun(end.reason, end.phrase, said)
