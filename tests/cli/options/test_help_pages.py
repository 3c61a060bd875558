"""`--help` fits on a screen, `--help-all` and the manual have every option, and each option is in one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.man import page
from holdfast.cli.options.option_groups import GroupedCommand
from holdfast.cli.options.verb_group import TITLES, VERBS, cli
from holdfast.cli.run import command as run_command


def _commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(cli)):
        command = group.get_command(click.Context(cli), name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))


COMMANDS = dict(_commands(cli))
GROUPED = {words: command for words, command in COMMANDS.items() if isinstance(command, GroupedCommand)}


def _shown(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words), terminal_width=80)
    assert done.exit_code == 0, done.output
    return done.output


def _options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


def _in_help(option: click.Option, text: str) -> bool:
    return any(f"{option.opts[0]}{end}" in text for end in (" ", ",", "\n"))


def test_the_help_of_run_has_four_groups_that_fit_on_a_screen() -> None:
    text = _shown("run", "--help")
    assert len(text.splitlines()) <= 36
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Workers:", "Nodes:", "Failures and time:", "Output and messages:", "Help:"]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "--container-status" not in text
    assert f"--help-all                 Show all {len(_options(run_command))} options" in text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_help_is_longer_than_a_screen_and_a_half(words: tuple[str, ...]) -> None:
    assert len(_shown(*words, "--help").splitlines()) <= 43


@pytest.mark.parametrize("words", GROUPED, ids=" ".join)
def test_each_option_is_in_one_group(words: tuple[str, ...]) -> None:
    found = Counter(name for group in GROUPED[words].groups for name in (*group.often, *group.rest))
    for option in _options(GROUPED[words]):
        assert sum(found[form.removeprefix("--")] for form in option.opts) == 1, option.opts
    assert found.total() == len(_options(GROUPED[words]))


@pytest.mark.parametrize("words", GROUPED, ids=" ".join)
def test_help_all_and_the_manual_have_every_option(words: tuple[str, ...]) -> None:
    text, manual = _shown(*words, "--help-all"), page(words[0]).replace("\\-", "-")
    for option in _options(GROUPED[words]):
        assert _in_help(option, text), option.opts
        assert option.opts[0] in manual
    for group in GROUPED[words].groups:
        assert f"\n{group.title}:\n" in text
        assert f"\n.SS {group.title}\n" in manual


def test_help_all_names_what_torchrun_takes_and_nothing_uses() -> None:
    assert "--monitor-interval" in _shown("run", "--help-all")
    assert "--monitor-interval" not in _shown("run", "--help")


@pytest.mark.parametrize("typed", ["--hel", "--help_all", "--help-all"])
def test_help_is_abbreviated_as_before_and_takes_underscores(typed: str) -> None:
    assert ("--container-status" in _shown("run", typed)) == typed.endswith("all")


def test_help_all_behind_the_script_is_the_scripts() -> None:
    context = run_command.make_context("run", ["train.py", "--help-all"])
    assert context.params["words"] == ("train.py", "--help-all")


def test_each_verb_is_below_one_title() -> None:
    assert Counter(verb for verbs in TITLES.values() for verb in verbs) == Counter(VERBS.keys())
    text = _shown("--help")
    for title, verbs in TITLES.items():
        below = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in below.splitlines()] == list(verbs)
