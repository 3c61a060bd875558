"""Settings: one table, and where each value came from.

An option beats `HOLDFAST_<OPTION>` in the environment, that beats torchrun's variable for the same, that beats
`config.yaml` in the state directory, that beats `/etc/holdfast/config.yaml`, and that the built-in default. What is
wrong is told with its place; nothing is guessed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model.base import Noun
from holdfast.show.setting_kinds import DiskLimit, Kind, Value, disk_limit, read

FILE_NAME = "config.yaml"
SYSTEM_FILE = Path("/etc/holdfast") / FILE_NAME


class Source(enum.IntEnum):
    """Where a value came from, the strongest highest."""

    DEFAULT = 0
    SYSTEM_FILE = 1
    HOME_FILE = 2
    ENVIRONMENT = 3
    OPTION = 4


class Setting(Noun, frozen=True, kw_only=True):
    """One setting. Its name is the option's; `least` bounds numbers from below, itself included."""

    name: str
    kind: Kind
    default: Value = None
    help: str = ""
    metavar: str = ""
    least: float = 0.0
    no_option: bool = False
    """`--no-NAME` turns it off."""
    also: tuple[str, ...] = ()
    """Variables of torchrun that say the same, the strongest first; ours wins over them."""

    @property
    def variable(self) -> str:
        return "HOLDFAST_" + self.name.upper().replace("-", "_")

    def set_by(self, env: Mapping[str, str]) -> str | None:
        """The variable of this environment that sets it."""
        return next((name for name in (self.variable, *self.also) if env.get(name)), None)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="name",
        kind=Kind.TEXT,
        help="What the job is called; the script's name unless given.",
        metavar="NAME",
    ),
    Setting(
        name="report",
        kind=Kind.FILE,
        help="Also write report.json to this file.",
        metavar="FILE",
    ),
    Setting(
        name="json",
        kind=Kind.FLAG,
        default=False,
        help="At the end print the report as JSON on stdout instead of as text on stderr.",
    ),
    Setting(
        name="max-restarts",
        kind=Kind.COUNT,
        default=3,
        help="How often the gang is started again after failures that are charged to the workload; 0 is never.",
        metavar="N",
        also=("PET_MAX_RESTARTS",),
    ),
    Setting(
        name="grace",
        kind=Kind.SECONDS,
        default=30.0,
        help="How long workers have between SIGTERM and SIGKILL.",
        metavar="SECONDS",
        also=("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
    ),
    Setting(
        name="time-limit",
        kind=Kind.SECONDS,
        help="Stop the job when it has run this long, restarts included.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="hang-timeout",
        kind=Kind.SECONDS,
        help="Look for a hang when no rank has printed or progressed for this long; off unless given.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="disk-limit",
        kind=Kind.LIMIT,
        help="Disk cleaner: when more of a disk that the job uses is taken than this (90%, 500G, `5000000 inodes`), "
        "stop the job if it is the biggest user; off unless given.",
        metavar="LIMIT",
    ),
    Setting(
        name="checks",
        kind=Kind.NAMES,
        help="Pre-checks to run, in this order, instead of the default ones.",
        metavar="A,B",
    ),
    Setting(
        name="no-checks",
        kind=Kind.FLAG,
        default=False,
        help="Start without pre-checks.",
    ),
    Setting(
        name="check-timeout",
        kind=Kind.SECONDS,
        help="Bound each pre-check, its retries included; each check's own limit unless given.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="plugin",
        kind=Kind.FILES,
        default=(),
        help="A Python file or an executable with further pre-checks; may be given again.",
        metavar="FILE",
    ),
    Setting(
        name="fault-codes",
        kind=Kind.FILE,
        help="Device fault codes and their levels (faultCode.json), instead of the built-in ones.",
        metavar="FILE",
    ),
    Setting(
        name="fault-rules",
        kind=Kind.FILE,
        help="Escalation of faults by frequency and duration (faultCustomization.json), instead of the built-in rules.",
        metavar="FILE",
    ),
    Setting(
        name="kernel-log",
        kind=Kind.FILE,
        default="/dev/kmsg",
        help="Where the kernel's lines are read: device errors, memory kills; a log daemon's file works too.",
        metavar="FILE",
    ),
    Setting(
        name="fault-socket",
        kind=Kind.FILE,
        help="Where faults are reported to the running job as JSON lines; faults.sock in its directory unless given.",
        metavar="SOCKET",
    ),
    Setting(
        name="fault-file",
        kind=Kind.FILE,
        help="A file that is watched for faults as JSON lines; faults.jsonl in the job's directory unless given.",
        metavar="FILE",
    ),
    Setting(
        name="ascend-events",
        kind=Kind.FILE,
        help="A file of Ascend device events as JSON lines, watched while the job runs.",
        metavar="FILE",
    ),
    Setting(
        name="reset-command",
        kind=Kind.TEXT,
        help="What resets a device: `nvidia-smi --gpu-reset -i {index}`; {index} is its number, {device} its name. "
        "Without one, a device that needs a reset is left out.",
        metavar="COMMAND",
    ),
    Setting(
        name="reset-group",
        kind=Kind.COUNT,
        default=1,
        help="So many neighbouring devices can only be reset together.",
        metavar="N",
        least=1,
    ),
    Setting(
        name="exits",
        kind=Kind.FILE,
        help="Further rows of the catalogue of exits, looked at before the built-in ones.",
        metavar="FILE",
    ),
    Setting(
        name="preload",
        kind=Kind.NAMES,
        help="Modules that the warm process imports before workers are forked from it.",
        metavar="MODULES",
    ),
    Setting(
        name="warm",
        kind=Kind.FLAG,
        help="Fork workers from a process that has its imports done already; cold unless given.",
        no_option=True,
    ),
    Setting(
        name="standby",
        kind=Kind.FLAG,
        help="With --warm: keep the next attempt's workers forked and waiting while this one runs.",
        no_option=True,
    ),
    Setting(
        name="warm-timeout",
        kind=Kind.SECONDS,
        default=120.0,
        help="How long the warm process may take to import; workers start cold after that.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="tee",
        kind=Kind.TEXT,
        default="0",
        help="Streams shown on the terminal even where --redirects names them; written as for --redirects.",
        metavar="STREAMS",
        also=("PET_TEE",),
    ),
    Setting(
        name="redirects",
        kind=Kind.TEXT,
        default="0",
        help="Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank, `0:1,1:2`.",
        metavar="STREAMS",
        also=("PET_REDIRECTS",),
    ),
    Setting(
        name="log-dir",
        kind=Kind.FILE,
        help="Where the workers' logs go, instead of the job's directory.",
        metavar="DIRECTORY",
        also=("PET_LOG_DIR",),
    ),
)
"""In the order of `holdfast config`. Adding a row adds the option, the variable and the key in the files."""

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}


class Settings:
    """Every setting's value, and where it came from."""

    def __init__(self, found: Mapping[str, tuple[Value, Source, str]]) -> None:
        self._found = found

    def value(self, name: str) -> Value:
        """The value; None where nothing is set and there is no default."""
        return self._found[name][0]

    def source(self, name: str) -> Source:
        """The kind of place it came from."""
        return self._found[name][1]

    def origin(self, name: str) -> str:
        """The place in words: `--grace`, `HOLDFAST_GRACE`, `/etc/holdfast/config.yaml`, `built-in default`."""
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
        """Seconds."""
        value = self.value(name)
        assert value is None or isinstance(value, float)
        return value

    def count(self, name: str) -> int | None:
        """Whole numbers."""
        value = self.value(name)
        assert value is None or isinstance(value, int)
        return value

    def limit(self, name: str) -> DiskLimit | None:
        return disk_limit(self.value(name))

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.value(name)
        assert value is None or isinstance(value, tuple)
        return value

    def chosen_checks(self) -> tuple[str, ...] | None:
        """Names of pre-checks; () for none, None for the default ones. The stronger of the two settings counts."""
        without, given = self.source("no-checks"), self.source("checks")
        if self.flag("no-checks"):
            if without is given:
                raise BadUsage(
                    f"{self.origin('checks')} and {self.origin('no-checks')} contradict each other: "
                    "expected only one of `checks` and `no-checks`",
                    hint="holdfast run --help",
                )
            if without > given:
                return ()
        return self.names("checks")


def resolve(
    cli_values: Mapping[str, object | None],
    env: Mapping[str, str],
    home: Path,
    *,
    system_file: Path = SYSTEM_FILE,
) -> Settings:
    """Every setting's value. `cli_values`: by setting name (hyphens or underscores), None where not given.

    Raises `BadUsage` that names the place and what was expected, for every place: a wrong value is told also where a
    stronger place hides it.
    """
    options = {name.replace("_", "-"): value for name, value in cli_values.items()}
    home_file = home / FILE_NAME
    places: tuple[tuple[Source, Mapping[str, object], Path | None], ...] = (
        (Source.OPTION, options, None),
        (Source.ENVIRONMENT, {s.name: env[name] for s in SETTINGS if (name := s.set_by(env))}, None),
        (Source.HOME_FILE, _read_file(home_file), home_file),
        (Source.SYSTEM_FILE, _read_file(system_file), system_file),
    )
    found: dict[str, tuple[Value, Source, str]] = {}
    for setting in SETTINGS:
        found[setting.name] = (setting.default, Source.DEFAULT, "built-in default")
        for source, values, path in reversed(places):
            raw = values.get(setting.name)
            if raw is None or raw == ():
                continue
            match source:
                case Source.OPTION:
                    off = setting.no_option and raw is False
                    origin = where = f"--no-{setting.name}" if off else f"--{setting.name}"
                    hint = "holdfast run --help"
                case Source.ENVIRONMENT:
                    origin = where = setting.set_by(env) or setting.variable
                    hint = f"unset {where}"
                case _:
                    origin, where = str(path), f"{path}: `{setting.name}`"
                    hint = f"grep -n {setting.name} {path}"
            found[setting.name] = (parse(setting, raw, where, hint=hint), source, origin)
    return Settings(found)


def parse(setting: Setting, raw: object, where: str, *, hint: str = "") -> Value:
    """A value as given (text, or what YAML made of it) as the setting's kind. Raises `BadUsage` naming `where`."""
    value = read(setting.kind, raw)
    if value is None:
        raise BadUsage(f"{where}: expected {setting.kind.value}, got {_quoted(raw)}", hint=hint)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and isinstance(value, int | float) and value < setting.least:
        more = "more than 0" if setting.least else "0 or more"
        expected = setting.kind.value.removesuffix(", 0 or more")
        raise BadUsage(f"{where}: expected {expected}, {more}, got {_quoted(raw)}", hint=hint)
    return value


def _read_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadUsage(f"{path}: cannot be read: {reason}", hint=f"ls -ld {path}") from error
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        at = getattr(error, "problem_mark", None)
        line = f", line {at.line + 1}" if at is not None else ""
        problem = getattr(error, "problem", None) or "it is not text"
        raise BadUsage(f"{path}{line}: expected YAML: {problem}", hint=f"cat -A {path}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadUsage(f"{path}: expected `setting: value` lines, got {_quoted(data)}", hint=f"cat {path}")
    values: dict[str, object] = {}
    for key, value in data.items():
        name = str(key).replace("_", "-")
        if name not in BY_NAME:
            import difflib

            near = difflib.get_close_matches(name, BY_NAME, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise BadUsage(f"{path}: `{key}`: there is no such setting{meant}", hint=f"grep -n {key} {path}")
        values[name] = value
    return values


def _quoted(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"
