"""Refuses commands that `holdfast run` cannot start as a Python script: launchers, shell scripts, notebooks."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.foreign_files import refuse_foreign
from holdfast.lazy_pattern import Lazy
from holdfast.settings.other_launchers import line, other_command, typed_options

_BATCH = Lazy(r"(?m)^#(?:SBATCH|PBS|BSUB) ")


def refuse_other_commands(script: Path, words: tuple[str, ...]) -> None:
    """Raise BadUsage if the words begin with a launcher, or with a file in another language than Python."""
    if _is_program(script):
        _refuse_launcher(words)
    if script.is_file():
        _refuse_other_language(script, words)


def _refuse_other_language(script: Path, words: tuple[str, ...]) -> None:
    """Raise BadUsage for a script of a shell, a notebook, a batch script or a job file."""
    try:
        with script.open("rb") as file:
            begins = file.read(4096).decode(errors="replace")
    except OSError:
        return
    first_line = begins.partition("\n")[0]
    shell = first_line.startswith("#!") and any(word.endswith("sh") for word in first_line.split())
    if script.suffix in (".yaml", ".yml") or (shell and _BATCH.search(begins)):
        refuse_foreign(script, begins.encode())
        raise BadUsage(
            f"{script} is no Python script; a job file is given with --job", hint=f"holdfast run --job {script}"
        )
    if shell or script.suffix in (".sh", ".bash"):
        typed = typed_options(words)
        raise BadUsage(
            f"{script} is a shell script, and holdfast run starts a Python script: expected --no-python in front of it",
            hint=line(("--no-python", "bash", *words), typed),
        )
    if script.suffix == ".ipynb" or begins.lstrip()[:1] == "{":
        raise BadUsage(
            f"{script} is a notebook, and no Python script: expected a script made of it",
            hint=f"jupyter nbconvert --to script {script}; holdfast run {script.with_suffix('.py')}",
        )


def _is_program(script: Path) -> bool:
    """Return whether the word names a program instead of a Python script: no file has this name, or it is a binary."""
    if script.suffix or not script.exists():
        return not script.suffix
    return script.is_file() and os.access(script, os.R_OK) and script.open("rb").read(4) == b"\x7fELF"


def _refuse_launcher(words: tuple[str, ...]) -> None:
    """Raise BadUsage if the words begin with Python or another launcher, because holdfast itself does their work."""
    if (found := other_command(words)) is None:
        return
    typed = typed_options(words)
    python = ("--python", words[0]) if not found.launcher and "/" in words[0] else ()
    name = found.launcher or words[0]
    why = "holdfast takes its place" if found.launcher else "holdfast starts the workers' Python itself"
    raise BadUsage(f"leave {name} out: {why}", hint=line((*python, *found.words), typed))
