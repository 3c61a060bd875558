"""The sentences with which libraries, launchers, shells and schedulers state that a signal ended a process.

One table, `SENTENCES`, has them all: a signal is named by its number, by its name, by 128 + N, by -N, or by the words of
strsignal(3), which shells print in the user's language. A launcher's sentence may also give a plain exit status.
`launcher_notes` makes the exits from what these patterns match.
"""

# ruff: noqa: E501 - one sentence of one program a line
from __future__ import annotations

import signal

from holdfast.lazy_pattern import Lazy

#: The words for a signal in English, German, French, Spanish, Chinese and Japanese → its number.
WORDS = {
    "Hangup": 1, "Aufgelegt": 1, "Fin de la connexion (raccroché)": 1, "挂起": 1, "ハングアップ": 1,
    "Interrupt": 2, "Quit": 3, "Quit (core dumped)": 3,
    "Illegal instruction": 4, "Ungültiger Maschinenbefehl": 4, "Instruction non permise": 4, "Instrucción ilegal": 4, "非法指令": 4, "不正な命令です": 4,
    "Trace/breakpoint trap": 5,
    "Aborted": 6, "Abort": 6, "Abort trap": 6, "Abgebrochen": 6, "Abandon": 6, "Abortado": 6, "已放弃": 6, "中止": 6, "アボートしました": 6,
    "Bus error": 7, "Bus-Zugriffsfehler": 7, "Erreur du bus": 7, "Erreur de bus": 7, "Error del bus": 7, "总线错误": 7, "バスエラー": 7,
    "Floating point exception": 8, "Floating-point exception": 8, "Gleitkomma-Ausnahme": 8, "Exception en point flottant": 8, "浮点数例外": 8, "浮点异常": 8, "浮動小数点例外": 8,
    "Killed": 9, "Getötet": 9, "Processus arrêté": 9, "Tué": 9, "Terminado (killed)": 9, "已杀死": 9, "已砍掉": 9, "被杀死": 9, "強制終了": 9,
    "Segmentation fault": 11, "Memory fault": 11, "Speicherzugriffsfehler": 11, "Erreur de segmentation": 11, "Violación de segmento": 11, "段错误": 11, "段錯誤": 11, "程式記憶體區段錯誤": 11, "セグメンテーション違反です": 11, "セグメントエラー": 11,
    "Terminated": 15, "Beendet": 15, "Complété": 15, "已终止": 15, "已終止": 15, "終了しました": 15,
    "Cputime limit exceeded": 24, "CPU time limit exceeded": 24, "File size limit exceeded": 25, "Filesize limit exceeded": 25, "Bad system call": 31,
}  # fmt: skip
_SMALL = {word.lower(): number for word, number in WORDS.items()}
#: Words that are also ordinary words, or that programs print alone for other reasons. They count only in a shell's line.
_ORDINARY = frozenset({
    "Abort", "Abandon", "Abortado", "Abgebrochen", "Beendet", "Complété", "Interrupt", "Quit", "Hangup", "Aufgelegt",
    "Tué", "已终止", "已終止", "中止", "挂起", "終了しました",
})  # fmt: skip


def _any_of(words: frozenset[str] | set[str]) -> str:
    escaped = sorted((_escaped(word) for word in words), key=len, reverse=True)
    return "|".join(escaped)


def _escaped(word: str) -> str:
    return "".join(f"\\{each}" if each in "().-/" else each for each in word)


_WORD = f"(?P<word>(?i:{_any_of(set(WORDS))}))"
#: Alone on its line a word counts only as shells write it, with a capital letter.
_ALONE = f"(?P<word>{_any_of(set(WORDS) - _ORDINARY)})"
_DUMPED = r"(?: ?[(（][^()（）]{1,40}[)）])?"
_NAMED = r"<?(?:Signals?\.)?(?P<name>SIG[A-Z]{2,6})\b"
_DIED = r"(?:died|killed|terminated|crashed|exited|stopped|ended|aborted|interrupted|finished|failed)"

#: A shell's line about its child: bash and sh with their script and line number in any language; zsh; a bare word.
SHELL = (
    Lazy(rf"^\S{{1,200}} ?[:：] ?(?:[^\W\d]{{1,8}} )?\d{{1,6}}(?: ?行)? ?[:：]\s+(?:\d{{1,9}} )?{_WORD}{_DUMPED}(?:\s{{2,}}\S.*)?$"),
    Lazy(rf"^(?:\d{{1,9}} )?{_ALONE}{_DUMPED}(?:\s{{2,}}\S.*)?$"),
    Lazy(rf"^(?:-?(?:zsh|ksh|bash|dash|tcsh|csh|sh)(?:\[\d+\])?: |(?:\[\d+\])?\s*[+-]?\s{{1,8}}\d{{1,9}}\s+){_WORD}{_DUMPED}(?:\s{{2,}}\S.*)?$"),
    Lazy(rf"^g?make(?:\[\d+\])?: \*\*\* \[[^\]]{{1,200}}\] {_WORD}{_DUMPED}$"),
)  # fmt: skip
#: Every ASCII line that a pattern of `SHELL` matches has one of these words.
SHELL_WORDS = tuple(sorted({form for word in WORDS if word.isascii() for form in (word, word.lower())}))

_CRASH = "Segmentation fault|Aborted|Bus error|Floating point exception|Illegal instruction|Killed|Terminated|Hangup|Quit|Interrupt|Trace/breakpoint trap|Abort"
# fmt: off
#: (the program that says it, its sentence). The groups: rank, pid, host; and one of code, sig, name, word.
SENTENCES: tuple[tuple[str, Lazy], ...] = (
    ("torchrun", Lazy(r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<rank>\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")),
    ("Slurm", Lazy(rf"srun: error: (?P<host>[\w.-]+): tasks? (?P<rank>\d{{1,9}})[\d,-]*: (?:(?P<word>{_CRASH})|Exited with exit code (?P<code>\d{{1,9}}))")),
    ("mpirun", Lazy(r"(?:process|PRTE|mpirun|mpiexec).{0,80}rank (?P<rank>\d{1,9}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S+) exited on signal (?P<sig>\d{1,9})")),
    ("MPI", Lazy(r"application called MPI_Abort\([^)]*?, ?(?P<code>\d{1,9})\) - process (?P<rank>\d{1,9})")),
    ("MPI", Lazy(r"Abort\((?P<code>\d{1,9})\) on node \d+ \(rank (?P<rank>\d{1,9}) in comm \d+\)")),
    ("MPI", Lazy(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,9}) in communicator \S+(?: with errorcode (?P<code>\d{1,9}))?")),
    ("the launcher", Lazy(r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,9})")),
    ("the launcher", Lazy(r"Kill(?:ed|ing) subprocess (?P<pid>\d{1,9}).*(?:return ?code|exit ?code)[ =:]+(?P<code>-?\d{1,9})")),
    ("DeepSpeed", Lazy(r"exits with return code = (?P<code>-?\d{1,9})")),
    ("DeepSpeed", Lazy(r"\b[Mm]ain process received (?P<name>SIG[A-Z]{2,6})")),
    ("torch.multiprocessing", Lazy(r"[Pp]rocess (?P<rank>\d{1,9}) (?:terminated with|exited (?:on|with)) (?:signal (?P<name>SIG[A-Z0-9]+)|exit code (?P<code>-?\d{1,9}))")),
    ("PyTorch's DataLoader", Lazy(rf"DataLoader worker \(pid (?P<pid>\d{{1,9}})\) is killed by signal: (?:(?P<word>{_CRASH}|Floating point exception)|Unknown signal:? (?P<sig>\d{{1,3}}))")),
    ("joblib", Lazy(r"exit codes of the workers are \{[^}]{0,80}?(?P<name>SIG[A-Z]{2,6})\(-\d+\)")),
    ("the launcher", Lazy(r"CalledProcessError: Command .* returned non-zero exit status (?P<code>-?\d{1,9})")),
    ("the launcher", Lazy(rf"Command .* died with {_NAMED}")),
    ("Lightning", Lazy(r"^(?:\[rank: (?P<rank>\d{1,9})\] )?Received (?P<name>SIG(?:TERM|INT|HUP)): \d+")),
    ("torchrun", Lazy(rf"Received (?:{_NAMED}|(?P<sig>\d{{1,2}})) death signal")),
    ("torchrun", Lazy(r"SignalException: Process (?P<pid>\d{1,9}) got signal: ?(?P<sig>\d{1,3})")),
    ("LSF", Lazy(r"^Exited with (?:exit code (?P<code>\d{1,9})|signal termination: (?P<sig>\d{1,3}))")),
    ("PBS", Lazy(r"\b[Ee]xit_status ?= ?(?P<code>-?\d{1,9})")),
    ("Grid Engine", Lazy(r"^exit_status\s{2,}(?P<code>\d{1,9})\b")),
    ("HTCondor", Lazy(r"\((?:0|1)\) (?:Abnormal termination \(signal (?P<sig>\d{1,3})\)|Normal termination \(return value (?P<code>[1-9]\d{0,8})\))")),
    ("Ray", Lazy(r"Worker exits with an exit code (?P<code>[1-9]\d{0,8})|Job entrypoint command failed with exit code (?P<code2>\d{1,9})")),
    ("", Lazy(r"[Pp]rocess finished with exit code (?P<code>-?\d{1,9})")),
    ("the launcher", Lazy(r"command terminated with (?:non-zero )?exit (?:code|status):? (?P<code>\d{1,9})")),
    ("systemd", Lazy(r"(?:[Mm]ain|[Cc]ontrol) process exited, code=(?:killed|dumped), status=(?P<sig>\d{1,3})/")),
    ("systemd", Lazy(r"[Mm]ain process exited, code=exited, status=(?P<code>[1-9]\d{0,2})/")),
    ("supervisord", Lazy(r"exited: \S+ \(terminated by (?P<name>SIG[A-Z]{2,6})")),
    ("supervisord", Lazy(r"exited: \S+ \(exit status (?P<code>[1-9]\d{0,8}); not expected\)")),
    ("Gunicorn", Lazy(r"Worker \(pid: ?(?P<pid>\d{1,9})\) was (?:sent (?:code (?P<code>\d{1,9})|(?P<name>SIG[A-Z]{2,6}))|terminated due to signal (?P<sig>\d{1,3}))")),
    ("Docker", Lazy(r"^(?:\S+ )?\S+ exited with code (?P<code>[1-9]\d{0,8})(?: \(restarting\))?$|\bExited \((?P<code2>[1-9]\d{0,2})\) \S+ .{0,20}ago")),
    ("Kubernetes", Lazy(r"\"?[eE]xit ?[cC]ode\"?: +(?P<code>[1-9]\d{0,8})|\"exitCode\":\s*(?P<code2>[1-9]\d{0,8})|^\s*Signal: +(?P<sig>[1-9]\d?)$")),
    ("fish", Lazy(r"^fish: Job \d+, .{0,300} (?:has been )?terminated by signal (?P<name>SIG[A-Z]{2,6})")),
    ("", Lazy(r"Signal (?P<sig>\d{1,9}) \(SIG[A-Z]+\) received by PID (?P<pid>\d{1,9})")),
    ("", Lazy(r"\(interrupted by signal (?P<sig>\d{1,3}): ?SIG[A-Z]+\)")),
    ("the Java runtime", Lazy(r"^#\s+(?P<name>SIG[A-Z]{2,6}) \(0x[0-9a-f]+\) at pc=")),
    ("a Go program", Lazy(rf"(?:^|[\s\"':=(])signal: (?P<word>(?i:killed|segmentation fault|aborted|bus error|floating point exception|illegal instruction|terminated|hangup|interrupt|quit)){_DUMPED}[\"')\]]*$")),
    ("a Rust program", Lazy(r"\bsignal: (?P<sig>\d{1,3})(?: \(SIG[A-Z]+\)|, SIG[A-Z]+)")),
    ("a Node.js program", Lazy(r"(?:Command failed with|signal:|exited with signal|killed with(?: signal)?|via signal) ['\"\[]?(?P<name>SIG[A-Z]{2,6})\b")),
    ("gdb", Lazy(r"^(?:Program terminated with|Thread \d+ .{0,80}received) signal (?P<name>SIG[A-Z]{2,6})")),
    ("", Lazy(rf"\b{_DIED},? (?:unexpectedly )?(?:with|by|on|from|of|due to|after)?(?: (?:a|the|receiving))? ?(?:signal[:#=]? ?)?{_NAMED}")),
    ("", Lazy(rf"\b{_DIED},? (?:unexpectedly |prematurely)?:? ?(?:with|by|on|from|of|due to|after)?(?: (?:a|the|receiving))? ?(?:exit )?signal[:#= ]+\(?(?P<sig>\d{{1,2}})\b")),
    ("", Lazy(r"(?:received|caught|got|on) (?:signal:? )?<?Signals\.?(?P<name>SIG[A-Z]+)")),
    ("", Lazy(r"\*\*\* Process received signal \*\*\*|Signal: [\w /]+ \((?P<sig>\d{1,9})\)")),
    ("", Lazy(rf"\b(?i:process|worker|child|subprocess|job|task|rank|program|trainer|actor|container)\b.{{0,60}}\b(?:exit(?:ed|s)?|return(?:ed|s)?|{_DIED})\b.{{0,30}}\b(?:code|status|rc)[ =:]+(?P<code>-(?:[1-9]|1[0-5])|13[0-9]|14[0-3])\b")),
    ("Slurm", Lazy(r"ExitCode[=:](?P<code>\d{1,9}):(?P<sig>\d{1,9})|\|(?:FAILED|NODE_FAIL|OUT_OF_MEMORY|TIMEOUT|CANCELLED[^|]*)\|(?P<code2>\d{1,3}):(?P<sig2>\d{1,3})\b")),
)
# fmt: on
#: Words that are quick to search. Every line that a pattern of `SENTENCES` matches has at least one of them.
ATOMS = (
    "exitcode",
    "srun: ",
    "rank ",
    "bort(",
    "ABORT",
    "terminated",
    "ubprocess",
    "return code",
    "returncode",
    "xit code",
    "xit Code",
    "xit status",
    "xitCode",
    "xit_status",
    "ignal",
    "xited ",
    "xited:",
    "|FAILED",
    "|NODE_FAIL",
    "|OUT_OF",
    "|TIMEOUT",
    "|CANCEL",
    "SIG",
    "termination (",
    "was sent",
    "exited",
    "exits",
    "code=",
    "status",
    "rc=",
    "rc ",
    "died",
    "returns",
)  # fmt: skip


def number_of(name: str) -> int | None:
    """Return the number of a signal: 9 for `SIGKILL`, `KILL`, `Killed`, `getötet` or `9`; None if it is no signal."""
    name = name.strip()
    if name.isascii() and name.isdigit():
        return int(name)
    if (number := _SMALL.get(name.lower())) is not None:
        return number
    name = name.upper()
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        return None
