"""Applies the settings of a job on a node: its checks, logs, fault rules and warm starts.

A run resolves its job's settings. An agent resolves them again from the owner's message, because the files that they
name, and the Python for warm starts, are on the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.launch.launch_spec import WarmStartOptions, with_our_part
from holdfast.launch.worker_output_options import rotation_of
from holdfast.node import devices, prechecks, rare_parts
from holdfast.settings.resolved_settings import SettingSource

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.launch.check_plan import CheckPlan
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.model.job_spec import JobSpec
    from holdfast.settings.resolved_settings import Settings

#: Whether workers start warm by default. The reasons are in docs/internals/decisions/0006-warm-default.md.
WARM_UNLESS_TOLD = False


def with_job_settings(launch: LaunchSpec, settings: Settings) -> LaunchSpec:
    """Return the job's launch specification with all settings of scope `job` applied on this node. Raises
    `BadUsage`.
    """
    catalogue, notes = _catalogue(settings)
    codes, rules = settings.text("fault-codes"), settings.text("fault-rules")
    if codes or rules:
        # Warn about mistakes in the fault rule files before anything starts, and not when a fault occurs.
        notes += devices.load_policy(codes, rules).warnings
    found = replace(
        launch,
        settings=settings,
        checks=_checks(launch.spec, settings),
        rotation=rotation_of(settings),
        kept_attempts=settings.count("log-attempts"),
        disk_limit=settings.limit("disk-limit"),
        warm=_warm(launch, settings),
        catalogue=catalogue,
        faults=replace(launch.faults, codes=codes, rules=rules),
        nodes=_nodes(launch.nodes, settings) if launch.nodes is not None else None,
        notes=launch.notes + notes,
    )
    return _cold(found, settings) if found.warm is None else _with_python_of_image(found)


def _nodes(order: NodesOrder, settings: Settings) -> NodesOrder:
    wait_s = settings.number("owner-wait") if settings.source("owner-wait") is not SettingSource.DEFAULT else None
    return replace(
        order,
        port_range=rare_parts.multi_node.port_range(settings),
        owner_wait_s=order.usual_owner_wait_s if wait_s is None else wait_s,
    )


def _catalogue(settings: Settings) -> tuple[Catalogue | None, tuple[str, ...]]:
    """Return the catalogue with the user's exit rows, or None without such rows. Also return messages about rows that
    are left out.
    """
    name = settings.text("exits")
    if name is None:
        return None, ()
    catalogue, problems = rare_parts.explain_files.catalogue_with([name])
    return catalogue, tuple(problems)


def _checks(spec: JobSpec, settings: Settings) -> CheckPlan | None:
    """Return this run's pre-checks. If the user has turned them off, return None without an import of the checks'
    modules.
    """
    names = settings.chosen_checks()
    plugins = settings.names("plugin") or ()
    if not plugins and (names == () or (names is None and spec.checks == ())):
        return None
    if names is None:
        choices = spec.checks
    else:
        choices = prechecks.choices_from_text(",".join(names)) if names else ()
    return prechecks.plan_checks(choices, plugins=plugins, timeout_s=settings.number("check-timeout"))


def _warm(launch: LaunchSpec, settings: Settings) -> WarmStartOptions | None:
    """Return the options of warm starts; None for cold starts. The user's options and variables take precedence over
    the job file.
    """
    asked = settings.flag("warm")
    if asked is None:
        asked = launch.warm_in_file
    if not (WARM_UNLESS_TOLD if asked is None else asked):
        return None
    set_here = settings.source("preload") is not SettingSource.DEFAULT
    preload = settings.names("preload") if set_here else launch.preload_in_file
    limit_s = settings.number("warm-timeout")
    return WarmStartOptions(
        preload=preload or (), standby=bool(settings.flag("standby")), import_s=120.0 if limit_s is None else limit_s
    )


def _cold(launch: LaunchSpec, settings: Settings) -> LaunchSpec:
    if not settings.flag("standby") or settings.source("standby") is not SettingSource.OPTION:
        return launch
    note = "--standby: nothing is kept waiting, for workers start cold; it goes with --warm"
    return replace(launch, notes=(*launch.notes, note))


def _with_python_of_image(launch: LaunchSpec) -> LaunchSpec:
    """If the job runs in a user's container, fork warm workers from the Python of its image."""
    if launch.image_python is None:
        return launch
    python = launch.image_python()
    return replace(
        launch,
        python=python.path,
        no_warmth=python.cold,
        image_python=None,
        environment=launch.environment if python.own else with_our_part(dict(launch.environment)),
        notes=(*launch.notes, python.note) if python.note else launch.notes,
    )
