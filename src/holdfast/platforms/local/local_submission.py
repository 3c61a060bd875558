"""Submits a job to this machine's queue: makes the job's directory with its command in it, and tells the core."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.decide.queue.queue_model import Needs, Priority
from holdfast.errors import BadUsage, HoldfastError
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.file_modes import users_umask
from holdfast.launch.interpreter import workers_python
from holdfast.launch.jobfile.job_file import RunPlace
from holdfast.launch.jobfile.job_file_mistakes import malformed
from holdfast.launch.jobfile.job_file_reader import parsed
from holdfast.launch.torchrun_options import node_range
from holdfast.launch.typed_job import typed_job
from holdfast.model import amounts
from holdfast.model.human_format import counted
from holdfast.model.job_spec import JobSpec, PlatformJob
from holdfast.platforms.submission import Submission, SubmitRequest, Submitted
from holdfast.queue.core_client import ask, ask_if_any
from holdfast.queue.core_messages import AwaitEnd, SubmitJob
from holdfast.queue.core_place import machine_id
from holdfast.queue.job_start import JobSubmission, soft_limits, write_submission
from holdfast.record import report_file
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.job_views import reconcile
from holdfast.record.journal import Journal
from holdfast.record.owner_lock import NOT_BEGUN
from holdfast.record.submitted_jobs import keep_job_file
from holdfast.settings.resolved_settings import Settings
from holdfast.settings.yaml_sections import defaults, section
from holdfast.untrusted import Malformed

#: Variables that a job around this command has set, or that a logout makes invalid.
_DROPPED = frozenset({
    "HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_PROGRESS", "HOLDFAST_DRAIN", "HOLDFAST_LOGS", "HOLDFAST_ERRORS",
    "HOLDFAST_CPUS", "HOLDFAST_DEVICES", "HOLDFAST_QUEUE", "HOLDFAST_OUTER", "HOLDFAST_PLATFORM_RUN", "RANK",
    "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME",
    "SSH_AUTH_SOCK", "SSH_TTY", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR",
})  # fmt: skip
_DROPPED_PREFIXES = ("MASTER_", "TORCHELASTIC_", "PET_", "SLURM_")
_KEYS = ("devices", "gpus", "cpus", "memory", "time", "priority", "on", "exclusive", "output")


class _Wishes:
    """The values of the `local:` section: typed options win over the job file, and it wins over configuration files."""

    def __init__(self, request: SubmitRequest, text: bytes) -> None:
        where = f"job file {request.path}"
        try:
            in_file: Mapping[str, Any] = section(text, "local") or {}
        except Malformed as error:
            raise malformed(request.path, error) from None
        self._found: dict[str, tuple[Any, str]] = {}
        for path, values in reversed(defaults(request.home, "local")):
            self._found |= {key: (value, f"{path}: `local.{key}`") for key, value in values.items()}
        self._found |= {key: (value, f"{where}: `local.{key}`") for key, value in in_file.items()}
        self._found |= {key: (each.value, each.option) for key, each in request.options.items()}
        for key, (_, origin) in self._found.items():
            if key not in _KEYS:
                import difflib  # imported late: only a mistake needs it

                near = difflib.get_close_matches(key, _KEYS, n=1)
                meant = f"; did you mean `{near[0]}`?" if near else ""
                raise BadUsage(
                    f"{origin}: this queue has no such key: expected one of {', '.join(_KEYS)}{meant}",
                    hint="holdfast submit --help",
                )

    def origin(self, key: str) -> str:
        return self._found[key][1]

    def text(self, key: str) -> str:
        value = self._found.get(key, ("", ""))[0]
        return "" if value is None else str(value).strip()

    def flag(self, key: str) -> bool:
        return self.text(key).lower() in ("true", "yes", "on", "1")

    def count(self, key: str) -> int | None:
        """Return a number from 0. Raises `BadUsage`."""
        text = self.text(key)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 8):
            raise BadUsage(f"{self.origin(key)}: {text}: expected a number from 0", hint=f"holdfast submit --{key} 1 …")
        return int(text)


def _time_s(wishes: _Wishes) -> float | None:
    text = wishes.text("time")
    if not text:
        return None
    origin = wishes.origin("time")
    if re.fullmatch(r"\d+(\.\d+)?", text):
        raise BadUsage(
            f"{origin} {text}: expected a unit, because a bare number means minutes to Slurm and seconds to holdfast",
            hint=f"holdfast submit --time {text}m …, or --time {text}s …",
        )
    if clock := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d?)(?::(\d\d?))?", text):
        days, first, second, third = (int(part or 0) for part in clock.groups())
        if clock[1] is not None:
            found = days * 86400.0 + first * 3600 + second * 60 + third
        else:
            found = first * 3600.0 + second * 60 + third if clock[4] is not None else first * 60.0 + second
    else:
        found = amounts.seconds(text) or 0.0
    if found <= 0:
        raise BadUsage(f"{origin}: {text}: expected a time such as 4h, 1d12h, 90m or 1:30:00", hint="--time 4h")
    return found


def _priority(wishes: _Wishes) -> str:
    text = wishes.text("priority") or "normal"
    names = [each.name.lower() for each in Priority]
    if text not in names:
        raise BadUsage(
            f"{wishes.origin('priority')}: {text}: expected one of {', '.join(names)}",
            hint="holdfast submit --priority high …",
        )
    return text


class LocalSubmission(Submission):
    """A job for this machine's queue, checked by the client. The core checks what only the machine can tell."""

    unsubmitted = "nothing was submitted"

    def __init__(self, request: SubmitRequest, settings: Settings, text: bytes) -> None:
        self._request = request
        self._text = text
        wishes = _Wishes(request, text)
        self._time_s = _time_s(wishes)
        self._priority = _priority(wishes)
        self._output = str(Path(wishes.text("output")).absolute()) if wishes.text("output") else ""
        self._spec = self._job(settings)
        self._devices = self._devices_of(wishes)
        self._cpus, memory = wishes.count("cpus"), wishes.text("memory")
        self._memory = amounts.size_bytes(memory) if memory else _sum(self._spec, "memory_bytes")
        if memory and not self._memory:
            raise BadUsage(f"{wishes.origin('memory')}: {memory}: expected a size such as 64G", hint="--memory 64G")
        self._on = tuple(filter(None, re.split(r"[,\s]+", wishes.text("on"))))
        self._exclusive = wishes.flag("exclusive")
        hidden = [name for name in os.environ if name.endswith("_VISIBLE_DEVICES")]
        self.notes = tuple(
            f"{name}={os.environ[name]} is not passed to the job: the queue chooses the devices; to choose them "
            "yourself, use --on"
            for name in hidden
        )

    def _job(self, settings: Settings) -> JobSpec:
        options = self._request.run_options
        if options is None:
            found = parsed(self._request.path, self._text, runs=False).spec
            if any(role.image for role in found.roles):
                raise BadUsage(
                    f"job file {self._request.path}: `image`: this machine's queue runs no images; Slurm and "
                    "Kubernetes do",
                    hint=f"holdfast submit --platform slurm {self._request.path}",
                )
            name = settings.text("name")
            return replace(found, name=name) if name else found
        if node_range(options)[1] > 1 or settings.value("hosts") or settings.text("hostfile"):
            raise BadUsage(
                "behind `--`: this machine's queue runs jobs on one machine; Slurm and Kubernetes take several",
                hint="holdfast submit --platform slurm job.yaml",
            )
        python = workers_python(options, settings, warm=bool(settings.flag("warm")))
        return typed_job(options, settings, python.path, False, RunPlace()).spec

    def _devices_of(self, wishes: _Wishes) -> int | None:
        typed = [key for key in ("devices", "gpus") if wishes.text(key)]
        if len(typed) == 2 and wishes.count("devices") != wishes.count("gpus"):
            raise BadUsage(
                f"{wishes.origin('devices')} and {wishes.origin('gpus')}: expected one of them",
                hint="holdfast submit --devices 2 …",
            )
        found = wishes.count(typed[0]) if typed else None
        in_roles = None if self._request.run_options is not None else _sum(self._spec, "devices")
        if found is not None and in_roles is not None:
            raise BadUsage(
                f"{wishes.origin(typed[0])}: the job file has `resources.devices`, which counts here",
                hint=f"holdfast submit {self._request.path}",
            )
        workers = self._spec.world_size
        if found and self._request.run_options is not None and workers > 1 and found % workers:
            raise BadUsage(
                f"{wishes.origin(typed[0])}: {counted(found, 'device')} cannot be divided evenly among "
                f"{counted(workers, 'worker')}: expected a multiple of {workers}",
                hint=f"holdfast submit --devices {workers * max(1, found // workers)} …",
            )
        return found if found is not None else in_roles

    # ------------------------------------------------------------------------------------------------------ submitting

    def text(self) -> str:
        command = " ".join(self._command(str(self._request.path)))
        needs = self._wish("ID").needs
        memory = f", {needs.memory} bytes of memory" if needs.memory else ""
        devices = "as many devices as --devices says" if self._devices is None else counted(self._devices, "device")
        return f"{self._spec.name}: {devices}{memory}, priority {self._priority}\n{command}\n"

    def judged(self) -> tuple[str, tuple[str, ...]]:
        raise HoldfastError("this machine's queue judges no script", hint="holdfast submit --dry-run …")

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        place = self._place(now)
        job = PlatformJob(platform="local", id=place.job_id, cluster=machine_id())
        place.lock.note_queued(NOT_BEGUN, job)
        # The run takes this lock when the core starts it, which may be at once.
        place.lock.release()
        try:
            write_submission(place.directory, self._submission(place.home))
            answer = ask(place.home, self._wish(place.job_id), start=True)
            assert answer is not None, "a core was started"
        except BaseException:
            shutil.rmtree(place.directory, ignore_errors=True)
            raise
        if not answer.ok:
            shutil.rmtree(place.directory, ignore_errors=True)
            raise BadUsage(answer.message, hint=answer.hint)
        self._record(place, job, now)
        told(Submitted(job=job, name=self._spec.name, words=self._words(place.job_id)))
        return _end_of(place.home, place.job_id) if wait else 0

    def _place(self, now: float) -> JobPlace:
        place = claim(self._request.home, name=self._spec.name, now=now)
        if place.stand_in or place.lock.fd < 0:
            shutil.rmtree(place.directory, ignore_errors=True)
            raise HoldfastError(place.trouble, hint=f"ls -ld {self._request.home}")
        return place

    def _record(self, place: JobPlace, job: PlatformJob, now: float) -> None:
        journal = Journal.open(place.home)
        try:
            spec = replace(without_secrets(self._spec), platform=job)
            host = os.uname().nodename
            journal.create_job(place.job_id, spec, now=now, host=host, pid=os.getpid())
        finally:
            journal.close()

    def _submission(self, home: Path) -> JobSubmission:
        job_file = ""
        if self._request.run_options is None:
            job_file = str(keep_job_file(home, self._spec.name, self._text))
        return JobSubmission(
            command=self._command(job_file),
            directory=str(Path.cwd()),
            environment=environment_for_job(os.environ) | {"HOLDFAST_HOME": str(home)},
            umask=users_umask(),
            limits=soft_limits(),
            output=self._output,
        )

    def _command(self, job_file: str) -> tuple[str, ...]:
        limit = ("--time-limit", f"{self._time_s:g}") if self._time_s is not None else ()
        run = (sys.executable, "-P", "-m", "holdfast", "run", *limit)
        if self._request.run_options is None:
            return (*run, "--job", job_file, *self._request.run_words)
        return (*run, *self._request.run_words)

    def _wish(self, job_id: str) -> SubmitJob:
        return SubmitJob(
            id=job_id,
            name=self._spec.name,
            needs=Needs(
                devices=self._devices or 0,
                cpus=self._cpus or 0,
                memory=self._memory,
                on=self._on,
                exclusive=self._exclusive,
            ),
            devices_known=self._devices is not None or bool(self._on),
            workers=self._spec.world_size,
            priority=self._priority,
            time_s=self._time_s,
        )

    def _words(self, job_id: str) -> str:
        return f"job {job_id} ({self._spec.name}) is in this machine's queue\n  to look    holdfast queue"


def _sum(spec: JobSpec, field: str) -> int | None:
    """Return how much of a resource all workers need; None if no role says it."""
    each = [(role.count, getattr(role.resources, field)) for role in spec.roles]
    known = [count * value for count, value in each if value is not None]
    return int(sum(known)) if known else None


def environment_for_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's run: the user's own, without what a job or a login has added."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _DROPPED
        and not name.startswith(_DROPPED_PREFIXES)
        and not name.endswith("_VISIBLE_DEVICES")
        and (name, value) != ("OMP_NUM_THREADS", "1")
    }


def _end_of(home: Path, job_id: str) -> int:
    """Wait for the job's end, and return its final code."""
    while True:
        answer = ask_if_any(home, AwaitEnd(id=job_id), limit_s=None)
        if answer is None or answer.ok:
            break
    report = report_file.read(home, job_id)
    if report is None:
        # Imported late: only an owner that died has left no report.
        from holdfast.explain.causes.lost_owner import explain_lost_owner

        reconcile(home, explain_lost_owner)
        report = report_file.read(home, job_id)
    return report.report.code if report is not None else 1
