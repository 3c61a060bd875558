"""Parts that the verbs about faults share: two options, the policy that they select, and the machine's fault log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.options.shared_options import home
from holdfast.cli.output.printing import say

if TYPE_CHECKING:
    from holdfast.node.devices.fault_commands import FaultLog, Policy

_F = TypeVar("_F", bound=Callable[..., Any])


def policy_options(function: _F) -> _F:
    """Add `--fault-codes` and `--fault-rules` to a verb, with the short forms `--codes` and `--rules`."""
    for name, help_text in (
        ("rules", "Rules for frequency and duration: faultCustomization.json, or a file in holdfast's YAML."),
        ("codes", "The levels of fault codes: faultCode.json, or a file in holdfast's YAML."),
    ):
        option = click.option(f"--fault-{name}", f"--{name}", f"fault_{name}", metavar="FILE", help=help_text)
        function = option(function)
    return function


def policy_from(fault_codes: str | None, fault_rules: str | None, *, dry_run: bool = False) -> Policy:
    """Return the fault policy of the options, or of the settings if the options are not typed.

    Report unusable entries of the files on stderr.
    """
    from holdfast.node.devices.fault_commands import load_policy
    from holdfast.settings.resolved_settings import resolve

    settings = resolve({"fault-codes": fault_codes, "fault-rules": fault_rules}, os.environ, home())
    codes, rules = settings.value("fault-codes"), settings.value("fault-rules")
    loaded = load_policy(str(codes) if codes else None, str(rules) if rules else None, dry_run=dry_run)
    for warning in loaded.warnings:
        say(warning)
    return loaded.policy


def named(fault_codes: str | None, fault_rules: str | None) -> bool:
    """Return whether an option or a setting names a file of fault codes or fault rules."""
    from holdfast.settings.resolved_settings import resolve

    settings = resolve({"fault-codes": fault_codes, "fault-rules": fault_rules}, os.environ, home())
    return bool(settings.value("fault-codes") or settings.value("fault-rules"))


def open_fault_log(policy: Policy, now: float, *, writable: bool, keep: bool = False) -> FaultLog:
    """Open the machine's fault log.

    `now`: seconds since the epoch. `writable`: open the log for writing too. `keep`: use the rules that are stored in
    the log, and `policy` only if the log has none.
    """
    from holdfast.node.devices.fault_commands import FaultLog

    return FaultLog(home(), policy, now, writable=writable, keep=keep)
