"""The guard that runs a job itself, because the job is on several nodes: it loses no request to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

#: The supervisor hands back after a SIGTERM, or before it. The next guard waits for the signal that is blocked.
PROGRAM = """
import os, signal, sys, time
from holdfast.act.guard import HandBack, guarded
early = sys.argv[1] == "early"
def supervise(reader):
    if early:
        print("ready", flush=True)
        assert os.read(reader, 2)[0] == signal.SIGTERM
    raise HandBack
def go_on():
    if not early:
        print("ready", flush=True)
        time.sleep(2)
    print("heard", signal.sigwait({signal.SIGTERM}).name, flush=True)
    return 0
sys.exit(guarded(supervise, lambda pid, number: None, go_on))
"""


@pytest.mark.real
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_sigterm_before_the_next_guard_listens_is_kept_for_it(when: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, when], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        os.kill(started.pid, signal.SIGTERM)
        try:
            printed, _ = started.communicate(timeout=60)
        finally:
            started.kill()
    assert (printed, started.returncode) == ("heard SIGTERM\n", 0)
