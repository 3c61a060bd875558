"""From what was typed after `holdfast run` to a launch: all that can be wrong is found before anything starts."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadUsage
from holdfast.record.home import home_of

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.loop.many import Many
    from holdfast.loop.order import Interpreter, JobFile, OverNodes, Render, Warmth
    from holdfast.loop.prechecks.plan import CheckPlan
    from holdfast.loop.sent import Joining
    from holdfast.model.jobs import JobSpec
    from holdfast.settings.chosen import Settings

WARM_UNLESS_TOLD = False
"""docs/decisions/0006-warm-default.md"""


def start(
    given: dict[str, Any],
    guard_fd: int | None = None,
    *,
    render: Render,
    over_nodes: OverNodes,
    joining: Joining | None = None,
) -> int:
    """Run what was typed, by parameter names; the job's final code. `unheeded` lists options that mean nothing here.

    `guard_fd`: what tells of the guard's death where there is a guard already; otherwise one is made. `render`: puts
    the report into words at the end. `over_nodes`: for a job that leaves this machine. `joining`: a starter has started
    this process, for a job that was typed elsewhere.
    """
    from holdfast.loop.torchrun import with_variables
    from holdfast.settings.chosen import resolve
    from holdfast.settings.table import BY_NAME

    given = with_variables(given, os.environ)
    where = home_of(os.environ)
    settings = resolve(
        {name: value for name, value in given.items() if name.replace("_", "-") in BY_NAME}, os.environ, where
    )
    launch = _launch(given, settings, where, render, joining, guard_fd)
    if launch.nodes is not None:
        return over_nodes(launch, guard_fd)
    from holdfast.loop.run import run

    if guard_fd is not None:
        return run(launch, guard_fd)
    from holdfast.loop.guarding import under_guard

    return under_guard(lambda fd: run(launch, fd))


def _launch(
    given: dict[str, Any],
    settings: Settings,
    where: Path,
    render: Render,
    joining: Joining | None,
    guard_fd: int | None,
) -> Any:
    """Everything that can be wrong is found here, before anything is started."""
    from holdfast.loop.devices.options import KERNEL_LOG, FaultOptions
    from holdfast.loop.machines import over_machines
    from holdfast.loop.order import Launch
    from holdfast.loop.torchrun import check_devices, meeting_place, number, ranks, refuse
    from holdfast.observe.std import parse_std
    from holdfast.settings.chosen import Source

    python = _interpreter(given, settings)
    job_of = partial(_job, given, settings, python.path)
    job, many, staying = over_machines(given, settings, job_of, where, joining, guard_fd)
    refuse(given, many=many is not None)
    spec = job.spec
    here = spec.world_size if many is None else many.order.slots
    check_devices(given, here)
    addr, port = (None, None) if many else meeting_place(given)
    _room_for_files(here, spec.nodes.most + spec.nodes.spares if many is not None and many.order.hosts else 0)
    catalogue, exit_notes = _catalogue(settings)
    fault_codes, fault_rules = settings.text("fault-codes"), settings.text("fault-rules")
    fault_notes: tuple[str, ...] = ()
    if fault_codes or fault_rules:
        from holdfast.loop.devices.policy_files import load_policy

        # The user learns what is wrong with the files before anything starts, not once a fault is there.
        fault_notes = load_policy(fault_codes, fault_rules).warnings
    environment = dict(os.environ)
    if not python.own:
        from holdfast.loop.interpreter import with_our_part

        environment = with_our_part(environment)
    if given["job"]:
        environment.setdefault("PYTHONUNBUFFERED", "1")
    # Everything is teed unless redirected; a tee that the user asked for wins over a redirect, as in torchrun.
    tee = settings.text("tee") if settings.source("tee") is not Source.DEFAULT else "0"
    log_dir = settings.text("log-dir")
    warm = _warm(job, settings)
    return Launch(
        render=render,
        spec=spec,
        home=where,
        cwd=Path.cwd(),
        environment=environment,
        checks=_checks(spec, settings),
        redirects=parse_std(settings.text("redirects") or "0"),
        tee=parse_std(tee or "0", "--tee"),
        shown_ranks=ranks(given),
        log_dir=Path(log_dir).absolute() if log_dir else None,
        report_path=_new_file("--report", settings.text("report")),
        as_json=bool(settings.flag("json")),
        run_id=given["rdzv_id"] or "",
        master_addr=addr or "127.0.0.1",
        master_port=number(given, "master_port", port, 1, 65535),
        virtual_local_rank=given["virtual_local_rank"],
        python=python.path,
        no_warmth=python.cold,
        stdin=_stdin(settings, here * spec.nodes.most),
        notes=_notes(given, staying, many)
        + ((python.note,) if python.note else ())
        + _unused_settings(where)
        + _standing_by(warm, settings)
        + _stackless(spec)
        + exit_notes
        + fault_notes,
        faults=FaultOptions(
            codes=fault_codes,
            rules=fault_rules,
            kernel_log=settings.text("kernel-log") or KERNEL_LOG,
            socket=_new_file("--fault-socket", settings.text("fault-socket")),
            file=_new_file("--fault-file", settings.text("fault-file")),
            ascend_events=_new_file("--ascend-events", settings.text("ascend-events")),
            reset_command=_reset_command(settings),
            reset_group=settings.count("reset-group") or 1,
        ),
        disk_limit=settings.limit("disk-limit"),
        warm=warm,
        catalogue=catalogue,
        nodes=many.order if many else None,
    )


def _unused_settings(home: Path) -> tuple[str, ...]:
    """The machine's file of settings, where another user could have written it. `claim` reports on the home's."""
    from holdfast.settings.chosen import unused_files

    return tuple(said for said in unused_files(home) if not said.startswith(f"{home}/"))


_FILES, _FILES_A_WORKER, _FILES_A_NODE = 40, 6, 2
"""What a supervisor has open at most: of its own, and for each worker (pipes, logs, pidfd) and node (socket, ssh)."""


def _room_for_files(workers: int, nodes: int) -> None:
    """Refuse a limit that the gang cannot start under now, not as the failure of some rank."""
    allowed = os.sysconf("SC_OPEN_MAX")
    needed = _FILES + _FILES_A_WORKER * workers + _FILES_A_NODE * nodes
    if 0 <= allowed < needed:
        raise BadUsage(
            f"only {allowed} files may be open at a time here (ulimit -n); holdfast needs {needed} for {workers} "
            f"{'worker' if workers == 1 else 'workers'}: {_FILES} of its own, and {_FILES_A_WORKER} for each"
            + (f", and {_FILES_A_NODE} for each of {nodes} nodes" if nodes else ""),
            hint=f"ulimit -n {max(needed, 4096)}  (LimitNOFILE= in a service, --ulimit nofile= of a container)",
        )


def _catalogue(settings: Settings) -> tuple[Catalogue | None, tuple[str, ...]]:
    """The rows exits are explained by, where the user brings some, and what of those is left out."""
    name = settings.text("exits")
    if name is None:
        return None, ()
    from holdfast.loop.explain import catalogue_with

    catalogue, problems = catalogue_with([name])
    return catalogue, tuple(problems)


def _new_file(option: str, text: str | None) -> Path | None:
    """Where a file is to be written at the end: a place that is not there is refused now, not after the night."""
    if not text:
        return None
    path = Path(text).absolute()
    from holdfast.loop.given import must_answer  # most runs write no such file

    must_answer(path, option, path.is_dir)
    if path.is_dir():
        raise BadUsage(
            f"{option} {text}: it is a directory; expected a file to write", hint=f"{option} {text}/report.json"
        )
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadUsage(
            f"{option} {text}: {path.parent} is no directory that can be written", hint=f"mkdir -p {path.parent}"
        )
    return path


def _reset_command(settings: Settings) -> str | None:
    """As it was given; a command that cannot be split into words is refused now."""
    text = settings.text("reset-command")
    if text is None:
        return None
    import shlex  # compiles a pattern

    try:
        empty = not shlex.split(text)
    except ValueError as error:
        raise BadUsage(f"{settings.origin('reset-command')} {text!r}: {error}; expected a command") from error
    if empty:
        raise BadUsage(f"{settings.origin('reset-command')} {text!r}: expected a command")
    return text


def _checks(spec: JobSpec, settings: Settings) -> CheckPlan | None:
    """Which pre-checks there will be. None where the user wanted none: then nothing of them is even imported."""
    names = settings.chosen_checks()
    plugins = settings.names("plugin") or ()
    if not plugins and (names == () or (names is None and spec.checks == ())):
        return None
    from holdfast.loop.prechecks.plan import choices_from_text, plan_checks

    if names is None:
        choices = spec.checks
    else:
        choices = choices_from_text(",".join(names)) if names else ()
    return plan_checks(choices, plugins=plugins, timeout_s=settings.number("check-timeout"))


def _notes(given: dict[str, Any], staying: str, many: Many | None) -> tuple[str, ...]:
    """What is to be said of words that mean nothing here."""
    from holdfast.loop.torchrun import unused

    said = unused(given, many=many is not None)
    where = "here" if many else "on one machine"
    ignored = (f"{', '.join(said)}: no meaning {where}, ignored",) if said else ()
    return ((staying,) if staying else ()) + (many.notes if many else ()) + ignored


def _warm(job: JobFile, settings: Settings) -> Warmth | None:
    """How workers are started warm; None: cold. What was typed or set beats the job file."""
    from holdfast.loop.order import Warmth
    from holdfast.settings.chosen import Source

    asked = settings.flag("warm")
    if asked is None:
        asked = job.warm
    if not (WARM_UNLESS_TOLD if asked is None else asked):
        return None
    preload = settings.names("preload") if settings.source("preload") is not Source.DEFAULT else job.preload
    limit_s = settings.number("warm-timeout")
    return Warmth(
        preload=preload or (), standby=bool(settings.flag("standby")), import_s=120.0 if limit_s is None else limit_s
    )


def _stackless(spec: JobSpec) -> tuple[str, ...]:
    """Name what a hang's report would lack while it can still be had."""
    if spec.hang_timeout_s is None:
        return ()
    from holdfast.observe.stacks import find_py_spy

    if find_py_spy():
        return ()
    lacks = "py-spy is not installed: a hang will be told with the stacks that workers write as they are stopped"
    return (f"{lacks}, and not all of them do (pip install py-spy)",)


def _standing_by(warm: Warmth | None, settings: Settings) -> tuple[str, ...]:
    from holdfast.settings.chosen import Source

    if warm is None and settings.flag("standby") and settings.source("standby") is Source.OPTION:
        return ("--standby: nothing is kept waiting, for workers start cold; it goes with --warm",)
    return ()


def _job(given: dict[str, Any], settings: Settings, python: str, over_many: bool) -> JobFile:
    from msgspec.structs import replace

    from holdfast.loop.order import JobFile
    from holdfast.model.jobs import NAME, JobSpec, RestartPolicy, Role, Timers
    from holdfast.settings.chosen import Source

    words: tuple[str, ...] = given["words"]
    name = settings.text("name")
    if name is not None and not NAME.fullmatch(name):
        raise BadUsage(
            f"--name {name!r}: expected letters, digits, `.`, `_` or `-`, at most 63",
            hint="holdfast run --name my-job …",
        )
    if given["job"]:
        if words:
            raise BadUsage(
                f"--job {given['job']} and {words[0]!r}: expected a job file or a script, not both",
                hint=f"holdfast run --job {given['job']}",
            )
        if given["nproc_per_node"] and not over_many:
            raise BadUsage(
                "--nproc-per-node with --job: the job file's `count` says how many workers there are",
                hint=f"holdfast run --job {given['job']}",
            )
        from holdfast.loop.jobfile import load

        job = load(Path(given["job"]))
    else:
        from holdfast.loop.program import command_of, plain_name
        from holdfast.loop.torchrun import workers

        own = not given["run_path"]  # as in torchrun, that wins over the other two
        command = command_of(words, python, module=own and given["module"], plain=own and given["no_python"])
        role = given["role"] or "worker"
        # Any role may be named; what names directories has fewer letters to choose from.
        env = {} if role.isalnum() or NAME.fullmatch(role) else {"ROLE_NAME": role}  # a pattern costs a start 1 ms
        name_of_role = plain_name(role, "worker") if env else role
        count = workers(given)
        roles = (Role(name=name_of_role, count=count, command=command, env=env),)
        spec = JobSpec(name=plain_name(Path(words[0]).name.removesuffix(".py"), "job"), roles=roles)
        job = JobFile(spec, None, ())
    spec = job.spec

    def chosen(setting: str, current: Any) -> Any:
        """The setting where the user set it, else the job's."""
        return settings.value(setting) if settings.source(setting) is not Source.DEFAULT else current

    restarts: RestartPolicy = spec.restarts
    timers: Timers = spec.timers
    spec = replace(
        spec,
        name=name or spec.name,
        restarts=replace(
            restarts,
            max_restarts=chosen("max-restarts", restarts.max_restarts),
            same_failure=chosen("same-failure", restarts.same_failure),
        ),
        timers=replace(
            timers,
            grace_s=chosen("grace", timers.grace_s),
            owner_wait_s=chosen("owner-wait", timers.owner_wait_s),
        ),
        hang_timeout_s=chosen("hang-timeout", spec.hang_timeout_s),
        hang_warning_s=chosen("hang-warning", spec.hang_warning_s),
        time_limit_s=chosen("time-limit", spec.time_limit_s),
        job_comment=bool(settings.flag("job-comment")),
    )
    if "SLURM_JOB_ID" in os.environ:
        spec = _of_slurm(spec, at_time_limit=bool(settings.flag("requeue-at-limit")))
    return replace(job, spec=spec)


def _of_slurm(spec: JobSpec, *, at_time_limit: bool) -> JobSpec:
    """The job as one of Slurm's: what that calls it, and that it may be started again."""
    from msgspec.structs import replace

    from holdfast.cluster.slurm.identity import platform_job  # a run outside of Slurm knows nothing of it
    from holdfast.model.jobs import Requeuing

    found = platform_job(os.environ)
    # Whether Slurm allows it is asked where it is wanted: that can be changed while the job runs.
    possible = found is not None and "HOLDFAST_ATTEMPT" not in os.environ
    return replace(spec, platform=found, requeue=Requeuing(possible=possible, at_time_limit=at_time_limit))


def _interpreter(given: dict[str, Any], settings: Settings) -> Interpreter:
    """The workers' Python; holdfast's own where their commands say it themselves."""
    import sys

    from holdfast.loop.order import Interpreter
    from holdfast.settings.chosen import Source

    asked = settings.text("python")
    if not (given["job"] or given["no_python"]):
        places = [os.environ.get(name) for name in ("PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX")]
        if not asked and all(place in (None, "", sys.prefix) for place in places):
            return Interpreter(sys.executable)
        from holdfast.loop.interpreter import choose  # only where there is something to choose

        return choose(asked, settings.origin("python"), os.environ, Path.cwd())
    if asked and settings.source("python") is Source.OPTION:
        other = "--job" if given["job"] else "--no-python"
        raise BadUsage(
            f"--python {asked} with {other}: the command there says by itself what runs it",
            hint=f"holdfast run --python {asked} train.py",
        )
    return Interpreter(sys.executable)


def _stdin(settings: Settings, workers: int) -> int | None:
    text = settings.text("stdin") or "0"
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < workers):
        raise BadUsage(
            f"{settings.origin('stdin')} {text}: expected a rank from 0 to {workers - 1}, or none",
            hint="holdfast run --stdin 0 …",
        )
    return int(text)
