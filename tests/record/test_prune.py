"""`holdfast prune`, and what a run throws away after its end: real jobs of one state directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.exit_report import Outcome
from holdfast.record import database
from holdfast.record.job_directory import claim
from holdfast.record.job_pruning import DAY_S, PrunableJob, RetentionLimits, beyond, of_this_machine, prune
from holdfast.record.job_views import JobState, JobView
from holdfast.record.owner_lock import OwnerInfo, OwnerLiveness, OwnerLock, life_of
from holdfast.record.state_directory import job_dir
from typed_here import Cli, cli

__all__ = ["cli"]  # fixtures

PRUNE_AT = 1_000 * DAY_S


@pytest.fixture(scope="module")
def three_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("prune")
    (where / "t.py").write_text("print('x' * 20000)")
    env = {**os.environ, "HOLDFAST_HOME": str(where / "home")}
    for name in ("first", "second", "third"):
        words = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--name", name, "t.py"]
        subprocess.run(words, cwd=where, env=env, capture_output=True, check=True)
    return where


@pytest.fixture
def home(three_jobs: Path, tmp_path: Path) -> Path:
    """A copy of them for each test."""
    shutil.copytree(three_jobs / "home", tmp_path / "home")
    return tmp_path / "home"


def id_of(cli: Cli, name: str) -> str:
    jobs = json.loads(cli("jobs", "--json", "--name", name)[1])["jobs"]
    return str(jobs[0]["id"])


def job_names(cli: Cli) -> list[str]:
    return [job["name"] for job in json.loads(cli("jobs", "--json")[1])["jobs"]]


def test_without_a_limit_that_is_reached_nothing_goes(cli: Cli) -> None:
    assert cli("prune")[0] == 0
    assert job_names(cli) == ["third", "second", "first"]


def test_the_oldest_jobs_go_with_their_logs_and_their_rows(cli: Cli, home: Path) -> None:
    first = home / "jobs" / id_of(cli, "first")
    status, out, _ = cli("prune", "--keep-jobs", "2")
    assert status == 0 and first.name in out and "1 of 3 jobs is gone" in out
    assert job_names(cli) == ["third", "second"] and not first.exists()
    db = sqlite3.connect(home / "holdfast.db")
    for table, key in (("jobs", "id"), ("attempts", "job"), ("events", "job")):
        assert db.execute(f"SELECT count(*) FROM {table} WHERE {key} = ?", (first.name,)).fetchone() == (0,)
    db.close()


def test_a_dry_run_says_it_and_removes_nothing(cli: Cli) -> None:
    assert "2 of 3 jobs would go" in cli("prune", "--keep-jobs", "1", "--dry-run")[1]
    assert len(job_names(cli)) == 3


def test_jobs_that_are_named_go(cli: Cli) -> None:
    assert cli("prune", "second")[0] == 0
    assert job_names(cli) == ["third", "first"]


def test_the_size_that_is_kept_is_that_of_the_newest(cli: Cli) -> None:
    all_of_them = json.loads(cli("prune", "first", "second", "third", "--dry-run", "--json")[1])["size_bytes"]
    told = json.loads(cli("prune", "--keep-size", str(all_of_them * 5 // 6), "--json")[1])
    assert told["schema"] == "holdfast.pruned/1" and [job["name"] for job in told["pruned"]] == ["first"]
    assert told["size_bytes"] > 20_000


@pytest.mark.parametrize(
    "words", [["--keep-size", "50%"], ["--keep-jobs", "few"], ["first", "--keep-days", "1"], ["nojob"]]
)
def test_wrong_words_remove_nothing(cli: Cli, words: list[str]) -> None:
    assert cli("prune", *words)[0] == 2
    assert len(job_names(cli)) == 3


def test_a_running_job_is_never_removed(cli: Cli, home: Path) -> None:
    place = claim(home, name="running", now=1.0)
    try:
        assert cli("prune", "running")[0] == 2
        assert cli("prune", "--keep-jobs", "1")[0] == 0
        assert job_names(cli) == ["third", "running"]
    finally:
        place.lock.release()


def test_a_job_whose_lock_is_held_stays_though_its_report_is_there(cli: Cli, home: Path) -> None:
    second = home / "jobs" / id_of(cli, "second")
    with (second / "supervisor.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, err = cli("prune", "second")
    assert status == 0 and "a supervisor holds it" in err and second.exists()


def test_a_job_of_another_machine_stays(cli: Cli, home: Path) -> None:
    db = sqlite3.connect(home / "holdfast.db")
    db.execute("UPDATE jobs SET host = 'elsewhere' WHERE name = 'first'")
    db.commit()
    db.close()
    assert "it is a job of elsewhere" in cli("prune", "first")[2]
    assert len(job_names(cli)) == 3


def test_the_evidence_of_a_held_device_stays(cli: Cli, home: Path) -> None:
    db = sqlite3.connect(home / "holdfast.db")
    report = bytes(db.execute("SELECT report FROM jobs WHERE name = 'first'").fetchone()[0])
    db.execute("UPDATE jobs SET report = ? WHERE name = 'first'", (report + b" gpu7",))
    db.commit()
    db.close()
    assert (
        cli("faults", "report", "--device", "gpu7", "--code", "X79", "--severity", "critical", "--text", "79")[0] == 0
    )
    if "HELD" not in (devices := cli("devices")[1]) and "ISOLATED" not in devices:
        pytest.fail(f"no device is held: {devices}")
    assert "evidence of gpu7, which is ISOLATED" in cli("prune", "--keep-jobs", "1")[2]
    assert job_names(cli) == ["third", "first"]


def test_jobs_that_stay_for_one_reason_are_named_in_one_line(cli: Cli, home: Path) -> None:
    db = sqlite3.connect(home / "holdfast.db")
    db.execute("UPDATE jobs SET host = 'elsewhere'")
    db.commit()
    first, _, third = (id_of(cli, name) for name in ("first", "second", "third"))
    said = cli("prune", "--dry-run", "first", "second", "third")[2]
    low, high = sorted((first, third))
    assert said.count("stay") == 1 and "holdfast: 3 jobs stay, " in said and "it is a job of elsewhere" in said
    assert low[:8] in said and high[:8] in said
    db.execute("UPDATE jobs SET host = 'afar' WHERE name = 'third'")
    db.commit()
    db.close()
    said = cli("prune", "--dry-run", "first", "second", "third")[2]
    assert f"holdfast: job {third} stays: it is a job of afar\n" in said and "holdfast: 2 jobs stay, " in said


def test_one_job_that_goes_is_one_job(cli: Cli) -> None:
    assert "1 of 3 jobs is gone, " in cli("prune", "second")[1]
    assert "nothing to throw away: 2 jobs in " in cli("prune")[1]


def test_after_a_run_old_jobs_go_once_a_day_and_one_message_says_so(cli: Cli, home: Path, three_jobs: Path) -> None:
    def ran(*words: str, **more: str) -> str:
        command = [sys.executable, "-m", "holdfast", "run", "--no-checks", *words, "t.py"]
        env = {**os.environ, "HOLDFAST_HOME": str(home), **more}
        done = subprocess.run(command, cwd=three_jobs, env=env, capture_output=True, text=True, check=False)
        return done.stderr

    os.utime(home / "pruned", (0, 0))  # the last look was long ago
    err = ran("--name", "fourth", HOLDFAST_KEEP_JOBS="2")
    assert "2 old jobs were thrown away" in err and "HOLDFAST_KEEP_JOBS: keep-jobs 2" in err
    assert "try: holdfast prune --dry-run" in err
    assert job_names(cli) == ["fourth", "third"]
    assert "thrown away" not in ran(HOLDFAST_KEEP_JOBS="1")


def test_the_limits_that_are_built_in_keep_a_thousand_jobs_of_half_a_year(cli: Cli) -> None:
    told = json.loads(cli("prune", "--json")[1])
    assert told["keep"] == {"jobs": 1000, "days": 180, "size_bytes": 100 << 30}


def view(number: int, *, ended: float | None, host: str = "") -> JobView:
    state = JobState.RUNNING if ended is None else JobState.ENDED
    outcome = None if ended is None else Outcome.FAILED
    return JobView(
        id=f"job-{number}", name="", created=PRUNE_AT, host=host, pid=1, state=state, ended=ended, outcome=outcome
    )


def test_age_counts_from_the_end_and_no_job_without_an_end_is_old(tmp_path: Path) -> None:
    jobs = [view(3, ended=PRUNE_AT - DAY_S), view(2, ended=None), view(1, ended=PRUNE_AT - 40 * DAY_S)]
    assert [old.view.id for old in beyond(tmp_path, jobs, RetentionLimits(days=30), PRUNE_AT)] == ["job-1"]
    assert [old.view.id for old in beyond(tmp_path, jobs, RetentionLimits(jobs=0), PRUNE_AT)] == ["job-1", "job-3"]
    assert not job_dir(tmp_path, "job-1").exists()


THIS_HOST = os.uname().nodename


@pytest.fixture
def shared_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home on a file system of several machines."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:20 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / {tmp_path}/home rw - nfs4 server:/home rw\n")
    monkeypatch.setattr(database, "MOUNTS", mounts)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def job_of(home: Path, host: str, number: int = 1) -> tuple[PrunableJob, OwnerLock]:
    """An old job, whose owner on this host holds its lock."""
    old = PrunableJob(view=view(number, ended=PRUNE_AT, host=host), size_bytes=1, why="old")
    directory = job_dir(home, old.view.id)
    directory.mkdir(mode=0o700, parents=True)
    info = OwnerInfo(job_id=old.view.id, name="", host=host, pid=1, created=PRUNE_AT)
    return old, OwnerLock.take(directory, info)


def test_a_lock_that_looks_free_keeps_the_job_of_another_machine_in_a_shared_home(shared_home: Path) -> None:
    """Its report may be written while its owner still ends its processes."""
    (theirs, lock), (ours, other) = job_of(shared_home, "elsewhere"), job_of(shared_home, THIS_HOST, 2)
    lock.release()
    other.release()
    done = prune(shared_home, [theirs, ours])
    assert done.kept == (("job-1", "it may be in use on another machine"),)
    assert [old.view.id for old in done.gone] == ["job-2"]
    assert job_dir(shared_home, "job-1").exists() and not job_dir(shared_home, "job-2").exists()


def test_a_lock_that_is_held_keeps_the_job(shared_home: Path) -> None:
    ours, lock = job_of(shared_home, THIS_HOST)
    assert prune(shared_home, [ours]).kept == (("job-1", "a supervisor holds it"),)
    lock.release()
    assert prune(shared_home, [ours]).kept == ()


def test_a_file_system_without_locks_keeps_the_job(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, lock = job_of(shared_home, THIS_HOST)
    lock.release()

    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert life_of(job_dir(shared_home, "job-1")) is OwnerLiveness.OUT_OF_SIGHT
    assert prune(shared_home, [ours]).kept == (("job-1", "it may be in use on another machine"),)


def test_each_machine_removes_its_own_jobs() -> None:
    mine = [
        of_this_machine(view(1, ended=PRUNE_AT, host=host)) for host in ("", THIS_HOST, "elsewhere", f"{THIS_HOST}2")
    ]
    assert mine == [True, True, False, False]
