"""Submit a job file as a batch script to Slurm, for `holdfast submit --platform slurm`."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import BadUsage, HoldfastError
from holdfast.launch.image_runtime import images_of
from holdfast.launch.jobfile.job_file_mistakes import malformed
from holdfast.launch.jobfile.job_file_reader import parsed
from holdfast.model.job_spec import JobSpec, PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.blocking_query import query, run_to_end, trouble_of
from holdfast.platforms.slurm.job_identity import NAME as SLURM
from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble
from holdfast.platforms.slurm.submit.sbatch_refusals import NEVER, SbatchRefusal, sbatch_refusal
from holdfast.platforms.slurm.submit.slurm_queue import cluster
from holdfast.platforms.slurm.text.sbatch_script import SbatchScriptSpec, directives, script
from holdfast.platforms.slurm.text.slurm_options import BY_KEY, SlurmOptions, SlurmValue, nearest, slurm_options
from holdfast.platforms.submission import Submission, SubmitRequest, Submitted
from holdfast.platforms.submit_request import must_know_its_names
from holdfast.record.submitted_jobs import SubmissionRecord, job_file_place, keep_job_file, write_submission
from holdfast.safe_files import replace_file
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.yaml_sections import defaults, section
from holdfast.untrusted import Malformed, yaml_value
from holdfast.version import __version__

#: Time limit of sbatch, in seconds. sbatch itself retries while slurmctld is busy.
SBATCH_S = 60.0
#: Time limit of optional queries after the submission, in seconds.
QUERY_S = 2.0

#: Maps a key of the `slurm:` section to other sbatch options that request the same resource.
_ASKED_BY = {
    "gpus": frozenset({"gres", "gpus", "gpus-per-task", "gpus-per-socket", "tres-per-task", "exclusive"}),
    "cpus": frozenset({"exclusive", "cpus-per-gpu", "mincpus", "tres-per-task"}),
    "memory": frozenset({"exclusive", "mem-per-cpu", "mem-per-gpu"}),
}
_OF_A_JOB = ("SLURM_", "PMI_", "PMIX_")
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
_VARIABLES = {"time": "TIMELIMIT", "array": "ARRAY_INX", "mem": "MEM_PER_NODE", "switches": "REQ_SWITCH"}


class PreparedScript(Noun, frozen=True, kw_only=True):
    """A job's batch script, with the data that is needed to submit it."""

    order: SbatchScriptSpec
    script: str
    #: Contents of the job file.
    text: bytes
    home: Path
    notes: tuple[str, ...] = ()


def prepare(request: SubmitRequest, settings: Settings, text: bytes, *, cwd: Path) -> PreparedScript:
    """Build the job's script. Nothing is stored, and no Slurm command runs. Raises `BadUsage` for a user's mistake."""
    path = request.path
    job = parsed(path, text, here=False)
    hint = f"{os.environ.get('EDITOR') or 'vi'} {path}"
    try:
        said = section(text, SLURM) or {}
    except Malformed as error:
        raise malformed(path, error) from None
    file = {
        key: SlurmValue(value=value, origin=f"job file {path}: `{SLURM}.{key}`", hint=hint)
        for key, value in said.items()
    }
    typed = {
        key: SlurmValue(value=each.value, origin=each.option, hint="holdfast submit --help")
        for key, each in request.options.items()
    }
    vc = job.spec.virtual_cluster
    charged = {"partition": SlurmValue(value=vc, origin=f"job file {path}: `virtualCluster`", hint=hint)} if vc else {}
    asked = slurm_options([typed, file, charged, *_defaults(request.home)])
    name = str(settings.value("name")) if settings.source("name") is SettingSource.OPTION else job.spec.name
    images = images_of(job.spec)
    spares = _spares(asked, settings)
    order = SbatchScriptSpec(
        name=name,
        wanted=asked,
        spares=spares,
        home=str(request.home),
        job_file=str(job_file_place(request.home, job.spec.name, text)),
        source=_harmless(path),
        python=asked.text("python") or sys.executable,
        words=(*(("--image-runtime", "none" if asked.no_image else "auto") if images else ()), *request.run_words),
        version=__version__,
    )
    data = yaml_value(text)  # the value is a mapping, because the file was parsed above
    must_know_its_names(path, job, data.get("secrets") or (), os.environ)
    made = script(order)
    chdir = dict(asked.further).get("chdir")
    start = cwd / chdir if chdir else cwd
    _must_be_there(asked, "output", start)
    _must_be_there(asked, "report", start)
    most, workers = asked.nodes[1], job.spec.world_size
    notes = [_doubt(asked, key) for key, _ in asked.further if nearest(key)]
    notes.append(_image_note(path, images, not asked.no_image))
    notes.append(_not_asked(path, job.spec, asked))
    if most > workers:
        notes.append(
            f"the {workers} {'worker' if workers == 1 else 'workers'} of {path} cannot use {most} nodes: `count` of a "
            "role is the number of workers on all nodes together"
        )
    return PreparedScript(order=order, script=made, text=text, home=request.home, notes=tuple(filter(None, notes)))


def _image_note(path: Path, images: list[str], runs: bool) -> str:
    """Return a sentence about the program that runs the job's images. Return "" if the job has no images."""
    if not images:
        return ""
    how = (
        "apptainer, singularity or enroot (pyxis) on the nodes runs it"
        if runs
        else "left out: workers run under the nodes' software"
    )
    return f"job file {path}: image {', '.join(images)}: {how}" + ("; --no-image runs without" if runs else "")


def _not_asked(path: Path, spec: JobSpec, asked: SlurmOptions) -> str:
    """Return a warning if the job file does not request the workers' GPUs, cores or memory from Slurm, else ""."""
    further = {name for name, _ in asked.further}
    needs: dict[str, float] = {"gpus": 0, "cpus": 0, "memory": 0}
    for role in spec.roles:
        each = role.resources
        needs["gpus"] += role.count * (each.devices or 0)
        needs["cpus"] += role.count * (each.cpus or 0)
        needs["memory"] += role.count * (each.memory_bytes or 0) / (1 << 30)
    units = {"gpus": ("GPU", "GPUs"), "cpus": ("core", "cores"), "memory": ("GiB of memory",) * 2}
    found = [
        f"{needs[key]:.3g} {units[key][needs[key] != 1]} (--{key})"
        for key, others in _ASKED_BY.items()
        if needs[key] and asked.text(key) is None and not further & others
    ]
    if not found:
        return ""
    return (
        f"job file {path}: its workers need {', '.join(found)} in all, and Slurm is not asked for them: each node "
        "gives what Slurm gives by default"
    )


def _defaults(home: Path) -> list[dict[str, SlurmValue]]:
    try:
        files = defaults(home, SLURM)
    except Malformed as error:
        raise BadUsage(str(error), hint="holdfast config") from None
    return [
        {
            key: SlurmValue(value=value, origin=f"{file}: `{SLURM}.{key}`", hint=f"grep -n {key!r} {file}")
            for key, value in said.items()
        }
        for file, said in files
    ]


def _spares(asked: SlurmOptions, settings: Settings) -> int:
    """Return the number of spares, counted as in `holdfast run`.

    A default from settings applies only to jobs on several nodes.
    """
    if asked.spares is not None:
        return asked.spares
    return (settings.count("spares") or 0) if asked.nodes[1] > 1 else 0


def _harmless(path: Path) -> str:
    """Make a path safe for a comment in the script: the path may contain line ends."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def _must_be_there(asked: SlurmOptions, key: str, cwd: Path) -> None:
    """Raise `BadUsage` if the directory of the file named by `key` is missing. Slurm would silently drop the output."""
    pattern = asked.text(key)
    if pattern is None:
        return
    folder = (cwd / pattern.partition("%")[0] / "x").parent if pattern.partition("%")[0].endswith("/") else None
    folder = folder or (cwd / pattern.partition("%")[0]).parent
    if not folder.is_dir():
        raise BadUsage(
            f"{asked.origins[key]}: there is no directory {folder}: expected one that is there, for {pattern}",
            hint=f"mkdir -p {folder}",
        )


def _doubt(asked: SlurmOptions, key: str) -> str:
    return f"{asked.origins[key]} becomes --{key} of sbatch; did you mean `{nearest(key)}`?"


class SlurmSubmission(Submission):
    """A job file that is to be submitted to Slurm."""

    def __init__(self, request: SubmitRequest, settings: Settings, text: bytes) -> None:
        """Validate the job file and prepare the batch script. Raises `BadUsage` for a user's mistake."""
        self._prepared = prepare(request, settings, text, cwd=Path.cwd())
        self.notes = self._prepared.notes
        copy = self._prepared.order.job_file
        self.unsubmitted = f"nothing was submitted; the job would run from a copy of {request.path}: {copy}"

    def text(self) -> str:
        return self._prepared.script

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        def known(job: PlatformJob) -> None:
            told(Submitted(job=job, name=self._prepared.order.name, words=_words(job, self._prepared)))
            if sorry := will_not_start(job, self._prepared):
                say(sorry)

        return submit(self._prepared, now=now, wait=wait, environment=os.environ, told=known)


def _words(job: PlatformJob, prepared: PreparedScript) -> str:
    array = prepared.order.wanted.text("array")
    one = f"{job.id}_{array.partition('%')[0].partition(',')[0].partition('-')[0]}" if array else job.id
    many = f", an array of jobs {array}" if array else ""
    return (
        f"submitted {prepared.order.name} as Slurm job {job.id}{many}\n"
        f"  look at it   holdfast show {one}\n"
        f"  its logs     holdfast logs -f {one}\n"
        f"  end it       holdfast stop {job.id} --reason TEXT"
    )


# ------------------------------------------------------------------------------------------------ submitting the script


def submit(
    prepared: PreparedScript,
    *,
    now: float,
    wait: bool,
    environment: Mapping[str, str],
    told: Callable[[PlatformJob], None],
) -> int:
    """Submit the job. `told` is called with the job's id as soon as it is known. `now`: seconds since the epoch.

    Return 0. With `wait`, wait for the job's end and return its exit status. Raises `BadUsage` if sbatch rejects the
    job, and HoldfastError if sbatch could not reach Slurm.
    """
    home, order = prepared.home, prepared.order
    try:
        keep_job_file(home, Path(order.job_file).name.rpartition("-")[0], prepared.text)
        file = _keep_script(prepared)
    except OSError as error:
        raise HoldfastError(
            f"the state directory {home} cannot be written ({(error.strerror or str(error)).lower()}), and the job "
            "file has to be kept there for the job",
            hint=f"ls -ld {home}; df -h {home}",
        ) from error
    env = _handed_on(environment, order)
    words = ("sbatch", "--parsable", *(("--wait",) if wait else ()), str(file))
    found: list[PlatformJob] = []

    def line(text: str) -> None:
        if (job := _id_of(text)) is not None:
            job = replace(job, cluster=job.cluster or cluster())
            found.append(job)
            _note(prepared, job, now)
            told(job)

    if wait:
        try:
            status, err = run_to_end(words, env, line)
            answer = trouble_of(words, status, err)
        except OSError as error:
            status, answer = 1, CommandOutput(words=words, trouble=CommandTrouble.MISSING, err=str(error.strerror))
    else:
        status, answer = 0, query(words, limit_s=SBATCH_S, environment=env)
        if answer.ok:
            line(answer.out.strip().splitlines()[-1] if answer.out.strip() else "")
    if not found:
        raise _refused(prepared, sbatch_refusal(answer, order.wanted.origins), answer)
    return status


def will_not_start(job: PlatformJob, prepared: PreparedScript) -> str:
    """Return a sentence about a job that Slurm will never start as it is, with a command to try. Return "" for other
    jobs.
    """
    answer = query(["squeue", "-h", "-a", "-j", job.id, "-o", "%r"], limit_s=QUERY_S)
    reason = answer.out.split("\n")[0].strip().strip("()") if answer.ok else ""
    if reason not in NEVER:
        return ""
    key, said, command = NEVER[reason]
    where = f"{prepared.order.wanted.origins[key]}: " if key in prepared.order.wanted.origins else ""
    return (
        f"{where}job {job.id} waits, and will not start as it is: {reason} ({said})\n  try: {command}; scancel {job.id}"
    )


def _keep_script(prepared: PreparedScript) -> Path:
    """Store the script in the state directory. Slurm runs its own copy, but its records name this file."""
    text = prepared.script.encode("utf-8", "surrogateescape")
    place = Path(prepared.order.job_file)
    file = place.with_name(f"{prepared.order.name}-{hashlib.sha256(text).hexdigest()[:12]}.sh")
    if not file.exists():
        replace_file(file, text)
    return file


def _note(prepared: PreparedScript, job: PlatformJob, now: float) -> None:
    """Store the submission in the state directory, so that `holdfast jobs` shows the job before its start."""
    order = prepared.order
    output = dict(directives(order)).get("output") or ""
    said = SubmissionRecord(
        platform=job,
        name=order.name,
        at=now,
        array=order.wanted.text("array") or "",
        job_file=order.job_file,
        output=output,
    )
    try:
        write_submission(prepared.home, said)
    except OSError:
        pass  # the job is queued nevertheless; `holdfast jobs` shows it only after its start


def _id_of(line: str) -> PlatformJob | None:
    """Parse the output of sbatch: `42`, or `42;cluster`."""
    number, _, cluster = line.strip().partition(";")
    if not (number.isascii() and number.isdigit()):
        return None
    return PlatformJob(platform=SLURM, id=number, cluster=cluster)


def _handed_on(environment: Mapping[str, str], order: SbatchScriptSpec) -> dict[str, str]:
    """Return the user's environment for the job, without variables of a Slurm job in which `submit` may run.

    sbatch prefers its variables to the options in the script. So SBATCH variables for options that the script contains
    are removed. SBATCH variables that remain are a site's defaults.
    """
    stated = {option for option, _ in directives(order)}
    stated |= {"requeue", "no-requeue", "wait", "parsable", "debug"}
    beaten = {f"SBATCH_{_VARIABLES.get(option, option.upper().replace('-', '_'))}" for option in stated}
    inside = "SLURM_JOB_ID" in environment
    return {
        name: value
        for name, value in environment.items()
        if name not in beaten and not (inside and name.startswith(_OF_A_JOB) and name not in _KEPT)
    }


def _refused(prepared: PreparedScript, why: SbatchRefusal, answer: CommandOutput) -> HoldfastError:
    origin = prepared.order.wanted.origins.get(why.key, "")
    advice = why.advice
    if why.key == "partition" and not why.ours:
        advice += _nearest_partition(prepared.order.wanted.text("partition"))
    where = f"{origin}: " if origin else f"`{why.key}`: " if why.key in BY_KEY else ""
    said = f" (sbatch: {why.said})" if why.said else ""
    if why.ours:
        return HoldfastError(f"the job was not submitted: {advice}{said}", hint=why.hint)
    return BadUsage(f"{where}the job was not submitted: {advice or 'sbatch refused it'}{said}", hint=why.hint)


def _nearest_partition(text: str | None) -> str:
    """Return a clause for a message: the existing partitions, and the one that the user probably meant by `text`.
    Return "" if Slurm does not answer.
    """
    answer = query(["sinfo", "-h", "-o", "%R"], limit_s=QUERY_S)
    names = sorted(set(answer.out.split())) if answer.ok else []
    if not names:
        return ""
    import difflib

    near = difflib.get_close_matches(text or "", names, n=1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"; there are {', '.join(names[:8])}{' and more' if len(names) > 8 else ''}{meant}"
