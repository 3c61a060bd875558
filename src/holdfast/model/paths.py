"""Where holdfast keeps its state: paths only, nothing is created here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_dir(env: Mapping[str, str]) -> Path:
    """`$HOLDFAST_HOME`, else `$XDG_STATE_HOME/holdfast`, else `~/.local/state/holdfast`."""
    if home := env.get("HOLDFAST_HOME"):
        return Path(home)
    if state := env.get("XDG_STATE_HOME"):
        return Path(state) / "holdfast"
    return Path(env.get("HOME", "/")) / ".local" / "state" / "holdfast"


def job_dir(home: Path, job_id: str) -> Path:
    return home / "jobs" / job_id


def attempt_dir(home: Path, job_id: str, attempt: int) -> Path:
    return job_dir(home, job_id) / f"attempt-{attempt}"


def worker_dir(home: Path, job_id: str, attempt: int, role: str, rank: int) -> Path:
    return attempt_dir(home, job_id, attempt) / f"{role}-{rank}"
