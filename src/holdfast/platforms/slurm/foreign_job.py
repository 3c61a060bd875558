"""Finds the logs of a Slurm job that holdfast did not start: `slurm:1234`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.platforms.program_output import PrintedLog, program_output

_NUMBER = re.compile(r"\d{1,19}(?:_\d{1,19})?\Z")


def foreign_job(word: str) -> Iterator[str | PrintedLog]:
    """Return the output of a Slurm job that holdfast did not start, and what Slurm knows of it. Raise `BadUsage`."""
    job = word.removeprefix("slurm:")
    if not _NUMBER.match(job):
        raise BadUsage(f"slurm:{job}: expected the number of a job", hint="holdfast explain slurm:1234")
    status, shown, trouble = program_output(["scontrol", "show", "job", job])
    source = f"scontrol show job {job}"
    if status != 0:
        # slurmctld forgets a job some minutes after its end; the accounting keeps it
        fields = "JobID,JobName,State,ExitCode,DerivedExitCode,NodeList,WorkDir,Comment"
        words = ["sacct", "-j", job, "--parsable2", f"--format={fields}"]
        status, shown, more = program_output(words)
        source = " ".join(words[:3])
        if status != 0 or len(shown.splitlines()) < 2:
            raise BadUsage(
                f"slurm:{job}: neither scontrol nor sacct knows this job ({trouble or more or 'no such job'})",
                hint=f"sacct -j {job}",
            )
    files = [path for path in _files(job, shown) if Path(path).is_file()]
    yield from dict.fromkeys(files)
    yield PrintedLog(name=source, text=shown)


def _files(job: str, shown: str) -> Iterator[str]:
    """Yield the paths of a job's output. sacct does not name them, so the default name is tried."""
    for key in ("StdErr", "StdOut"):
        if found := re.search(rf"^\s*{key}=(\S.*?)\s*$", shown, re.MULTILINE):
            yield found[1]
    lines = shown.splitlines()
    head = lines[0].split("|") if lines else []
    if "WorkDir" in head and len(lines) > 1:
        folder = dict(zip(head, lines[1].split("|"), strict=False)).get("WorkDir", "")
        if folder:
            yield f"{folder}/slurm-{job}.out"
