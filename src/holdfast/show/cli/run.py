"""`holdfast run`: torchrun's command line, and ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.errors import BadUsage
from holdfast.show.cli._options import home, setting_options

if TYPE_CHECKING:
    from holdfast.show.settings import Settings

IGNORED: dict[str, bool] = {
    "rdzv-backend": True,
    "rdzv-endpoint": True,
    "rdzv-conf": True,
    "standalone": False,
    "monitor-interval": True,
    "start-method": True,
    "node-rank": True,
    "local-addr": True,
    "logs-specs": True,
    "event-log-handler": True,
    "numa-binding": True,
    "signals-to-handle": True,
    "virtual-local-rank": False,
    "run-path": False,
    "duplicate-stdout-filters": True,
    "duplicate-stderr-filters": True,
    "shutdown-timeout": True,
}
"""torchrun's options that have no meaning on one machine, and whether each takes a value."""


class _Run(click.Command):
    """Takes options with hyphens or underscores, as torchrun does; everything after the script is the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hyphened(args, self.params))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Accepted and ignored, for torchrun's sake"):
            formatter.write_text(", ".join(f"--{name}" for name in IGNORED))


def hyphened(args: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """`--nproc_per_node=2` → `--nproc-per-node=2`, up to the script; what follows it is left as it is."""
    takes_value: dict[str, bool] = {}
    for param in params:
        if isinstance(param, click.Option):
            for name in (*param.opts, *param.secondary_opts):
                takes_value[name] = not param.is_flag
    fixed: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            return [*fixed, word, *rest]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("_", "-")
            fixed.append(name + equals + value)
        else:
            fixed.append(word)
        if not equals and takes_value.get(name, False) and rest:
            fixed.append(rest.pop(0))
    return fixed


def _options() -> list[click.Parameter]:
    torchrun = [
        click.Option(["--nproc-per-node"], default=None, metavar="N", help="Workers: a number, auto, cpu or gpu.  [1]"),
        click.Option(["--nnodes"], default=None, metavar="N", help="Nodes; 1 on one machine."),
        click.Option(["--rdzv-id"], default=None, metavar="ID", help="What the workers see as TORCHELASTIC_RUN_ID."),
        click.Option(["--role"], default=None, metavar="NAME", help="The workers' role name.  [worker]"),
        click.Option(["--master-addr"], default=None, metavar="ADDR", help="Where rank 0 listens.  [127.0.0.1]"),
        click.Option(
            ["--master-port"], default=None, metavar="PORT", help="Of the first attempt; later ones get a fresh one."
        ),
        click.Option(
            ["--local-ranks-filter"], default=None, metavar="R,R", help="Show the output of these local ranks only."
        ),
        click.Option(["-m", "--module"], is_flag=True, help="SCRIPT is a module, as in `python -m`."),
        click.Option(["--no-python"], is_flag=True, help="SCRIPT is any command, run as it is."),
        click.Option(["--job"], default=None, metavar="FILE", help="A job file in YAML, instead of SCRIPT."),
    ]
    short = {"redirects": "-r", "tee": "-t"}
    ours: list[click.Parameter] = []
    for option in setting_options():
        if option.name in short:
            option.opts.append(short[option.name])
        ours.append(option)
    ignored = [
        click.Option([f"--{name}"], is_flag=not takes, default=None, hidden=True, expose_value=True)
        for name, takes in IGNORED.items()
    ]
    words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
    return [*torchrun, *ours, *ignored, words]


def _main(**given: Any) -> None:
    """Run SCRIPT as one gang of workers on this machine, as torchrun would, and carry it through failures.

    At the end there is one report: the cause, the culprit, what to do. The exit status is the job's final code.
    """
    from holdfast.show.settings import BY_NAME, resolve

    where = home()
    settings = resolve(
        {name: value for name, value in given.items() if name.replace("_", "-") in BY_NAME}, os.environ, where
    )
    launch = _launch(given, settings, where)
    from holdfast.loop.run import run

    raise SystemExit(run(launch))


def _launch(given: dict[str, Any], settings: Settings, where: Path) -> Any:
    """Everything that can be wrong is found here, before anything is started."""
    from holdfast.loop.check import choices_from_text, plan_checks
    from holdfast.loop.run import Launch
    from holdfast.model.checks import CheckChoice
    from holdfast.observe.std import parse_std
    from holdfast.show.settings import Source

    spec = _spec(given, settings)
    names = settings.chosen_checks()
    if names is not None:
        choices: tuple[CheckChoice, ...] | None = choices_from_text(",".join(names)) if names else ()
    else:
        choices = spec.checks
    plan = plan_checks(choices, plugins=settings.names("plugin") or (), timeout_s=settings.number("check-timeout"))
    environment = dict(os.environ)
    if given["job"]:
        environment.setdefault("PYTHONUNBUFFERED", "1")
    # Everything is teed unless redirected; a tee that somebody asked for wins over a redirect, as in torchrun.
    tee = settings.text("tee") if settings.source("tee") is not Source.DEFAULT else "0"
    report, log_dir = settings.text("report"), settings.text("log-dir")
    return Launch(
        spec=spec,
        home=where,
        cwd=Path.cwd(),
        environment=environment,
        checks=plan,
        redirects=parse_std(settings.text("redirects") or "0"),
        tee=parse_std(tee or "0", "--tee"),
        shown_ranks=_ranks(given["local_ranks_filter"]),
        log_dir=Path(log_dir).absolute() if log_dir else None,
        report_path=Path(report).absolute() if report else None,
        as_json=bool(settings.flag("json")),
        run_id=given["rdzv_id"] or "",
        master_addr=given["master_addr"] or "127.0.0.1",
        master_port=_number("--master-port", given["master_port"], 1, 65535),
        notes=_notes(given),
    )


def _notes(given: dict[str, Any]) -> tuple[str, ...]:
    said = [f"--{name}" for name in IGNORED if given.get(name.replace("-", "_")) not in (None, False)]
    if not said:
        return ()
    return (f"{', '.join(said)}: no meaning on one machine, ignored",)


def _spec(given: dict[str, Any], settings: Settings) -> Any:
    from msgspec.structs import replace

    from holdfast.loop.jobfile import NAME, load
    from holdfast.model.jobs import JobSpec, RestartPolicy, Role, Timers
    from holdfast.show.settings import Source

    words: tuple[str, ...] = given["words"]
    nodes = given["nnodes"]
    if nodes is not None and nodes not in ("1", "1:1"):
        raise BadUsage(
            f"--nnodes {nodes}: this release runs a job on one machine: expected 1", hint="holdfast run --nnodes 1 …"
        )
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
        if given["nproc_per_node"]:
            raise BadUsage(
                "--nproc-per-node with --job: the job file's `count` says how many workers there are",
                hint=f"holdfast run --job {given['job']}",
            )
        spec = load(Path(given["job"])).spec
    else:
        command = _command(words, module=given["module"], plain=given["no_python"])
        role = given["role"] or "worker"
        if not NAME.fullmatch(role):
            raise BadUsage(f"--role {role!r}: expected letters, digits, `.`, `_` or `-`, at most 63")
        count = _workers(given["nproc_per_node"])
        spec = JobSpec(name=_stem(words[0]), roles=(Role(name=role, count=count, command=command),))

    def chosen(setting: str, current: Any) -> Any:
        """The setting where somebody set it, else what the job says."""
        return settings.value(setting) if settings.source(setting) is not Source.DEFAULT else current

    restarts: RestartPolicy = spec.restarts
    timers: Timers = spec.timers
    return replace(
        spec,
        name=name or spec.name,
        restarts=replace(restarts, max_restarts=chosen("max-restarts", restarts.max_restarts)),
        timers=replace(timers, grace_s=chosen("grace", timers.grace_s)),
        hang_timeout_s=chosen("hang-timeout", spec.hang_timeout_s),
        time_limit_s=chosen("time-limit", spec.time_limit_s),
    )


def _command(words: tuple[str, ...], *, module: bool, plain: bool) -> tuple[str, ...]:
    """The workers' command line; a script that is not there is told now."""
    import sys

    if not words:
        raise BadUsage(
            "nothing to run: expected a script, -m MODULE, --no-python CMD or --job FILE", hint="holdfast run train.py"
        )
    if module and plain:
        raise BadUsage("-m and --no-python contradict each other: expected one of them", hint="holdfast run --help")
    if plain:
        return words
    python = (sys.executable, "-u")
    if module:
        return (*python, "-m", *words)
    script = Path(words[0])
    if script.is_dir() and not (script / "__main__.py").exists():
        raise BadUsage(f"{script} is a directory without a __main__.py: expected a Python file", hint=f"ls {script}")
    if not script.exists():
        near = _nearest(script)
        raise BadUsage(
            f"there is no script {script} in {Path.cwd()}" + (f"; did you mean {near}?" if near else ""),
            hint=f"holdfast run {near}" if near else "ls *.py; holdfast run --no-python COMMAND for what is not Python",
        )
    if not os.access(script, os.R_OK):
        raise BadUsage(
            f"the script {script} cannot be read by {os.environ.get('USER', 'this user')}", hint=f"ls -l {script}"
        )
    return (*python, *words)


def _nearest(script: Path) -> str:
    import difflib

    try:
        names = [entry.name for entry in script.parent.iterdir()]
    except OSError:
        return ""
    found = difflib.get_close_matches(script.name, names, n=1)
    return str(script.parent / found[0]) if found else ""


def _stem(word: str) -> str:
    """A job's name from its script: `dir/train.py` → `train`."""
    import re

    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(word).name.removesuffix(".py")).strip("-._")
    return stem[:63] or "job"


def _workers(text: str | None) -> int:
    if text is None:
        return 1
    if text in ("auto", "cpu", "gpu"):
        from holdfast.observe.devices.count import accelerators

        devices = accelerators(os.environ) if text != "cpu" else 0
        if text == "gpu" and not devices:
            raise BadUsage("--nproc-per-node gpu: this machine shows no accelerator to holdfast", hint="nvidia-smi -L")
        return devices or os.cpu_count() or 1
    number = _number("--nproc-per-node", text, 1, 100_000)
    assert number is not None
    return number


def _number(option: str, text: str | None, least: int, most: int) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise BadUsage(f"{option} {text}: expected a number from {least} to {most}", hint="holdfast run --help")
    return int(text)


def _ranks(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    return frozenset(_number("--local-ranks-filter", part.strip(), 0, 100_000) or 0 for part in text.split(","))


command = _Run(
    "run",
    params=_options(),
    callback=_main,
    help=_main.__doc__,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
