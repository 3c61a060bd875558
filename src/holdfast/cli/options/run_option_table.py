"""The options of `holdfast run` as a table with one row per option. Both click and the quick parser use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import environ
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.settings.run_options import IGNORED, JUDGED, RunOptions
from holdfast.settings.settings_table import SETTINGS
from holdfast.settings.value_kinds import ValueKind

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.decisions import JobReport


class RunOption(msgspec.Struct, frozen=True):
    """One option as the user types it. `off`: the form that turns a flag off, such as `--no-…`."""

    #: The name of the option's value in `RunOptions`, such as `nproc_per_node`.
    param: str
    forms: tuple[str, ...]
    flag: bool = False
    off: str = ""
    repeated: bool = False
    metavar: str = ""
    help: str = ""
    #: The value if the user does not type the option; () if the option may be repeated. `RunOptions` has the same
    #: default.
    unset: bool | None = None


#: torchrun's own options that have a meaning in holdfast, and two options that are typed instead of a script.
# fmt: off
TORCHRUN: tuple[RunOption, ...] = (
    RunOption("nproc_per_node", ("--nproc-per-node",), metavar="N", help="Workers per node: N, auto, cpu, gpu …  [1]"),
    RunOption("nnodes", ("--nnodes",), metavar="N|MIN:MAX", help="How many nodes take part.  [1]"),
    RunOption("node_rank", ("--node-rank",), metavar="R", help="This node's rank, from 0."),
    RunOption("rdzv_endpoint", ("--rdzv-endpoint",), metavar="HOST:PORT", help="The owner's address, equal on every node."),
    RunOption("rdzv_id", ("--rdzv-id",), metavar="ID", help="The job's id; workers have it as TORCHELASTIC_RUN_ID."),
    RunOption("rdzv_backend", ("--rdzv-backend",), metavar="NAME", help="static or c10d; c10d ignores --node-rank."),
    RunOption("rdzv_conf", ("--rdzv-conf",), metavar="K=V,K=V", help="is_host=1: this node hosts the owner; join_timeout, last_call_timeout: seconds."),
    RunOption("standalone", ("--standalone",), flag=True, unset=False, help="One machine, as without --nnodes."),
    RunOption("role", ("--role",), metavar="NAME", help="The workers' role name.  [worker]"),
    RunOption("master_addr", ("--master-addr",), metavar="ADDR", help="With --nnodes: the host of the endpoint. On one machine: MASTER_ADDR.  [127.0.0.1]"),
    RunOption("master_port", ("--master-port",), metavar="PORT", help="With --nnodes: the port of the endpoint. On one machine: MASTER_PORT of the first attempt."),
    RunOption("local_addr", ("--local-addr",), metavar="ADDR", help="The address at which other nodes reach this node. On one machine: MASTER_ADDR, unless --master-addr is typed."),
    RunOption("virtual_local_rank", ("--virtual-local-rank",), flag=True, unset=False, help="Each worker sees only its own device and has LOCAL_RANK 0."),
    RunOption("local_ranks_filter", ("--local-ranks-filter",), metavar="R,R", help="Show the output of these local ranks only."),
    RunOption("log_line_prefix_template", ("--log-line-prefix-template",), metavar="TEMPLATE", help="The prefix of each line, with ${role_name}, ${rank} and ${local_rank}.  [[worker-0] ]"),
    RunOption("module", ("-m", "--module"), flag=True, unset=False, help="SCRIPT is a module, as in `python -m`."),
    RunOption("no_python", ("--no-python",), flag=True, unset=False, help="SCRIPT is any command, which runs without Python."),
    RunOption("run_path", ("--run-path",), flag=True, unset=False, help="SCRIPT is a Python file; overrides --module and --no-python."),
    RunOption("job", ("--job",), metavar="FILE", help="Run this job file (YAML) instead of SCRIPT."),
    RunOption("command_from", ("--command-from",), metavar="VARIABLE", help="Run the text of this variable instead of SCRIPT: shell commands, or a script with a #! line."),
)
# fmt: on

#: Maps a setting to another name of its option, which torchrun uses.
ALSO = {"redirects": "-r", "tee": "-t", "grace": "--shutdown-timeout"}


def settings() -> Iterator[RunOption]:
    """Yield an option for each setting."""
    for setting in SETTINGS:
        forms = (f"--{setting.name}", *([ALSO[setting.name]] if setting.name in ALSO else []))
        flag = setting.kind is ValueKind.FLAG
        off = f"--no-{setting.name}" if setting.no_option else ""
        repeated = setting.kind is ValueKind.FILES
        yield RunOption(setting.param, forms, flag=flag, off=off, repeated=repeated)


def ignored() -> Iterator[RunOption]:
    """Yield torchrun's options that holdfast only validates: they have no effect, or only one valid value."""
    for name in (*IGNORED, *JUDGED):
        yield RunOption(name, (f"--{name.replace('_', '-')}",))


#: Names of options that torchrun has, for settings of holdfast.
OF_TORCHRUN = ("max-restarts", "redirects", "tee", "log-dir", "shutdown-timeout")


def whole(name: str, forms: Iterable[str]) -> tuple[str, ...]:
    """Return the options that the typed `name` may mean; several if it is too short. `forms`: all options.

    Only torchrun's options may be abbreviated, as with argparse, because commands written for torchrun do so. An option
    of holdfast must have its full name. Otherwise a typing error could select an option, and a new option could change
    the meaning of an old command.
    """
    begins = [form for form in forms if form.startswith(name) and form.startswith("--")]
    if name in begins:
        return (name,)
    theirs = ["--help", *(f"--{word}" for word in OF_TORCHRUN)]
    theirs += [form for typed in ignored() for form in typed.forms]
    theirs += [form for typed in TORCHRUN if typed.param not in ("job", "command_from") for form in typed.forms]
    return tuple(form for form in begins if form in theirs)


def takes_values() -> dict[str, bool]:
    """Return a map from each form of an option to whether it takes a value."""
    found = {"--help": False, "--help-all": False, "-h": False}
    for typed in (*TORCHRUN, *settings(), *ignored()):
        found.update(dict.fromkeys(typed.forms, not typed.flag))
        found.update({typed.off: False} if typed.off else {})
    return found


def read_run_options(args: Sequence[str]) -> RunOptions | None:
    """Parse the options as click would, but without click, whose import takes longer than the rest of a start.

    Return None for anything unusual: a request for help, an unknown option, a missing value, a value without a blank
    before it, or `--`. The caller then lets click parse the words and report mistakes.
    """
    values: dict[str, Any] = {}
    meant: dict[str, tuple[RunOption, bool]] = {}
    for typed in (*TORCHRUN, *settings(), *ignored()):
        values[typed.param] = () if typed.repeated else typed.unset
        meant.update((form, (typed, True)) for form in typed.forms)
        if typed.off:
            meant[typed.off] = (typed, False)
    rest = list(args)[::-1]
    while rest and rest[-1].startswith("-"):
        word, equals, value = rest.pop().partition("=")
        if word.startswith("--"):
            word = "--" + word[2:].replace("_", "-")
        elif equals:
            return None
        if word not in meant:
            forms = whole(word, (*meant, "--help")) if len(word) > 2 else ()
            if len(forms) != 1 or forms[0] not in meant:
                return None
            word = forms[0]
        typed, on = meant[word]
        if (typed.flag and equals) or not (typed.flag or equals or rest):
            return None
        if typed.flag:
            values[typed.param] = on
            continue
        text = value if equals else rest.pop()
        values[typed.param] = (*values[typed.param], text) if typed.repeated else text
    return RunOptions(**values, words=tuple(rest[::-1]))


def render(report: JobReport, *, logs: Path, width: int, colour: bool, verbose: bool, home: str = "") -> str:
    """Return the job's report for a person, for the end of a run. `home`: see `Render`."""
    # imported here, because only the end of a run needs it
    from holdfast.explain.text.secret_filter import without_secrets
    from holdfast.platforms.platform_registry import platform_around  # imported here, because only the end needs it
    from holdfast.report.brief_report import render_brief  # imported here, because only the end of a run needs it
    from holdfast.report.failure_place import scene_of  # imported here, because only the end of a run needs it

    scene = without_secrets(scene_of(report.report, logs))
    platform = platform_around(environ)

    def retyped(command: str) -> str:
        return command if platform is None else platform.outside(command, report.job_id, environ)

    return render_brief(report, scene, width=width, colour=colour, verbose=verbose, home=home, retyped=retyped)


def over_nodes(launch: LaunchSpec) -> int:
    """Run this node's part of a job over several nodes. Return its exit code."""
    from holdfast.main.node_guard import take_part  # imported here, because a job on one machine does not need it

    return take_part(launch)
