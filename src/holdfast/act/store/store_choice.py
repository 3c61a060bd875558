"""Decides whether holdfast hosts the workers' rendezvous store, and finds a torch package that can serve it.

The choice is made before the first worker starts. It takes a millisecond, because it imports no torch and starts no
process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

#: The variable by which torch knows whether the agent serves MASTER_PORT. If the user sets it to `False`, rank 0 hosts
#: the store.
CHOICE = "TORCHELASTIC_USE_AGENT_STORE"
_MOST_TEXT = 1 << 20
#: A script that uses MASTER_PORT and contains one of these words may open the port itself.
_OWN_PORT = (b"socket", b"create_server", b"start_server", b"TCPStore", b"jax", b"MPI", b"zmq", b"grpc")
_TRAINS = (b"torch", b"lightning", b"transformers", b"accelerate", b"deepspeed")
_PYTHONS = ("python3", "python")


class Torch(msgspec.Struct, frozen=True):
    """A torch package that workers import, and a Python that can load it."""

    python: str
    #: The directory of the torch package.
    package: str


def torch_of(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Torch | None:
    """Return the torch of the workers' interpreter, from the usual directories; None if it has none."""
    names = [command[0]] if _is_python(command[0]) else _PYTHONS
    for name in names:
        python = _which(name, env, cwd)
        if python is not None:
            package = next((found for place in _packages(python, env) if (found := _torch(place))), None)
            return None if package is None else Torch(python, package)
    return None


def opens_itself(command: Sequence[str], cwd: Path) -> bool:
    """Return whether the script seems to open or set MASTER_PORT."""
    text = _text(command, cwd)
    if b"MASTER_PORT" not in text:
        return False
    if not _is_python(command[0]):
        return True
    return any(word in text for word in _OWN_PORT) or any(map(_assigns, text.split(b"MASTER_PORT")[1:]))


def speaks_of_torch(command: Sequence[str], cwd: Path) -> bool:
    """Return whether the script contains torch, or a library that uses torch. The script then probably needs a
    store.
    """
    text = _text(command, cwd)
    return any(word in text for word in _TRAINS)


def _assigns(rest: bytes) -> bool:
    """Return whether the text after a name assigns a value to the name: `"] = …`, `=…` (a keyword of `environ.update`)
    or `: …` (in a dict), but not `==`.
    """
    rest = rest[:8].lstrip(b"'\"]) ")
    return rest[:1] in (b"=", b":") and rest[:2] != b"=="


def _text(command: Sequence[str], cwd: Path) -> bytes:
    """Return the program's text: the script, the argument of `-c`, or the module's file below the working directory."""
    words = list(command[1:])
    while words:
        word = words.pop(0)
        if word in ("-c", "-m"):
            if not words:
                return b""
            if word == "-c":
                return words[0].encode(errors="replace")
            path = cwd.joinpath(*words[0].split("."))
            return _read(path.with_suffix(".py")) or _read(path / "__main__.py")
        if word in ("-W", "-X"):
            words = words[1:]
        elif not word.startswith("-"):
            return _read(cwd / word) or _read(cwd / word / "__main__.py")
    return _read(cwd / command[0]) if os.sep in command[0] else b""


def _read(path: Path) -> bytes:
    if not path.is_file():
        return b""  # return no text, because a read of a named pipe would block
    try:
        with path.open("rb") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return b""


def _is_python(word: str) -> bool:
    return os.path.basename(word).startswith(("python", "pypy"))


def _which(name: str, env: Mapping[str, str], cwd: Path) -> str | None:
    if os.sep in name:
        return os.path.join(cwd, name)
    for place in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(cwd, place, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _packages(python: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the directories in which this interpreter probably finds packages, in its search order."""
    yield from filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        yield from sys.path
        return
    prefixes = [os.path.dirname(os.path.dirname(os.path.abspath(python)))]
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    if real not in prefixes:
        prefixes.append(real)
    if home := env.get("HOME"):
        prefixes.append(os.path.join(home, ".local"))
    for prefix in prefixes:
        for library in ("lib", "local/lib", "lib64"):
            above = os.path.join(prefix, library)
            try:
                versions = sorted((name for name in os.listdir(above) if name.startswith("python3")), reverse=True)
            except OSError:
                continue
            for version in versions:
                for kind in ("site-packages", "dist-packages"):
                    yield os.path.join(above, version, kind)


def _torch(place: str) -> str | None:
    package = os.path.join(place, "torch")
    return package if core_of(package) else None


def core_of(package: str) -> str | None:
    """Return the file name of the C extension in a torch package; None if there is none."""
    try:
        names = os.listdir(package)
    except OSError:
        return None
    return next((name for name in names if name.startswith("_C.") and name.endswith(".so")), None)


def torch_in(pid: int) -> Torch | None:
    """Return the torch that a process has loaded, with the interpreter; None if it has loaded none, or is not
    readable.
    """
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if "/torch/_C." in line:
                    library = line.split(maxsplit=5)[5].strip()
                    return Torch(os.readlink(f"/proc/{pid}/exe"), os.path.dirname(library))
    except OSError:
        pass  # ignore a process that has exited or that another user owns
    return None
