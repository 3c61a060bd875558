"""A machine that has ::1 alone, and no 127.0.0.1."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conftest import Holdfast
from netns import missing

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

ONLY_IPV6 = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"'


def _run(holdfast: Holdfast, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", ONLY_IPV6, "sh", *words],
        cwd=holdfast.dir, env=holdfast.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_workers_meet_at_the_loopback_address_that_there_is(holdfast: Holdfast) -> None:
    script = holdfast.script("""
        import os, socket
        with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), family=socket.AF_INET6):
            print("at", os.environ["MASTER_ADDR"])
        """)
    ran = _run(holdfast, sys.executable, "-m", "holdfast", "run", "--no-checks", str(script))
    assert (ran.returncode, ran.stdout) == (0, "[worker-0] at ::1\n"), ran.stderr


def test_two_nodes_on_such_a_machine(holdfast: Holdfast) -> None:
    holdfast.script("print('up')")
    words = "python -m holdfast run --no-checks --nnodes 2 --rdzv-endpoint [::1]:29479 --join-timeout 60"
    both = f"{words} --node-rank 1 job.py & {words} --node-rank 0 job.py && wait $!"
    ran = _run(holdfast, "sh", "-c", both.replace("python", sys.executable))
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["[worker-0] up", "[worker-1] up"]
