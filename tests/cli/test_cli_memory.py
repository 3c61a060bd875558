"""`jobs`, `show`, `config`: what the command line says of what is remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.events import AgentReported
from holdfast.model.exit_report import Blame, Culprit, ExitReport, Outcome, Rerun
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.model.job_spec import JobSpec, Role
from holdfast.record import report_file
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.journal import Journal
from holdfast.report.report_json import to_json_object
from typed_here import Cli, cli, home

__all__ = ["cli", "home"]  # fixtures


def _begin_job(home: Path, name: str, now: float) -> JobPlace:
    place = claim(home, name=name, now=now)
    journal = Journal.open(home)
    spec = JobSpec(name=name, roles=(Role(name="worker", count=2, command=("x",)),))
    journal.create_job(place.job_id, spec, now=now, host=place.lock.supervisor.host, pid=os.getpid())
    members = tuple(Member(rank=rank, state=MemberState.UP) for rank in range(2))
    report = Report(node="n", boot=1, attempt=1, stopped=0, sent=now, members=members)
    journal.append(place.job_id, now, AgentReported(report=report))
    journal.close()
    return place


def _end_job(home: Path, place: JobPlace, name: str, now: float) -> JobReport:
    exit_report = ExitReport(
        code=226,
        phrase="AcceleratorOutOfMemory",
        blame=Blame.WORKLOAD,
        rerun=Rerun.NEVER,
        reason="rank 1 asked for too much",
        solution="ask for less",
        first=Culprit(role="worker", rank=1, node="n"),
    )
    record = AttemptRecord(
        attempt=1,
        started_at=now,
        ended_at=now + 60,
        report=exit_report,
        decision=Decision(kind=DecisionKind.FAIL, reason="it would end the same way"),
        parts={"preparing": 20.0, "running": 40.0},
    )
    report = JobReport(job_id=place.job_id, name=name, outcome=Outcome.FAILED, report=exit_report, attempts=(record,))
    journal = Journal.open(home)
    journal.record_attempt(place.job_id, record)
    journal.finish(report, now=now + 60)
    journal.close()
    report_file.write(home, report)
    place.lock.release()
    return report


def test_no_job_yet(cli: Cli, home: Path) -> None:
    assert cli("jobs") == (0, f"no job has run yet with its state in {home}\n", "")
    assert json.loads(cli("jobs", "--json")[1]) == {"schema": "holdfast.jobs/1", "jobs": [], "queued": []}
    assert not home.exists(), "looking makes nothing"


def test_jobs_lists_the_newest_first(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ended = _begin_job(home, "train", 1000.0)
    _end_job(home, ended, "train", 1000.0)
    running = _begin_job(home, "serve", 2000.0)
    status, out, err = cli("jobs")
    head, first, second = out.splitlines()
    assert (status, err) == (0, "") and head.split()[:3] == ["JOB", "NAME", "STATE"]
    assert first.split()[:3] == [running.job_id, "serve", "running"]
    assert second.split()[:6] == [ended.job_id, "train", "failed", "226", "AcceleratorOutOfMemory", "1"]
    assert second.endswith("1 min")
    rows = json.loads(cli("jobs", "--json")[1])["jobs"]
    assert [(row["id"], row["state"], row["outcome"], row["code"]) for row in rows] == [
        (running.job_id, "running", None, None),
        (ended.job_id, "ended", "failed", 226),
    ]
    running.lock.release()


def test_show_tells_the_whole_story_of_an_ended_job(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", 1000.0)
    report = _end_job(home, place, "train", 1000.0)
    status, out, _ = cli("show", "train")
    assert status == 0
    assert f"job {place.job_id} (train) FAILED: rank 1 asked for too much" in out
    assert "not restarted: it would end the same way" in " ".join(out.split())
    out = cli("show", "train", "--verbose")[1]
    assert "→ not restarted: it would end the same way" in out
    assert "▒ prepare 20 s, █ running 40 s" in out
    assert json.loads(cli("show", place.job_id, "--json")[1]) == {
        **to_json_object(report),
        "state": "ended",
        "platform": None,
    }


def test_show_of_a_running_job_says_what_is_known_now(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", time.time() - 30)
    status, out, _ = cli("show", "train")
    assert status == 0
    assert f"job {place.job_id} (train) RUNNING since" in out
    assert "now      attempt 1, ranks 0 and 1 up (last event 30 s ago)" in out
    assert f"holdfast logs {place.job_id} --follow" in out
    value = json.loads(cli("show", "train", "--json")[1])
    assert (value["state"], value["outcome"], value["attempts"]) == ("running", None, [])
    place.lock.release()


def test_a_loss_is_told_by_the_next_command_and_only_by_that(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", 1000.0)
    place.lock.release()
    status, out, err = cli("jobs")
    assert status == 0 and "failed" in out and "KilledBySignal" in out
    assert f"holdfast: job {place.job_id} (train): holdfast itself (pid {os.getpid()} on " in err
    assert cli("jobs")[2] == ""
    assert "its workers were killed with it" in " ".join(cli("show", "train")[1].split())


def test_an_unknown_job_is_status_2_for_every_verb(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", 1000.0)
    for words in (("show", "trian"), ("logs", "trian"), ("stop", "trian", "--reason", "r")):
        status, out, err = cli(*words)
        assert (status, out) == (2, "")
        assert "there is no job `trian`" in err and "`train`" in err and "try: holdfast jobs" in err
    place.lock.release()


def test_a_damaged_journal_is_said_and_the_list_still_comes(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", 1000.0)
    _end_job(home, place, "train", 1000.0)
    (home / "holdfast.db").write_bytes(b"\x00garbage" * 2000)
    status, out, err = cli("jobs")
    assert status == 0 and place.job_id in out
    assert f"the journal {home}/holdfast.db is damaged" in err and f"mv {home}/holdfast.db*" in err
    assert "AcceleratorOutOfMemory" in cli("show", "train")[1]


def test_a_name_cannot_steer_the_terminal(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "x\x1b[2J", 1000.0)
    assert "\x1b" not in cli("jobs")[1] + cli("show", place.job_id)[1]
    place.lock.release()


def test_config_shows_every_value_and_its_place(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("grace: 12\n")
    monkeypatch.setenv("HOLDFAST_CHECKS", "disk,clock")
    status, out, _ = cli("config")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert status == 0
    assert rows["grace"] == ["12s", str(home / "config.yaml")]
    assert rows["checks"] == ["disk,clock", "HOLDFAST_CHECKS"]
    assert rows["max-restarts"] == ["3", "built-in", "default"]
    values = {row["name"]: row for row in json.loads(cli("config", "--json")[1])["settings"]}
    assert values["grace"]["value"] == 12.0 and values["checks"]["value"] == ["disk", "clock"]
    assert values["grace"]["variable"] == "HOLDFAST_GRACE"
    (home / "config.yaml").write_text("grace: abc\n")
    status, out, err = cli("config")
    assert (status, out) == (2, "")
    assert "config.yaml: `grace`: expected seconds, or a time such as 5m, 2h or 1d12h, got 'abc'" in err


@pytest.mark.real
def test_a_reader_that_has_seen_enough_is_no_error(home: Path) -> None:
    place = claim(home, name="train", now=1000.0)
    log = place.directory / "attempt-1" / "worker-0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"line\n" * 1_000_000)
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m holdfast logs train | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("line\n0\n", "")
    place.lock.release()


def test_the_report_text_survives_a_round_through_the_journal(cli: Cli, home: Path) -> None:
    place = _begin_job(home, "train", 1000.0)
    report = _end_job(home, place, "train", 1000.0)
    before = cli("show", "train")[1]
    (home / "holdfast.db").unlink()
    assert cli("show", "train")[1] == before
    assert msgspec.json.decode((home / "jobs" / place.job_id / "report.json").read_bytes()) == to_json_object(report)


def test_config_changed_shows_what_somebody_has_set(cli: Cli, home: Path) -> None:
    status, out, _ = cli("config", "--changed")
    assert status == 0 and out.startswith("every setting has its built-in default\n")
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("max-restarts: 7\nslurm: {partition: big}\n")
    status, out, _ = cli("config", "--changed", HOLDFAST_GRACE="5")
    told = [line.split() for line in out.partition("\n\n")[0].splitlines()]
    assert status == 0
    assert told == [
        ["max-restarts", "7", str(home / "config.yaml")],
        ["grace", "5s", "HOLDFAST_GRACE"],
        ["slurm.partition", "big", str(home / "config.yaml")],
    ]
    names = [each["name"] for each in json.loads(cli("config", "--changed", "--json")[1])["settings"]]
    assert names == ["max-restarts"]
