"""`--job FILE.yaml` → `JobSpec`. Wrong input gets one message: the file, the path inside it, what was expected."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import BadUsage
from holdfast.files import read_given
from holdfast.lazy import Lazy
from holdfast.loop.order import JobFile
from holdfast.model.checks import CheckChoice
from holdfast.model.jobs import NAME, Completion, JobSpec, Kind, Resources, RestartPolicy, Role, Timers
from holdfast.settings.kinds import Kind as SettingKind
from holdfast.settings.kinds import times
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, convert, yaml_value

SIZE = Lazy(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
MOST_WORKERS = 100_000
EXAMPLE = "roles: {worker: {count: 2, command: [python, train.py]}}"

T = TypeVar("T")


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A mapping of the file: an unknown key is a typing error, not something to pass over."""


class _Completion(_Strict):
    min_failed: int | None = 1
    min_succeeded: int | None = None


class _Resources(_Strict):
    memory: str | int | None = None
    cpus: float | None = None
    devices: int | None = None


class _Role(_Strict):
    count: int
    command: list[str] | str
    env: dict[str, str | int | float | bool] = {}
    resources: _Resources = msgspec.field(default_factory=_Resources)
    completion: _Completion = msgspec.field(default_factory=_Completion)


class _Restarts(_Strict):
    max_restarts: int = RestartPolicy().max_restarts
    platform_max_restarts: int = RestartPolicy().platform_max_restarts
    max_in_a_row: int = RestartPolicy().max_in_a_row
    window_restarts: int = RestartPolicy().window_restarts
    window_s: float = RestartPolicy().window_s
    backoff_s: float = RestartPolicy().backoff_s
    backoff_cap_s: float = RestartPolicy().backoff_cap_s
    healthy_s: float = RestartPolicy().healthy_s
    max_isolations: int = RestartPolicy().max_isolations
    same_failure: int | str | bool = RestartPolicy().same_failure


class _Job(_Strict):
    name: str
    roles: dict[str, Any]
    kind: Kind = Kind.TRAINING
    restarts: dict[str, Any] = {}
    checks: list[str | dict[str, dict[str, Any] | None]] | None = None
    grace: float = 30.0
    hang_timeout: float | None = None
    hang_warning: float = 600.0
    time_limit: float | None = None
    on_subhealth: str = "ignore"
    warm: bool | None = None
    preload: list[str] = []
    slurm: Any = None
    """What `holdfast submit` asks of Slurm; a run passes it over."""


def load(path: Path) -> JobFile:
    """Read a job file. Raises `BadUsage` for all that is wrong with it; nothing else is touched."""
    return parsed(path, text_of(path))


def text_of(path: Path) -> bytes:
    """What stands in a job file. Raises `BadUsage`."""
    try:
        return read_given(path, MOST_CONFIG_BYTES)
    except OSError as error:
        raise BadUsage(f"job file {path}: {error.strerror}", hint=f"ls -l {path}") from None


def parsed(path: Path, text: bytes, *, here: bool = True) -> JobFile:
    """The job that a file's text describes. Raises `BadUsage`. `here`: it is to run on this machine."""
    try:
        data = yaml_value(text)
    except Malformed as error:
        raise malformed(path, error) from None
    return _job(path, data, here)


def malformed(path: Path, error: Malformed) -> BadUsage:
    """A job file that is no YAML, or a section of it that cannot be read."""
    where = f", line {error.line}, column {error.column}" if error.line is not None else ""
    return BadUsage(f"job file {path}{where}: {error}", hint=f"cat -A {path} | head")


def _job(path: Path, data: Any, here: bool) -> JobFile:
    if not isinstance(data, dict):
        raise _wrong(path, "", f"expected a mapping such as `name: x` and `{EXAMPLE}`, got {_kind(data)}")
    if strange := list(_strange(data)):
        where, _ = strange[0]
        others = "".join(f"; also `{place}`: {said}" if place else f"; also {said}" for place, said in strange[1:])
        raise _wrong(path, where, strange[0][1] + others)
    job = _convert(path, "", data, _Job)
    if not NAME.fullmatch(job.name):
        raise _wrong(path, "name", f"expected letters, digits, `.`, `_` or `-`, at most 63, got {job.name!r}")
    if not job.roles:
        raise _wrong(path, "roles", f"expected at least one role, as in `{EXAMPLE}`")
    if job.on_subhealth.lower() == "hotswitch":
        raise _wrong(
            path,
            "on_subhealth",
            "hotSwitch (a spare worker takes over while the job runs on) is not available; expected ignore, grace or "
            "force: grace lets the workers save, and starts them again without the device",
        )
    if job.on_subhealth not in ("ignore", "grace", "force"):
        raise _wrong(path, "on_subhealth", f"expected ignore, grace or force, got {job.on_subhealth!r}")
    for key in ("grace", "hang_timeout", "hang_warning", "time_limit"):
        value = getattr(job, key)
        least = 0.0 if key in ("grace", "hang_warning") else 0.001
        if value is not None and not least <= value < float("inf"):
            raise _wrong(path, key, f"expected a number of seconds{', more than 0' if least else ''}, got {value:g}")
    restarts = msgspec.structs.asdict(_convert(path, "restarts", job.restarts, _Restarts))
    same = times(restarts.pop("same_failure"))
    if same is None:
        got = job.restarts["same_failure"]
        raise _wrong(path, "restarts.same_failure", f"expected {SettingKind.TIMES.value}, got {got!r}")
    for key, value in restarts.items():
        if not 0 <= value < float("inf"):
            raise _wrong(path, f"restarts.{key}", f"expected 0 or more, got {value}")
    spec = JobSpec(
        name=job.name,
        roles=tuple(_role(path, name, role, here) for name, role in job.roles.items()),
        kind=job.kind,
        restarts=RestartPolicy(**restarts, same_failure=same),
        timers=Timers(grace_s=job.grace),
        checks=None if job.checks is None else tuple(_check(path, i, item) for i, item in enumerate(job.checks)),
        hang_timeout_s=job.hang_timeout,
        hang_warning_s=job.hang_warning,
        time_limit_s=job.time_limit,
        on_subhealth=job.on_subhealth,
    )
    if spec.world_size > MOST_WORKERS:
        raise _wrong(path, "roles", f"expected at most {MOST_WORKERS} workers, got {spec.world_size}")
    return JobFile(spec, job.warm, tuple(job.preload))


def _role(path: Path, name: Any, data: Any, here: bool) -> Role:
    where = f"roles.{name}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _wrong(path, where, "expected a role's name of letters, digits, `.`, `_` or `-`, at most 63")
    if not isinstance(data, dict):
        raise _wrong(path, where, f"expected a mapping with `count` and `command`, got {_kind(data)}")
    role = _convert(path, where, data, _Role)
    if role.count < 1:
        raise _wrong(path, f"{where}.count", f"expected 1 or more, got {role.count}")
    command = role.command
    if isinstance(command, str):
        from holdfast.loop.shell_words import split  # shlex is for the few job files that write a line

        try:
            command = split(command)
        except ValueError as error:
            lists = "[" + ", ".join(("sh", "-c", repr(role.command))) + "]"
            raise _wrong(path, f"{where}.command", f"{error}; to have it run by a shell, write {lists}") from None
    if not command or not command[0]:
        raise _wrong(path, f"{where}.command", "expected a command, as in [python, train.py]")
    bad = next((word for word in command if "\0" in word), None)
    if bad is not None:
        raise _wrong(path, f"{where}.command", "expected words without NUL characters")
    for key, value in role.env.items():
        if not key or "=" in key or "\0" in key or "\0" in str(value):
            raise _wrong(path, f"{where}.env.{key}", "expected a variable's name without `=` and NUL")
    completion = role.completion
    for key in ("min_failed", "min_succeeded"):
        number = getattr(completion, key)
        if number is not None and not 1 <= number <= role.count:
            raise _wrong(
                path, f"{where}.completion.{key}", f"expected 1 to {role.count} (its count), or null, got {number}"
            )
    return Role(
        name=name,
        count=role.count,
        command=tuple(command),
        env={key: _text(value) for key, value in role.env.items()},
        resources=_resources(path, f"{where}.resources", role.resources, here),
        completion=Completion(min_failed=completion.min_failed, min_succeeded=completion.min_succeeded),
    )


def _resources(path: Path, where: str, asked: _Resources, here: bool) -> Resources:
    """Refuse what this machine can never give before any worker starts, where it is the one."""
    memory = None
    if asked.memory is not None:
        memory = size(asked.memory)
        if memory is None or memory < 1:
            raise _wrong(
                path, f"{where}.memory", f"expected bytes or a size such as 500M or 16GiB, got {asked.memory!r}"
            )
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if here and memory > total:
            raise _wrong(
                path,
                f"{where}.memory",
                f"expected at most this machine's {total / 2**30:.1f} GiB, got {memory / 2**30:.1f}",
            )
    cpus = os.cpu_count() or 1
    if asked.cpus is not None and not 0 < asked.cpus <= (cpus if here else float("inf")):
        raise _wrong(
            path, f"{where}.cpus", f"expected more than 0 and at most this machine's {cpus}, got {asked.cpus:g}"
        )
    if asked.devices is not None and asked.devices < 0:
        raise _wrong(path, f"{where}.devices", f"expected 0 or more, got {asked.devices}")
    return Resources(memory_bytes=memory, cpus=asked.cpus, devices=asked.devices)


def _check(path: Path, index: int, item: str | dict[str, dict[str, Any] | None]) -> CheckChoice:
    if isinstance(item, str):
        return CheckChoice(name=item)
    if len(item) != 1:
        raise _wrong(
            path, f"checks[{index}]", "expected a check's name, or one with its parameters: {disk: {min_free: 50G}}"
        )
    [(name, params)] = item.items()
    return CheckChoice(name=name, params=params or {})


def size(value: str | int) -> int | None:
    """`500M`, `16GiB`, `1024` → bytes (units are powers of 1024); None where it is none of these."""
    if isinstance(value, int):
        return value
    match = SIZE.fullmatch(value.strip())
    if match is None:
        return None
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _convert(path: Path, where: str, data: Any, kind: type[T]) -> T:
    try:
        return convert(data, kind)
    except Malformed as error:
        problem, _, inside = str(error).partition(" - at `$")
        inside = inside.rstrip("`").replace("[...]", "")
        if missing := re.search(r"missing required field `(.*?)`", problem):
            problem = f"the key `{missing[1]}` is missing"
        else:
            problem = problem[0].lower() + problem[1:]
        raise _wrong(path, (where + inside).strip("."), problem) from None


def _strange(data: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """Every unknown key, wherever it stands: the place, and the message."""
    yield from _unknown("", data, _Job)
    yield from _unknown("restarts", data.get("restarts"), _Restarts)
    roles = data.get("roles")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        yield from _unknown(f"roles.{name}", role, _Role)


def _unknown(where: str, data: Any, kind: type[_Strict]) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        return  # which has a message of its own
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        deeper = known.get(key)
        if key not in known:
            import difflib  # for a mistake only

            near = difflib.get_close_matches(str(key), known, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            yield where, f"there is no key `{str(key)[:60]}`; expected some of: {', '.join(known)}{meant}"
        elif isinstance(deeper, type) and issubclass(deeper, _Strict):
            yield from _unknown(f"{where}.{key}".strip("."), value, deeper)


def _wrong(path: Path, where: str, problem: str) -> BadUsage:
    place = f": `{where}`" if where else ""
    return BadUsage(f"job file {path}{place}: {problem}", hint=f"{os.environ.get('EDITOR') or 'vi'} {path}")


def _kind(value: Any) -> str:
    return {type(None): "nothing", list: "a list", str: "text", int: "a number"}.get(type(value), type(value).__name__)


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
