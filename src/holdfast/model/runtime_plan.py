"""What a job asks of its runtime: what is fetched before its workers start, and what runs beside them."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class Prerequisite(Noun, frozen=True, kw_only=True):
    """Data or code that each node has before the first worker starts: complete, or not at all."""

    name: str
    #: `s3://`, `http(s)://`, `hdfs://` (webhdfs), `git+…` or `….git` (`@REF` at its end), or a path.
    uri: str
    #: Its destination, relative to the exchange directory or to the cache; empty: `name`. An absolute path is used
    #: unchanged.
    into: str = ""
    #: The checksum of the file, in hexadecimal digits; empty: it is not compared.
    sha256: str = ""
    #: Bytes; a larger prerequisite is not fetched.
    most_bytes: int | None = None
    #: It is an archive (tar, zip) that is to be unpacked.
    extract: bool = False
    #: The number of tries at most, with back-off, for failures that may pass.
    tries: int = 5


class Daemon(Noun, frozen=True, kw_only=True):
    """A command that runs beside the workers of an attempt, on each node that has one of its roles."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    #: The roles beside which it runs; empty: all.
    roles: tuple[str, ...] = ()
    #: Its final end fails the attempt.
    required: bool = False
    #: How often it is restarted at most within one attempt.
    restarts: int = 3


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
    #: The roles for which it runs; empty: all.
    roles: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    #: Seconds after which it is killed, and has failed.
    limit_s: float = 600.0


class Ssh(Noun, frozen=True, kw_only=True):
    """An sshd beside the workers of each node, for debugging."""

    #: Public keys that may log in beside the job's own, as in `authorized_keys`.
    keys: tuple[str, ...] = ()
    #: Its port; 0: a reserved one.
    port: int = 0
    #: An sshd that cannot start fails the attempt.
    required: bool = False


class RuntimePlan(Noun, frozen=True, kw_only=True):
    """What holdfast does for a job's workers beside running them."""

    prerequisites: tuple[Prerequisite, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    hooks: tuple[Hook, ...] = ()
    #: None: no sshd is started.
    ssh: Ssh | None = None
