"""How fast a file comes over HTTP from this machine: `python -m holdfast.fetch` beside curl, with and without sha256.

Both write to the same disk; holdfast also syncs the file and renames it. The server is this process's own.

    python bench/fetch.py [--runs 5] [--mb 1000] [--write] [--smoke]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from _common import machine, put, spread, surroundings, table

from holdfast.model.fetch_messages import FetchOrder
from holdfast.model.runtime_plan import Prerequisite

HEADER = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "1"\r\nConnection: close\r\n\r\n'


@contextmanager
def served(file: Path) -> Iterator[str]:
    """The URL of a server that sends the file to whoever asks, by sendfile: it costs next to nothing."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer, file.open("rb") as source:
                peer.recv(65536)
                peer.sendall(HEADER % file.stat().st_size)
                try:
                    peer.sendfile(source)
                except OSError:
                    pass  # the client has left

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/file"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def by_curl(url: str, into: Path, env: dict[str, str]) -> None:
    subprocess.run(["curl", "-sS", "--fail", "--noproxy", "*", "-o", str(into), url], env=env, check=True)


def by_holdfast(url: str, into: Path, env: dict[str, str], sha256: str = "") -> None:
    order = FetchOrder(things=(Prerequisite(name="m", uri=url, into=str(into), sha256=sha256),))
    subprocess.run(
        [sys.executable, "-P", "-m", "holdfast.fetch"],
        input=msgspec.json.encode(order),
        env={**env, "no_proxy": "*"},
        check=True,
        capture_output=True,
    )


def measure(one: Callable[[], None], into: Path) -> float:
    """Seconds until it has ended and its bytes are on the disk."""
    shutil.rmtree(into.parent, ignore_errors=True)
    into.parent.mkdir()
    began = time.perf_counter()
    one()
    fd = os.open(into, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="one small run of each")
    given = parser.parse_args()
    runs, size = (1, 20_000_000) if given.smoke else (given.runs, given.mb * 1_000_000)
    with tempfile.TemporaryDirectory() as top:
        file, into, env = Path(top) / "file", Path(top) / "o" / "m", surroundings(Path(top))
        block = os.urandom(1 << 20)
        with file.open("wb") as out:
            for at in range(0, size, len(block)):
                out.write(block[: size - at])
        digest = hashlib.sha256(file.read_bytes()).hexdigest() if size < 1 << 31 else ""
        with served(file) as url:
            ways: dict[str, Callable[[], None]] = {
                "holdfast": lambda: by_holdfast(url, into, env),
                "holdfast, sha256": lambda: by_holdfast(url, into, env, digest),
            }
            if shutil.which("curl"):
                ways = {"curl": lambda: by_curl(url, into, env), **ways}
            took: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(runs):
                # In turn, so that what else this machine does falls on all.
                for name, one in ways.items():
                    took[name].append(measure(one, into))
                    assert into.stat().st_size == size
    rows = [
        [name, spread(seconds, "s", 2), spread([size / 1e6 / each for each in seconds], "MB/s", 0)]
        for name, seconds in took.items()
    ]
    text = f"{size / 1e6:.0f} MB, {runs} runs each, {machine()}\n\n" + table(["", "time", "rate"], rows)
    sys.stdout.write(f"{text}\n")
    if given.write:
        put("fetch", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
