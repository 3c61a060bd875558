"""Builds a worker's command line from the words after the options."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import NAME

_BATCH = Lazy(r"(?m)^#(?:SBATCH|PBS|BSUB) ")


def command_of(words: tuple[str, ...], python: str, *, module: bool, plain: bool) -> tuple[str, ...]:
    """Return the workers' command line with this Python. Raises BadUsage for a missing script.

    `words`: the script or command and its arguments. `module`: run it with `-m`. `plain`: run it as it is, without
    Python.
    """
    if not words:
        raise BadUsage(
            "nothing to run: expected a script, -m MODULE, --no-python CMD or --job FILE", hint="holdfast run train.py"
        )
    if module and plain:
        raise BadUsage("-m and --no-python contradict each other: expected one of them", hint="holdfast run --help-all")
    if plain:
        return words
    before = (python, "-u")
    if module:
        return (*before, "-m", *words)
    script = Path(words[0])
    if script.is_dir() and not (script / "__main__.py").exists():
        raise BadUsage(f"{script} is a directory without a __main__.py: expected a Python file", hint=f"ls {script}")
    if _is_program(script):
        _refuse_launcher(words)
    if not script.exists():
        near = _nearest(script)
        raise BadUsage(
            f"there is no script {script} in {Path.cwd()}" + (f"; did you mean {near}?" if near else ""),
            hint=f"holdfast run {near}" if near else "ls *.py; holdfast run --no-python COMMAND for what is not Python",
        )
    if script.suffix != ".py" and script.is_file():
        _refuse_other_language(script, words)
    if not os.access(script, os.R_OK):
        raise BadUsage(
            f"the script {script} cannot be read by {os.environ.get('USER', 'this user')}", hint=f"ls -l {script}"
        )
    # Python would take a file's name such as `-c.py` for an option.
    return (*before, f"./{words[0]}" if words[0].startswith("-") else words[0], *words[1:])


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
        # imported late, because only a mistake in the command needs it
        from holdfast.launch.jobfile.foreign_files import refuse_foreign

        refuse_foreign(script, begins.encode())
        raise BadUsage(
            f"{script} is no Python script; a job file is given with --job", hint=f"holdfast run --job {script}"
        )
    if shell or script.suffix in (".sh", ".bash"):
        # imported late, because only a mistake in the command needs it
        from holdfast.settings.other_launchers import line, typed_options

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
    """Return whether `script` names a program and not a Python script. It does if the name has no suffix, and the file
    is an ELF executable or does not exist.
    """
    if script.suffix or not script.exists():
        return not script.suffix
    return script.is_file() and os.access(script, os.R_OK) and script.open("rb").read(4) == b"\x7fELF"


def _refuse_launcher(words: tuple[str, ...]) -> None:
    """Raise BadUsage if the words begin with Python or another launcher, because holdfast itself does their work."""
    # imported late, because only a mistake in the command needs it
    from holdfast.settings.other_launchers import line, other_command, typed_options

    if (found := other_command(words)) is None:
        return
    typed = typed_options(words)
    python = ("--python", words[0]) if not found.launcher and "/" in words[0] else ()
    name = found.launcher or words[0]
    why = "holdfast takes its place" if found.launcher else "holdfast starts the workers' Python itself"
    raise BadUsage(f"leave {name} out: {why}", hint=line((*python, *found.words), typed))


def _nearest(script: Path) -> str:
    import difflib

    try:
        names = [entry.name for entry in script.parent.iterdir()]
    except OSError:
        return ""
    found = difflib.get_close_matches(script.name, names, n=1)
    return str(script.parent / found[0]) if found else ""


def is_job_name(text: str) -> bool:
    """Return whether a user may give a job this name."""
    if text.isascii():
        return bool(NAME.fullmatch(text))
    import unicodedata

    return job_name(text, "") == unicodedata.normalize("NFC", text)


#: Limits on a job's name: characters, and bytes in UTF-8.
MOST_CHARACTERS, MOST_BYTES = 63, 180


def job_name(text: str, otherwise: str) -> str:
    """Return a name for a job: letters, marks and digits of any alphabet stay, other characters become a hyphen."""
    if text.isascii():
        return plain_name(text, otherwise)
    import unicodedata

    # macOS may store an accent in a file's name as a separate character. Combine it with its letter, as in typed text.
    composed = unicodedata.normalize("NFC", text)
    kept = "".join(c if c in "._-" or unicodedata.category(c)[0] in "LMN" else " " for c in composed)
    name = "-".join(kept.split()).strip("-._")[:MOST_CHARACTERS]
    while len(name.encode()) > MOST_BYTES:
        name = name[:-1]
    return name or otherwise


def plain_name(text: str, otherwise: str) -> str:
    """Return a name that is valid for a job, a role and a directory: `my train` becomes `my-train`."""
    if not (text.isascii() and text.replace("_", "").isalnum()):
        kept = (letter if letter.isascii() and (letter.isalnum() or letter in "._-") else " " for letter in text)
        text = "-".join("".join(kept).split())
    return text.strip("-._")[:63] or otherwise
