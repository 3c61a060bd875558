"""`holdfast check --slurm` as Slurm's HealthCheckProgram and Prolog, in the environment that slurmd gives."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_slurm import HOLDFAST, USER, USER_NAME, Slurm

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "slurm.md").read_text(encoding="utf-8")
#: A check that fails for as long as the node asks for more room than any disk has.
BROKEN = "disk:paths={home}/data;min_free=900PB"


def checking(slurm: Slurm, *words: str, bad: str = "") -> str:
    """A hook's line: the check of the node; it fails on the node `bad`."""
    (slurm.home / "data").mkdir(exist_ok=True)
    check = f"HOLDFAST_HOME={slurm.state} exec {HOLDFAST} check --slurm {' '.join(words)}"
    broken = BROKEN.format(home=slurm.home)
    return f"if [ \"$SLURMD_NODENAME\" = {bad or 'none'} ]; then {check} '{broken}'; else {check}; fi"


def reason(slurm: Slurm, node: str) -> str:
    return slurm.record(node).get("Reason", "")


def test_a_health_check_in_slurmds_empty_environment_drains_its_node_with_the_reason(slurm: Slurm) -> None:
    slurm.hook("health", checking(slurm, "--drain", bad="n2"))
    slurm.wait(lambda: "DRAIN" in slurm.record("n2")["State"], "n2 is drained")

    assert reason(slurm, "n2").startswith("holdfast: disk: ")
    assert "900" in reason(slurm, "n2")
    assert slurm.idle() == {"n1", "n3"}


def test_several_slurmd_on_one_host_each_drain_their_own_node(slurm_of: Callable[..., Slurm]) -> None:
    slurm = slurm_of(flat=True)
    slurm.hook("health", checking(slurm, "--drain", bad="n3"))
    slurm.wait(lambda: "DRAIN" in slurm.record("n3")["State"], "n3 is drained")

    assert reason(slurm, "n3").startswith("holdfast: disk: ")
    assert slurm.idle() == {"n1", "n2"}


def test_an_operators_reason_is_never_overwritten_and_his_drain_never_ended(slurm: Slurm) -> None:
    slurm("scontrol", "update", "nodename=n1", "state=drain", "reason=replacing a fan")
    broken = BROKEN.format(home=slurm.home)
    failing = slurm.holdfast("check", "--slurm", "--drain", broken, on="n1", env={"SLURMD_NODENAME": "n1"})
    assert failing.wait() == 252
    passing = slurm.holdfast("check", "--slurm", "--drain", "--resume", "clock", on="n1", env={"SLURMD_NODENAME": "n1"})
    assert passing.wait() == 0

    assert "n1 is drained by root (replacing a fan): that is left as it is" in failing.out
    assert reason(slurm, "n1").startswith("replacing a fan [")
    assert "DRAIN" in slurm.record("n1")["State"]


def test_a_node_that_slurm_does_not_know_is_said_to_be_so(slurm: Slurm) -> None:
    ran = slurm.holdfast("check", "--slurm", "clock")
    assert ran.wait() == 0
    assert "Slurm knows no node ctl: SLURMD_NODENAME names the node" in ran.out


def test_holdfasts_own_drain_ends_only_where_that_is_asked_for(slurm: Slurm) -> None:
    def check(*words: str) -> tuple[int, str]:
        ran = slurm.holdfast("check", "--slurm", *words, on="n3")
        return ran.wait(), ran.out

    broken = BROKEN.format(home=slurm.home)
    would, told = check(broken)
    assert (would, "n3" in slurm.idle()) == (252, True)
    assert "n3 would be drained: scontrol update nodename=n3 state=drain 'reason=holdfast: disk: " in told
    assert check("--drain", broken)[0] == 252
    drained = reason(slurm, "n3")
    assert drained.startswith("holdfast: ")
    assert "drained already" in check("--drain", broken)[1]
    assert "stays drained" in check("--drain", "clock")[1]
    assert reason(slurm, "n3") == drained
    assert "n3 is given back to work" in check("--drain", "--resume", "clock")[1]
    slurm.wait(lambda: "n3" in slurm.idle(), "n3 works again")
    assert check("--drain", "--resume", "clock")[1].splitlines()[-1].startswith("PASS: n3")


def test_a_user_who_may_not_drain_is_told_what_an_administrator_types(slurm: Slurm) -> None:
    broken = BROKEN.format(home=slurm.home)
    ran = slurm.holdfast("check", "--slurm", "--drain", "--json", broken, on="n1", user=USER)
    assert ran.wait() == 252
    said = json.loads(ran.out)["slurm"]

    assert (said["action"], said["done"]) == ("drain", False)
    assert said["said"].startswith("n1 is not drained: Slurm does not allow it to this user")
    assert said["command"].startswith("scontrol update nodename=n1 state=drain 'reason=holdfast: disk")
    assert "n1" in slurm.idle()


def test_a_failing_prolog_drains_with_holdfasts_reason_and_the_job_starts_elsewhere(slurm: Slurm) -> None:
    slurm.hook("prolog", checking(slurm, "--drain", bad="n1"))
    job = slurm.sbatch("hostname", "-N1")
    ended = slurm.ended(job)

    assert ended["JobState"] == "COMPLETED"
    assert slurm.output(job).split() == ["n2"]
    assert reason(slurm, "n1").startswith("holdfast: disk: ")
    slurm("scontrol", "requeue", str(job))
    slurm.wait(lambda: slurm.output(job).split() == ["n2"] and slurm.job(job)["Restarts"] == "2", "it ran again")


def test_without_nohold_slurm_holds_the_job_of_a_failing_prolog_and_the_reason_stays(
    slurm_of: Callable[..., Slurm],
) -> None:
    slurm = slurm_of(conf={"SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=2"})
    slurm.hook("prolog", checking(slurm, "--drain", bad="n1"))
    job = slurm.sbatch("hostname", "-N1")
    slurm.wait(lambda: slurm.job(job)["Reason"] == "launch_failed_requeued_held", "the job is held")
    assert reason(slurm, "n1").startswith("holdfast: disk: ")
    slurm("scontrol", "release", str(job))
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    assert slurm.output(job).split() == ["n2"]


def test_the_lines_of_the_page_work_as_they_stand_there(slurm_of: Callable[..., Slurm]) -> None:
    section = PAGE[PAGE.index("## Node health") :]
    conf, script = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:2]
    place = Path(tempfile.mkdtemp(dir="/tmp")) / "holdfast-check"
    try:
        place.write_text(script.replace("/opt/holdfast/bin/holdfast", HOLDFAST))
        place.chmod(0o755)
        place.parent.chmod(0o755)
        lines = dict(line.split("=", 1) for line in conf.splitlines())
        assert lines.pop("HealthCheckInterval") == "300"
        assert lines.pop("HealthCheckProgram") == lines.pop("Prolog") == "/etc/slurm/holdfast-check"
        lines |= {"HealthCheckProgram": str(place), "HealthCheckInterval": "2", "Prolog": str(place)}
        slurm = slurm_of(conf=lines)
        job = slurm.sbatch("srun hostname", "-N3")
        assert slurm.ended(job)["JobState"] == "COMPLETED"
        own = {"HOLDFAST_HOME": "", "HOME": ""}
        words = ("check", "--slurm", "--drain", BROKEN.format(home=slurm.home))
        ran = slurm.holdfast(*words, on="n3", env=own)
        while ran.wait() == 0 and "another check of n3 runs" in ran.err:  # slurmd's own, every two seconds
            ran = slurm.holdfast(*words, on="n3", env=own)
        assert ran.wait() == 252
        slurm.wait(lambda: slurm.idle() == {"n1", "n2"}, "n3 is drained, and its own check leaves it so")
    finally:
        shutil.rmtree(place.parent)


def test_a_slurm_that_does_not_answer_is_no_failure_of_the_node(slurm: Slurm) -> None:
    slurm.ctld_kill()
    node = {"SLURMD_NODENAME": "n1"}
    passes = slurm.holdfast("check", "--slurm", "--drain", "--resume", "clock", on="n1", env=node)
    fails = slurm.holdfast("check", "--slurm", "--drain", BROKEN.format(home=slurm.home), on="n2", env=node)
    assert (passes.wait(), fails.wait()) == (0, 252)
    slurm.ctld_start()

    assert "Slurm was not asked about n1: slurmctld does not answer" in passes.out
    assert "Slurm was not asked about n1: slurmctld does not answer" in fails.out


def test_two_checks_of_a_node_do_not_run_at_once(slurm: Slurm) -> None:
    slow = slurm.home / "slow.sh"
    slow.write_text("#!/bin/sh\ntouch begun\nwhile [ ! -e go ]; do sleep 0.1; done\n")
    slow.chmod(0o755)
    words = ("check", "--slurm", "--plugin", slow, "slow")
    first = slurm.holdfast(*words, on="n1", env={"SLURMD_NODENAME": "n1"})
    slurm.wait((slurm.home / "begun").exists, "the first one runs")
    second = slurm.holdfast("check", "--slurm", "clock", on="n1", env={"SLURMD_NODENAME": "n1"})
    assert (second.wait(), second.err) == (0, "holdfast: another check of n1 is running, so this one does nothing\n")
    (slurm.home / "go").touch()
    assert first.wait() == 0


def hold(slurm: Slurm, **how: Any) -> None:
    """A fault that comes for the third time holds its device."""
    for _ in range(3):
        words = ("faults", "report", "--device", "npu0", "--code", "80E18005", "--once", "--node", "n1")
        assert slurm.holdfast(*words, on="n1", **how).wait() == 0


def test_a_held_device_drains_its_node_and_its_release_gives_the_node_back(slurm: Slurm) -> None:
    slurm.hook("health", checking(slurm, "--drain"))
    hold(slurm)
    check = ("check", "--slurm", "--drain", "standing")
    slurm.wait(lambda: "DRAIN" in slurm.record("n1")["State"], "n1 is drained")
    assert reason(slurm, "n1").startswith("holdfast: standing: npu0 is HELD: ")
    released = slurm.holdfast("release", "npu0", "--reason", "board replaced", on="n1")
    assert released.wait() == 0
    assert "n1 is given back to work" in released.out
    slurm.wait(lambda: "n1" in slurm.idle(), "n1 works again")
    again = slurm.holdfast(*check, on="n1")
    assert again.wait() == 0


def test_a_release_leaves_an_operators_drain_alone(slurm: Slurm) -> None:
    hold(slurm)
    slurm("scontrol", "update", "nodename=n1", "state=drain", "reason=npu0 is HELD by me")
    released = slurm.holdfast("release", "npu0", "--reason", "board replaced", on="n1")
    assert released.wait() == 0
    assert "n1" not in released.out
    assert reason(slurm, "n1").startswith("npu0 is HELD by me")


def test_what_a_users_jobs_hold_drains_the_node_where_the_administrator_believes_them(slurm: Slurm) -> None:
    own = {"HOLDFAST_HOME": str(slurm.home / "of-ada")}
    believing, doubting = ("check", "--slurm", "--drain", "--believe", USER_NAME, "standing"), ("check", "--slurm")
    assert slurm.holdfast(*believing, on="n1").wait() == 0
    hold(slurm, user=USER, env=own)
    assert slurm.holdfast(*doubting, on="n1").wait() == 0
    assert slurm.holdfast(*believing, on="n2").wait() == 0, "another node's"
    assert slurm.holdfast(*believing, on="n1").wait() == 252
    assert reason(slurm, "n1").startswith(f"holdfast: npu0 is HELD by jobs of {USER_NAME}: ")

    released = slurm.holdfast("release", "npu0", "--reason", "board replaced", on="n1", user=USER, env=own)
    assert released.wait() == 0
    assert "n1 is not given back to work: Slurm does not allow it to this user" in released.out
    assert released.out.rstrip().endswith("an administrator types: scontrol update nodename=n1 state=resume")
    assert slurm.holdfast(*believing, "--resume", on="n1").wait() == 0
    slurm.wait(lambda: "n1" in slurm.idle(), "n1 works again")


HELD_RUN = "exec holdfast run --no-checks --report report.json --no-python sleep 600"


def held_in_a_run(slurm: Slurm, **how: Any) -> dict[str, Any]:
    """The report of a run on n2 during which that node's fault comes for the third time."""

    def fault() -> None:
        words = ("faults", "report", "--device", "n2", "--code", "80E18005", "--once", "--node", "n2")
        assert slurm.holdfast(*words, on="n2", **how).wait() == 0

    fault()
    fault()
    job = slurm.sbatch(HELD_RUN, "-w", "n2", **how)
    slurm.wait(lambda: "the worker is up" in slurm.output(job), "it runs")
    fault()
    slurm.ended(job)
    report: dict[str, Any] = json.loads((slurm.home / "report.json").read_text())
    return report


def test_a_hold_in_a_run_drains_the_node_where_its_user_may(slurm: Slurm) -> None:
    held_in_a_run(slurm)
    assert reason(slurm, "n2").startswith("holdfast: n2 is HELD: 80E18005")


def test_a_node_has_slurms_name_where_its_host_has_another(slurm_of: Callable[..., Slurm]) -> None:
    slurm = slurm_of(flat=True)
    held_in_a_run(slurm)
    assert reason(slurm, "n2").startswith("holdfast: n2 is HELD: 80E18005")
    assert slurm.idle() == {"n1", "n3"}


def test_a_hold_in_a_run_of_an_ordinary_user_is_told_in_the_report(slurm: Slurm) -> None:
    report = held_in_a_run(slurm, user=USER)
    assert "n2" in slurm.idle()
    told = [item["text"] for item in report["evidence"] if "drained" in item["text"]]
    assert told, report["evidence"]
