"""Limits how many jobs are kept. After a run, it removes a limited number of jobs, at most once a day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.record.job_pruning import PrunableJob, RetentionLimits
    from holdfast.record.job_views import Survey
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions

#: The name of a file in the state directory. Its modification time is the time of the last removal of old jobs.
MARK = "pruned"
_EVERY_S = 86_400.0
#: Maximum number of jobs removed after one run, so that no user waits long.
_AT_MOST = 100


def keep_of(settings: Settings) -> RetentionLimits:
    """Return the limits on old jobs (number, age, size) in the settings."""
    from holdfast.record.job_pruning import RetentionLimits

    return RetentionLimits(
        jobs=settings.count("keep-jobs") or None,
        days=settings.count("keep-days") or None,
        size_bytes=settings.size_bytes("keep-size"),
    )


def prunable_jobs(found: Survey, keep: RetentionLimits) -> list[PrunableJob]:
    """Return the jobs that exceed these limits."""
    import time

    from holdfast.record.job_pruning import beyond

    return beyond(found.home, found.jobs, keep, time.time())


def kept_out() -> dict[str, str]:
    """Return the devices that are HELD or ISOLATED in this machine's fault log, as a map from device to standing."""
    import time

    from holdfast.cli.options.fault_options import open_fault_log, policy_from
    from holdfast.errors import HoldfastError
    from holdfast.node.devices.fault_commands import list_devices

    try:
        with open_fault_log(policy_from(None, None), time.time(), writable=False, keep=True) as log:
            rows = list_devices(log)
    except HoldfastError:
        return {}  # without a fault log no device is held
    return {str(row["device"]): str(row["standing"]) for row in rows if row["standing"] in ("HELD", "ISOLATED")}


def after_a_run(options: RunOptions, env: Mapping[str, str]) -> None:
    """Remove old jobs that exceed the settings' limits, and print their number.

    Ignore errors, because the run must exit with the job's status.
    """
    from holdfast.file_modes import open_to_others
    from holdfast.record.state_directory import home_of

    home = home_of(env)
    try:
        # Do not trust a directory to which other users can write.
        if open_to_others(home) or not _is_due(home):
            return
        (home / MARK).touch(mode=0o600)
    except OSError:
        return  # nobody can add a job to a state directory that cannot be written, so nothing needs to be removed
    from holdfast.errors import HoldfastError

    try:
        _prune(options, env, home)
    except (HoldfastError, OSError):
        return  # `holdfast prune` will report the error


def _is_due(home: Path) -> bool:
    """Return whether old jobs must be removed now: a day has passed since the last removal, or since the first run.

    Raise OSError if there is no state directory.
    """
    import time

    try:
        return time.time() - (home / MARK).stat().st_mtime > _EVERY_S
    except FileNotFoundError:
        (home / MARK).touch(mode=0o600)
        return False


def _prune(options: RunOptions, env: Mapping[str, str], home: Path) -> None:
    from holdfast.cli.options.shared_options import survey
    from holdfast.cli.output.printing import say
    from holdfast.model.human_format import counted
    from holdfast.record.job_pruning import of_this_machine, prune
    from holdfast.settings.resolved_settings import resolve

    typed = {"keep-jobs": options.keep_jobs, "keep-days": options.keep_days, "keep-size": options.keep_size}
    settings = resolve(typed, env, home)
    keep = keep_of(settings)
    old = [each for each in prunable_jobs(survey(), keep) if of_this_machine(each.view)][:_AT_MOST]
    done = prune(home, old, evidence_of=kept_out() if old else {})
    if not done.gone:
        return
    limits = [
        f"{settings.origin(name)}: {name} {settings.value(name)}" for name in ("keep-jobs", "keep-days", "keep-size")
    ]
    say(
        f"{counted(len(done.gone), 'old job was', 'old jobs were')} thrown away ({size(done.size_bytes)}), "
        f"{done.gone[0].view.id} the first: {done.gone[0].why}\n"
        f"  kept is {'; '.join(limits)}\n  try: holdfast prune --dry-run, or HOLDFAST_KEEP_DAYS=0 to keep all"
    )


def size(size_bytes: int) -> str:
    """Format a size, such as `12 KiB` or `3.4 GiB`."""
    number = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit in ("B", "KiB") or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
