"""Faults that do not go away: a restart, a reset, isolation; and what waits for the job's own end."""

from __future__ import annotations

import json
import sys

import pytest
from fault_runs import POLLS, STAYS, Live

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real

ASKS_RESTART, IDLE, RETRY, WATCH = "80E01801", "8C0E4E00", "80BB8000", "020000002"


def end_attempts(live: Live, *attempts: int) -> None:
    for attempt in attempts:
        (live.holdfast.dir / f"end-{attempt}").touch()


def standings_shown(live: Live) -> dict[str, str]:
    told = live.holdfast.finish(live.holdfast.start("devices", "--json", **live.env))
    return {row["device"]: row["standing"] for row in json.loads(told.out)["devices"]}


def test_a_fault_that_outlives_the_restart_is_reset_away(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS)
    live.fault(ASKS_RESTART)
    wait_for(holdfast.dir / "up-3-0")
    end_attempts(live, 3)
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 3)
    assert live.resets() == ["gpu0 0 []"]
    assert live.visible(3) == "0,1,2,3"
    assert "still there 1 s after the restart" in ran.err
    assert [one["decision"]["charged"] for one in ran.report["attempts"][:2]] == [False, False]
    assert standings_shown(live)["gpu0"] == "HEALTHY"


def test_a_fault_that_no_reset_ends_is_isolated(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS)
    (holdfast.dir / "stuck").touch()
    live.fault(ASKS_RESTART)
    wait_for(holdfast.dir / "up-3-0")
    end_attempts(live, 3)
    ran = holdfast.finish(live.process)
    assert ran.status == 0
    assert len(live.resets()) == 4
    assert live.visible(3) == "1,2,3"
    assert standings_shown(live)["gpu0"] == "ISOLATED"


def test_without_a_reset_command_the_job_goes_on_without_the_device(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS, HOLDFAST_RESET_COMMAND="")
    live.fault(ASKS_RESTART)
    wait_for(holdfast.dir / "up-3-0")
    end_attempts(live, 3)
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 3)
    assert live.visible(3) == "1,2,3"
    assert ran.report["attempts"][1]["decision"]["avoid"] == ["gpu0"]


def test_a_fault_that_ends_with_the_restart_goes_no_further(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS, heal_s=8)  # a command has to begin and report within that
    live.fault(ASKS_RESTART)
    wait_for(holdfast.dir / "up-2-0")
    live.fault(ASKS_RESTART, "--recover")
    end_attempts(live, 2)
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert not (holdfast.dir / "resets").exists()


def test_a_reset_that_can_wait_stops_no_job_and_comes_when_the_device_is_idle(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS)
    live.fault(IDLE)
    assert standings_shown(live)["gpu0"] == "SUSPECT"
    end_attempts(live, 1)
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)
    assert "the job goes on, and the device is reset when it is idle" in ran.err
    assert not (holdfast.dir / "resets").exists()
    again = holdfast.finish(
        holdfast.start("run", "--no-checks", "--nproc-per-node", "2", holdfast.dir / "job.py", **live.env)
    )
    assert again.status == 0
    assert live.resets() == ["gpu0 0 []"]
    assert standings_shown(live)["gpu0"] == "HEALTHY"


def test_a_reset_that_can_wait_comes_between_two_attempts(holdfast: Holdfast) -> None:
    live = Live(holdfast, STAYS + "if attempt == '1': sys.exit(3)\n")
    live.fault(IDLE)
    end_attempts(live, 1, 2)
    ran = holdfast.finish(live.process)
    assert ran.status == 0
    assert live.resets() == ["gpu0 0 []"]
    assert live.visible(2) == "0,1,2,3"


@pytest.mark.parametrize(("seen", "options", "used"), [("0,1,2,3", (), "1,2,3"), ("0,1", (), "0,1"),
                                                       ("0,1,2,3", ("--once",), "0,1,2,3")])  # fmt: skip
def test_a_request_is_tried_again_elsewhere_while_its_fault_lasts(
    holdfast: Holdfast, seen: str, options: tuple[str, ...], used: str
) -> None:
    live = Live(holdfast, STAYS, CUDA_VISIBLE_DEVICES=seen)
    live.fault(RETRY, *options)
    wait_for(holdfast.dir / "up-2-1")
    end_attempts(live, 2)
    ran = holdfast.finish(live.process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert live.visible(2) == used


def test_grace_lets_the_workers_of_a_watched_device_save(holdfast: Holdfast) -> None:
    job, script = holdfast.dir / "job.yaml", holdfast.script(POLLS, "polls.py")
    worker = {"count": 2, "command": [sys.executable, str(script)]}
    job.write_text(json.dumps({"name": "w", "roles": {"worker": worker}, "on_subhealth": "grace"}))
    live = Live(holdfast, POLLS, "--job", job)
    live.fault(WATCH)
    assert "on_subhealth: grace" in wait_for(holdfast.dir / "saved-0")
    ran = holdfast.finish(live.process)
    assert (ran.status, live.visible(2)) == (0, "1,2,3")
    assert ran.report["attempts"][0]["decision"]["kind"] == "replace"


def test_hot_switch_is_refused_in_words(holdfast: Holdfast) -> None:
    job = holdfast.dir / "job.yaml"
    job.write_text(json.dumps({"name": "w", "roles": {"worker": {"command": ["true"]}}, "on_subhealth": "hotSwitch"}))
    ran = holdfast("run", "--job", job)
    assert ran.status == 2
    assert "a spare worker takes over" in ran.err
    assert "grace" in ran.err
