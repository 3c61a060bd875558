"""Warns once, at the start, if the batch script would let Slurm end the job before holdfast can react."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.allocation import SlurmJobIds
from holdfast.reactor import DueCall
from holdfast.safe_files import read_file

_SHOWN = 120
_MOST_BYTES = 64 * 1024
_TERM = 15
_DIRECTIVE = "#SBATCH"
#: Pauses before each repeated query to accounting, in seconds. slurmdbd knows a job only some time after its start.
_ACCOUNTING_PAUSES_S = (10.0, 30.0)


class BatchScript:
    """Checks one job's batch script once."""

    def __init__(self, asking: SlurmCommands, ids: SlurmJobIds, say: Callable[[str], None], *, many: bool) -> None:
        """`asking`: runs Slurm commands. `ids`: ids of the job. `say`: prints the warning.

        `many`: whether the job has several nodes.
        """
        self._asking = asking
        self._ids = ids
        self._say = say
        self._many = many
        #: Whether the batch shell would die of SIGTERM before holdfast has acted.
        self._shell = False
        self._wrong: list[str] = []
        self._hints: list[str] = []
        #: Number of queries to accounting that had no result.
        self._looks = 0
        self._again: DueCall | None = None

    def begin(self) -> None:
        """Ask Slurm for the batch script, if it may contain a mistake."""
        if self._ids.in_step or not self._ids.node:
            return  # there is no batch script: `srun` started the job, or salloc's shell on a login node
        self._shell = dies_of_sigterm(os.getppid())
        if self._shell or self._many:
            self._asking.ask(("scontrol", "write", "batch_script", str(self._ids.job), "-"), self._read)

    def _read(self, answer: CommandOutput, now: float) -> None:
        """Check the script. If it does not set --no-kill, query accounting for the options that sbatch got."""
        if not answer.ok or not answer.out.startswith("#!"):
            return  # do not warn, because Slurm did not return the script
        script = answer.out
        if self._shell:
            run = line_of_run(script)
            where = f"line {run[0]} of the batch script" if run else "the batch script"
            line = run[1][:_SHOWN] if run else "holdfast run …"
            self._wrong.append(
                f"{where} starts holdfast without exec: at Slurm's SIGTERM (scancel, a time limit, preemption) the "
                "shell ends at once, and Slurm kills holdfast before it can save or report"
            )
            self._hints.append(f"exec {line}   (as the last line)")
        if not self._many or asks_for_no_kill(script, os.environ):
            self._tell()
        else:
            self._ask_accounting(now)

    def _ask_accounting(self, now: float) -> None:
        self._again = None
        words = ("sacct", "-X", "-n", "-P", "-j", self._ids.shown, "-o", "SubmitLine%4096")
        self._asking.ask(words, self._submitted)

    def _submitted(self, answer: CommandOutput, now: float) -> None:
        """Search for --no-kill in sbatch's command line. If accounting has no answer, only the script counts."""
        known = answer.ok and bool(answer.out.strip())
        if answer.ok and not known and self._looks < len(_ACCOUNTING_PAUSES_S):
            self._again = self._asking.reactor.at(now + _ACCOUNTING_PAUSES_S[self._looks], self._ask_accounting)
            self._looks += 1
            return
        if not (known and has_no_kill(answer.out)):
            unless = "" if known else "; where it was not typed for sbatch"
            self._wrong.append(
                f"the batch script has no line `#SBATCH --no-kill`{unless}: Slurm ends the whole job when one of its "
                "nodes fails"
            )
            self._hints.append("#SBATCH --no-kill   (below the script's first line)")
        self._tell()

    def close(self) -> None:
        """Stop checking, because the job has ended."""
        if self._again is not None:
            self._again.close()

    def _tell(self) -> None:
        if self._wrong:
            hints = "".join(f"\n  try: {hint}" for hint in self._hints)
            self._say("warning: " + "\nwarning: ".join(self._wrong) + hints)


# ------------------------------------------------------------------------------------- finding mistakes in the script


def dies_of_sigterm(guard: int, proc: Path = Path("/proc")) -> bool:
    """Whether the parent process of `guard` is the batch shell, and would die of Slurm's first SIGTERM.

    Return False if the shell has replaced itself (`exec`), handles the signal (`trap`), or is not the direct parent. In
    the last case the effect of the signal is unknown.
    """
    shell = _fields(proc, guard).get("PPid", "")
    if not shell.isdigit():
        return False
    above = _fields(proc, int(shell))
    if not _fields(proc, int(above.get("PPid", "0") or "0")).get("Name", "").startswith("slurmstepd"):
        return False
    try:
        heard = int(above.get("SigCgt", "f" * 16), 16) | int(above.get("SigIgn", "f" * 16), 16)
    except ValueError:
        return False
    return not heard >> (_TERM - 1) & 1


def _fields(proc: Path, pid: int) -> dict[str, str]:
    """Read `/proc/PID/status` into a dict.

    It is empty if the process has exited, or if another user's process is hidden.
    """
    try:
        text = read_file(proc / str(pid) / "status", _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def asks_for_no_kill(script: str, env: Mapping[str, str]) -> bool:
    """Whether the job goes on after a node's failure, because of the script's `#SBATCH` lines or SBATCH_NO_KILL."""
    if env.get("SBATCH_NO_KILL", "off") != "off":
        return True
    for line in script.splitlines():
        if line.startswith(_DIRECTIVE):
            if has_no_kill(line.removeprefix(_DIRECTIVE)):
                return True
        elif line.strip() and not line.startswith("#"):
            return False  # sbatch reads no options after the first command
    return False


def has_no_kill(command: str) -> bool:
    """Whether a command line has --no-kill, such as `sbatch -N2 --no-kill job.sh`."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    return any(word in ("-k", "--no-kill") for word in words)


def line_of_run(script: str) -> tuple[int, str] | None:
    """Return number and text of the line that starts holdfast. Return None if no line or several lines do."""
    found = [
        (number, line.strip())
        for number, line in enumerate(script.splitlines(), 1)
        if "holdfast run" in line and not line.lstrip().startswith("#")
    ]
    return found[0] if len(found) == 1 else None
