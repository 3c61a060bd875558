"""A node whose own name leads nowhere names the interface for gloo."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conftest import Holdfast
from holdfast.wire.addresses import interface_towards
from netns import missing

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

#: A machine with one cable, whose name nobody resolves.
MACHINE = """
hostname nowhere-at-all && ip link set lo up && ip link add cable0 type veth peer name cable1
ip link set cable0 up && ip link set cable1 up && ip addr add 10.9.0.1/24 dev cable0 && exec "$@"
"""


def _run(holdfast: Holdfast, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = holdfast.script("import os; print('gloo', os.environ.get('GLOO_SOCKET_IFNAME'))")
    run = [sys.executable, "-m", "holdfast", "run", "--no-checks", *words, str(script)]
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--uts", "sh", "-c", MACHINE, "sh", *run],
        cwd=holdfast.dir, env={**holdfast.env, **env}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_workers_get_the_interface_that_leads_to_the_owner(holdfast: Holdfast) -> None:
    many = ("--nnodes", "1:2", "--last-call", "0", "--rdzv-endpoint", "10.9.0.1:29500")
    ran = _run(holdfast, *many)
    assert (ran.returncode, ran.stdout) == (0, "[worker-0] gloo cable0\n"), ran.stderr
    assert "leads to no address that other nodes reach: workers get GLOO_SOCKET_IFNAME=cable0" in ran.stderr
    assert _run(holdfast, *many, GLOO_SOCKET_IFNAME="mine").stdout == "[worker-0] gloo mine\n"
    assert _run(holdfast).stdout == "[worker-0] gloo None\n", "one machine needs none"


def test_a_loopback_address_names_no_interface() -> None:
    assert (
        interface_towards("127.0.0.1")
        == interface_towards("localhost")
        == interface_towards("no.such.host.invalid")
        == ""
    )
