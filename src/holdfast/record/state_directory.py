"""The path of the state directory on this machine, and the path of a job's directory in it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def state_dir(env: Mapping[str, str]) -> Path:
    """Return the state directory: `$HOLDFAST_HOME`, or `$XDG_STATE_HOME/holdfast`, or `~/.local/state/holdfast`."""
    if home := env.get("HOLDFAST_HOME"):
        return Path(home)
    if state := env.get("XDG_STATE_HOME"):
        return Path(state) / "holdfast"
    return Path(env.get("HOME", "/")) / ".local" / "state" / "holdfast"


def job_dir(home: Path, job_id: str) -> Path:
    return home / "jobs" / job_id


def home_of(env: Mapping[str, str]) -> Path:
    """Return the state directory as an absolute path, because workers and later commands may run in other directories.

    `~` means the user's home directory. If HOME is not set (services, `env -i`), the user database has it.
    """
    if not env.get("HOME"):
        env = {**env, "HOME": _listed_home()}
    where = state_dir(env)
    return (where.expanduser() if where.parts[:1] and where.parts[0].startswith("~") else where).absolute()


def unreadable(home: Path) -> str:
    """Return a message to the user if a state directory cannot be read; "" if it can."""
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
        return "/"  # the user database has no entry for this user, as in many containers
