"""Builds a worker's command line from the words after the options."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model.job_spec import NAME


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
    if script.suffix != ".py":
        from holdfast.launch.command_mistakes import refuse_other_commands  # imported late: most commands are a script

        refuse_other_commands(script, words)
    if not script.exists():
        near = _nearest(script)
        raise BadUsage(
            f"there is no script {script} in {Path.cwd()}" + (f"; did you mean {near}?" if near else ""),
            hint=f"holdfast run {near}" if near else "ls *.py; holdfast run --no-python COMMAND for what is not Python",
        )
    if not os.access(script, os.R_OK):
        raise BadUsage(
            f"the script {script} cannot be read by {os.environ.get('USER', 'this user')}", hint=f"ls -l {script}"
        )
    # Python would take a file name such as `-c.py` for an option, so `./` is put before it.
    return (*before, f"./{words[0]}" if words[0].startswith("-") else words[0], *words[1:])


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
    """Return a name for a job: letters, marks and digits of any alphabet stay, other characters become a hyphen.

    `otherwise`: the name if no character of the text is valid.
    """
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
