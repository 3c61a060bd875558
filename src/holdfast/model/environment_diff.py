"""What holdfast keeps of a worker's environment, and how the environments of two attempts differ. Pure.

An environment has what its user typed, and its file stays on the disk: a variable whose name or value looks like a
secret is kept by its name alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun
from holdfast.model.secret_hints import may_hold

#: The file's name in a worker's directory, beside its logs.
FILE = "environment.json"
#: Bytes of that file; a larger environment is not kept.
MOST_BYTES = 256 * 1024
HIDDEN = "***"
#: Variables whose names have the letters of a password without being one.
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
#: Variables that carry the secrets of a job file to the workers; its `env` may copy them into other variables.
_OF_THE_JOB = "HOLDFAST_SECRET_"
#: Variables with a new value in each attempt.
OWN = frozenset({"HOLDFAST_ATTEMPT", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"})
_ATTEMPT = Lazy(r"attempt-\d+")


class Difference(Noun, frozen=True, kw_only=True):
    """One variable that differs between two attempts."""

    name: str
    #: Its value; None: it was not set.
    before: str | None
    now: str | None


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """The variables by name, with `HIDDEN` in place of a value that may be a secret or contains a secret of the job."""
    secrets = [value for name, value in env.items() if name.startswith(_OF_THE_JOB) and value]
    return {
        name: HIDDEN if _secret(name, value) or any(secret in value for secret in secrets) else value
        for name, value in sorted(env.items())
    }


@lru_cache(maxsize=4096)  # the workers of a machine share nearly all of it, and so do their attempts
def _secret(name: str, value: str) -> bool:
    return (name not in _DIRECTORIES and may_hold(name)) or may_hold(value)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    """The differences by name, without those that every two attempts have, and without those that follow from their
    directories' names."""
    return tuple(
        Difference(name=name, before=old, now=new)
        for name in sorted({*before, *now} - OWN)
        if _alike(old := before.get(name)) != _alike(new := now.get(name))
    )


def _alike(value: str | None) -> str | None:
    return None if value is None else _ATTEMPT.sub("attempt-", value)
