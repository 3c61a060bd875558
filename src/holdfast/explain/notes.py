"""What launchers and shells say of a process's end: exit statuses and signals, by rank where they name one.

torchrun's root-cause box, srun, mpirun, DeepSpeed, Kubernetes and shells each have their own words for it. They say how
a process ended, never why, and torchrun's box often names the wrong rank: a note is used only where nothing better is.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.explain.lines import Line, our_exit
from holdfast.lazy import Lazy


class Note(NamedTuple):
    """One process's end as another program logged it."""

    line: Line
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    pid: int | None = None
    shell: bool = False
    """A bare word of a shell or of the log's last line: no telling whose end it was."""


_WORDS = {
    "Killed": 9, "Segmentation fault": 11, "Aborted": 6, "Abort": 6, "Bus error": 7, "Floating point exception": 8,
    "Illegal instruction": 4, "Terminated": 15, "Hangup": 1, "Quit": 3, "Interrupt": 2, "Trace/breakpoint trap": 5,
}  # fmt: skip
_WORD = "|".join(re.escape(word) for word in _WORDS)

_BOX_RANK = Lazy(r"^\s*rank\s+: (?P<rank>\d{1,9}) \(local_rank: \d+\)")
_BOX_CODE = Lazy(r"^\s*exitcode\s+: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")
_BOX_HOST = Lazy(r"^\s*host\s+: (?P<host>\S+)")

# ruff: noqa: E501 - one sentence of one launcher a line
_SENTENCES = [
    Lazy(r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<rank>\d{1,9}) \(pid: (?P<pid>\d{1,9})\)"),
    Lazy(
        rf"srun: error: (?P<host>[\w.-]+): tasks? (?P<rank>\d{{1,9}})[\d,-]*: (?:(?P<word>{_WORD})|Exited with exit code (?P<code>\d{{1,9}}))"
    ),
    Lazy(
        r"(?:process|PRTE|mpirun|mpiexec).{0,80}rank (?P<rank>\d{1,9}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S+) exited on signal (?P<sig>\d{1,9})"
    ),
    Lazy(r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,9})"),
    Lazy(r"Kill(?:ed|ing) subprocess (?P<pid>\d{1,9}).*(?:return ?code|exit ?code)[ =:]+(?P<code>-?\d{1,9})"),
    Lazy(r"\[launch\.py.*exits with return code = (?P<code>-?\d{1,9})|exits with return code = (?P<code2>-?\d{1,9})"),
    Lazy(
        r"[Pp]rocess (?P<rank>\d{1,9}) (?:terminated with|exited (?:on|with)) (?:signal (?P<name>SIG[A-Z0-9]+)|exit code (?P<code>-?\d{1,9}))"
    ),
    Lazy(r"Process finished with exit code (?P<code>\d{1,9})"),
    Lazy(r"command terminated with (?:non-zero )?exit (?:code|status):? (?P<code>\d{1,9})"),
    Lazy(r"\"?[eE]xit ?[cC]ode\"?: +(?P<code>[1-9]\d{0,8})|\"exitCode\":\s*(?P<code2>[1-9]\d{0,8})"),
    Lazy(r"Signal (?P<sig>\d{1,9}) \(SIG[A-Z]+\) received by PID (?P<pid>\d{1,9})"),
    Lazy(r"(?:died with|killed by|terminated by|received|caught|on) (?:signal:? )?<?Signals?\.?(?P<name>SIG[A-Z]+)"),
    Lazy(r"\*\*\* Process received signal \*\*\*|Signal: [\w /]+ \((?P<sig>\d{1,9})\)"),
    Lazy(r"ExitCode[=:](?P<code>\d{1,9}):(?P<sig>\d{1,9})"),
]
_SHELL = Lazy(rf"^(?:\S+: line \d+:\s+)?(?:\d+ )?(?P<word>{_WORD})(?: \(core dumped\))?(?:\s{{2,}}\S.*)?$")
_TAIL = Lazy(r"^(?:\[?exit(?:ed)? (?:status|code|with code|with status)[:=]? ?)(?P<code>\d{1,9})\]?\.?$", re.IGNORECASE)


def notes(lines: Sequence[Line]) -> list[Note]:
    """All notes in the order of the text; those of torchrun's box with rank, host and pid."""
    found: list[Note] = []
    rank: int | None = None
    host = ""
    for line in lines:
        text = line.text
        if match := _BOX_HOST.match(text):
            host = match["host"]
            continue
        if match := _BOX_RANK.match(text):
            rank = int(match["rank"])
            continue
        if match := _BOX_CODE.match(text):
            found.append(_note(line, int(match["code"]), rank=rank, host=host, pid=int(match["pid"])))
            rank, host = None, ""
            continue
        if match := _SHELL.match(text):
            found.append(Note(line, line.rank, signal=_WORDS[match["word"]], shell=True))
            continue
        if match := _TAIL.match(text):
            found.append(_note(line, int(match["code"]), rank=line.rank, shell=True))
            continue
        if match := our_exit(text):
            if note := _from(match.groupdict(), line):
                found.append(note)
            continue
        if "it" not in text and "ignal" not in text and "rror" not in text and "ode" not in text:
            continue
        for sentence in _SENTENCES:
            if match := sentence.search(text):
                if note := _from(match.groupdict(), line):
                    found.append(note)
                break
    return found


def _from(groups: dict[str, str | None], line: Line) -> Note | None:
    rank = int(text) if (text := groups.get("rank")) else line.rank
    pid = int(text) if (text := groups.get("pid")) else None
    host = groups.get("host") or ""
    if word := groups.get("word"):
        return Note(line, rank, signal=_WORDS[word], host=host, pid=pid)
    if name := groups.get("name"):
        return Note(line, rank, signal=number_of(name), host=host, pid=pid)
    if (sig := groups.get("sig")) and int(sig):
        return Note(line, rank, signal=int(sig), host=host, pid=pid)
    if code := groups.get("code") or groups.get("code2"):
        return _note(line, int(code), rank=rank, host=host, pid=pid)
    return None


def number_of(name: str) -> int | None:
    """`SIGKILL` or `KILL` or `9` → 9; None where it is no signal's name."""
    name = name.strip().upper()
    if name.isdigit():
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        return None


def _note(
    line: Line, code: int, *, rank: int | None = None, host: str = "", pid: int | None = None, shell: bool = False
) -> Note:
    sig = signal_of(code)
    return Note(line, rank, exit_code=None if sig else code, signal=sig, host=host, pid=pid, shell=shell)


def signal_of(code: int) -> int | None:
    """The signal that a shell's or Python's status stands for: 137 and -9 → 9; None for a plain status."""
    if -64 <= code < 0:
        return -code
    if 128 < code <= 128 + 31:
        return code - 128
    return None
