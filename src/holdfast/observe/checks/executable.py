"""Runs an executable as a check: a Slurm prolog, a Nagios plugin, a shell script.

Exit status 0 is good. 3 (Nagios: unknown), 126, 127 and a death by signal are inconclusive. Any other number is bad.
Standard output may be one JSON object with any of `result`, `message` (or `result_msg`), `abnormal_nodes`, `solution`,
`blame`, `figures` and `actions` (retry, avoid, replace, stop, note); else its first line is the message. Parameters
come as HOLDFAST_PARAM_<NAME> in the environment.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.model.check_interface import (
    AvoidNode,
    DiagnosisAction,
    Node,
    Note,
    PreCheckOperator,
    PreCheckResult,
    ReplaceNode,
    Retry,
    StopJob,
    Verdict,
)
from holdfast.untrusted import Malformed, json_leniently

_KEEP_BYTES = 64 << 10
_UNSURE = {3: "unknown (exit status 3)", 126: "cannot be executed", 127: "was not found"}
_ACTIONS: dict[str, type[DiagnosisAction]] = {
    "note": Note,
    "retry": Retry,
    "avoid": AvoidNode,
    "replace": ReplaceNode,
    "stop": StopJob,
}


class Executable(PreCheckOperator):
    """Runs a program and reads its exit status."""

    cost = "its own"

    def __init__(self, path: str) -> None:
        self.path = path
        self.question = f"Does {path} exit with status 0?"
        self._actions: list[DiagnosisAction] = []

    @classmethod
    def get_retry_limit_times(cls) -> int:
        return 1

    def check(self, *args: Any, **kwargs: Any) -> PreCheckResult:
        nodes: Sequence[Node] = kwargs.pop("nodes", ())
        job, site = kwargs.pop("job", None), kwargs.pop("site", None)
        env = dict(
            os.environ,
            HOLDFAST_CHECK=Path(self.path).stem.lower(),
            HOLDFAST_NODE=site.node if site else "",
            HOLDFAST_NODES=",".join(str(node) for node in nodes),
            HOLDFAST_ATTEMPT=str(kwargs.pop("attempt", 1)),
            HOLDFAST_JOB=job.name if job else "",
        )
        kwargs.pop("now", None)
        env |= {f"HOLDFAST_PARAM_{key.upper()}": _word(value) for key, value in kwargs.items()}
        here = [site.node] if site else []
        try:
            done = subprocess.Popen(
                [self.path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                preexec_fn=_end_with_parent,
            )  # fmt: skip
        except OSError as error:
            return Verdict(1, f"{self.path} cannot be run: {error.strerror}", here, inconclusive=True)
        out, err = _drain(done)
        status = done.wait()
        said = _object(out)
        message = str(said.get("message") or said.get("result_msg") or _line(out) or _line(err))
        if status < 0:
            name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
            return Verdict(1, f"{self.path} died of {name}. {message}".strip(), here, inconclusive=True)
        if status in _UNSURE and "result" not in said:
            return Verdict(status, f"{self.path} {_UNSURE[status]}. {message}".strip(), here, inconclusive=True)
        result = said.get("result", status)
        number = result if isinstance(result, int) and not isinstance(result, bool) else status
        named = said.get("abnormal_nodes")
        self._actions = [_ACTIONS[word]() for word in _words(said.get("actions")) if word in _ACTIONS]
        figures = said.get("figures")
        return Verdict(
            number or status,
            message or f"{self.path} ended with exit status {status}",
            [str(node) for node in named] if isinstance(named, list) else (here if number or status else []),
            solution=str(said.get("solution") or ""),
            blame=str(said.get("blame") or ""),
            figures=figures if isinstance(figures, dict) else {},
        )

    def failed_actions(self, *args: Any, **kwargs: Any) -> Sequence[DiagnosisAction]:
        return self._actions or [AvoidNode()]


def _end_with_parent() -> None:
    """Let the kernel kill the executable when the check's process dies (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _drain(done: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Read both streams to their ends, and keep the first `_KEEP_BYTES` of each, because the output may be endless."""
    assert done.stdout is not None
    assert done.stderr is not None
    kept = {done.stdout.fileno(): bytearray(), done.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as waiting:
        for fd in kept:
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                data = os.read(key.fd, 1 << 16)
                if not data:
                    waiting.unregister(key.fd)
                kept[key.fd] += data[: _KEEP_BYTES - len(kept[key.fd])]
    texts = [bytes(data).decode("utf-8", "replace") for data in kept.values()]
    done.stdout.close()
    done.stderr.close()
    return texts[0], texts[1]


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in the output or in its last line; an empty dictionary if neither is a JSON object."""
    for part in (text, text.strip().rpartition("\n")[2]):
        try:
            found = json_leniently(part)
        except Malformed:
            continue
        if isinstance(found, dict):
            return found
    return {}


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    return [str(word).lower() for word in value] if isinstance(value, list) else []
