"""podman with images and containers of the tests' own, below the tests' cache: nothing is asked of a registry.

Its layers stay from one run of the tests to the next, so that a build repeats only what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from containers import Done
from roots import CACHE, alone, kept, root

SOURCE = Path(__file__).parent.parent.parent
BASE, IMAGE = "localhost/holdfast-base:trixie", "localhost/holdfast:tests"
EXTRAS = ("kubernetes", "data", "nvidia", "stacks")
#: Debian 13's.
PYTHON = "3.13"
_SHIM = """#!/bin/sh -e
# The runtime may not raise this process's limits: it is asked for none.
previous=
for word in "$@"; do
  case $previous in
    --bundle | -b)
      python3 -c '
import json, pathlib, sys
path = pathlib.Path(sys.argv[1], "config.json")
told = json.loads(path.read_text())
if told.get("process", {}).pop("rlimits", None) is not None:
    path.write_text(json.dumps(told))' "$word" ;;
  esac
  previous=$word
done
exec runc "$@"
"""
_CONF = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "shim"
[engine.runtimes]
shim = ["{shim}"]
"""


@functools.cache
def missing() -> str:
    """Why no image can be built here, in words; empty: one can."""
    for tool in ("podman", "runc"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here (apt-get install podman runc)"
    return ""


def podman(*words: str | Path, timeout_s: float = 600) -> Done:
    """One command of podman's, on the storage of the tests."""
    place = CACHE / "podman"
    place.mkdir(parents=True, exist_ok=True)
    shim = place / "shim"
    conf = place / "containers.conf"
    if not shim.exists():
        shim.write_text(_SHIM)
        shim.chmod(0o755)
    conf.write_text(_CONF.format(shim=shim))
    own: list[str | Path] = [
        "--root",
        place / "storage",
        "--runroot",
        Path(tempfile.gettempdir(), "holdfast-tests-podman"),
    ]
    done = subprocess.run(
        ["podman", *own, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        env={**os.environ, "CONTAINERS_CONF": str(conf)},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def have(image: str, name: str) -> str:
    """An image of one of the tests' root directories."""
    with alone(CACHE / ".import.lock"):
        if podman("image", "exists", image).status:
            with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
                subprocess.run(["tar", "-C", root(name), "-cf", archive.name, "."], check=True)
                done = podman("import", archive.name, image)
                assert done.status == 0, done.err
    return image


def wheels() -> Path:
    """What pip needs inside, fetched outside: there this machine's own index and certificates are known."""
    text = (SOURCE / "pyproject.toml").read_bytes()
    told = tomllib.loads(text.decode())
    project, extras = told["project"], told["project"]["optional-dependencies"]
    wanted = [*told["build-system"]["requires"], *project["dependencies"]]
    wanted += [each for extra in EXTRAS for each in extras[extra]]

    def fetch(at: Path) -> None:
        words = ["-q", "-d", str(at), "--python-version", PYTHON, "--only-binary=:all:"]
        subprocess.run([sys.executable, "-m", "pip", "download", *words, *wanted], check=True, timeout=600)

    return kept(f"wheels-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]}", fetch)


def build() -> Done:
    """The Containerfile, on Debian 13. Its apt has the machine's own network, its pip a folder of wheels."""
    base = have(BASE, "debian-13")
    given = [f"--volume={wheels()}:/wheels:ro", "--build-arg=PIP_NO_INDEX=1", "--build-arg=PIP_FIND_LINKS=/wheels"]
    given.append("--build-arg=LOCK=")  # the folder has the newest wheels
    how = ["--network=host", "--isolation=chroot", f"--build-arg=BASE={base}", *given]
    with alone(CACHE / ".build.lock"):
        done = podman("build", *how, "--file", SOURCE / "Containerfile", "--tag", IMAGE, SOURCE, timeout_s=1500)
        # Each state of the source leaves layers behind.
        podman("image", "prune", "--force", "--filter=until=168h")
        return done
