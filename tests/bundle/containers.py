"""A container as a pod's: a root directory of its own, the exchange directory read-only in it, and a command as PID 1.

Its processes have their own numbers and mounts; all of them end with it. No container engine is asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from roots import CACHE, kept

from holdfast.bundle.tree_build import build, fingerprint
from holdfast.bundle.tree_copy import lay_down

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAI = "/usr/local/pai"
#: A user without a name, as OpenShift gives one to each project.
SOMEBODY = 1000660000
_OLD_S, _MOST = 86_400.0, 8
_MOUNTS = r"""
set -e
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs -o mode=755 dev "$ROOT/dev"
for node in null zero full random urandom tty; do
  : > "$ROOT/dev/$node"
  mount --bind "/dev/$node" "$ROOT/dev/$node"
done
ln -s /proc/self/fd "$ROOT/dev/fd"
if [ "$SHM" = 1 ]; then
  mkdir "$ROOT/dev/shm"
  mount -t tmpfs -o mode=1777,size=64m shm "$ROOT/dev/shm"
else
  mount -o remount,ro "$ROOT/dev"
fi
mount --bind "$PAI" "$ROOT/usr/local/pai"
if [ "$PREPARES" != 1 ]; then mount -o remount,bind,ro "$ROOT/usr/local/pai"; fi
if [ "$READ_ONLY" = 1 ]; then mount -o remount,bind,ro "$ROOT"; fi
cd /
exec "$@"
"""


@dataclass(frozen=True)
class Done:
    """One finished command."""

    status: int
    out: str
    err: str

    def of_worker(self) -> list[str]:
        """What the job's worker printed."""
        return [line.removeprefix("[task-0] ") for line in self.out.splitlines() if line.startswith("[task-0] ")]


@dataclass(frozen=True)
class Container:
    """What a pod says of a container. `Container(root, pai).run("true")` runs one."""

    root: Path
    pai: Path
    read_only: bool = False
    uid: int | None = None
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOLDFAST_HOME": "/dev/shm/home"})
    #: Whether /dev/shm is there, where each user may write.
    shm: bool = True
    #: A program of this machine, with its words, that runs the command as its own.
    below: tuple[str, ...] = ()
    #: It may write into the exchange directory, as an init container does.
    prepares: bool = False

    def __call__(self, *words: str, timeout_s: float = 60) -> Done:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The command, as the container's process 1; the process itself is `unshare`, whose child that is."""
        given = [f"{name}={value}" for name, value in self.env.items()]
        user = [f"--userspec={self.uid}:0", "--groups="] if self.uid is not None else []
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _MOUNTS, "sh"]
        return subprocess.Popen(
            [*unshare, *self.below, "env", "-i", *given, "/usr/sbin/chroot", *user, self.root, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={
                "PATH": os.environ["PATH"],
                "ROOT": str(self.root),
                "PAI": str(self.pai),
                "READ_ONLY": str(int(self.read_only)),
                "SHM": str(int(self.shm)),
                "PREPARES": str(int(self.prepares)),
            },
        )

    def run(self, user_cmd: str, **env: str) -> Done:
        """The start command of a task's container."""
        return self.given({"USER_CMD": user_cmd, **env})(f"{PAI}/run")

    def given(self, env: Mapping[str, str]) -> Container:
        """The same with further variables."""
        return replace(self, env={**self.env, **env})

    def without(self, name: str) -> Container:
        return replace(self, env={key: value for key, value in self.env.items() if key != name})


ImageOf = Callable[..., Container]


def exchange() -> Path:
    """An exchange directory with a tree of this very source, built once for each state of it."""
    place = kept(f"pai-{fingerprint()}", _lay)
    place.touch()
    others = sorted(CACHE.glob("pai-*"), key=lambda path: path.stat().st_mtime)
    for other in others[:-_MOST]:
        if other.stat().st_mtime < time.time() - _OLD_S:
            shutil.rmtree(other, ignore_errors=True)
    return place


def _lay(at: Path) -> None:
    tree = at.with_name(f"{at.name}.tree")
    try:
        build(tree)
        lay_down(tree, at)
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def copied(root: Path, to: Path) -> Path:
    """A root of the test's own, which may be changed."""
    # Its devices stay where they are: /dev/full, read as a file, never ends.
    shutil.copytree(root, to, symlinks=True, ignore=lambda at, names: names if at == str(root / "dev") else ())
    return to
