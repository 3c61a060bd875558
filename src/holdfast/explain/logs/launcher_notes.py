"""Parses the lines in which launchers and shells report an exit: status or signal, and the rank if the line names it.

torchrun's root-cause box, srun, mpirun, DeepSpeed, Kubernetes and shells each use other words. These lines show how a
process exited, not why, so such a note counts only if there is no better evidence. The first failure that a launcher
names takes precedence over its effects: exits by the signals of a stop, and ranks that lost their peer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.explain.logs.log_lines import Line, our_exit
from holdfast.explain.logs.signal_sentences import ATOMS, SENTENCES, SHELL, SHELL_WORDS, number_of
from holdfast.lazy_pattern import Lazy
from holdfast.model.worker_reading import EndNote

#: Statuses of crashes on Windows → the corresponding signal on Linux.
_NT = {0xC0000005: 11, 0xC00000FD: 11, 0xC0000374: 6, 0xC0000409: 6, 0xC000001D: 4, 0xC0000094: 8, 0xC000013A: 2}
#: The largest signal number.
_REAL_TIME = 64


def signal_of(code: int) -> int | None:
    """Return the signal that a status encodes; None for a plain status.

    137 and -9 → 9 (shells, Python); 265 → 9 (PBS and Torque add 256); 3221225477 → 11 (Windows).
    """
    if -_REAL_TIME <= code < 0:
        return -code
    if 128 < code <= 128 + 31:
        return code - 128
    if 256 < code <= 256 + _REAL_TIME:
        return code - 256
    return _NT.get(code & 0xFFFFFFFF) if not -_REAL_TIME <= code <= 0xFFFF else None


def plain_of(code: int) -> int | None:
    """Return the plain status from 0 to 255 that a code encodes, such as 1 for 256 (from wait(2)); None if it
    encodes no status."""
    if 0 <= code <= 255:
        return code
    return code >> 8 if 0 < code <= 0xFF00 and code % 256 == 0 else None


class ExitNote(NamedTuple):
    """The exit of one process, as another program logged it."""

    line: Line
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    pid: int | None = None
    #: Whether the line does not identify the process: a shell's `Killed`, or a bare `exit status 1`.
    shell: bool = False
    #: The program that logged the exit, such as `Slurm`.
    by: str = ""
    #: Whether the launcher names this process as the first that failed.
    root: bool = False
    #: Path of the file with the worker's exception.
    error_file: str = ""


#: torchrun's box, in which torch before 1.11 wrote no blanks before its colons.
_BOX_ROOT = Lazy(r"\s*Root Cause(?: \(first observed failure\)|:\s*$)|.{0,80}The first process to do so was")
_BOX_RANK = Lazy(r"^\s*rank\s*: (?P<rank>\d{1,9}) \(local_rank: \d+\)")
_BOX_CODE = Lazy(r"^\s*exitcode\s*: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")
_BOX_HOST = Lazy(r"^\s*host\s*: (?P<host>\S+)")
_BOX_FILE = Lazy(r"^\s*error_file\s*: (?P<file>/\S+)")
_HYDRA_WHO = Lazy(r"^=\s+(?:RANK (?P<rank>\d{1,9}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S+)")
_HYDRA_HOW = Lazy(r"^=\s+(?:EXIT (?:CODE|STATUS): (?P<code>\d{1,9})|KILLED BY SIGNAL: (?P<sig>\d{1,3}))")
_OMPI_WHO = Lazy(
    r"^\s*Proc(?:ess name)?: \[(?:\[\d+,\d+\],(?P<rank>\d{1,9})|prterun-(?P<host>\S+?)-\d+@\d+,(?P<rank2>\d{1,9}))\]"
)
_OMPI_HOW = Lazy(r"(?:Exit code|Errorcode): +(?P<code>\d{1,9})")

_TAIL = Lazy(r"^(?:\[?exit(?:ed)? (?:status|code|with code|with status)[:=]? ?)(?P<code>\d{1,9})\]?\.?$", re.IGNORECASE)


class _Box:
    """Collects the facts about one process from a summary of several lines (torchrun's box)."""

    def __init__(self) -> None:
        self.root = False
        self.forget()

    def forget(self) -> None:
        self.rank: int | None = None
        self.host = ""
        self.pid: int | None = None
        self.by = ""

    def take(self, line: Line) -> list[ExitNote] | None:
        """Read one line, and return the exits (`ExitNote`) that it completes.

        None: the line is not part of a summary.
        """
        text = line.text
        if not text.lstrip().startswith(_PARTS) and "first process" not in text:
            return None
        if _BOX_ROOT.match(text):
            self.root = True
            return []
        if match := _BOX_HOST.match(text):
            self.host = match["host"]
            return []
        if match := _BOX_RANK.match(text):
            self.rank = int(match["rank"])
            return []
        if match := _BOX_CODE.match(text):
            return [self._note(line, "torchrun", int(match["code"]), pid=int(match["pid"]))]
        if match := _HYDRA_WHO.match(text):
            self.rank = int(match["rank"]) if match["rank"] else None
            self.host, self.pid, self.by = match["host"], int(match["pid"]), "mpirun"
            return []
        if self.by and (match := _HYDRA_HOW.match(text)):
            return [
                self._note(line, self.by, int(match["code"]) if match["code"] else -int(match["sig"]), pid=self.pid)
            ]
        if match := _OMPI_WHO.match(text):
            self.rank = int(match["rank"] or match["rank2"])
            self.host, self.by = match["host"] or "", "mpirun"
        if self.by and (match := _OMPI_HOW.search(text)):
            return [self._note(line, self.by, int(match["code"]), pid=None)]
        return [] if _OMPI_WHO.match(text) else None

    def _note(self, line: Line, by: str, code: int, *, pid: int | None) -> ExitNote:
        root = self.root or by == "mpirun"
        note = _note(line, code, rank=self.rank, host=self.host, pid=pid)._replace(by=by, root=root)
        self.root = False
        self.forget()
        return note


def notes(lines: Sequence[Line]) -> list[ExitNote]:
    """Return all exits that launchers and shells logged, in the order of the lines.

    Only an exit in a launcher's summary has rank, host and pid.
    """
    found: list[ExitNote] = []
    box = _Box()
    for line in lines:
        text = line.text
        if (told := box.take(line)) is not None:
            found += told
            continue
        if found and found[-1].root and (match := _BOX_FILE.match(text)):
            found[-1] = found[-1]._replace(error_file=match["file"])
            continue
        if match := _shell(text):
            found.append(ExitNote(line, line.rank, signal=number_of(match["word"]), shell=True))
            continue
        if match := _TAIL.match(text):
            found.append(_note(line, int(match["code"]), rank=line.rank, shell=True))
            continue
        if match := our_exit(text):
            if note := _from(match.groupdict(), line):
                found.append(note)
            continue
        if not any(word in text for word in ATOMS):
            continue
        for by, sentence in SENTENCES:
            if match := sentence.search(text):
                if note := _from(match.groupdict(), line):
                    found.append(note._replace(by=by))
                break
    return found


#: The words with which lines of a summary begin.
_PARTS = ("host", "rank", "exitcode", "error_file", "Root Cause", "=", "Proc", "Exit code", "Errorcode")


def first_failure(found: Sequence[EndNote]) -> EndNote | None:
    """Return the exit that a launcher names as the first failure; None: no launcher names one.

    A SIGTERM counts only if no other exit is named: a node whose processes were only stopped also names one of them as
    the first failure. If the summary is missing, as in a log that is cut, use torchrun's line before its stops, which
    names the failed process.
    """
    named = [note for note in found if note.root and note.rank is not None]
    named = named or [note for note in found if note.by == "torchrun" and not note.host and note.rank is not None]
    return next((note for note in named if note.signal != _SIGTERM), named[0] if named else None)


def telling(found: Sequence[EndNote]) -> EndNote | None:
    """Return the most informative exit: the launcher's first failure, else a rank that SIGTERM did not end, else the
    last exit."""
    ended = [note for note in found if note.exit_code or note.signal is not None]
    named = next((note for note in ended if note.rank is not None and note.signal != _SIGTERM), None)
    return first_failure(ended) or named or next(iter(reversed(ended)), None)


_SIGTERM = 15


def _shell(text: str) -> re.Match[str] | None:
    """Match the line of a shell whose child a signal ended."""
    if text.isascii() and not any(word in text for word in SHELL_WORDS):
        return None
    return next((match for pattern in SHELL if (match := pattern.match(text))), None)


def _from(groups: dict[str, str | None], line: Line) -> ExitNote | None:
    rank = int(text) if (text := groups.get("rank")) else line.rank
    pid = int(text) if (text := groups.get("pid")) else None
    host = groups.get("host") or ""
    if word := groups.get("word"):
        return ExitNote(line, rank, signal=number_of(word), host=host, pid=pid)
    if name := groups.get("name"):
        return ExitNote(line, rank, signal=number_of(name), host=host, pid=pid)
    if (sig := groups.get("sig") or groups.get("sig2")) and int(sig):
        return ExitNote(line, rank, signal=int(sig), host=host, pid=pid)
    if code := groups.get("code") or groups.get("code2"):
        return _note(line, int(code), rank=rank, host=host, pid=pid)
    return None


def _note(
    line: Line, code: int, *, rank: int | None = None, host: str = "", pid: int | None = None, shell: bool = False
) -> ExitNote:
    sig = signal_of(code)
    return ExitNote(line, rank, exit_code=None if sig else plain_of(code), signal=sig, host=host, pid=pid, shell=shell)
