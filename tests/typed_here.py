"""Commands that are typed in this very process: what starts no worker needs no interpreter of its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.cli import main

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM)
#: A command that has not come to its end by then waits for ever.
LIMIT_S = 60

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory; a test file may have a fixture of this name with jobs in it."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path, tmp_path: Path) -> Cli:
    """Type a command: (status, stdout, stderr)."""

    def command(*words: str, columns: int | None = None, stdin: str | None = None, **more: str) -> tuple[int, str, str]:
        env = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        env |= {"HOLDFAST_HOME": str(home)} | ({"COLUMNS": str(columns)} if columns else {})
        done = typed(*words, cwd=tmp_path, env=env | more, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    return command


def typed(*words: str, cwd: Path, env: Mapping[str, str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """`holdfast WORDS` to its end; with `stdin`, or with an empty one. Afterwards this process is as it was."""
    if words[:1] == ("run",):
        # `run` makes its process the guard of a job, which blocks signals.
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, cwd=cwd, env=env, input=stdin or "", capture_output=True, text=True, check=False)
    with ExitStack() as stack:
        stack.enter_context(_surroundings(cwd, env))
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        numbers = [given.fileno(), out.fileno(), err.fileno()]
        if stdin is None:
            numbers[0] = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, numbers[0])
        else:
            os.pwrite(given.fileno(), stdin.encode(), 0)
        with _streams(numbers):
            status = _status(list(words))
        said, told = (os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err))
    return subprocess.CompletedProcess(
        ["holdfast", *words], status, said.decode(errors="replace"), told.decode(errors="replace")
    )


def _status(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as end:
        assert isinstance(end.code, int), end.code
        return end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    raise AssertionError(f"`holdfast {' '.join(words)}` came back")


@contextmanager
def _surroundings(cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """What a command may change of its process: variables, zone, directory, umask, signals, the collector."""
    variables, place, handlers = dict(os.environ), Path.cwd(), {each: signal.getsignal(each) for each in CAUGHT}
    mask = os.umask(0o022)
    os.umask(mask)
    try:
        _become(env)
        os.chdir(cwd)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LIMIT_S)
        yield
    finally:
        signal.alarm(0)
        os.chdir(place)
        _become(variables)
        os.umask(mask)
        gc.enable()
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"the command has not ended within {LIMIT_S} s")


def _become(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


@contextmanager
def _streams(numbers: list[int]) -> Iterator[None]:
    """Standard streams that are these files, for what writes to a descriptor too."""
    streams, kept = (sys.stdin, sys.stdout, sys.stderr), [os.dup(number) for number in range(3)]
    try:
        for number, to in enumerate(numbers):
            os.dup2(to, number)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, from_ in enumerate(kept):
            os.dup2(from_, number)
            os.close(from_)
        sys.stdin, sys.stdout, sys.stderr = streams
