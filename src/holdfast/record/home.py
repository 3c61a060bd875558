"""Which directory of this machine the state of this process's user lies in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.paths import state_dir


def home_of(env: Mapping[str, str]) -> Path:
    """The state directory, absolute: workers and later commands may stand elsewhere. `~` is the user's own directory.

    Without a HOME (services, `env -i`) that is what the system's list of users says.
    """
    if not env.get("HOME"):
        env = {**env, "HOME": _listed_home()}
    where = state_dir(env)
    return (where.expanduser() if where.parts[:1] and where.parts[0].startswith("~") else where).absolute()


def _listed_home() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir or "/"
    except KeyError:
        return "/"  # a user without a name, as in many containers
