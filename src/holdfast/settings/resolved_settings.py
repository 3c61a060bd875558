"""Determines the value of each setting, and the source of the value.

The order of precedence is: the option, `HOLDFAST_<OPTION>` in the environment, torchrun's variable, `config.yaml` in
the state directory, `/etc/holdfast/config.yaml`, the built-in default. An error names the source of the wrong value.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.file_modes import distrust
from holdfast.model import amounts
from holdfast.model.job_spec import JobSetting
from holdfast.safe_files import read_file
from holdfast.settings.settings_table import BY_NAME, SECTIONS, SETTINGS, Scope, Setting
from holdfast.settings.value_kinds import DiskLimit, Value, disk_limit, read_value
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, yaml_value

FILE_NAME = "config.yaml"
BUILT_IN = "built-in default"
SYSTEM_FILE = Path("/etc/holdfast") / FILE_NAME


class SettingSource(enum.IntEnum):
    """The kind of source that has set a value. A higher number overrides a lower one."""

    DEFAULT = 0
    SYSTEM_FILE = 1
    HOME_FILE = 2
    ENVIRONMENT = 3
    OPTION = 4


class Settings:
    """The values of all settings, with their sources.

    `found`: maps a setting's name to its value, the kind of its source, and the source for messages.
    """

    def __init__(self, found: Mapping[str, tuple[Value, SettingSource, str]]) -> None:
        self._found = found

    def value(self, name: str) -> Value:
        """Return the value. Return None if it is not set and has no default."""
        return self._found[name][0]

    def source(self, name: str) -> SettingSource:
        """Return the kind of source that has set the value."""
        return self._found[name][1]

    def origin(self, name: str) -> str:
        """Return the source of the value for messages.

        Examples: `--grace`, `HOLDFAST_GRACE`, `/etc/holdfast/config.yaml`, `built-in default`.
        """
        return self._found[name][2]

    def text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str)
        return value

    def flag(self, name: str) -> bool | None:
        value = self.value(name)
        assert value is None or isinstance(value, bool)
        return value

    def number(self, name: str) -> float | None:
        """Return the value of a setting that is a duration, in seconds."""
        value = self.value(name)
        assert value is None or isinstance(value, float)
        return value

    def count(self, name: str) -> int | None:
        """Return the value of a setting that is a whole number."""
        value = self.value(name)
        assert value is None or isinstance(value, int)
        return value

    def limit(self, name: str) -> DiskLimit | None:
        return disk_limit(self.value(name))

    def size_bytes(self, name: str) -> int | None:
        """Return the value of a setting that is a size."""
        return amounts.size_bytes(self.value(name))

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.value(name)
        assert value is None or isinstance(value, tuple)
        return value

    def chosen_checks(self) -> tuple[str, ...] | None:
        """Return the names of pre-checks. Return () for no checks, and None for the default checks.

        If both `checks` and `no-checks` are set, the one with the stronger source counts.
        """
        without, given = self.source("no-checks"), self.source("checks")
        if self.flag("no-checks"):
            if without is given:
                raise BadUsage(
                    f"{self.origin('checks')} and {self.origin('no-checks')} contradict each other: "
                    "expected only one of `checks` and `no-checks`",
                    hint="holdfast run --help-all",
                )
            if without > given:
                return ()
        return self.names("checks")

    def of_job(self) -> tuple[JobSetting, ...]:
        """Return the settings of scope `job` that are set. The owner sends them to the agents."""
        return tuple(
            JobSetting(name=name, value=value, source=source, origin=origin)
            for name, (value, source, origin) in self._found.items()
            if source is not SettingSource.DEFAULT and BY_NAME[name].scope is Scope.JOB
        )

    def with_job(self, sent: Iterable[JobSetting]) -> Settings:
        """Return these settings with the owner's values for scope `job`.

        A setting of this scope that the owner has not sent gets its default.
        """
        unset = {s.name: DEFAULTS._found[s.name] for s in SETTINGS if s.scope is Scope.JOB}
        theirs = {each.name: (each.value, SettingSource(each.source), each.origin) for each in sent}
        return Settings({**self._found, **unset, **theirs})

    def without_effect(self, sent: Iterable[JobSetting]) -> list[str]:
        """Return this node's options, variables and files without effect, because the owner has another value."""
        theirs = self.with_job(sent)
        return [each.origin for each in self.of_job() if self._strong(each) and theirs.value(each.name) != each.value]

    @staticmethod
    def _strong(setting: JobSetting) -> bool:
        return setting.source >= SettingSource.ENVIRONMENT


DEFAULTS = Settings({setting.name: (setting.default, SettingSource.DEFAULT, BUILT_IN) for setting in SETTINGS})


def resolve(
    cli_values: Mapping[str, object | None],
    env: Mapping[str, str],
    home: Path,
    *,
    system_file: Path = SYSTEM_FILE,
) -> Settings:
    """Determine the value of every setting.

    `cli_values`: options by setting name (with hyphens or underscores); None: not typed.
    Raises `BadUsage` with the source and the expected value. A wrong value is reported even if a stronger source
    overrides it.
    `system_file`: path of the machine's configuration file.
    """
    options = {name.replace("_", "-"): value for name, value in cli_values.items()}
    home_file = home / FILE_NAME
    places: tuple[tuple[SettingSource, Mapping[str, object], Path | None], ...] = (
        (SettingSource.OPTION, options, None),
        (SettingSource.ENVIRONMENT, {s.name: env[name] for s in SETTINGS if (name := s.set_by(env))}, None),
        (SettingSource.HOME_FILE, _trusted(home_file), home_file),
        (SettingSource.SYSTEM_FILE, _trusted(system_file), system_file),
    )
    found: dict[str, tuple[Value, SettingSource, str]] = {}
    for setting in SETTINGS:
        found[setting.name] = (setting.default, SettingSource.DEFAULT, BUILT_IN)
        for source, values, path in reversed(places):
            raw = values.get(setting.name)
            if raw is None or raw == ():
                continue
            match source:
                case SettingSource.OPTION:
                    off = setting.no_option and raw is False
                    origin = where = f"--no-{setting.name}" if off else f"--{setting.name}"
                    hint = "holdfast run --help-all"
                case SettingSource.ENVIRONMENT:
                    origin = where = setting.set_by(env) or setting.variable
                    hint = f"unset {where}"
                case _:
                    origin, where = str(path), f"{path}: `{setting.name}`"
                    hint = f"grep -n {setting.name} {path}"
            found[setting.name] = (parse(setting, raw, where, hint=hint), source, origin)
    return Settings(found)


def parse(setting: Setting, raw: object, where: str, *, hint: str = "") -> Value:
    """Convert a text or a YAML value to the setting's kind.

    Raises `BadUsage`. `where`: the value's source, for the message.
    """
    value = read_value(setting.kind, raw)
    if value is None:
        raise BadUsage(
            f"{where}: expected {setting.kind.value}, got {'another value' if setting.secret else _quoted(raw)}",
            hint=hint,
        )
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and isinstance(value, int | float) and value < setting.least:
        more = "more than 0" if setting.least else "0 or more"
        expected = setting.kind.value.removesuffix(", 0 or more")
        raise BadUsage(f"{where}: expected {expected}, {more}, got {_quoted(raw)}", hint=hint)
    return value


def unused_files(home: Path, *, system_file: Path = SYSTEM_FILE) -> list[str]:
    """Return one sentence for each configuration file that is ignored because another user could have written it."""
    files = (home / FILE_NAME, system_file)
    return [f"{path} is not used: {why}" for path in files if (why := distrust(path.parent)) and path.exists()]


def _trusted(path: Path) -> dict[str, object]:
    """Return the settings in a file.

    Return no settings if another user could have written the file, or if its directory may not be entered.
    """
    if distrust(path.parent) or not os.access(path.parent, os.X_OK):
        return {}
    return _read_file(path)


def _read_file(path: Path) -> dict[str, object]:
    try:
        text = read_file(path, MOST_CONFIG_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadUsage(f"{path}: cannot be read: {reason}", hint=f"ls -ld {path}") from error
    try:
        data = yaml_value(text)
    except Malformed as error:
        line = f", line {error.line}" if error.line is not None else ""
        raise BadUsage(f"{path}{line}: expected YAML: {error}{error.excerpt}", hint=f"cat -A {path}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadUsage(f"{path}: expected `setting: value` lines, got {_quoted(data)}", hint=f"cat {path}")
    values: dict[str, object] = {}
    for key, value in data.items():
        name = str(key).replace("_", "-")
        if name in SECTIONS:
            continue  # `settings/yaml_sections.py` reads the sections
        if name not in BY_NAME:
            import difflib

            near = difflib.get_close_matches(name, [*BY_NAME, *SECTIONS], n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise BadUsage(f"{path}: `{key}`: there is no such setting{meant}", hint=f"grep -n {key} {path}")
        values[name] = value
    return values


def _quoted(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"
