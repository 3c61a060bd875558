"""What a batch script lacks for holdfast to hear Slurm's signals and to outlive a node: text in, words out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from holdfast.safe_files import read_file

_MOST_BYTES = 64 * 1024
_TERM = 15
_DIRECTIVE = "#SBATCH"


def dies_of_sigterm(guard: int, proc: Path = Path("/proc")) -> bool:
    """Whether the batch shell stands above the process `guard`, and ends at Slurm's first SIGTERM.

    False where the shell has made way (`exec`), listens to the signal (`trap`), or there is another process between:
    then it is not sure what happens.
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
    """`/proc/PID/status`; nothing of a process that is gone, or of another user's that hides."""
    try:
        text = read_file(proc / str(pid) / "status", _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def asks_for_no_kill(script: str, env: Mapping[str, str]) -> bool:
    """Whether the script's own lines, or the variable that sbatch reads, keep the job when a node fails."""
    if env.get("SBATCH_NO_KILL", "off") != "off":
        return True
    for line in script.splitlines():
        if line.startswith(_DIRECTIVE):
            if has_no_kill(line.removeprefix(_DIRECTIVE)):
                return True
        elif line.strip() and not line.startswith("#"):
            return False  # sbatch reads no further
    return False


def has_no_kill(command: str) -> bool:
    """The same for words as they are typed: `sbatch -N2 --no-kill job.sh`."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    return any(word in ("-k", "--no-kill") for word in words)


def line_of_run(script: str) -> tuple[int, str] | None:
    """The number and the text of the line that starts holdfast; None: it cannot be told."""
    found = [
        (number, line.strip())
        for number, line in enumerate(script.splitlines(), 1)
        if "holdfast run" in line and not line.lstrip().startswith("#")
    ]
    return found[0] if len(found) == 1 else None
