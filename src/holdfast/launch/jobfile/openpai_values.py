"""Values of OpenPAI's job files, of both protocols, in holdfast's own terms."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.launch.jobfile.job_file_mistakes import Mistakes
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import NAME, RestartPolicy

#: What `always` means: no job is started again without end.
MANY = 100_000
#: Of a role's commands in bytes: the kernel takes no longer word (MAX_ARG_STRLEN is 131,072).
LONGEST = 120_000
MOST_PORTS = 1_000
_MIB = 1 << 20
_LABEL = Lazy(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,62}")
_STRANGE = Lazy(r"[^A-Za-z0-9._-]")


def job_name(found: Mistakes, where: str, name: str, notes: list[str]) -> str:
    """OpenPAI's names may be longer, and begin with another character."""
    short = _STRANGE.sub("-", name).lstrip("._-")[:63]
    if not NAME.fullmatch(short):
        found.add(where, f"expected letters, digits, `_` or `-`, got {name!r}")
    elif short != name:
        notes.append(f"{where}: the job is called {short} here: a name has at most 63 letters, a letter or digit first")
    return short


def restarts_of(found: Mistakes, where: str, count: int) -> RestartPolicy:
    """0 or more: so often for failures that the user is charged with; -1: always; -2: never, for any cause."""
    if count < -2:
        found.add(where, f"expected 0 or more, -1 (always) or -2 (never, for any cause), got {count}")
    if count == -2:
        return RestartPolicy(max_restarts=0, platform_max_restarts=0)
    if count == -1:
        return RestartPolicy(max_restarts=MANY, platform_max_restarts=MANY, max_in_a_row=MANY, window_restarts=MANY)
    return RestartPolicy(max_restarts=max(count, 0))


def min_failed(number: int | None, count: int) -> int | None:
    """-1 (and null): no failure fails the job; nor does a number that the role cannot reach."""
    return number if number is not None and 1 <= number <= count else None


def min_succeeded(found: Mistakes, where: str, number: Any, count: int) -> int | None:
    """Not said: as many as there are, and then those of other roles are stopped. -1 (and null): all have to end."""
    if number == "all":
        return count
    if number is None or number == -1:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        found.add(where, f"expected -1, or 1 or more, got {number!r}")
        return None
    return number if number <= count else None


def cpus_of(number: float | None) -> float | None:
    return number or None


def memory_of(found: Mistakes, where: str, number: int | None, *, here: bool) -> int | None:
    """Bytes. `here`: this machine has to have them."""
    if not number:
        return None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if here and number * _MIB > total:
        found.add(where, f"expected at most this machine's {total // _MIB} MiB, got {number}; --no-bind passes it over")
    return number * _MIB


def ports_of(found: Mistakes, where: str, ports: Mapping[str, int]) -> dict[str, int]:
    """Label → how many; 0 is none."""
    for label, number in ports.items():
        if not _LABEL.fullmatch(label):
            found.add(f"{where}.{label}", "expected a label of letters, digits and `_`")
        if not 0 <= number <= MOST_PORTS:
            found.add(f"{where}.{label}", f"expected how many ports, 0 to {MOST_PORTS}, got {number}")
    return {label: number for label, number in ports.items() if number}


def image_of(found: Mistakes, where: str, image: str) -> str:
    """The address of an image, judged."""
    image = image.strip()
    if not image or not image.isprintable() or " " in image:
        found.add(where, f"expected an image such as registry.example/train:1.2, without spaces, got {image!r}")
    return image


def shell(*, here: bool) -> str:
    """OpenPAI's commands are for bash. `here`: this machine runs them, and may have none."""
    return "bash" if not here or shutil.which("bash") else "sh"


def script_of(found: Mistakes, where: str, commands: Sequence[str]) -> str:
    """Commands in one shell, each only where the one before succeeded, as OpenPAI joins them.

    A comment at the end of one does not swallow the next: each stands in lines of its own.
    """
    lines = [command.strip() for command in commands if command.strip()]
    if not lines:
        found.add(where, "expected at least one command, as in [python train.py]")
    text = lines[0] if len(lines) == 1 else " && ".join(f"{{\n{line}\n}}" for line in lines)
    if "\0" in text:
        found.add(where, "expected text without NUL characters")
    if len(text.encode(errors="surrogateescape")) > LONGEST:
        found.add(where, f"expected at most {LONGEST} bytes; put the commands into a script, and run that")
    return text
