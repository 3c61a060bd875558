"""The part of the command line that uses click: the group of verbs, and the handling of click's errors."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from holdfast.cli.options.usage_errors import usage_message
from holdfast.cli.output.printing import print_line, say
from holdfast.version import __version__

#: Maps every verb to its description. The module `holdfast.cli.<verb>` has its `command`. `--help` imports no verb's
#: module.
VERBS: dict[str, str] = {
    "run": "Run a job: check, launch, explain exits, restart, report.",
    "submit": "Submit a job to this machine's queue or to a cluster.",
    "queue": "Show this machine's queue, and why jobs wait.",
    "priority": "Change the priority of a job that waits.",
    "core": "Show or end the process of this machine's queue.",
    "prepare": "Write the runtime with which a task's container starts.",
    "explain": "Say why a job died, from any log of any launcher.",
    "exits": "List, search and lint the catalogue of exits.",
    "check": "Run pre-checks on this machine.",
    "devices": "Show every device's standing, and why.",
    "release": "Allow jobs to use a held device again.",
    "faults": "Report, list, lint and replay device faults.",
    "jobs": "List the jobs of this machine.",
    "show": "Show one job: attempts, causes, decisions.",
    "logs": "Print a job's logs.",
    "web": "Serve pages about jobs and devices to a browser.",
    "prune": "Remove old jobs.",
    "stop": "Ask a running job to stop, with a reason.",
    "config": "Show each setting, its value and its source.",
    "notify": "Send a test message to the receivers of notices.",
    "doctor": "Show what is installed, and which features lack something.",
    "schema": "Print the JSON Schema of --json output or of a job file.",
    "completion": "Print the script for a shell's completion.",
    "man": "Print a page of the manual.",
}

#: Maps the titles of `holdfast --help` to the verbs below them.
TITLES: dict[str, tuple[str, ...]] = {
    "Run": ("run", "submit", "stop", "prepare"),
    "Queue": ("queue", "priority", "core"),
    "Understand": ("explain", "show", "exits"),
    "Watch": ("jobs", "logs", "web", "notify"),
    "Machines": ("check", "devices", "release", "faults"),
    "Tool": ("doctor", "config", "prune", "schema", "completion", "man"),
}

#: Maps names of verbs in other tools to the verb of holdfast.
ALIASES: dict[str, str] = {"ls": "jobs", "ps": "jobs", "list": "jobs", "status": "show"}

#: Maps a verb to its module, if this is not in holdfast.cli because the module imports the command line.
ELSEWHERE: dict[str, str] = {"web": "holdfast.web.web_command"}

#: Verbs that holdfast itself starts on other machines. Users do not type them.
STARTED = ("agent",)


class _Verbs(click.Group):
    """The group of all verbs.

    It imports a verb's module when the user types the verb, so that `holdfast run` never imports other verbs.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in VERBS and cmd_name not in STARTED:
            return None
        module = ELSEWHERE.get(cmd_name, f"holdfast.cli.{cmd_name}")
        command: click.Command = importlib.import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, VERBS))
        for title, verbs in TITLES.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), VERBS[verb]) for verb in verbs])
        short = ", ".join(f"{alias} is {verb}" for alias, verb in ALIASES.items())
        formatter.write(f"\nOther names: {short}.\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in (*VERBS, *STARTED, *ALIASES) and not name.startswith("-"):
            import difflib

            # torchrun has no verbs, so a user who types a script instead of a verb probably wants to run the script.
            script = name.endswith(".py")
            line = "" if script else _run_line(args)
            near = [] if script or line else difflib.get_close_matches(name, VERBS, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            hint = f"holdfast run {name}" if script else line or "holdfast --help"
            raise click.UsageError(f"there is no verb `{name}`{meant}\n  try: {hint}", ctx)
        return super().resolve_command(ctx, args)


def _run_line(words: Sequence[str]) -> str:
    """Return the `holdfast run` command that replaces another launcher's command.

    An example of such a command is `torchrun --nproc-per-node 2 train.py`.
    """
    from holdfast.cli.options.run_option_table import takes_values
    from holdfast.settings.other_launchers import line, other_command, translated

    if words[:1] == ["launch"]:
        words = ("accelerate", *words)
    found = other_command(words)
    if found is None and words[:1] != [] and words[0].startswith("-"):
        return line(translated(words, takes_values()), ())
    return line(found.words, ()) if found is not None else ""


def _foreign(argv: Sequence[str]) -> str:
    """Return a sentence about an option of another launcher, with the command of holdfast to type; "" if there is no
    such option.
    """
    from holdfast.cli.options.run_option_table import takes_values
    from holdfast.settings.other_launchers import line, option_name, option_named, translated

    ours = takes_values()
    words = list(argv)[::-1]
    while words and words[-1].startswith("-"):
        word = words.pop()
        name = option_name(word)
        if name in ours:
            if ours[name] and "=" not in word and words:
                words.pop()
        elif (found := option_named(word)) is not None:
            meant = f"expected {found.ours}" if found.ours else found.instead
            said = f"{word.partition('=')[0]} is an option of {found.owner}, and none of holdfast: {meant}"
            return f"{said}\n  try: {line(translated(argv, ours), ())}"
        else:
            return ""
    return ""


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="holdfast")
def cli() -> None:
    """Keep distributed training jobs running, and know why they stopped."""


def typed(argv: Sequence[str], guard_fd: int | None = None) -> object:
    """Let click parse the arguments and call the verb; return its result, or the exit status of bad usage.

    `guard_fd`: for `run`, the descriptor of the guard if this process already has one.
    """
    try:
        return cli.main(args=list(argv), prog_name="holdfast", standalone_mode=False, obj=guard_fd)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.NoSuchOption as error:
        if error.ctx is not None and error.ctx.parent is None:
            said = f"there is no option `{error.option_name}` before the verb; torchrun's options stand behind `run`"
            say(f"{said}\n  try: {_run_line(argv)}")
        elif argv[:1] == ["run"] and (foreign := _foreign(argv[1:])):
            say(foreign)
        else:
            say(usage_message(error, argv, cli))
        return 2
    except click.exceptions.NoArgsIsHelpError as error:
        print_line(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        say(usage_message(error, argv, cli))
        return 2
    except click.Abort:
        return 130
