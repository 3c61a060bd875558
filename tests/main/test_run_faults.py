"""Faults in live runs: what each level does to the job, where faults come from, and how the report tells it."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast, Ran, wait_for

pytestmark = pytest.mark.real

#: The first attempt stays until `go` says what to do (or nothing: it ends well); later ones are done at once.
STAYS_UP_ONCE = """
import os, pathlib, time
attempt, rank = os.environ["HOLDFAST_ATTEMPT"], os.environ["RANK"]
mark = pathlib.Path(f"up-{attempt}-{rank}")
mark.with_suffix(".new").write_text(os.environ["CUDA_VISIBLE_DEVICES"] + " " + str(os.getpid()))
mark.with_suffix(".new").rename(mark)
if attempt == "1":
    for _ in range(600):
        if pathlib.Path("go").exists():
            exec(pathlib.Path("go").read_text())
            break
        time.sleep(0.05)
"""
QUICK_RULES = "grace: {heal_s: 1, save_s: 5}\n"


class ReportedRun:
    """One job on four devices, with two workers, that is up."""

    def __init__(self, holdfast: Holdfast, *options: str | Path, script: str = STAYS_UP_ONCE, **env: str) -> None:
        self.holdfast = holdfast
        rules = holdfast.dir / "rules.yaml"
        if not rules.exists():
            rules.write_text(QUICK_RULES)
        self.settings = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HOLDFAST_FAULT_RULES": str(rules), **env}
        job = options if "--job" in options else ("--nproc-per-node", "2", *options, holdfast.script(script))
        self.process = holdfast.start("run", "--no-checks", "--grace", "2", *job, **self.settings)
        for rank in range(2):
            wait_for(holdfast.dir / f"up-1-{rank}")

    def report(self, code: str, *options: str, device: str = "gpu0") -> str:
        ran = self.tell("faults", "report", "--device", device, "--code", code, *options)
        assert ran.status == 0, ran.err
        return ran.out

    def tell(self, *args: str | Path) -> Ran:
        """Another holdfast command with the same settings."""
        return self.holdfast.finish(self.holdfast.start(*args, **self.settings))

    def again(self) -> Ran:
        """The same job once more, after this one."""
        self.go()
        return self.tell("run", "--no-checks", "--nproc-per-node", "2", self.holdfast.dir / "job.py")

    def go(self, what: str = "") -> None:
        fresh = self.holdfast.dir / "go.new"
        fresh.write_text(what or "pass")
        fresh.rename(self.holdfast.dir / "go")

    def finish(self) -> Ran:
        return self.holdfast.finish(self.process)

    @property
    def job_dir(self) -> Path:
        [found] = (self.holdfast.home / "jobs").iterdir()
        return found


def visible(holdfast: Holdfast, attempt: int) -> str:
    return (holdfast.dir / f"up-{attempt}-0").read_text().split()[0]


def first(ran: Ran) -> dict[str, Any]:
    """The first attempt's report and decision in one."""
    attempt: dict[str, Any] = ran.report["attempts"][0]
    return {**attempt["report"], **{f"decision_{key}": value for key, value in attempt["decision"].items()}}


# ---------------------------------------------------------------------------------------------- what each level does


@pytest.mark.key
@pytest.mark.parametrize(
    ("code", "phrase", "avoided"),
    [
        ("79", "AcceleratorLost", ["gpu0"]),
        ("80BB8000", "NicFault", ["gpu0"]),
        ("80E01801", "AcceleratorMemoryError", []),
        ("48", "AcceleratorMemoryError", ["gpu0"]),
    ],
    ids=["isolate", "retry-request", "restart-workers", "reset-without-command"],
)
def test_the_job_is_stopped_and_goes_on(holdfast: Holdfast, code: str, phrase: str, avoided: list[str]) -> None:
    live = ReportedRun(holdfast)
    live.report(code)
    ran = live.finish()
    told = first(ran)
    assert (ran.status, ran.report["outcome"], len(ran.report["attempts"])) == (0, "succeeded", 2)
    assert (told["phrase"], told["blame"], told["devices"]) == (phrase, "hardware", ["gpu0"])
    assert (told["decision_charged"], told["decision_avoid"]) == (False, avoided)
    assert told["decision_kind"] == ("replace" if avoided else "restart")
    assert visible(holdfast, 2) == ("1,2,3" if avoided else "0,1,2,3")
    assert ("there is no reset-command" in ran.err) == (code == "48")


@pytest.mark.key
def test_a_held_device_stays_out_of_this_job_and_of_the_next(holdfast: Holdfast) -> None:
    (holdfast.dir / "rules.yaml").write_text(
        "frequency: [{codes: [80E01801], times: 1, window_s: 3600, remedy: HOLD}]\n" + QUICK_RULES
    )
    command = '[ "$HOLDFAST_EVENT" = device_held ] && cat > held.json || true'
    live = ReportedRun(holdfast, "--on-event", command)
    assert "HELD" in live.report("80E01801")
    assert live.finish().status == 0
    told = json.loads((holdfast.dir / "held.json").read_text())
    assert (told["event"], told["device"], told["code"]) == ("device_held", "gpu0", "80E01801")
    assert visible(holdfast, 2) == "1,2,3"
    again = live.again()
    assert again.status == 0
    assert "gpu0 is HELD and gets no work" in again.err
    assert visible(holdfast, 1) == "1,2,3"


def test_a_fault_that_heals_disturbs_nobody(holdfast: Holdfast) -> None:
    # The longest time that the rules allow: the test heals the fault itself, and waits for no part of it.
    (holdfast.dir / "rules.yaml").write_text("grace: {heal_s: 30, save_s: 5}\n")
    live = ReportedRun(holdfast)
    live.report("80E01801")
    live.report("80E01801", "--recover")
    live.go()
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)
    assert "has 30 s to heal" in ran.err


def test_an_avoided_device_is_left_at_the_next_attempt_only(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast)
    live.report("8118043C")
    live.go("raise SystemExit(3)")
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"]), visible(holdfast, 2)) == (0, 2, "1,2,3")
    assert "stopping all workers: 8118043C" not in ran.err


def test_more_workers_than_devices_all_leave_a_lost_one(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast, "--nproc-per-node", "4", CUDA_VISIBLE_DEVICES="0,1")
    live.report("79", device="gpu1")
    ran = live.finish()
    told = first(ran)
    assert (ran.status, told["phrase"], told["devices"]) == (0, "AcceleratorLost", ["gpu1"])
    assert [wait_for(holdfast.dir / f"up-2-{rank}").split()[0] for rank in range(4)] == ["0"] * 4
    live.go()
    again = live.tell("run", "--no-checks", "--nproc-per-node", "4", holdfast.dir / "job.py")
    assert again.status == 0
    assert "gpu1 is ISOLATED and gets no work" in again.err


def test_a_roles_own_devices_are_left_by_that_role_only(holdfast: Holdfast) -> None:
    """What the job file names wins over the environment, but not over a fault."""
    script = holdfast.script(STAYS_UP_ONCE)
    job = holdfast.dir / "job.yaml"
    command = [sys.executable, str(script)]
    roles = {
        name: {"count": 1, "command": command, "env": {"CUDA_VISIBLE_DEVICES": devices}}
        for name, devices in (("actor", "0,1"), ("critic", "2,3"))
    }
    job.write_text(json.dumps({"name": "pair", "roles": roles}))
    live = ReportedRun(holdfast, "--job", job)
    live.report("79", device="gpu2")
    ran = live.finish()
    assert (ran.status, first(ran)["devices"]) == (0, ["gpu2"])
    assert [wait_for(holdfast.dir / f"up-2-{rank}").split()[0] for rank in range(2)] == ["0,1", "3"]


def test_a_device_that_nobody_uses_concerns_nobody(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast)
    live.report("79", device="gpu3")
    live.go()
    assert len(live.finish().report["attempts"]) == 1


@pytest.mark.parametrize("strategy", ["ignore", "grace", "force"])
def test_a_watched_fault_follows_the_jobs_own_strategy(holdfast: Holdfast, strategy: str) -> None:
    script = holdfast.script(STAYS_UP_ONCE)
    job = holdfast.dir / "job.yaml"
    worker = {"count": 2, "command": [sys.executable, str(script)]}
    job.write_text(json.dumps({"name": "watched", "roles": {"worker": worker}, "on_subhealth": strategy}))
    live = ReportedRun(holdfast, "--job", job)
    live.report("020000002")
    if strategy == "ignore":
        live.go()
    ran = live.finish()
    assert ran.status == 0
    assert len(ran.report["attempts"]) == (1 if strategy == "ignore" else 2)
    if strategy != "ignore":
        assert visible(holdfast, 2) == "1,2,3"
        told = first(ran)
        assert (told["blame"], told["decision_kind"], told["decision_charged"]) == ("hardware", "replace", False)
        assert told["devices"] == ["gpu0"]


def test_an_inference_job_is_left_alone_for_a_minute(holdfast: Holdfast) -> None:
    """A fault that is older than that already stops it at once."""
    script = holdfast.script(STAYS_UP_ONCE)
    job = holdfast.dir / "job.yaml"
    worker = {"count": 2, "command": [sys.executable, str(script)]}
    job.write_text(json.dumps({"name": "serves", "kind": "inference", "roles": {"worker": worker}}))
    live = ReportedRun(holdfast, "--job", job)
    live.report("80BB8000", device="gpu1")
    live.report("80BB8003", "--at", str(time.time() - 61))
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert first(ran)["decision_avoid"] == ["gpu0"]
    assert visible(holdfast, 2) == "1,2,3"


def test_an_inference_job_is_stopped_when_the_minute_is_over(holdfast: Holdfast) -> None:
    """The fault is 56 s old when it is reported: it is left alone until it is 60 s old."""
    script = holdfast.script(STAYS_UP_ONCE)
    job = holdfast.dir / "job.yaml"
    worker = {"count": 2, "command": [sys.executable, str(script)]}
    job.write_text(json.dumps({"name": "serves", "kind": "inference", "roles": {"worker": worker}}))
    live = ReportedRun(holdfast, "--job", job)
    began = time.time() - 56
    live.report("80BB8000", "--at", str(began))
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    told = first(ran)
    assert (told["decision_avoid"], visible(holdfast, 2)) == (["gpu0"], "1,2,3")
    assert "for longer than 60 s" in ran.err
    assert ran.report["attempts"][0]["ended_at"] > began + 60


def test_too_few_places_end_the_job_with_the_cause(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast, CUDA_VISIBLE_DEVICES="0,1")
    live.report("79")
    ran = live.finish()
    assert (ran.status, ran.report["phrase"], ran.report["outcome"]) == (160, "AcceleratorLost", "failed")
    assert "too few places" in ran.report["attempts"][-1]["decision"]["reason"]


def test_a_rule_that_would_take_too_many_asks_a_person_and_a_dry_one_only_speaks(holdfast: Holdfast) -> None:
    (holdfast.dir / "rules.yaml").write_text(
        "codes: {TRIAL-1: NONE, TRIAL-2: NONE}\n"
        "frequency:\n"
        "  - {codes: [TRIAL-1], times: 1, window_s: 3600, remedy: ISOLATE}\n"
        "  - {codes: [TRIAL-2], times: 1, window_s: 3600, remedy: ISOLATE, dry_run: true}\n"
    )
    live = ReportedRun(holdfast, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7")
    for device in ("gpu7", "gpu6"):
        live.report("TRIAL-1", device=device)
    live.report("TRIAL-1", device="gpu0")
    live.report("TRIAL-2", device="gpu1")
    live.go()
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)
    assert "gpu0: the rule" in ran.err
    assert "nothing is done" in ran.err
    assert "gpu1: the dry-run rule" in ran.err


def test_a_device_released_in_mid_job_is_for_the_next_job(holdfast: Holdfast) -> None:
    (holdfast.dir / "rules.yaml").write_text(
        "codes: {TRIAL-1: NONE}\nfrequency: [{codes: [TRIAL-1], times: 1, window_s: 3600, remedy: HOLD}]\n"
    )
    live = ReportedRun(holdfast, script=STAYS_UP_ONCE.replace('attempt == "1"', 'attempt in "12"'))
    live.report("TRIAL-1")
    wait_for(holdfast.dir / "up-2-0")
    assert "→ HEALTHY" in live.tell("release", "gpu0", "--reason", "new cable").out
    live.go("raise SystemExit(3)")
    assert live.finish().status == 0
    assert visible(holdfast, 3) == "1,2,3"
    again = live.again()
    assert (again.status, visible(holdfast, 1)) == (0, "0,1,2,3")


# ---------------------------------------------------------------------------------------------- where they come from


def _socket(live: ReportedRun, line: dict[str, Any]) -> None:
    path = live.job_dir / "faults.sock"
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    # The path may be longer than an address may be: it is given from within its folder.
    program = (
        "import socket, sys; peer = socket.socket(socket.AF_UNIX); peer.connect('faults.sock');"
        "peer.sendall(sys.stdin.buffer.read()); print(peer.recv(999).decode())"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=live.job_dir,
        input=json.dumps(line) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(said.stdout) == {"ok": True}, said


def _fault_line(live: ReportedRun, line: dict[str, Any]) -> None:
    with (live.job_dir / "faults.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("way", [_socket, _fault_line])
def test_json_lines_reach_the_job(holdfast: Holdfast, way: Callable[[ReportedRun, dict[str, Any]], None]) -> None:
    live = ReportedRun(holdfast)
    way(live, {"who": "pingmesh", "at": time.time(), "device": "gpu0", "code": "79", "text": "it is gone"})
    ran = live.finish()
    told = first(ran)
    assert (ran.status, told["phrase"], told["decision_avoid"]) == (0, "AcceleratorLost", ["gpu0"])
    assert "pingmesh" in told["evidence"][0]["source"]
    assert "it is gone" in told["reason"]


def test_a_file_of_ascend_events(holdfast: Holdfast) -> None:
    events = holdfast.dir / "events.jsonl"
    events.touch()
    script = STAYS_UP_ONCE.replace("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
    process = holdfast.start(
        "run", "--no-checks", "--grace", "2", "--nproc-per-node", "2", "--ascend-events", events,
        holdfast.script(script), ASCEND_RT_VISIBLE_DEVICES="0,1,2",
    )  # fmt: skip
    wait_for(holdfast.dir / "up-1-1")
    line = {"EventID": "0x80E39200", "LogicID": 1, "Assertion": 1, "Severity": 3, "AlarmRaisedTime": time.time() * 1000}
    with events.open("a") as file:
        file.write(json.dumps(line) + "\n")
    ran = holdfast.finish(process)
    assert (ran.status, first(ran)["devices"], visible(holdfast, 2)) == (0, ["npu1"], "0,2")


@pytest.mark.key
def test_the_kernels_line_about_a_worker_names_its_device(holdfast: Holdfast) -> None:
    """No source tells here which device sits at this address; the process in the line does."""
    log = holdfast.dir / "kern.log"
    log.touch()
    live = ReportedRun(holdfast, "--kernel-log", log)
    pid = (holdfast.dir / "up-1-1").read_text().split()[1]
    with log.open("a") as file:
        file.write(f"NVRM: Xid (PCI:0000:3b:00): 79, pid='{pid}', name=python, GPU has fallen off the bus.\n")
    ran = live.finish()
    told = first(ran)
    assert (ran.status, told["phrase"], told["devices"], visible(holdfast, 2)) == (
        0,
        "AcceleratorLost",
        ["gpu1"],
        "0,2,3",
    )
    assert "fallen off the bus" in told["reason"]


def test_a_node_that_cannot_write_ends_the_job_with_the_cause(holdfast: Holdfast) -> None:
    log = holdfast.dir / "kern.log"
    log.touch()
    live = ReportedRun(holdfast, "--kernel-log", log)
    with log.open("a") as file:
        file.write("EXT4-fs (sda1): Remounting filesystem read-only\n")
    ran = live.finish()
    assert (ran.report["phrase"], ran.report["outcome"]) == ("ReadOnlyFilesystem", "failed")
    assert ran.report["devices"] == [socket.gethostname()]
    assert ran.report["attempts"][0]["decision"]["charged"] is False


def test_one_kernel_line_counts_once_whoever_reads_it(holdfast: Holdfast) -> None:
    log = holdfast.dir / "kern.log"
    log.touch()
    script = holdfast.script("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n")
    processes = [
        holdfast.start("run", "--no-checks", "--kernel-log", log, script, CUDA_VISIBLE_DEVICES=str(number))
        for number in range(2)
    ]
    deadline = time.monotonic() + 30
    while len(list(holdfast.home.glob("jobs/*/faults.sock"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    with log.open("a") as file:
        file.write("sd 0:0:0:0: [sda] I/O error, dev sda, sector 5\n")

    def counts() -> list[dict[str, Any]]:
        found = holdfast("devices", "--json").out
        return [entry for entry in json.loads(found)["devices"] if "NODE-DISK-IO" in entry["codes"]]

    while not counts() and time.monotonic() < deadline:
        time.sleep(0.1)
    (holdfast.dir / "go").touch()
    said = [holdfast.finish(process) for process in processes]
    assert [ran.status for ran in said] == [0, 0]
    events = [line for ran in said for line in ran.err.splitlines() if "(NODE-DISK-IO)" in line]
    assert len(events) == 2, "each job says it once"
    import sqlite3

    with sqlite3.connect(holdfast.home / "holdfast.db") as db:
        [(count,)] = db.execute("SELECT count(*) FROM fault_log WHERE kind = 'event'")
    db.close()
    assert count == 1


def test_a_person_who_would_stop_a_job_is_asked_first(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", holdfast.script(STAYS_UP_ONCE), CUDA_VISIBLE_DEVICES="0")
    wait_for(holdfast.dir / "up-1-0")
    words = ("faults", "report", "--device", "gpu0", "--code", "79")
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [holdfast.python, "-m", "holdfast", *words],
        env=holdfast.env, cwd=holdfast.dir, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(ours, b"n\n")
    out, err = asked.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    [job] = json.loads(holdfast("jobs", "--json").out)["jobs"]
    assert asked.returncode != 0 and out == ""
    assert f"it stops workers that use gpu0, of job ({job['id']})" in err and "Report it?" in err
    assert json.loads(holdfast("devices", "--json").out)["devices"] == [], "nothing was noted"
    assert job["state"] == "running"
    told = holdfast(*words)
    assert (told.status, "it stops workers that use gpu0" in told.err) == (0, True), "a script is not asked"
    report = holdfast.finish(process).report
    assert report["attempts"][0]["report"]["phrase"].startswith("Accelerator")


def test_what_a_check_finds_during_the_job_is_reported_as_that_check(holdfast: Holdfast) -> None:
    plugin = holdfast.script(
        """
        import pathlib
        from holdfast.checks import AvoidNode, PreCheckOperator, Verdict

        class Fan(PreCheckOperator):
            @classmethod
            def get_running_interval_secs(cls):
                return 0.5
            def check(self, **context):
                if pathlib.Path("hot").exists():
                    pathlib.Path("hot").unlink()  # the next look finds nothing
                    return Verdict(1, "the fan of gpu0 stands still", ["here"], devices=["gpu0"])
                return Verdict(0, "all fans turn")
            def failed_actions(self, **context):
                return [AvoidNode("fan")]
        """,
        "fan.py",
    )
    process = holdfast.start(
        "run", "--checks", "fan", "--plugin", plugin, "--grace", "2", "--nproc-per-node", "2",
        holdfast.script(STAYS_UP_ONCE), CUDA_VISIBLE_DEVICES="0,1,2,3",
    )  # fmt: skip
    wait_for(holdfast.dir / "up-1-1")
    (holdfast.dir / "hot").write_text("1")
    ran = holdfast.finish(process)
    first = ran.report["attempts"][0]["report"]
    assert (first["phrase"], first["devices"]) == ("CheckFailed", ["gpu0"])
    assert "check fan failed during the job: here: the fan of gpu0 stands still" in first["reason"]
    assert not ran.report["attempts"][1]["checks"]["reused"], "the pass before it does not count any more"
    assert holdfast("devices", "--json").out.count("CHECK") == 0


# ---------------------------------------------------------------------------------------------- fault and exit


SEGFAULT = """
import signal
time.sleep(3 if rank == "0" else 60)
os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.parametrize("code", ["80E01801", "94"])
def test_a_segfault_after_a_memory_error_is_the_hardwares(holdfast: Holdfast, code: str) -> None:
    (holdfast.dir / "rules.yaml").write_text(f'codes: {{"{code}": RESTART_WORKERS}}\ngrace: {{heal_s: 30}}\n')
    live = ReportedRun(holdfast, "--max-restarts", "1")
    live.report(code, "--severity", "critical")
    live.go(SEGFAULT)
    ran = live.finish()
    told = first(ran)
    assert (told["phrase"], told["blame"], told["devices"]) == ("AcceleratorMemoryError", "hardware", ["gpu0"])
    assert told["original"] == {"exit_code": None, "signal": "SIGSEGV"}
    assert told["first"]["rank"] == 0
    assert (told["decision_kind"], told["decision_charged"]) == ("restart", False)
    assert ran.status == 0


def test_a_line_that_nobody_had_read_when_the_worker_died(holdfast: Holdfast) -> None:
    """Line and death come at once, in the first moment of the run."""
    log = holdfast.dir / "kern.log"
    log.touch()
    script = holdfast.script(
        """
        import os, signal
        if os.environ["HOLDFAST_ATTEMPT"] == "1":
            with open("kern.log", "a") as file:
                file.write(f"NVRM: Xid (PCI:0000:3b:00): 95, pid={os.getpid()}, Uncontained ECC error\\n")
            os.kill(os.getpid(), signal.SIGSEGV)
        """
    )
    ran = holdfast.run("--kernel-log", log, script, CUDA_VISIBLE_DEVICES="0,1")
    told = first(ran)
    assert ran.status == 0, ran.err
    assert (told["phrase"], told["blame"], told["devices"]) == ("AcceleratorMemoryError", "hardware", ["gpu0"])
    assert told["decision_charged"] is False


def test_a_programs_own_xid_leaves_the_program_its_last_words(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast, "--max-restarts", "1")
    live.report("31", "--once")
    live.go("raise RuntimeError('CUDA error: an illegal memory access was encountered')")
    told = first(live.finish())
    assert told["blame"] == "workload"
    assert "illegal memory access" in told["reason"] + told["evidence"][0]["text"]
    assert told["decision_charged"] is True


def test_what_is_wrong_with_the_rules_is_told_at_the_start(holdfast: Holdfast) -> None:
    (holdfast.dir / "rules.json").write_text(
        '{"FaultFrequency": [{"EventId": ["79"], "TimeWindow": 5, "Times": 2, "FaultHandling": "SeparateNPU"}]}'
    )
    (holdfast.dir / "codes.yaml").write_text("codes: [79]\n")
    script = holdfast.script("")
    ran = holdfast.run("--fault-rules", "rules.json", "--fault-codes", "codes.yaml", script)
    assert ran.status == 0
    assert "TimeWindow 5 is not 60 to 864000 seconds; the entry is not used" in ran.err
    assert "codes.yaml IS NOT USED, the default configuration applies" in ran.err


def test_the_next_job_is_not_kept_off_by_a_moment(holdfast: Holdfast) -> None:
    """The last one may have died of it, and is started again at once."""
    for code in ("31", "95"):
        holdfast("faults", "report", "--device", "gpu0", "--code", code, "--once")
        ran = holdfast.run(holdfast.script(""), CUDA_VISIBLE_DEVICES="0")
        assert (ran.status, "gets no work" in ran.err) == (0, False), ran.err


def test_lines_that_are_not_believed_are_counted(holdfast: Holdfast) -> None:
    live = ReportedRun(holdfast)
    wait = time.monotonic() + 60
    while not (live.job_dir / "faults.sock").exists() and time.monotonic() < wait:
        time.sleep(0.05)
    (live.job_dir / "faults.jsonl").write_text('rubbish\n{"who": "me"}\n')
    assert live.process.stderr is not None
    while "is refused" not in (line := live.process.stderr.readline()):
        assert line
    live.report("79", device="gpu3")
    live.go()
    ran = live.finish()
    assert "2 lines could not be believed" in ran.err
    assert "refused so far: 1 malformed, 1 not JSON" in live.tell("devices").err


def test_a_book_that_is_held_all_the_time_holds_nobody_up(holdfast: Holdfast) -> None:
    """The job is stopped for the fault and goes on without the device while the book is locked."""
    import sqlite3

    live = ReportedRun(holdfast, script=STAYS_UP_ONCE.replace('attempt == "1"', 'attempt in "12"'))
    with sqlite3.connect(holdfast.home / "holdfast.db", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        _fault_line(live, {"who": "pingmesh", "at": time.time(), "device": "gpu0", "code": "79"})
        wait_for(holdfast.dir / "up-2-0")
        db.execute("COMMIT")
    db.close()
    assert visible(holdfast, 2) == "1,2,3"
    live.go()
    ran = live.finish()
    assert ran.status == 0, ran.err
    assert "ISOLATED" in live.tell("devices").out, ran.err


def test_a_book_that_somebody_holds_is_opened_later(holdfast: Holdfast) -> None:
    """Another process has the file locked when the run wants to open it first."""
    import sqlite3

    live = ReportedRun(holdfast)
    with sqlite3.connect(holdfast.home / "holdfast.db", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        assert live.process.stderr is not None
        while "it is tried again" not in (line := live.process.stderr.readline()):
            assert line, "it ended before it had tried"
        db.execute("COMMIT")
    db.close()
    live.report("79")
    ran = live.finish()
    assert (ran.status, len(ran.report["attempts"]), visible(holdfast, 2)) == (0, 2, "1,2,3")
