"""Graceful tolerance in live runs: workers save and leave, devices are reset, and the job goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_runs import POLLS, RESET, UP, Live

from conftest import Holdfast
from holdfast import children
from holdfast.decide.faults.fault_policy import GraceTimes
from holdfast.decide.faults.graceful_tolerance import ClearFaults, Isolate, ToleranceAction
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Remedy
from holdfast.node.devices.buffered_log import BufferedFaultLog
from holdfast.node.devices.device_locks import DeviceLocks
from holdfast.node.devices.device_resets import ResetCommand, Resets, words
from holdfast.node.devices.vendor_query import DeviceUsers
from holdfast.observe.devices.device_users import users_of
from holdfast.reactor import Reactor
from processes import idle

__all__ = ["idle"]  # fixtures

pytestmark = pytest.mark.real

IGNORANT = UP + "up()\ntime.sleep(60 if attempt == '1' else 0)\n"


# ---------------------------------------------------------------------------------------------- resets


def test_the_device_is_reset_under_nobody_and_used_again(holdfast: Holdfast) -> None:
    live = Live(holdfast, IGNORANT)
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"]), live.visible(2)) == (0, 2, "0,1,2,3")
    assert live.resets() == ["gpu0 0 []"]
    decision = ran.report["attempts"][0]["decision"]
    assert (decision["kind"], decision["charged"], decision["avoid"]) == ("restart", False, [])
    assert "reset; what was reported there is over" in ran.err
    [gpu0] = [each for each in json.loads(holdfast("devices", "--json").out)["devices"] if each["device"] == "gpu0"]
    assert (gpu0["standing"], gpu0["codes"]) == ("HEALTHY", [])


def test_a_device_whose_resets_fail_is_isolated_and_the_job_goes_on_without_it(holdfast: Holdfast) -> None:
    (holdfast.dir / "stuck").touch()
    live = Live(holdfast, IGNORANT)
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"]), live.visible(2)) == (0, 2, "1,2,3")
    assert live.resets() == ["gpu0 0 []"] * 4
    assert "ended with status 3: the device does not answer" in ran.err
    [gpu0] = [each for each in json.loads(holdfast("devices", "--json").out)["devices"] if each["device"] == "gpu0"]
    assert (gpu0["standing"], gpu0["codes"]) == ("ISOLATED", ["48", "RESET-FAILED"])


def test_a_failed_reset_that_leaves_too_few_places_ends_the_job_with_its_cause(holdfast: Holdfast) -> None:
    (holdfast.dir / "stuck").touch()
    live = Live(holdfast, IGNORANT, CUDA_VISIBLE_DEVICES="0,1")
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, ran.report["phrase"], ran.report["outcome"]) == (161, "AcceleratorMemoryError", "failed")
    last = ran.report["attempts"][-1]
    assert (last["report"]["phrase"], last["decision"]["kind"]) == ("CheckFailed", "fail")
    assert "gpu0" in last["report"]["reason"]


def test_the_whole_group_is_reset_at_once(holdfast: Holdfast) -> None:
    live = Live(holdfast, IGNORANT, "--reset-group", "2")
    live.fault("48")
    assert holdfast.finish(live.process).status == 0
    assert live.resets() == ["gpu0,gpu1 0,1 []"]


def test_a_stop_while_a_device_is_reset_ends_the_job(holdfast: Holdfast) -> None:
    live = Live(holdfast, IGNORANT, HOLDFAST_RESET_COMMAND="sleep 600")
    live.fault("48")
    assert live.process.stderr is not None
    while "resetting gpu0" not in (line := live.process.stderr.readline()):
        assert line, "it ended before the reset"
    live.process.send_signal(signal.SIGINT)
    assert holdfast.finish(live.process).status == 250


def test_the_commands_words() -> None:
    assert words("nvidia-smi --gpu-reset -i {index}", ["gpu3"]) == ["nvidia-smi", "--gpu-reset", "-i", "3"]
    assert words("sh -c 'reset {device} \"$0\"' {x}", ["npu0", "npu1"]) == ["sh", "-c", 'reset npu0,npu1 "$0"', "{x}"]


# ---------------------------------------------------------------------------------------------- resets, alone


class ResetsAlone:
    """Resets of one device, and everything they say and ask."""

    def __init__(self, tmp_path: Path, command: str, reset_s: int = 60) -> None:
        self.reactor = Reactor(lambda: self.now)
        self.actions: list[ToleranceAction] = []
        self.said: list[str] = []
        self.users: dict[int, str] = {}
        self.now = 1000.0
        self.resets = Resets(
            ResetCommand(command, group=1, logs=tmp_path),
            GraceTimes(reset_s=reset_s),
            self.reactor,
            self.heard,
            DeviceUsers(DeviceLocks(tmp_path, "n1", self.said.append), visible=lambda devices: self.users),
            self.said.append,
            BufferedFaultLog(None, default_policy()),
        )

    def heard(self, fd: int, now: float) -> None:
        self.actions += self.resets.ready(fd, now)

    def taken(self) -> list[ToleranceAction]:
        taken, self.actions = self.actions, []
        return taken

    def until(self, kind: type[ToleranceAction]) -> ToleranceAction:
        """Wait for what the processes do until such an action is asked for."""
        for _ in range(100):
            self.reactor.wait(longest_s=20)
            for action in self.taken():
                if isinstance(action, kind):
                    return action
        raise AssertionError(f"no {kind.__name__}: {self.said}")


def worker_lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_reset_waits_for_a_process_that_uses_the_device(tmp_path: Path, idle: subprocess.Popen[bytes]) -> None:
    alone = ResetsAlone(tmp_path, f"touch {tmp_path}/done")
    alone.users = {idle.pid: "notebook"}
    assert alone.resets.level("gpu0", Remedy.RESET_NOW, alone.now) == []
    assert (alone.resets.running, children.helpers()) == (True, frozenset())
    assert f"used by pid {idle.pid} (notebook)" in alone.said[-1]
    alone.users = {}
    idle.kill()
    assert alone.until(ClearFaults) == ClearFaults(devices=("gpu0",))
    assert (tmp_path / "done").exists()
    assert not alone.resets.running
    alone.resets.close()


def test_our_own_watch_is_asked_to_leave_for_a_reset(tmp_path: Path, idle: subprocess.Popen[bytes]) -> None:
    alone = ResetsAlone(tmp_path, "true")
    alone.users = {idle.pid: "holdfast-nvml"}
    alone.resets.level("gpu0", Remedy.RESET_NOW, alone.now)
    assert idle.wait(20) == -signal.SIGTERM
    alone.users = {}
    assert alone.until(ClearFaults) == ClearFaults(devices=("gpu0",))
    assert not any("used by" in text for text in alone.said)
    alone.resets.close()


def test_an_overdue_reset_is_killed_with_its_children_and_tried_again(tmp_path: Path) -> None:
    alone = ResetsAlone(tmp_path, f"sh -c 'sleep 600 & echo $! >> {tmp_path}/children; wait'")
    alone.resets.level("gpu0", Remedy.RESET_NOW, alone.now)
    for tried in range(1, 5):
        limit = time.monotonic() + 60
        while len((tmp_path / "children").read_text().split() if (tmp_path / "children").exists() else []) < tried:
            assert time.monotonic() < limit, alone.said
            alone.reactor.wait(longest_s=0.01)
        due = alone.resets.next_wake()
        assert due == alone.now + 60
        alone.now = due
        asked = alone.resets.tick(alone.now)
        assert tried == 4 or asked == []
    [isolate] = asked
    assert isinstance(isolate, Isolate)
    assert "took longer than 60 s" in isolate.reason
    alone.resets.close()
    deadline = time.monotonic() + 60
    left = set((tmp_path / "children").read_text().split())
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if worker_lives(pid)}
    assert not left, "a child outlived its reset"


def test_a_command_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    alone = ResetsAlone(tmp_path, f"{tmp_path}/no-such-tool {{device}}")
    [isolate] = alone.resets.level("gpu0", Remedy.RESET_NOW, alone.now)
    assert isinstance(isolate, Isolate)
    assert "No such file" in isolate.reason
    alone.resets.close()


def test_who_has_a_device_open_is_seen(tmp_path: Path) -> None:
    for pid, target in (
        ("10", "/dev/nvidia3"),
        ("11", "/dev/nvidia30"),
        ("12", "/dev/davinci3"),
        ("x", "/dev/nvidia3"),
    ):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "comm").write_text("python\n")
        (tmp_path / pid / "fd" / "5").symlink_to(target)
    assert users_of(["gpu3"], tmp_path) == {10: "python"}
    assert users_of(["npu3", "gpu30"], tmp_path) == {11: "python", 12: "python"}
    assert users_of(["node7"], tmp_path) == {}


# ---------------------------------------------------------------------------------------------- saving


def test_workers_that_poll_save_and_leave_and_that_is_no_success(holdfast: Holdfast) -> None:
    live = Live(holdfast, POLLS)
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert "Xid 48" in (holdfast.dir / "saved-0").read_text()
    assert (holdfast.dir / "saved-1").exists()
    told = ran.report["attempts"][0]
    assert (told["report"]["phrase"], told["report"]["collateral"]) == ("AcceleratorMemoryError", [])
    assert told["decision"]["charged"] is False
    assert live.resets() == ["gpu0 0 []"]


@pytest.mark.parametrize("parameter", ["", "notice"])
def test_a_callback_saves_while_the_main_thread_is_busy(holdfast: Holdfast, parameter: str) -> None:
    script = (
        UP
        + f"""
def save({parameter}):
    pathlib.Path(f"saved-{{rank}}").write_text("1")
    sys.exit(0)
holdfast.on_drain(save)
up()
time.sleep(60 if attempt == "1" else 0)
"""
    )
    live = Live(holdfast, script)
    live.fault("80E01801")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert sorted(path.name for path in holdfast.dir.glob("saved-*")) == ["saved-0", "saved-1"]


def test_other_languages_listen_by_a_file_or_by_a_handler(holdfast: Holdfast) -> None:
    script = holdfast.dir / "job.sh"
    script.write_text(
        """
        echo "$CUDA_VISIBLE_DEVICES $$" > up-$HOLDFAST_ATTEMPT-$RANK
        [ $HOLDFAST_ATTEMPT = 1 ] || exit 0
        if [ $RANK = 0 ]; then
            touch $HOLDFAST_DRAIN
            until [ -s $HOLDFAST_DRAIN ]; do sleep 0.05; done
            cat $HOLDFAST_DRAIN > saved-0
        else
            trap 'echo signalled > saved-1; exit 0' USR2
            while :; do sleep 0.05; done
        fi
        """
    )
    live = Live(holdfast, "", "--no-python", "bash", str(script))
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert json.loads((holdfast.dir / "saved-0").read_text())["seconds"] == 90.0
    assert (holdfast.dir / "saved-1").read_text() == "signalled\n"


def test_nobody_waits_for_workers_that_do_not_listen_and_no_signal_hurts_them(holdfast: Holdfast) -> None:
    """One rank saves for a while. The other neither knows of it nor is it killed for that."""
    script = (
        UP
        + """
if rank == "0":
    holdfast.draining()
up()
while attempt == "1":
    time.sleep(0.05)
    if rank == "0" and holdfast.draining():
        time.sleep(1)
        peer = pathlib.Path("up-1-1").read_text().split()[1]
        state = pathlib.Path(f"/proc/{peer}/stat").read_text().rsplit(")", 1)[1].split()[0]
        pathlib.Path("peer").write_text(state)
        sys.exit(0)
"""
    )
    live = Live(holdfast, script)
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert (holdfast.dir / "peer").read_text() in "SR"
    log = ran.job_dir / "attempt-1"
    assert json.loads((log / "worker-1" / "drain").read_text())["seconds"] == 90.0


def test_workers_that_stay_are_stopped_when_their_time_is_over(holdfast: Holdfast) -> None:
    live = Live(holdfast, UP + "holdfast.draining()\nup()\ntime.sleep(60 if attempt == '1' else 0)\n", save_s=5)
    live.fault("48")
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"]), live.resets()) == (0, 2, ["gpu0 0 []"])


def test_a_person_in_a_hurry_cuts_the_saving_short(holdfast: Holdfast) -> None:
    live = Live(holdfast, UP + "holdfast.draining()\nup()\ntime.sleep(600)\n")
    live.fault("48")
    assert live.process.stderr is not None
    while "stopping all workers" not in (line := live.process.stderr.readline()):
        assert line, "it ended before it was stopped"
    live.process.send_signal(signal.SIGINT)
    ran = holdfast.finish(live.process)
    assert (ran.status, ran.report["outcome"]) == (250, "stopped")
    assert not (holdfast.dir / "resets").exists()


def test_outside_of_holdfast_nothing_is_asked_and_nothing_fails() -> None:
    program = (
        "import holdfast, threading; holdfast.on_drain(print); print(holdfast.draining(), threading.active_count())"
    )
    env = {key: value for key, value in os.environ.items() if key != "HOLDFAST_DRAIN"}
    for extra in ({}, {"HOLDFAST_DRAIN": "/no/such/folder/drain"}):
        said = subprocess.run(
            [sys.executable, "-c", program], env={**env, **extra}, capture_output=True, text=True, check=True
        )
        assert (said.stdout, said.stderr) == ("None 1\n", "")


# ---------------------------------------------------------------------------------------------- after a crash


def test_a_crash_between_two_resets_loses_no_try(holdfast: Holdfast) -> None:
    """The supervisor is killed in its second try; the next run goes on with the third, and there are four in all."""
    (holdfast.dir / "stuck").touch()
    live = Live(holdfast, IGNORANT.replace("60 if", "60 if 'SHORT' not in os.environ and"))
    reset = holdfast.dir / "reset"
    reset.write_text(RESET.replace("sleep 0.3", 'if [ "$(wc -l < resets)" = 2 ]; then exec sleep 600; fi'))
    live.fault("48")
    deadline = time.monotonic() + 30
    while not (holdfast.dir / "resets").exists() or len(live.resets()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    live.process.kill()
    holdfast.finish(live.process)
    assert len(live.resets()) == 2
    reset.write_text(RESET)
    again = holdfast.finish(
        holdfast.start("run", "--no-checks", "--nproc-per-node", "2", holdfast.dir / "job.py", SHORT="1", **live.env),
        60,
    )
    assert "gpu0 is SUSPECT and is reset before the start" in again.err
    assert "try 3 of 4" in again.err
    assert live.resets() == ["gpu0 0 []"] * 4
    assert (again.status, live.visible(1)) == (0, "1,2,3")
    assert "RESET-FAILED" in holdfast("devices").out


def test_a_device_that_waits_for_its_reset_is_reset_before_the_next_start(holdfast: Holdfast) -> None:
    live = Live(holdfast, IGNORANT.replace("60 if", "60 if 'SHORT' not in os.environ and"))
    live.process.kill()
    holdfast.finish(live.process)
    live.fault("48")
    again = holdfast.finish(
        holdfast.start("run", "--no-checks", "--nproc-per-node", "2", holdfast.dir / "job.py", SHORT="1", **live.env)
    )
    assert (again.status, live.resets(), live.visible(1)) == (0, ["gpu0 0 []"], "0,1,2,3"), again.err
    assert "HEALTHY" in holdfast("devices").out
