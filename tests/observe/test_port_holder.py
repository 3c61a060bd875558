"""A port that is taken: the report names the process that held it when the worker died, also one of the job's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conftest import Holdfast, free_port
from holdfast.observe.checks.port_holder import find, holder, taken

RANKS = """
import os, socket, time
own = socket.socket()
if os.environ["RANK"] == "2":
    own.bind(("127.0.0.1", {port}))
    {listen}
    open({ready!r}, "w").close()
elif os.environ["RANK"] == "1":
    while not os.path.exists({ready!r}):
        time.sleep(0.01)
    own.bind(("127.0.0.1", {port}))
time.sleep(60)
"""


@pytest.fixture
def unused_port() -> int:
    return free_port()


@pytest.fixture
def other_jobs_worker(unused_port: int) -> Iterator[subprocess.Popen[str]]:
    """A worker of another job: it has bound the port, and does not listen."""
    binds = (
        f"import socket, sys; own = socket.socket(); own.bind(('127.0.0.1', {unused_port}));"
        "print(1, flush=True); sys.stdin.read()"
    )
    env = {**os.environ, "HOLDFAST_JOB": "old-one", "RANK": "3", "HOLDFAST_ATTEMPT": "2"}
    with subprocess.Popen(
        [sys.executable, "-c", binds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "1\n"
        yield child
        child.kill()


@pytest.mark.real
@pytest.mark.parametrize("listen", ["own.listen()", "pass"])
def test_a_rank_of_the_same_job_that_held_the_port_is_named(holdfast: Holdfast, unused_port: int, listen: str) -> None:
    ready = str(holdfast.dir / "ready")
    script = holdfast.script(RANKS.format(port=unused_port, listen=listen, ready=ready))
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script, COLUMNS="400")
    assert ran.report["phrase"] == "AddressInUse"
    assert f"port {unused_port} is held by rank 2 of this job (pid " in ran.err
    assert ", user " in ran.err and ", which runs for " in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel shows a bound socket of another process to root only")
def test_a_worker_of_another_job_that_has_only_bound_the_port_is_named(
    unused_port: int, other_jobs_worker: subprocess.Popen[str]
) -> None:
    assert taken([1, unused_port]) == [unused_port]
    assert holder(unused_port).startswith(f"pid {other_jobs_worker.pid} (") and holder(unused_port).endswith(
        ", rank 3 of job old-one (attempt 2)"
    )


def test_a_process_that_is_not_asked_about_is_not_found(unused_port: int) -> None:
    with socket.socket() as own:
        own.bind(("127.0.0.1", unused_port))
        own.listen()
        assert find(unused_port, [1 << 30]) is None
        assert find(unused_port, [os.getpid()]) == os.getpid()


def test_a_port_without_a_holder_has_none(unused_port: int) -> None:
    assert holder(unused_port) == "" and taken([unused_port]) == []
