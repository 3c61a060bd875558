"""Parses the lines in which launchers and shells report an exit: status or signal, and the rank if the line names it.

torchrun's root-cause box, srun, mpirun, DeepSpeed, Kubernetes and shells each use other words. These lines show how a
process exited, not why, so such a note counts only if there is no better evidence. The first failure that a launcher
names takes precedence over its effects: exits by the signals of a stop, and ranks that lost their peer.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.explain.logs.log_lines import Line, our_exit
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


_WORDS = {
    "Killed": 9, "Segmentation fault": 11, "Aborted": 6, "Abort": 6, "Bus error": 7, "Floating point exception": 8,
    "Illegal instruction": 4, "Terminated": 15, "Hangup": 1, "Quit": 3, "Interrupt": 2, "Trace/breakpoint trap": 5,
}  # fmt: skip
_WORD = "|".join(re.escape(word) for word in _WORDS)

_BOX_ROOT = Lazy(r"\s*Root Cause \(first observed failure\)|.{0,80}The first process to do so was")
_BOX_RANK = Lazy(r"^\s*rank\s+: (?P<rank>\d{1,9}) \(local_rank: \d+\)")
_BOX_CODE = Lazy(r"^\s*exitcode\s+: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")
_BOX_HOST = Lazy(r"^\s*host\s+: (?P<host>\S+)")
_BOX_FILE = Lazy(r"^\s*error_file\s*: (?P<file>/\S+)")
_HYDRA_WHO = Lazy(r"^=\s+(?:RANK (?P<rank>\d{1,9}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S+)")
_HYDRA_HOW = Lazy(r"^=\s+(?:EXIT (?:CODE|STATUS): (?P<code>\d{1,9})|KILLED BY SIGNAL: (?P<sig>\d{1,3}))")
_OMPI_WHO = Lazy(
    r"^\s*Proc(?:ess name)?: \[(?:\[\d+,\d+\],(?P<rank>\d{1,9})|prterun-(?P<host>\S+?)-\d+@\d+,(?P<rank2>\d{1,9}))\]"
)
_OMPI_HOW = Lazy(r"(?:Exit code|Errorcode): +(?P<code>\d{1,9})")

# ruff: noqa: E501 - one sentence of one launcher a line
# fmt: off
_SENTENCES: list[tuple[str, Lazy]] = [
    ("torchrun", Lazy(r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<rank>\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")),
    ("Slurm", Lazy(rf"srun: error: (?P<host>[\w.-]+): tasks? (?P<rank>\d{{1,9}})[\d,-]*: (?:(?P<word>{_WORD})|Exited with exit code (?P<code>\d{{1,9}}))")),
    ("mpirun", Lazy(r"(?:process|PRTE|mpirun|mpiexec).{0,80}rank (?P<rank>\d{1,9}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S+) exited on signal (?P<sig>\d{1,9})")),
    ("MPI", Lazy(r"application called MPI_Abort\([^)]*?, ?(?P<code>\d{1,9})\) - process (?P<rank>\d{1,9})")),
    ("MPI", Lazy(r"Abort\((?P<code>\d{1,9})\) on node \d+ \(rank (?P<rank>\d{1,9}) in comm \d+\)")),
    ("MPI", Lazy(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,9}) in communicator \S+(?: with errorcode (?P<code>\d{1,9}))?")),
    ("the launcher", Lazy(r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,9})")),
    ("the launcher", Lazy(r"Kill(?:ed|ing) subprocess (?P<pid>\d{1,9}).*(?:return ?code|exit ?code)[ =:]+(?P<code>-?\d{1,9})")),
    ("DeepSpeed", Lazy(r"\[launch\.py.*exits with return code = (?P<code>-?\d{1,9})|exits with return code = (?P<code2>-?\d{1,9})")),
    ("torch.multiprocessing", Lazy(r"[Pp]rocess (?P<rank>\d{1,9}) (?:terminated with|exited (?:on|with)) (?:signal (?P<name>SIG[A-Z0-9]+)|exit code (?P<code>-?\d{1,9}))")),
    ("the launcher", Lazy(r"CalledProcessError: Command .* returned non-zero exit status (?P<code>\d{1,9})")),
    ("the launcher", Lazy(r"CalledProcessError: Command .* died with <Signals\.(?P<name>SIG[A-Z0-9]+)")),
    ("LSF", Lazy(r"^Exited with (?:exit code (?P<code>\d{1,9})|signal termination: (?P<sig>\d{1,3}))")),
    ("PBS", Lazy(r"\b[Ee]xit_status ?= ?(?P<code>-?\d{1,9})")),
    ("Ray", Lazy(r"Worker exits with an exit code (?P<code>[1-9]\d{0,8})|Job entrypoint command failed with exit code (?P<code2>\d{1,9})")),
    ("", Lazy(r"Process finished with exit code (?P<code>\d{1,9})")),
    ("the launcher", Lazy(r"command terminated with (?:non-zero )?exit (?:code|status):? (?P<code>\d{1,9})")),
    ("Kubernetes", Lazy(r"\"?[eE]xit ?[cC]ode\"?: +(?P<code>[1-9]\d{0,8})|\"exitCode\":\s*(?P<code2>[1-9]\d{0,8})")),
    ("", Lazy(r"Signal (?P<sig>\d{1,9}) \(SIG[A-Z]+\) received by PID (?P<pid>\d{1,9})")),
    ("", Lazy(r"(?:died with|killed by|terminated by|received|caught|on) (?:signal:? )?<?Signals?\.?(?P<name>SIG[A-Z]+)")),
    ("", Lazy(r"\*\*\* Process received signal \*\*\*|Signal: [\w /]+ \((?P<sig>\d{1,9})\)")),
    ("Slurm", Lazy(r"ExitCode[=:](?P<code>\d{1,9}):(?P<sig>\d{1,9})|\|(?:FAILED|NODE_FAIL|OUT_OF_MEMORY|TIMEOUT|CANCELLED[^|]*)\|(?P<code2>\d{1,3}):(?P<sig2>\d{1,3})\b")),
]
# fmt: on
_SHELL = Lazy(rf"^(?:\S+: line \d+:\s+)?(?:\d+ )?(?P<word>{_WORD})(?: \(core dumped\))?(?:\s{{2,}}\S.*)?$")
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
        if match := _SHELL.match(text):
            found.append(ExitNote(line, line.rank, signal=_WORDS[match["word"]], shell=True))
            continue
        if match := _TAIL.match(text):
            found.append(_note(line, int(match["code"]), rank=line.rank, shell=True))
            continue
        if match := our_exit(text):
            if note := _from(match.groupdict(), line):
                found.append(note)
            continue
        if not any(word in text for word in _CLUES):
            continue
        for by, sentence in _SENTENCES:
            if match := sentence.search(text):
                if note := _from(match.groupdict(), line):
                    found.append(note._replace(by=by))
                break
    return found


#: Words that are quick to search. Every line that a pattern of `_SENTENCES` matches has at least one of them.
_CLUES = (
    "exitcode", "srun: ", "rank ", "bort(", "ABORT", "terminated", "subprocess", "return code", "returncode",
    "xit code",
    "xit Code", "xit status", "xitCode", "xit_status", "ignal", "xited ", "|FAILED", "|NODE_FAIL", "|OUT_OF",
    "|TIMEOUT",
    "|CANCEL",
)  # fmt: skip
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


def _from(groups: dict[str, str | None], line: Line) -> ExitNote | None:
    rank = int(text) if (text := groups.get("rank")) else line.rank
    pid = int(text) if (text := groups.get("pid")) else None
    host = groups.get("host") or ""
    if word := groups.get("word"):
        return ExitNote(line, rank, signal=_WORDS[word], host=host, pid=pid)
    if name := groups.get("name"):
        return ExitNote(line, rank, signal=number_of(name), host=host, pid=pid)
    if (sig := groups.get("sig") or groups.get("sig2")) and int(sig):
        return ExitNote(line, rank, signal=int(sig), host=host, pid=pid)
    if code := groups.get("code") or groups.get("code2"):
        return _note(line, int(code), rank=rank, host=host, pid=pid)
    return None


def number_of(name: str) -> int | None:
    """Return the number of a signal: 9 for `SIGKILL`, `KILL` or `9`; None if the name is no signal."""
    name = name.strip().upper()
    if name.isdigit():
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        return None


def _note(
    line: Line, code: int, *, rank: int | None = None, host: str = "", pid: int | None = None, shell: bool = False
) -> ExitNote:
    sig = signal_of(code)
    return ExitNote(line, rank, exit_code=None if sig else plain_of(code), signal=sig, host=host, pid=pid, shell=shell)
