"""The base classes of the built-in checks: their parameters, their input as one object, and sizes as text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Node, PreCheckOperator, PreCheckResult, Verdict
from holdfast.model.check_results import Site
from holdfast.model.job_spec import JobSpec
from holdfast.untrusted import Malformed, convert

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)


class Bytes(int):
    """A number of bytes, read from a number or a text such as `50GB`, `512 MiB` or `1.5g`."""

    words = "size (50GB, 512MiB)"

    @classmethod
    def read(cls, value: Any) -> Bytes:
        """Convert a value to bytes. Raises ValueError if it is no size of 0 or more."""
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            number, unit, binary = match.groups()
            power = "kmgtp".index(unit.lower()) + 1 if unit else 0
            return cls(round(float(number) * (1024**power if binary else _UNITS[unit.lower()])))
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
            return cls(value)
        raise ValueError(f"expected a size such as 50GB or 512MiB, found {value!r}")


def size(count: float) -> str:
    """Format bytes as `11.2 GB`: three digits, with decimal units like `df -H`."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while abs(count) >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.3g} {unit}"


def size_of(part: float, whole: float) -> str:
    """Format two sizes in bytes as `11.2 of 900 GB`, in the unit of the larger one."""
    unit = size(whole).split()[1]
    divisor = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    few = part / divisor
    return f"{few:.0f} of {size(whole)}" if few >= 100 or unit == "bytes" else f"{few:.3g} of {size(whole)}"


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of a check's parameters: each field has a default and a description."""


def _read(kind: type, value: Any) -> Any:
    if issubclass(kind, Bytes):
        return kind.read(value)
    raise NotImplementedError(kind)


def _seconds(text: str, where: str) -> float:
    found = amounts.seconds(text)
    if found is None:
        raise BadUsage(f"{where}: expected {amounts.DURATION}, got {text!r}", hint="holdfast check --list")
    return found


class Context:
    """The input of a built-in check: the job, its nodes, and the node on which the check runs."""

    def __init__(self, *, site: Site, job: JobSpec | None, nodes: Sequence[Node], attempt: int, now: float) -> None:
        """Create the input.

        `site`: the node, directories and port. `job`: the job, or None if the check runs without a job. `nodes`: the
        job's nodes. `attempt`: the number of the attempt that starts. `now`: seconds since the epoch.
        """
        self.site = site
        self.job = job
        self.nodes = list(nodes)
        self.attempt = attempt
        self.now = now

    @property
    def node(self) -> str:
        return self.site.node


class BuiltIn(PreCheckOperator):
    """A check of this machine. Subclasses set the class attributes and implement `look`."""

    name: ClassVar[str]
    Params: ClassVar[type[Params]] = Params
    independent = True
    needs_gang = False
    blame = "hardware"
    #: Checks of the same lane share a process. The lane `outside` has the checks that may block on a server, so that
    #: they do not delay those of the lane `quick`. A check with an empty lane has its own process.
    lane = "quick"
    retries = 0
    interval_s = 1.0
    time_limit_s = 5.0
    #: Seconds between two runs during a job; 0: the check runs only before the job.
    running_s = 0.0

    def __init__(self) -> None:
        self.params: Any = self.Params()

    @classmethod
    def convert_params(cls, params: Mapping[str, Any], where: str = "") -> Any:
        """Convert `params` to `Params`. Raises BadUsage with a message that begins with `where` and names the parameter
        and the expected value.
        """
        struct = cls.Params
        given: dict[str, Any] = {}
        for field in msgspec.structs.fields(struct):
            if field.encode_name not in params:
                continue
            value = params[field.encode_name]
            if isinstance(value, str) and isinstance(field.default, tuple):
                # Split a list at `:` too, as in PATH, because a comma separates checks on the command line.
                value = [part.strip() for part in re.split("[,:]", value) if part.strip()]
            elif isinstance(value, str) and isinstance(field.default, float) and field.name.endswith("_s"):
                value = _seconds(value, f"{where}check `{cls.name}`, parameter `{field.name}`")
            elif isinstance(value, int | float) and not isinstance(value, bool) and isinstance(field.default, tuple):
                value = [value]
            given[field.encode_name] = value
        try:
            return convert(given, struct, dec_hook=_read, strict=False)
        except Malformed as error:
            words, _, path = str(error).partition(" - at `$")
            name = path.strip("`").lstrip(".") or ", ".join(given)
            raise BadUsage(
                f"{where}check `{cls.name}`, parameter `{name}`: {words[:1].lower()}{words[1:]}",
                hint="holdfast check --list",
            ) from error

    @classmethod
    def get_retry_interval_secs(cls) -> float:
        return cls.interval_s

    @classmethod
    def get_retry_limit_times(cls) -> int:
        return cls.retries

    @classmethod
    def get_time_limit_secs(cls) -> float:
        return cls.time_limit_s

    @classmethod
    def get_running_interval_secs(cls) -> float:
        return cls.running_s

    def look(self, context: Context) -> Verdict:
        """Run the check. Return `good(...)`, `self.bad(...)` or `self.unsure(...)`."""
        raise NotImplementedError

    def check(self, *args: Any, **kwargs: Any) -> PreCheckResult:
        site = kwargs.pop("site", None) or Site(node="localhost")
        context = Context(
            site=site,
            job=kwargs.pop("job", None),
            nodes=kwargs.pop("nodes", ()) or [Node(name=site.node)],
            attempt=kwargs.pop("attempt", 1),
            now=kwargs.pop("now", 0.0),
        )
        self.params = self.convert_params(kwargs) if kwargs else self.Params()
        return self.look(context)

    def failed_actions(self, *args: Any, **kwargs: Any) -> Sequence[DiagnosisAction]:
        return [AvoidNode()]

    def bad(
        self,
        context: Context,
        problems: str | Sequence[str],
        solution: str,
        *,
        blame: str = "",
        code: int = 1,
        figures: Mapping[str, Any] | None = None,
        devices: Sequence[str] = (),
        nodes: Sequence[str] | None = None,
        phrase: str = "",
    ) -> Verdict:
        """Return a failure of this node (or of `nodes`). The message begins with this node's name.

        `problems`: the defects. `solution`: the remedy for the user. `blame`: the kind of cause, if it differs from the
        class's. `figures`: measured values. `code`: the number of the result. `devices`: the faulty devices. `phrase`:
        see `Verdict`.
        """
        text = problems if isinstance(problems, str) else "; ".join(problems)
        return Verdict(
            result=code,
            result_msg=f"{context.node}: {text}",
            abnormal_nodes=list(nodes) if nodes is not None else [context.node],
            solution=solution,
            blame=blame or self.blame,
            figures=dict(figures or {}),
            devices=list(devices),
            phrase=phrase,
        )

    def unsure(self, context: Context, text: str, figures: Mapping[str, Any] | None = None) -> Verdict:
        """Return an inconclusive result with its reason. `figures`: measured values by name."""
        return Verdict(
            result=1,
            result_msg=f"{context.node}: {text}",
            abnormal_nodes=[context.node],
            inconclusive=True,
            figures=dict(figures or {}),
        )


def good(text: str = "", figures: Mapping[str, Any] | None = None) -> Verdict:
    """Return a pass with the measured values."""
    return Verdict(result_msg=text, figures=dict(figures or {}))


def temporary() -> str:
    """Return the directory for temporary files, without the imports of `tempfile`."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return next((path for path in (*named, "/tmp", "/var/tmp") if path and Path(path).is_dir()), ".")
