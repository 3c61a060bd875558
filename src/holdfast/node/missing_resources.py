"""Finds out more about a resource that a failed attempt's workers lacked: a module, a port or disk space."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.act.linux import descendants
from holdfast.act.time_limited import within
from holdfast.model.evidence import AttemptEvidence, HostFacts
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.port_holder import about, find, holder, taken
from holdfast.observe.full_disks import full_disks, shared_memory
from holdfast.python_environments import environments, has_module, python_of, same_place

_MODULE = re.compile(r"No module named [\"']?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_IN_USE = re.compile(r"[Aa]ddress already in use|EADDRINUSE|[Pp]ort \d+ (?:is )?already|Errno 98")
_NO_ROOM = re.compile(
    r"[Nn]o space left on device|[Dd]isk quota exceeded|ENOSPC|EDQUOT|Errno (?:28|122)\b|os error (?:28|122)\b"
)
_PATH = re.compile(r"['\"`]((?:[^'\"`\n]{0,200}/)[^'\"`\n]{0,1000})['\"`]|(?<![\w:])(/[\w.+@%=~/-]{1,1000})")
_NUMBER = re.compile(r"(?<![\w.])(\d{2,5})(?![\w.])")
_PORT = re.compile(r"[Pp]ort:? ?(\d{1,5})\b|\]?:(\d{2,5})\b|\('[^']*', (\d{1,5})\)")
_ANSWER_S = 0.5
_SHARED = re.compile(r"shared memory|/dev/shm|Bus error|signal: Bus|SIGBUS")
_MOST_NAMED = 4
#: At most this many lines are searched for the path of a failed write.
_MOST_LINES = 8


def look_around(
    evidence: AttemptEvidence,
    command: Sequence[str],
    chosen: str,
    asked_port: int | None,
    env: Mapping[str, str],
    *,
    places: Sequence[Path] = (),
    held: tuple[int, str] | None = None,
    terminal_rank: int | None = None,
) -> HostFacts | None:
    """Return facts about the resource that the workers lacked; None if they lacked none.

    `command`: the workers' command. `chosen`: the Python for a command that names none. `asked_port`: the user's
    rendezvous port, if any. `places`: directories that the workers write to, the working directory first. `held`: the
    port that a rank needed and that was in use, and a description of the process that held it. `terminal_rank`: the
    rank whose standard input is a terminal.
    """
    module, port, in_use = "", None, False
    no_room: list[str] = []
    shared = debugger = False
    for worker in evidence.workers:
        text = worker.stderr.text if worker.stderr is not None else ""
        before: list[str] = []
        for line in text.splitlines():
            if found := _MODULE.search(line):
                module = found[1]
            elif _IN_USE.search(line):
                in_use = True
                port = _port_of(line, before)
            elif _NO_ROOM.search(line):
                no_room.append(line)
            debugger = debugger or "BdbQuit" in line
            shared = shared or bool(_SHARED.search(line))
            before = [*before[-3:], line]
    if not module and not in_use and not no_room and not shared and not debugger:
        return None
    if in_use and port is None and held is not None:
        # The error message has no port, and the port is free by now. So use the port that was found in use at the
        # failure.
        port = held[0]
    python = command[0]
    if python != chosen:
        import shutil  # imported late, because shutil imports three compressors

        is_python = Path(python).name.startswith("python")
        python = (shutil.which(python, path=env.get("PATH")) or "") if is_python else ""
    beside = [*places[:1], *(Path(word).absolute().parent for word in command[1:2] if word.endswith(".py"))]
    others = [python_of(prefix) for prefix in environments(env, beside) if module and has_module(prefix, module)]
    return HostFacts(
        python=python,
        by_command=command[0] != chosen,
        module=module,
        found_in=tuple(str(other) for other in others if not (python and same_place(str(other), python))),
        port=port,
        asked_port=asked_port,
        holder=held[1] if held is not None and held[0] == port else _holder(port),
        disks=_disks(no_room, places, env) if no_room else (),
        shared_memory=shared_memory() if shared else (),
        debugger=debugger,
        terminal_rank=terminal_rank if debugger else None,
    )


def port_in(words: str) -> int | None:
    """Return the port in use that a worker's last lines report; None if they report none."""
    lines = words.splitlines()
    return next(
        (_port_of(line, lines[max(0, at - 4) : at]) for at, line in enumerate(lines) if _IN_USE.search(line)), None
    )


def descendant_with_port(words: str) -> tuple[int, str] | None:
    """Return the port in use that a worker's last lines report, and the descendant of this process that holds it.

    Return None if no descendant holds the port. Other processes are not inspected, because all ranks' stop waits for
    this search.
    """
    port = port_in(words)
    pid = find(port, sorted(descendants(os.getpid()))) if port is not None else None
    if port is None or pid is None:
        return None
    # For a warm worker, /proc shows the environment of the prewarmed process.
    rank = proc_files.variable(pid, "RANK")
    who = f"rank {rank} of this job" if rank.isdigit() else f"{proc_files.command(pid)}, which this job started"
    return port, f"{who} (pid {pid}{about(pid)})"


def _port_of(line: str, before: Sequence[str]) -> int | None:
    if number := _PORT.search(line):
        return int(number[1] or number[2] or number[3])
    return _port_above(before)


def _port_above(lines: Sequence[str]) -> int | None:
    """Return a port in use from the source lines above the error, because Python's error message has no port."""
    found = [int(number) for line in lines[::-1] for number in _NUMBER.findall(line)]
    return next(iter(taken(port for port in found if 0 < port < 65536)), None)


def _disks(lines: Sequence[str], places: Sequence[Path], env: Mapping[str, str]) -> tuple[str, ...]:
    base = places[0] if places else Path("/")
    named = [str(base / (found[1] or found[2])) for line in lines[:_MOST_LINES] for found in _PATH.finditer(line)]
    others = [*map(str, places), env.get("TMPDIR") or "/tmp", "/dev/shm"]
    return full_disks(list(dict.fromkeys(named))[:_MOST_NAMED], others, _answers)


def _answers(path: str) -> bool:
    """Return whether a path's file system responds in time. If an NFS server is lost, a direct call would block for
    ever.
    """
    try:
        within(lambda: os.path.realpath(path), seconds=_ANSWER_S)
    except OSError:
        return False
    return True


def _holder(port: int | None) -> str:
    if port is None or not Path("/proc/net/tcp").exists():
        return ""
    return holder(port)
