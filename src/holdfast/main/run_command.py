"""Turns the words after `holdfast run` into a launch. Every mistake is found before anything starts."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.act.guard import HandBack
from holdfast.act.open_files import make_room
from holdfast.act.rendezvous_ports import own_loopback
from holdfast.bundle_detection import in_tree
from holdfast.errors import BadUsage
from holdfast.launch.accelerate_config import accelerate_config
from holdfast.launch.image_runtime import image_words
from holdfast.launch.interpreter import workers_python
from holdfast.launch.launch_spec import (
    KERNEL_LOG,
    FaultOptions,
    LaunchSpec,
    MultiNodeRunner,
    Render,
    with_our_part,
)
from holdfast.launch.torchrun_options import (
    check_devices,
    meeting_place,
    number,
    ranks,
    refuse,
    unused,
    with_variables,
)
from holdfast.launch.worker_output_options import parse_std
from holdfast.main.job_preparation import must_answer
from holdfast.main.platform_choice import job_here, over_machines
from holdfast.main.run_guard import under_guard
from holdfast.main.single_machine_run import run
from holdfast.model.human_format import counted
from holdfast.node.devices.visible_devices import must_fit
from holdfast.node.exit_status import TERMINATION_LOG
from holdfast.node.job_settings import with_job_settings
from holdfast.node.outer_process import outer_of
from holdfast.observe.output_pump import TEMPLATE_VARIABLE
from holdfast.observe.python_stacks import find_py_spy
from holdfast.platforms.platform_registry import platform_around
from holdfast.record.local_time import use_utc
from holdfast.record.state_directory import home_of
from holdfast.settings.resolved_settings import Settings, SettingSource, resolve, unused_files

if TYPE_CHECKING:
    from holdfast.launch.agent_launch import AgentJoin
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.model.job_spec import JobSpec
    from holdfast.model.notice_messages import NoticePlan
    from holdfast.settings.run_options import RunOptions


def start(
    options: RunOptions,
    guard_fd: int | None = None,
    *,
    render: Render,
    over_nodes: MultiNodeRunner,
    joining: AgentJoin | None = None,
) -> int:
    """Run the command that the user typed. Return the job's final code.

    `guard_fd`: descriptor that becomes readable when the guard dies; None: create a guard.
    `render`: formats the final report as text.
    `over_nodes`: runs a job on several machines.
    `joining`: the agent's order, if a starter started this process for a job that was typed elsewhere.
    """
    options = with_variables(options, os.environ)
    where = home_of(os.environ)
    settings = resolve(options.settings(), os.environ, where)
    if settings.flag("utc"):
        use_utc()
    options, notes = _with_accelerate(options, settings) if joining is None else (options, ())
    if options.log_line_prefix_template is not None:
        os.environ[TEMPLATE_VARIABLE] = options.log_line_prefix_template  # agents on other nodes inherit the variable
    launch = _launch(options, settings, where, render, joining, guard_fd, notes)
    if launch.nodes is not None:
        if guard_fd is not None and guard_fd >= 0:
            raise HandBack  # a job on several nodes runs in the guard itself
        return over_nodes(launch)
    if guard_fd is not None:
        return run(launch, guard_fd)
    return under_guard(lambda fd: run(launch, fd))


def _with_accelerate(options: RunOptions, settings: Settings) -> tuple[RunOptions, tuple[str, ...]]:
    """Return the options completed with accelerate's config file, and a note.

    As in `accelerate launch`, the config's variables are set in this process's environment, so workers on all machines
    inherit them.
    """
    file = settings.text("accelerate-config")
    if not file or (
        (options.job or options.command_from) and settings.source("accelerate-config") is not SettingSource.OPTION
    ):
        return options, ()
    if options.job or options.command_from:
        raise BadUsage(
            f"--accelerate-config {file} with --{'job' if options.job else 'command-from'}: expected a script",
            hint=f"holdfast run --accelerate-config {file} train.py",
        )
    config = accelerate_config(Path(file), settings.origin("accelerate-config"))
    os.environ.update(config.environment)
    listed = settings.value("hosts") or settings.text("hostfile") or platform_around(os.environ) is not None
    return config.filled(options, machines=not listed), (config.note,)


def _launch(
    options: RunOptions,
    settings: Settings,
    where: Path,
    render: Render,
    joining: AgentJoin | None,
    guard_fd: int | None,
    notes: tuple[str, ...],
) -> Any:
    """Validate all options, and build the `LaunchSpec` of this run. For the parameters see `start`."""
    python = workers_python(options, settings, warm=bool(settings.flag("warm")))
    job_of = partial(job_here, options, settings, python.path)
    job, many, of_platform = over_machines(options, settings, job_of, where, joining, guard_fd)
    refuse(options, many=many is not None)
    spec = replace(job.spec, directory=str(Path.cwd()))
    if many is None:
        must_fit(spec, options.job or "")
    environment = dict(os.environ)
    if options.job or options.command_from:
        # Imported late: a script's command contains no secrets and no names to check.
        from holdfast.launch.name_validation import checked_environment

        where_from = f"job file {options.job}" if options.job else options.command_from or ""
        environment = checked_environment(job, environment, where_from)
    here = spec.world_size if many is None else many.order.slots
    check_devices(options, here)
    addr, port = (None, None) if many else meeting_place(options)
    _room_for_files(here, spec.nodes.most + spec.nodes.spares if many is not None and many.order.hosts else 0)
    if not python.own:
        environment = with_our_part(environment)
    gloo_note = _gloo_interface(environment, many) if many is not None else ()
    words_before_image: tuple[str, ...] = ()
    if options.job and (runtime := settings.text("image-runtime") or "none") != "none":
        origin = settings.origin("image-runtime")
        words_before_image = image_words(runtime, origin, spec, environment, Path.cwd(), where)
    if options.job or options.command_from:
        environment.setdefault("PYTHONUNBUFFERED", "1")
    # Every stream is teed unless it is redirected. As in torchrun, the user's own `--tee` overrides a redirect.
    tee = settings.text("tee") if settings.source("tee") is not SettingSource.DEFAULT else "0"
    log_dir = settings.text("log-dir")
    notices, of_notices = _notices(settings, job, environment, refuse=many is None and joining is None)
    behind_the_script, of_commands = _command_warnings(options, spec)
    launch = LaunchSpec(
        render=render,
        spec=spec,
        home=where,
        cwd=Path.cwd(),
        environment=environment,
        redirects=parse_std(settings.text("redirects") or "0"),
        tee=parse_std(tee or "0", "--tee"),
        shown_ranks=ranks(options),
        log_dir=Path(log_dir).absolute() if log_dir else None,
        report_path=_new_file("--report", settings.text("report")),
        notices=notices,
        metrics_path=_new_file("--metrics-file", settings.text("metrics-file")),
        **_of_container(settings, own="HOLDFAST_ATTEMPT" not in os.environ and joining is None),
        as_json=bool(settings.flag("json")),
        verbose=bool(settings.flag("verbose")),
        as_events=bool(settings.flag("events")),
        run_id=options.rdzv_id or "",
        master_addr=addr or own_loopback(),
        master_port=number(options, "master_port", port, 1, 65535),
        virtual_local_rank=options.virtual_local_rank,
        python=python.path,
        no_warmth=python.cold,
        image_python=partial(workers_python, options, settings, warm=True)
        if python.own and in_tree(sys.prefix)
        else None,
        image_words=words_before_image,
        stdin=_stdin(settings, here * spec.nodes.most),
        notes=notes
        + _notes(options, of_platform, many)
        + of_notices
        + behind_the_script
        + job.notes
        + ((python.note,) if python.note else ())
        + (of_commands if joining is None else ())
        + _task_directories(spec, here)
        + gloo_note
        + _unused_settings(where)
        + _stackless(spec),
        faults=FaultOptions(
            kernel_log=settings.text("kernel-log") or KERNEL_LOG,
            socket=_new_file("--fault-socket", settings.text("fault-socket")),
            file=_new_file("--fault-file", settings.text("fault-file")),
            ascend_events=_new_file("--ascend-events", settings.text("ascend-events")),
            reset_command=_reset_command(settings),
            reset_group=settings.count("reset-group") or 1,
        ),
        warm_in_file=job.warm,
        preload_in_file=job.preload,
        nodes=many.order if many else None,
    )
    return with_job_settings(launch, settings)


def _of_container(settings: Settings, *, own: bool) -> dict[str, Any]:
    """Return the fields of `LaunchSpec` for a run in a container: the files that report the result to the engine.

    `own`: whether the user started this process. If a worker or another machine started it, the environment may
    describe their container.
    """
    log, status, ends = (settings.text(name) for name in ("termination-log", "container-status", "exit-status"))
    if ends not in ("holdfast", "user"):
        raise BadUsage(
            f"{settings.origin('exit-status')} {ends}: expected holdfast or user",
            hint="holdfast run --exit-status user …",
        )
    found: dict[str, Any] = {"users_status": ends == "user"}
    outer = settings.text("outer")
    if outer and (own or settings.source("outer") is not SettingSource.ENVIRONMENT):
        found["outer"] = outer_of(outer, settings.origin("outer"))
    if "HOLDFAST_ATTEMPT" in os.environ and settings.source("termination-log") is not SettingSource.OPTION:
        log = None  # a run inside a worker must not write the container's termination message
    elif not log and "HOLDFAST_POD" in os.environ:
        log = TERMINATION_LOG if Path(TERMINATION_LOG).is_file() else None
    return found | {
        "termination_log": Path(log).absolute() if log else None,
        "container_status": Path(status).absolute() if status else None,
    }


def _unused_settings(home: Path) -> tuple[str, ...]:
    """Return a warning if `/etc/holdfast/config.yaml` is ignored because another user could have written it.

    `claim` warns about the settings file in the state directory.
    """
    return tuple(said for said in unused_files(home) if not said.startswith(f"{home}/"))


#: Upper bounds of the number of files that a supervisor has open: for itself, per worker (pipes, logs, times, pidfd),
#: and per node (socket, ssh).
_FILES, _FILES_A_WORKER, _FILES_A_NODE = 40, 8, 2


def _room_for_files(workers: int, nodes: int) -> None:
    """Raise the soft limit of open files as far as this gang needs.

    Raises BadUsage if the hard limit is too low, before a rank fails because of it.
    """
    needed = _FILES + _FILES_A_WORKER * workers + _FILES_A_NODE * nodes
    allowed = make_room(needed)
    if allowed < needed:
        raise BadUsage(
            f"only {allowed} files may be open at a time here (ulimit -Hn); holdfast needs {needed} for "
            f"{counted(workers, 'worker')}: {_FILES} of its own, and {_FILES_A_WORKER} for each"
            + (f", and {_FILES_A_NODE} for each of {counted(nodes, 'node')}" if nodes else ""),
            hint=f"ulimit -n {max(needed, 4096)}  (LimitNOFILE= in a service, --ulimit nofile= of a container)",
        )


#: Maps each option to an example file name, for the hint in an error message.
_NAMES = {
    "--metrics-file": "holdfast.prom",
    "--summary": "summary.md",
    "--fault-socket": "faults.sock",
    "--fault-file": "faults.jsonl",
}


def _new_file(option: str, text: str | None, *, appends: bool = False) -> Path | None:
    """Return the absolute path of an option's output file. Raises BadUsage if the file cannot be written.

    `appends`: text will be appended to an existing file. Otherwise a new file replaces it, so the directory must be
        writable.
    """
    if not text:
        return None
    path = Path(text).absolute()
    must_answer(path, option, path.is_dir)
    # False in a directory that this user may not enter, where Path.exists raises an error
    there = os.access(path, os.F_OK)
    if there and path.is_dir():
        said = f"{option} {text}: it is a directory; expected a file to write"
        raise BadUsage(said, hint=f"{option} {text}/{_NAMES.get(option, 'report.json')}")
    if there and not os.access(path, os.W_OK):
        raise BadUsage(f"{option} {text}: the file is there and cannot be written", hint=f"ls -l {text}")
    if not (appends and there):
        _new_files_fit(path.parent, f"{option} {text}")
    return path


def _new_files_fit(directory: Path, option: str) -> None:
    """Raise BadUsage if no new file can be made in the directory. `option`: the option as the user typed it."""
    nearest = next(each for each in (directory, *directory.parents) if os.access(each, os.F_OK))
    if not nearest.is_dir():
        raise BadUsage(f"{option}: expected a directory, and {nearest} is a file", hint=f"ls -l {nearest}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadUsage(f"{option}: this user may not write in the directory {nearest}", hint=f"ls -ld {nearest}")
    if nearest != directory:
        raise BadUsage(f"{option}: there is no directory {directory}", hint=f"mkdir -p {directory}")


def _notices(
    settings: Settings, job: JobFile, environment: dict[str, str], *, refuse: bool
) -> tuple[NoticePlan | None, tuple[str, ...]]:
    """Return the plan of the job's notices, or None if nobody is notified, and a warning for each one that would not
    arrive. Remove the addresses of `notify` from the workers' `environment`.

    `refuse`: raise BadUsage if a notice certainly cannot be sent. It is false in a job on several nodes, because this
        node may not be the one that sends notices.
    """
    environment.pop("HOLDFAST_NOTIFY", None)
    receivers = map(settings.value, ("summary", "on-event", "on-end", "notify", "traces"))
    if not (job.told or job.notify or "GITHUB_STEP_SUMMARY" in os.environ or any(receivers)):
        return None, ()
    from holdfast.launch.notice_plan import notice_plan  # imported late: few jobs have notices

    plan, problems = notice_plan(settings, job, environment)
    if plan is None:
        return None, ()
    notes = []
    try:
        _new_file("--summary", plan.summary, appends=True)
    except BadUsage as error:
        if plan.summary != os.environ.get("GITHUB_STEP_SUMMARY"):
            raise
        notes.append(f"warning: $GITHUB_STEP_SUMMARY: {error.message}")
    for problem in problems:
        if problem.certain and refuse:
            raise BadUsage(problem.text, hint=problem.hint)
        notes.append(f"warning: {problem.text}\n  try: {problem.hint}")
    return plan, tuple(notes)


def _reset_command(settings: Settings) -> str | None:
    """Return the reset command as typed. Raises BadUsage if it cannot be split into words."""
    text = settings.text("reset-command")
    if text is None:
        return None
    import shlex  # imported late: the import compiles a pattern

    try:
        empty = not shlex.split(text)
    except ValueError as error:
        raise BadUsage(f"{settings.origin('reset-command')} {text!r}: {error}; expected a command") from error
    if empty:
        raise BadUsage(f"{settings.origin('reset-command')} {text!r}: expected a command")
    return text


def _notes(options: RunOptions, of_platform: tuple[str, ...], many: MultiNodeJob | None) -> tuple[str, ...]:
    """Return notes for the user about the kind of job and the options that it ignores.

    `of_platform`: see `over_machines`. `many`: the multi-node job; None for a job on one machine.
    """
    said = unused(options, many=many is not None)
    where = "here" if many else "on one machine"
    ignored = (f"{', '.join(said)}: no meaning {where}, ignored",) if said else ()
    return of_platform + (many.notes if many else ()) + ignored


def _command_warnings(options: RunOptions, spec: JobSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two tuples of warnings: about options of holdfast after the script's name, and about commands that start
    other launchers.
    """
    words = options.words
    behind = not options.module and not options.no_python and any(word.startswith("--") for word in words[1:])
    launches = any(map(_may_launch, (role.command for role in spec.roles)))
    if not behind and not launches:
        return (), ()
    from holdfast.launch import nested_launchers  # imported late: many commands are just a Python script

    warning = nested_launchers.behind_the_script(words, Path(words[0])) if behind else ""
    return (warning,) if warning else (), nested_launchers.command_warnings(spec, Path.cwd()) if launches else ()


def _may_launch(command: tuple[str, ...]) -> bool:
    """Return whether the command may start another launcher. A plain script such as `python -u train.py` does not."""
    return not command[0].rpartition("/")[2].startswith("python") or not "".join(command[2:3]).endswith(".py")


def _gloo_interface(environment: dict[str, str], many: MultiNodeJob) -> tuple[str, ...]:
    """Set the interface for gloo if this machine's own name resolves only to a loopback address, and return a note."""
    from holdfast.wire.addresses import gloo_interface  # imported late: only jobs on several nodes need it

    if environment.get("GLOO_SOCKET_IFNAME") or not (name := gloo_interface(many.order.host)):
        return ()
    environment["GLOO_SOCKET_IFNAME"] = name
    return (f"this machine's name leads to no address that other nodes reach: workers get GLOO_SOCKET_IFNAME={name}",)


def _task_directories(spec: JobSpec, here: int) -> tuple[str, ...]:
    """Return a note with the directories of tasks, if each task on this machine starts in a directory of its own."""
    if not spec.task_directories or here < 2:
        return ()
    where = "PAI_WORK_DIR: attempt-N/ROLE-RANK/work beside its logs"
    return (f"each task here starts in a directory of its own, as in OpenPAI ({where}), with links to the files here",)


def _stackless(spec: JobSpec) -> tuple[str, ...]:
    """Return a note if py-spy is not installed: some hangs cannot be detected without it."""
    if spec.hang_timeout_s is None:
        return ()
    if find_py_spy():
        return ()
    lacks = (
        "py-spy is not installed: a rank that computes without an end is found only if it makes no system call while "
        "all others wait for it, and a report about a hang may lack stacks"
    )
    return (f"{lacks}; install it: pip install py-spy",)


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
