"""Reads a container engine's record (docker, podman, kubelet) of the end of the job's container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.safe_files import read_file
from holdfast.safe_text import one_line
from holdfast.untrusted import Malformed, json_leniently

MOST_BYTES = 256 * 1024
MOST_LETTERS = 400
#: Key of docker's `State` or Kubernetes' `terminated` → the name to show.
_KEYS = (
    (("OOMKilled", "oomKilled"), "oomKilled"),
    (("ExitCode", "exitCode"), "exitCode"),
    (("Status", "status"), "status"),
    (("reason", "Reason"), "reason"),
    (("signal",), "signal"),
    (("Error", "message", "Message"), "message"),
    (("FinishedAt", "finishedAt"), "finishedAt"),
)
#: Keys that lead to a container's state in docker's and Kubernetes' objects (a container, a pod, or a list of either).
_INNER = ("State", "state", "terminated", "lastState", "status", "containerStatuses", "items")


def container_word(path: Path, since: float) -> str:
    """Return the container's end in one line: `oomKilled: true, exitCode: 137, reason: OOMKilled`. Return text that is
    no JSON unchanged.

    `since`: seconds since the epoch; an older file is ignored. The result is "" if no file can be read.
    """
    try:
        if path.stat().st_mtime < since:
            return ""
        text = read_file(path, MOST_BYTES, cut=True).decode(errors="replace")
    except OSError:
        return ""
    try:
        data = json_leniently(text)
    except Malformed:
        return one_line(text)[:MOST_LETTERS]
    return in_words(data)[:MOST_LETTERS]


def in_words(data: Any) -> str:
    """Return an engine's data in one line: the output of `docker inspect`, its State, or a container's status."""
    state = _state(data)
    told = []
    for names, called in _KEYS:
        value = next((state[name] for name in names if state.get(name) not in (None, "")), None)
        if isinstance(value, bool):
            told.append(f"{called}: {str(value).lower()}")
        elif isinstance(value, str | int):
            told.append(f"{called}: {one_line(str(value))}")
    reason = state.get("reason")
    if reason == "OOMKilled" and not any(one.startswith("oomKilled") for one in told):
        told.insert(0, "oomKilled: true")
    return ", ".join(told)


def _state(data: Any) -> dict[str, Any]:
    """Return the innermost mapping with the container's state."""
    while True:
        if isinstance(data, list):
            data = data[0] if data else {}
        elif isinstance(data, dict):
            inner = next((data[key] for key in _INNER if isinstance(data.get(key), dict | list) and data[key]), None)
            if inner is None:
                return data
            data = inner
        else:
            return {}
