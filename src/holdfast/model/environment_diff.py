"""Saves a worker's environment without its secrets, and compares the environments of two attempts. Pure.

An environment may contain secrets, and the saved file stays on disk. If the name or the value of a variable looks like
a secret, only the name is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun
from holdfast.model.secret_hints import may_hold

#: The file with a worker's environment, in the worker's directory beside its logs.
FILE = "environment.json"
#: Maximum size of `environment.json` in bytes. A larger environment is not saved.
MOST_BYTES = 256 * 1024
HIDDEN = "***"
#: Variables that only look like passwords, because their names contain `PWD`.
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
#: The prefix of the variables that pass a job file's secrets to the workers. The job's `env` may copy such a secret to
#: a variable of another name.
_OF_THE_JOB = "HOLDFAST_SECRET_"
#: Variables that holdfast sets to a new value in each attempt.
OWN = frozenset({"HOLDFAST_ATTEMPT", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"})
_ATTEMPT = Lazy(r"attempt-\d+")


class Difference(Noun, frozen=True, kw_only=True):
    """One environment variable that differs between two attempts."""

    name: str
    #: The variable's value in the earlier attempt; None: it was not set.
    before: str | None
    now: str | None


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment's variables by name. `HIDDEN` stands for a value that may be a secret, or contains a
    secret of the job.
    """
    secrets = [value for name, value in env.items() if name.startswith(_OF_THE_JOB) and value]
    return {
        name: HIDDEN if _secret(name, value) or any(secret in value for secret in secrets) else value
        for name, value in sorted(env.items())
    }


@lru_cache(maxsize=4096)  # cached, because all workers and attempts on a machine have nearly the same environment
def _secret(name: str, value: str) -> bool:
    return (name not in _DIRECTORIES and may_hold(name)) or may_hold(value)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the variables that differ between two environments, by name. Leave out those that differ in every attempt
    (see `OWN`).
    """
    return tuple(
        Difference(name=name, before=old, now=new)
        for name in sorted({*before, *now} - OWN)
        if _alike(old := before.get(name)) != _alike(new := now.get(name))
    )


def _alike(value: str | None) -> str | None:
    return None if value is None else _ATTEMPT.sub("attempt-", value)
