"""Converts values of OpenPAI's job files, of both protocols, to values of holdfast."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.launch.jobfile.job_file_mistakes import Mistakes
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import NAME, RestartPolicy

#: The number of restarts that replaces `always`, because holdfast restarts no job without end.
MANY = 100_000
#: Limit on the script of a role's commands, in bytes: the kernel allows 131,072 for one argument (MAX_ARG_STRLEN).
LONGEST = 120_000
MOST_PORTS = 1_000
#: Maps a shell to the commands that begin each script, as in OpenPAI's runtime. An old sh has no `pipefail`, and would
#: end at the unknown option.
STRICT = {
    "bash": "set -o errexit -o nounset -o pipefail",
    "sh": "set -o errexit -o nounset; if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi",
}
#: Ends the script if the previous command failed. `errexit` does not do that for the first part of `a && b`.
_IF_SUCCEEDED = "case $? in 0) ;; *) exit ;; esac"
_MIB = 1 << 20
_LABEL = Lazy(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,62}")
_STRANGE = Lazy(r"[^A-Za-z0-9._-]")


def job_name(found: Mistakes, where: str, name: str, notes: list[str]) -> str:
    """Return a valid job name, and add a note if it differs from OpenPAI's name: OpenPAI allows longer names and other
    first letters."""
    short = _STRANGE.sub("-", name).lstrip("._-")[:63]
    if not NAME.fullmatch(short):
        found.add(where, f"expected letters, digits, `_` or `-`, got {name!r}")
    elif short != name:
        notes.append(f"{where}: the job is called {short} here: a name has at most 63 letters, a letter or digit first")
    return short


def restarts_of(found: Mistakes, where: str, count: int) -> RestartPolicy:
    """Convert a retry count. 0 or more limits the restarts after failures charged to the user; -1 means always, -2
    never. Add a mistake to `found` for any other number."""
    if count < -2:
        found.add(where, f"expected 0 or more, -1 (always) or -2 (never, for any cause), got {count}")
    if count == -2:
        return RestartPolicy(max_restarts=0, platform_max_restarts=0)
    if count == -1:
        return RestartPolicy(max_restarts=MANY, platform_max_restarts=MANY, max_in_a_row=MANY, window_restarts=MANY)
    return RestartPolicy(max_restarts=max(count, 0))


def min_failed(number: int | None, count: int) -> int | None:
    """Convert the number of failed workers at which the job fails. Return None for -1, null or a number above `count`:
    then the job does not fail because of failed workers."""
    return number if number is not None and 1 <= number <= count else None


def min_succeeded(found: Mistakes, where: str, number: Any, count: int) -> int | None:
    """Convert the number of succeeded workers at which the job is complete; `all` is the default. Return None for -1,
    null or a number above `count`: then all workers must end."""
    if number == "all":
        return count
    if number is None or number == -1:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        found.add(where, f"expected -1, or 1 or more, got {number!r}")
        return None
    return number if number <= count else None


def cpus_of(number: float | None) -> float | None:
    """Return the number of CPUs, or None if it is 0 or not set."""
    return number or None


def memory_of(found: Mistakes, where: str, number: int | None, *, here: bool) -> int | None:
    """Convert MiB to bytes; None if unset or 0. If `here` is true, add a mistake to `found` if this machine has less
    memory."""
    if not number:
        return None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if here and number * _MIB > total:
        found.add(where, f"expected at most this machine's {total // _MIB} MiB, got {number}; --no-bind passes it over")
    return number * _MIB


def ports_of(found: Mistakes, where: str, ports: Mapping[str, int]) -> dict[str, int]:
    """Return a map from label to number of ports, without labels whose number is 0."""
    for label, number in ports.items():
        if not _LABEL.fullmatch(label):
            found.add(f"{where}.{label}", "expected a label of letters, digits and `_`")
        if not 0 <= number <= MOST_PORTS:
            found.add(f"{where}.{label}", f"expected how many ports, 0 to {MOST_PORTS}, got {number}")
    return {label: number for label, number in ports.items() if number}


def image_of(found: Mistakes, where: str, image: str) -> str:
    """Return the address of an image. Add a mistake to `found` if the address is invalid."""
    image = image.strip()
    if not image or not image.isprintable() or " " in image:
        found.add(where, f"expected an image such as registry.example/train:1.2, without spaces, got {image!r}")
    return image


def script_of(found: Mistakes, where: str, commands: Sequence[str], shell: str = "bash") -> str:
    """Join commands into one script, which ends at the first command that fails, as in OpenPAI's runtime.

    Each command is on its own lines, so that a comment at its end does not hide the next command.
    """
    lines = [command.strip() for command in commands if command.strip()]
    if not lines:
        found.add(where, "expected at least one command, as in [python train.py]")
    # Add no newlines of our own, because messages of bash and of holdfast contain the user's line numbers.
    text = f"{STRICT[shell]}; " + f"\n{_IF_SUCCEEDED}; ".join(lines)
    if "\0" in text:
        found.add(where, "expected text without NUL characters")
    if len(text.encode(errors="surrogateescape")) > LONGEST:
        found.add(where, f"expected at most {LONGEST} bytes; put the commands into a script, and run that")
    return text


def shell_command(found: Mistakes, where: str, commands: Sequence[str], *, here: bool) -> tuple[str, ...]:
    """Return the command that runs a role's commands. `here`: this machine runs them, so use sh if it has no bash."""
    shell = "bash" if not here or shutil.which("bash") else "sh"
    return shell, "-c", script_of(found, where, commands, shell)
