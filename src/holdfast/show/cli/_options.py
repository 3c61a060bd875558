"""What verbs share: options made from the table of settings, and the state directory they look into."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.model.paths import state_dir

if TYPE_CHECKING:
    from holdfast.record.views import Survey


def setting_options() -> list[click.Option]:
    """One click option a setting. Values come as they were typed: `settings.resolve` judges them, with their place."""
    from holdfast.show.settings import SETTINGS, Kind

    options = []
    for setting in SETTINGS:
        flag = setting.kind is Kind.FLAG
        long = f"--{setting.name}/--no-{setting.name}" if setting.no_option else f"--{setting.name}"
        default = f"  [default: {setting.default:g}]" if isinstance(setting.default, int | float) and not flag else ""
        options.append(
            click.Option(
                [setting.name.replace("-", "_"), long],
                is_flag=flag,
                default=None,
                multiple=setting.kind is Kind.FILES,
                metavar=None if flag else setting.metavar,
                help=setting.help + default,
            )
        )
    return options


def home() -> Path:
    """The state directory of this process's environment."""
    return state_dir(os.environ)


def say(text: str) -> None:
    """One line to stderr, from us."""
    click.echo(f"holdfast: {text}", err=True)


def survey() -> Survey:
    """All jobs of the state directory. What is wrong with the journal, and jobs found lost just now, go to stderr."""
    from holdfast.record.views import reconcile

    found = reconcile(home())
    if found.trouble:
        say(found.trouble)
    for report in found.newly_lost:
        say(f"job {report.job_id} ({report.name}): {report.report.reason}")
    return found
