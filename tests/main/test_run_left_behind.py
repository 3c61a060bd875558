"""When both of holdfast's processes are killed in one instant: what is left is found, and ended where it may be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conftest import Holdfast, wait_for
from holdfast.act.cgroups import ControlGroups
from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.record.lost_owner_report import report_of_loss
from holdfast.record.owner_lock import OwnerInfo, boot_id
from processes import lives

LEAVES_A_GRANDCHILD = """
import pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("grandchild").write_text(str(child.pid))
time.sleep(600)
"""


def kill_both(guard: subprocess.Popen[str]) -> None:
    """Kill the guard and the supervisor in one instant."""
    [supervisor] = psutil.Process(guard.pid).children()
    supervisor.send_signal(signal.SIGSTOP)  # neither may act on the other's death
    guard.send_signal(signal.SIGSTOP)
    os.kill(supervisor.pid, signal.SIGKILL)
    os.kill(guard.pid, signal.SIGKILL)
    guard.communicate(timeout=60)
    psutil.wait_procs([supervisor], timeout=60)


@pytest.mark.key
@pytest.mark.real
@pytest.mark.skipif(not ControlGroups.make("probe").can_limit, reason="no control group may be written here")
def test_the_next_command_kills_what_is_left_in_the_jobs_own_groups(holdfast: Holdfast) -> None:
    script = holdfast.script(LEAVES_A_GRANDCHILD)
    job = holdfast.dir / "job.yaml"
    worker = f"{{count: 1, command: [{sys.executable}, {script}], resources: {{memory: 2G}}}}"
    job.write_text(f"name: lost\nroles: {{worker: {worker}}}\n")
    process = holdfast.start("run", "--no-checks", "--job", job)
    grandchild = int(wait_for(holdfast.dir / "grandchild"))
    kill_both(process)
    assert lives(grandchild), "or this tests nothing"
    shown = holdfast("jobs")
    assert shown.status == 0
    assert not lives(grandchild)
    assert (
        f"1 process lived on in the job's control groups until this command killed them: pid {grandchild}" in shown.err
    )
    assert "lives still" not in shown.err


FORKS_A_GRANDCHILD = """
import os, pathlib, signal, time
child = os.fork()
if not child:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
pathlib.Path("writing").write_text(str(child))
os.rename("writing", "grandchild")
time.sleep(600)
"""


@pytest.mark.real
@pytest.mark.parametrize("how", [[], ["--warm"]], ids=["cold", "warm"])
def test_what_a_warm_worker_leaves_is_named_too(holdfast: Holdfast, how: list[str]) -> None:
    """A fork of a nursery shows the nursery's environment in /proc."""
    process = holdfast.start("run", "--no-checks", *how, holdfast.script(FORKS_A_GRANDCHILD))
    grandchild = int(wait_for(holdfast.dir / "grandchild"))
    try:
        kill_both(process)
        assert lives(grandchild), "or this tests nothing"
        for words in (["jobs"], ["show"]):
            shown = holdfast(*words)
            assert f"pid {grandchild}" in shown.err + shown.out, words
    finally:
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.parametrize(("host", "boot", "asked"), [("here", "now", True), ("n7", "now", False), ("here", "", False)])
def test_only_on_the_machine_and_boot_of_the_job(tmp_path: Path, host: str, boot: str, asked: bool) -> None:
    """On a shared home another node's job can be told of, and its numbers are strangers' here."""
    names = {"here": os.uname().nodename, "now": boot_id()}
    who = OwnerInfo(
        job_id="20260101-0000-abcd",
        name="lost",
        host=names.get(host, host),
        pid=2,
        created=1000.0,
        boot_id=names.get(boot, boot),
    )
    calls: list[str] = []

    def end_left(job: str) -> frozenset[int]:
        calls.append(job)
        return frozenset({4242})

    report, _ = report_of_loss(tmp_path, who, [], (), explain_lost_owner, boot_id=boot_id(), end_left=end_left)
    assert calls == ([who.job_id] if asked else [])
    assert ("pid 4242" in report.report.reason) == asked
