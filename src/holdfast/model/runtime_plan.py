"""A job's runtime plan: the prerequisites to fetch before its workers start, and the hooks, daemons and sshd beside
them.
"""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class Prerequisite(Noun, frozen=True, kw_only=True):
    """Data or code that must be complete on each node before the first worker starts."""

    name: str
    #: The address of the data: `s3://`, `http(s)://`, `hdfs://` (webhdfs), `git+…` or `….git` (`@REF` at its end), or a
    #: path.
    uri: str
    #: Where to store it: a path relative to the exchange directory or to the cache, or an absolute path; empty: `name`.
    into: str = ""
    #: The file's SHA-256 checksum in hexadecimal; empty: the file is not verified.
    sha256: str = ""
    #: Maximum size in bytes; a larger prerequisite is not fetched.
    most_bytes: int | None = None
    #: Whether to unpack the fetched archive (tar, zip).
    extract: bool = False
    #: Maximum number of tries to fetch it, with pauses, for failures that may be temporary.
    tries: int = 5


class Daemon(Noun, frozen=True, kw_only=True):
    """A command that runs beside the workers of an attempt, on each node with a worker of the hook's roles."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    #: The roles with which the daemon runs; empty: all roles.
    roles: tuple[str, ...] = ()
    #: Whether the attempt fails if the daemon ends and has no restart left.
    required: bool = False
    #: Maximum number of restarts of the daemon within one attempt.
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
    """The effect of a failed hook: the attempt fails, or the failure is ignored."""

    FAIL = "fail"
    IGNORE = "ignore"


class Hook(Noun, frozen=True, kw_only=True):
    """A command that runs once before or after an attempt's workers, on each node with a worker of its roles."""

    when: HookMoment
    command: tuple[str, ...]
    name: str = ""
    #: The roles for which the hook runs; empty: all roles.
    roles: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    #: holdfast kills the hook after this many seconds, and counts it as failed.
    limit_s: float = 600.0


class Ssh(Noun, frozen=True, kw_only=True):
    """An sshd beside the workers of each node, for debugging."""

    #: Public keys that may log in, as in `authorized_keys`, in addition to the job's own key.
    keys: tuple[str, ...] = ()
    #: The port of the sshd; 0: holdfast reserves one.
    port: int = 0
    #: Whether the attempt fails if the sshd cannot start.
    required: bool = False


class RuntimePlan(Noun, frozen=True, kw_only=True):
    """The runtime of a job besides its workers: data to fetch, hooks, daemons, an sshd."""

    prerequisites: tuple[Prerequisite, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    hooks: tuple[Hook, ...] = ()
    #: The sshd to start on each node; None: no sshd.
    ssh: Ssh | None = None
