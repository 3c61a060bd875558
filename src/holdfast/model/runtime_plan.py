"""What a job asks of its runtime: what is fetched before its workers start, and what runs beside them."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class Prerequisite(Noun, frozen=True, kw_only=True):
    """Data or code that each node has before the first worker starts: complete, or not at all."""

    name: str
    uri: str
    """`s3://`, `http(s)://`, `hdfs://` (webhdfs), `git+…` or `….git` (`@REF` at its end), or a path."""
    into: str = ""
    """Its destination, relative to the exchange directory or to the cache; empty: `name`. An absolute path is used
    unchanged."""
    sha256: str = ""
    """The checksum of the file, in hexadecimal digits; empty: it is not compared."""
    most_bytes: int | None = None
    """Bytes; a larger prerequisite is not fetched."""
    extract: bool = False
    """It is an archive (tar, zip) that is to be unpacked."""
    tries: int = 5
    """The number of tries at most, with back-off, for failures that may pass."""


class Daemon(Noun, frozen=True, kw_only=True):
    """A command that runs beside the workers of an attempt, on each node that has one of its roles."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    roles: tuple[str, ...] = ()
    """The roles beside which it runs; empty: all."""
    required: bool = False
    """Its final end fails the attempt."""
    restarts: int = 3
    """How often it is restarted at most within one attempt."""


class HookMoment(enum.StrEnum):
    """When a hook runs: before the workers in the order written, after them in the reverse order."""

    BEFORE = "taskStarts"
    SUCCEEDED = "taskSucceeds"
    FAILED = "taskFails"
    ENDED = "always"


class OnFailure(enum.StrEnum):
    """What follows a hook's failure."""

    FAIL = "fail"
    IGNORE = "ignore"


class Hook(Noun, frozen=True, kw_only=True):
    """A command that runs once before or after an attempt's workers, on each node that has one of its roles."""

    when: HookMoment
    command: tuple[str, ...]
    name: str = ""
    roles: tuple[str, ...] = ()
    """The roles for which it runs; empty: all."""
    on_failure: OnFailure = OnFailure.FAIL
    limit_s: float = 600.0
    """Seconds after which it is killed, and has failed."""


class Ssh(Noun, frozen=True, kw_only=True):
    """An sshd beside the workers of each node, for debugging."""

    keys: tuple[str, ...] = ()
    """Public keys that may log in beside the job's own, as in `authorized_keys`."""
    port: int = 0
    """Its port; 0: a reserved one."""
    required: bool = False
    """An sshd that cannot start fails the attempt."""


class RuntimePlan(Noun, frozen=True, kw_only=True):
    """What holdfast does for a job's workers beside running them."""

    prerequisites: tuple[Prerequisite, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    hooks: tuple[Hook, ...] = ()
    ssh: Ssh | None = None
    """None: no sshd is started."""
