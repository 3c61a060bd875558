"""`holdfast config`: shows every setting, its value and its origin."""

from __future__ import annotations

import os
from typing import Any

import click

from holdfast.cli.options.shared_options import pipeable
from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.untrusted import Malformed


@click.command()
@click.option("--changed", is_flag=True, help="Show only settings that differ from the built-in defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pipeable
def command(changed: bool, as_json: bool) -> None:
    """Show each setting, its value and its source.

    The order of precedence is: the option, HOLDFAST_<OPTION> in the environment, config.yaml in the state directory,
    /etc/holdfast/config.yaml, the built-in default.
    """
    from holdfast.record.state_directory import home_of
    from holdfast.settings.resolved_settings import BUILT_IN, FILE_NAME, SYSTEM_FILE, resolve, unused_files
    from holdfast.settings.settings_table import DEEP_SECTIONS, SECTIONS, SETTINGS, Setting
    from holdfast.settings.value_kinds import Value, ValueKind
    from holdfast.settings.yaml_sections import deep_defaults, defaults

    def shown(value: Value) -> str:
        match value:
            case None:
                return "(not set)"
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value) or "(none)"
            case float():
                return amounts.shown(value)
            case _:
                return str(value)

    def hidden(setting: Setting) -> Value:
        """Return the value of a setting to print. For a secret, return only whether it is set."""
        value = settings.value(setting.name)
        return "***" if setting.secret and value is not None else value

    def of_sections() -> list[tuple[str, Any, str]]:
        """Yield (key, value, file) for each key within a section of the configuration files.

        If several files have a key, the file with the highest precedence counts.
        """
        found: dict[str, tuple[str, Any, str]] = {}
        for section in SECTIONS:
            try:
                files = deep_defaults(where, section) if section in DEEP_SECTIONS else defaults(where, section)
            except Malformed as error:
                raise BadUsage(str(error), hint="holdfast config") from None
            for file, said in files:
                for key, value in said.items():
                    found.setdefault(f"{section}.{key}", (f"{section}.{key}", value, str(file)))
        return list(found.values())

    where = home_of(os.environ)
    for sentence in unused_files(where):
        say(sentence)
    settings = resolve({}, os.environ, where)
    chosen = [each for each in SETTINGS if not changed or settings.origin(each.name) != BUILT_IN]
    if as_json:
        from holdfast.report.report_json import pretty

        rows = [
            {
                "name": setting.name,
                "value": hidden(setting),
                "origin": settings.origin(setting.name),
                "variable": setting.variable,
                "scope": setting.scope.value,
                "help": setting.help,
            }
            for setting in chosen
        ]
        sections = [{"name": name, "value": value, "origin": origin} for name, value, origin in of_sections()]
        whole = {"schema": "holdfast.config/1", "home": str(where), "settings": rows, "sections": sections}
        print_line(pretty(whole))
        return
    values = {setting.name: shown(hidden(setting)) for setting in SETTINGS}
    values |= {s.name: "off" for s in SETTINGS if s.kind is ValueKind.TIMES and not settings.value(s.name)}
    wide = max(len(value) for value in values.values())
    for setting in chosen:
        name = f"{setting.name:<14}"
        print_line(f"{name} {values[setting.name]:<{min(wide, 40)}}  {settings.origin(setting.name)}")
    for key, value, origin in of_sections():
        print_line(f"{key:<14} {shown(value):<{min(wide, 40)}}  {origin}")
    if changed and not chosen and not of_sections():
        print_line("every setting has its built-in default")
    print_line(f"\nstate directory: {where}")
    print_line(f"files looked for: {where / FILE_NAME}, {SYSTEM_FILE}")
