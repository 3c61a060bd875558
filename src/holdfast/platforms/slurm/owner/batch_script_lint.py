"""Find mistakes in a batch script: holdfast would miss Slurm's signals, or the job would not survive a node failure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from holdfast.safe_files import read_file

_MOST_BYTES = 64 * 1024
_TERM = 15
_DIRECTIVE = "#SBATCH"


def dies_of_sigterm(guard: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process above `guard` is the batch shell, and would die of Slurm's first SIGTERM.

    False if the shell has replaced itself (`exec`), handles the signal (`trap`), or is not the direct parent. In the
    last case the effect is uncertain.
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
    """Read `/proc/PID/status`. Empty: the process is gone, or another user's that is hidden."""
    try:
        text = read_file(proc / str(pid) / "status", _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def asks_for_no_kill(script: str, env: Mapping[str, str]) -> bool:
    """Whether the script's `#SBATCH` lines, or SBATCH_NO_KILL, keep the job when a node fails."""
    if env.get("SBATCH_NO_KILL", "off") != "off":
        return True
    for line in script.splitlines():
        if line.startswith(_DIRECTIVE):
            if has_no_kill(line.removeprefix(_DIRECTIVE)):
                return True
        elif line.strip() and not line.startswith("#"):
            return False  # sbatch reads no options below the first command
    return False


def has_no_kill(command: str) -> bool:
    """Whether a typed command has --no-kill: `sbatch -N2 --no-kill job.sh`."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    return any(word in ("-k", "--no-kill") for word in words)


def line_of_run(script: str) -> tuple[int, str] | None:
    """Return the number and text of the only line that starts holdfast; None: there is no such single line."""
    found = [
        (number, line.strip())
        for number, line in enumerate(script.splitlines(), 1)
        if "holdfast run" in line and not line.lstrip().startswith("#")
    ]
    return found[0] if len(found) == 1 else None
