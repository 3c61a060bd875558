"""Runs the compiler and other tools for building a runtime tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import HoldfastError

LAUNCHER = Path(__file__).with_name("launcher.c")
#: Compilers that may link an executable statically. With musl the launcher takes 34 kB, with the GNU C library 20 times
#: as much.
_STATIC = (("musl-gcc",), ("gcc",), ("cc",))
_GIVEN_S = 300.0


class NotBuilt(HoldfastError):
    """A runtime tree cannot be built here. The message names the missing tool, and the hint names its package."""


def tool_output(*words: str | Path, ok: Sequence[int] = (0,)) -> str:
    """Run a tool and return its standard output. Raises `NotBuilt` if its exit status is not in `ok`."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIVEN_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(f"{words[0]} could not run: {error}") from error
    if done.returncode not in ok:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NotBuilt(f"{words[0]} ended with {done.returncode}: {said[-1] if said else 'it printed nothing'}")
    return done.stdout


def compile_launcher(to: Path) -> str:
    """Compile the static launcher and return the compiler's name. Raises `NotBuilt` if no compiler succeeds."""
    refused = []
    for compiler in _STATIC:
        if shutil.which(compiler[0]) is None:
            continue
        try:
            tool_output(*compiler, "-static", "-Os", "-s", "-Wall", "-Wextra", "-o", to, LAUNCHER)
        except NotBuilt as error:
            refused.append(error.message)
            continue
        return compiler[0]
    why = "; ".join(refused) or "there is neither musl-gcc nor gcc"
    raise NotBuilt(f"the launcher cannot be compiled and linked statically: {why}", hint="apt-get install musl-tools")


def find_busybox() -> Path:
    """Return the path of a busybox that needs no shared library, as a shell for images without one.
    Raises `NotBuilt`.
    """
    hint = "apt-get install busybox-static"
    found = shutil.which("busybox")
    if found is None:
        raise NotBuilt("there is no busybox, the shell for images without one", hint=hint)
    place = Path(found).resolve()
    if "interpreter" in tool_output("readelf", "-lW", place):
        raise NotBuilt(f"{place} needs shared libraries; expected a static busybox", hint=hint)
    return place
