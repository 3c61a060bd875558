"""File systems of images that know nothing of holdfast: made once on a machine, and kept.

They lie below `${XDG_CACHE_HOME:-~/.cache}/holdfast-tests`. `python tests/bundle/roots.py` makes all of them.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(
    os.environ.get("HOLDFAST_TESTS_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
)
BUSYBOX = Path("/usr/bin/busybox")
PACKAGES = "musl-tools busybox-static binutils debootstrap"
MIRROR = os.environ.get("HOLDFAST_TESTS_MIRROR", "http://deb.debian.org/debian")
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "usr/local/pai")
PASSWD = "root:x:0:0:root:/root:/bin/sh\n"
HOSTS = "127.0.0.1 localhost\n"
#: Says that it runs, and ends with the status that it is given; `env`: prints its environment.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
int main(int n, char **words) {
  if (n > 1 && !strcmp(words[1], "env")) {
    for (char **entry = environ; *entry; entry++) puts(*entry);
    return 0;
  }
  printf("the image's own program\n");
  return n > 1 ? atoi(words[1]) : 0;
}
"""
GIVEN_S = 900


@functools.cache
def missing() -> str:
    """Why there can be no such roots here, in words; empty: there can."""
    for tool in ("musl-gcc", "busybox", "readelf", "debootstrap"):
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"there is no {tool} here (apt-get install {PACKAGES})"
    if os.geteuid() != 0:
        return "only root makes mounts and changes its root directory"
    done = subprocess.run(["unshare", "-m", "-p", "-f", "true"], capture_output=True, text=True, check=False)
    return f"there are no namespaces to be had: {done.stderr.strip()}" if done.returncode else ""


def scratch(at: Path) -> None:
    """One static program, and nothing else: no shell, no library."""
    _folders(at)
    compiled(PROGRAM, at / "prog", "musl-gcc", "-static")


def busybox(at: Path) -> None:
    """A shell and its tools, and no library."""
    _folders(at)
    (at / "bin").mkdir()
    shutil.copy2(BUSYBOX, at / "bin/busybox")
    for tool in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if tool != "busybox":
            (at / "bin" / tool).symlink_to("busybox")
    compiled(PROGRAM, at / "prog", "musl-gcc", "-static")


def musl(at: Path) -> None:
    """A shell, musl as the C library, and a program that needs it."""
    busybox(at)
    (at / "prog").unlink()
    compiled(PROGRAM, at / "prog", "musl-gcc")
    loader = next(Path("/lib").glob("ld-musl-*.so.1"))
    (at / "lib").mkdir()
    shutil.copy2(loader.resolve(), at / "lib" / loader.name)


def debian_11(at: Path) -> None:
    """glibc 2.31: older than what the tree's Python was linked with. No Python."""
    _debian(at, "bullseye")


def debian_13(at: Path) -> None:
    """glibc 2.41, and a Python 3.13 of the image's own."""
    _debian(at, "trixie", "python3-minimal")


ROOTS: dict[str, Callable[[Path], None]] = {
    "scratch": scratch, "busybox": busybox, "musl": musl, "debian-11": debian_11, "debian-13": debian_13,
}  # fmt: skip


def root(name: str) -> Path:
    """The root directory of this name: made the first time, then found."""
    make = ROOTS[name]
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8] if not name.startswith("debian") else "2"
    return kept(f"root-{name}-{key}", make)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """What `make` has made of a directory of this name, once on this machine; whole or not at all."""
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE / name
    with alone(CACHE / f".{name}.lock"):
        if not place.exists():
            temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=CACHE))
            temporary.chmod(0o755)
            try:
                make(temporary)
                temporary.rename(place)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return place


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process of this machine at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compiled(source: str, to: Path, *compiler: str, more: Sequence[str | Path] = ()) -> Path:
    """A C program, or a library with `-shared` among the words."""
    words = [*compiler, "-Os", "-x", "c", "-o", str(to), "-", *map(str, more)]
    subprocess.run(words, input=source, text=True, check=True, timeout=60)
    return to


def _folders(at: Path) -> None:
    for folder in FOLDERS:
        (at / folder).mkdir(parents=True, exist_ok=True)
    for name, text in (("passwd", PASSWD), ("hosts", HOSTS)):
        if not (at / "etc" / name).exists():
            (at / "etc" / name).write_text(text)


def _debian(at: Path, suite: str, *packages: str) -> None:
    words = ["debootstrap", "--variant=minbase", *([f"--include={','.join(packages)}"] if packages else [])]
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(
        [*words, suite, at, MIRROR], capture_output=True, text=True, check=False, timeout=GIVEN_S, env=env
    )
    if done.returncode:
        raise AssertionError(
            f"debootstrap {suite} ended with {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}"
        )
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(at / folder, ignore_errors=True)
        (at / folder / "partial").mkdir(parents=True)
    _folders(at)
    compiled(PROGRAM, at / "prog", "musl-gcc", "-static")


if __name__ == "__main__":
    for each in sys.argv[1:] or ROOTS:
        print(root(each))
