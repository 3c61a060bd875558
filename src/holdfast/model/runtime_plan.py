"""A job's runtime plan: the prerequisites to fetch before its workers start, and the processes beside them."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class Prerequisite(Noun, frozen=True, kw_only=True):
    """Data or code that must be complete on each node before the first worker starts."""

    name: str
    #: The source: `s3://`, `http(s)://`, `hdfs://` (webhdfs), `git+…` or `….git` (`@REF` at its end), or a path.
    uri: str
    #: The destination, relative to the exchange directory or to the cache; empty: `name`. An absolute path is used as
    #: it is.
    into: str = ""
    #: The SHA-256 checksum of the file in hexadecimal; empty: no check.
    sha256: str = ""
    #: Maximum size in bytes; a larger prerequisite is not fetched.
    most_bytes: int | None = None
    #: Whether to unpack it; it is an archive (tar, zip).
    extract: bool = False
    #: Maximum number of tries, with back-off, after failures that may pass.
    tries: int = 5


class Daemon(Noun, frozen=True, kw_only=True):
    """A command that runs beside the workers of an attempt, on each node that has one of its roles."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    #: The roles beside which the daemon runs; empty: all.
    roles: tuple[str, ...] = ()
    #: Whether its final end fails the attempt.
    required: bool = False
    #: Maximum number of restarts within one attempt.
    restarts: int = 3


class HookMoment(enum.StrEnum):
    """When a hook runs.

    Hooks before the workers run in the order of the job file, hooks after them in reverse order.
    """

    BEFORE = "taskStarts"
    SUCCEEDED = "taskSucceeds"
    FAILED = "taskFails"
    ENDED = "always"


class OnFailure(enum.StrEnum):
    """The consequence of a hook's failure: the attempt fails, or the failure is ignored."""

    FAIL = "fail"
    IGNORE = "ignore"


class Hook(Noun, frozen=True, kw_only=True):
    """A command that runs once before or after an attempt's workers, on each node that has one of its roles."""

    when: HookMoment
    command: tuple[str, ...]
    name: str = ""
    #: The roles for which the hook runs; empty: all.
    roles: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    #: Seconds after which the hook is killed and has failed.
    limit_s: float = 600.0


class Ssh(Noun, frozen=True, kw_only=True):
    """An sshd beside the workers of each node, for debugging."""

    #: Public keys that may log in beside the job's own, as in `authorized_keys`.
    keys: tuple[str, ...] = ()
    #: The port of the sshd; 0: holdfast reserves one.
    port: int = 0
    #: Whether an sshd that cannot start fails the attempt.
    required: bool = False


class RuntimePlan(Noun, frozen=True, kw_only=True):
    """The processes and data that holdfast provides for a job's workers, in addition to running them."""

    prerequisites: tuple[Prerequisite, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    hooks: tuple[Hook, ...] = ()
    #: The sshd to start; None: none.
    ssh: Ssh | None = None
