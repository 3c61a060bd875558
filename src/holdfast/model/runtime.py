"""What a job wants of its runtime: what is fetched before its workers start, and what runs beside them."""

from __future__ import annotations

import enum

from holdfast.model.base import Noun


class Prerequisite(Noun, frozen=True, kw_only=True):
    """Data or code that each node has before the first worker starts: the whole of it, or nothing."""

    name: str
    uri: str
    """`s3://`, `http(s)://`, `hdfs://` (webhdfs), `git+…` or `….git` (`@REF` at its end), or a path."""
    into: str = ""
    """Where it lies, relative to the exchange directory or to the cache; empty: `name`. An absolute path is meant as
    it stands."""
    sha256: str = ""
    """Of the file, in hexadecimal digits; empty: it is not compared."""
    most_bytes: int | None = None
    """More than this is not fetched."""
    extract: bool = False
    """It is an archive (tar, zip), and its content is wanted."""
    tries: int = 5
    """So often at most, with back-off, where the failure may pass."""


class Daemon(Noun, frozen=True, kw_only=True):
    """A command that runs beside the workers of an attempt, on each node that has one of its roles."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    roles: tuple[str, ...] = ()
    """Empty: all."""
    required: bool = False
    """Its end for good fails the attempt."""
    restarts: int = 3
    """So often at most, in one attempt, it is started again."""


class Moment(enum.StrEnum):
    """When a hook runs: before the workers in the order written, after them in the reverse order."""

    BEFORE = "taskStarts"
    SUCCEEDED = "taskSucceeds"
    FAILED = "taskFails"
    ENDED = "always"


class OnFailure(enum.StrEnum):
    """What a hook's failure means."""

    FAIL = "fail"
    IGNORE = "ignore"


class Hook(Noun, frozen=True, kw_only=True):
    """A command that runs once before or after an attempt's workers, on each node that has one of its roles."""

    when: Moment
    command: tuple[str, ...]
    name: str = ""
    roles: tuple[str, ...] = ()
    """Empty: all."""
    on_failure: OnFailure = OnFailure.FAIL
    limit_s: float = 600.0
    """After so many seconds it is killed, and has failed."""


class Ssh(Noun, frozen=True, kw_only=True):
    """A door for debugging: an sshd beside the workers of each node."""

    keys: tuple[str, ...] = ()
    """Public keys that may enter beside the job's own, as in `authorized_keys`."""
    port: int = 0
    """0: a reserved one."""
    required: bool = False
    """An sshd that cannot be had fails the attempt."""


class RuntimePlan(Noun, frozen=True, kw_only=True):
    """What holdfast does for a job's workers beside running them."""

    prerequisites: tuple[Prerequisite, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    hooks: tuple[Hook, ...] = ()
    ssh: Ssh | None = None
    """None: no door is opened."""
