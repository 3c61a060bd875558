"""The path of the state directory on this machine, and of a job's directory in it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def state_dir(env: Mapping[str, str]) -> Path:
    """Return the state directory: `$HOLDFAST_HOME`, else `$XDG_STATE_HOME/holdfast`, else `~/.local/state/holdfast`."""
    if home := env.get("HOLDFAST_HOME"):
        return Path(home)
    if state := env.get("XDG_STATE_HOME"):
        return Path(state) / "holdfast"
    return Path(env.get("HOME", "/")) / ".local" / "state" / "holdfast"


def job_dir(home: Path, job_id: str) -> Path:
    return home / "jobs" / job_id


def home_of(env: Mapping[str, str]) -> Path:
    """Return the state directory as an absolute path, since workers and later commands may run in other directories.

    `~` means the user's home. If HOME is not set (services, `env -i`), the home comes from the system's user database.
    """
    if not env.get("HOME"):
        env = {**env, "HOME": _listed_home()}
    where = state_dir(env)
    return (where.expanduser() if where.parts[:1] and where.parts[0].startswith("~") else where).absolute()


def unreadable(home: Path) -> str:
    """Return a message about a state directory that cannot be read; empty: it can be read."""
    try:
        os.scandir(home).close()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return f"the state directory {home} cannot be read ({why}): its jobs are missing here; `ls -ld {home}` shows it"
    return ""


def _listed_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir or "/"
    except KeyError:
        return "/"  # the user is not in the user database, as in many containers
