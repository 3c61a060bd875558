"""The ways to start a run, and the ways to be told at once that it cannot."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.decide.gang import Gang
from holdfast.model.actions import Action
from holdfast.record.journal import Journal

pytestmark = [pytest.mark.real, pytest.mark.key]


def test_script_gets_its_arguments_untouched(holdfast: Holdfast) -> None:
    script = holdfast.script("import sys; print(sys.argv[1:])")
    ran = holdfast.run("--nproc_per_node=1", script, "--nproc_per_node", "7", "--", "--max_restarts=9", "-m")
    assert ran.out == "[worker-0] ['--nproc_per_node', '7', '--', '--max_restarts=9', '-m']\n"


def test_module(holdfast: Holdfast) -> None:
    (holdfast.dir / "pkg").mkdir()
    (holdfast.dir / "pkg" / "__init__.py").write_text("")
    (holdfast.dir / "pkg" / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])")
    assert holdfast.run("-m", "pkg.train", "--x").out == "[worker-0] __main__ pkg ['--x']\n"


def test_any_command(holdfast: Holdfast) -> None:
    ran = holdfast.run("--no-python", "--nproc-per-node", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE; exit 0")
    assert sorted(ran.out.splitlines()) == ["[worker-0] 0 of 2", "[worker-1] 1 of 2"]


def test_torchruns_options_without_meaning_are_said(holdfast: Holdfast) -> None:
    script = holdfast.script("print('ran')")
    ran = holdfast.run(
        "--standalone", "--rdzv_backend", "c10d", "--rdzv-endpoint=localhost:0", "--monitor_interval", "5", script
    )
    assert (ran.status, ran.out) == (0, "[worker-0] ran\n")
    [said] = [line for line in ran.err.splitlines() if "ignored" in line]
    for option in ("--rdzv-backend", "--rdzv-endpoint", "--monitor-interval"):
        assert option in said


def test_roles_and_completion(holdfast: Holdfast) -> None:
    """One succeeded chief completes the job; the helpers that still run are stopped; one failed helper is tolerated."""
    script = holdfast.script(
        """
        import os, sys, time
        role, rank = os.environ["ROLE_NAME"], os.environ["ROLE_RANK"]
        if role == "chief":
            time.sleep(1)
            sys.exit(0)
        if rank == "1":
            sys.exit(5)
        time.sleep(60)
        """
    )
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"""
name: mixed
roles:
  chief: {{count: 1, command: [{sys.executable}, {script}], completion: {{min_succeeded: 1}}}}
  helper: {{count: 3, command: [{sys.executable}, {script}], completion: {{min_failed: 2}}}}
"""
    )
    ran = holdfast.run("--job", job)
    assert (ran.status, ran.report["outcome"]) == (0, "succeeded")
    assert len(ran.report["attempts"]) == 1
    assert (ran.job_dir / "attempt-1" / "helper-3" / "stderr.log").exists()


def test_two_failed_helpers_are_too_many(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, sys, time
        if os.environ["ROLE_RANK"] in "01" and os.environ["ROLE_NAME"] == "helper":
            sys.exit(5)
        time.sleep(60)
        """
    )
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"""
name: mixed
roles:
  chief: {{count: 1, command: [{sys.executable}, {script}]}}
  helper: {{count: 3, command: [{sys.executable}, {script}], completion: {{min_failed: 2}}}}
restarts: {{max_restarts: 0}}
"""
    )
    report = holdfast.run("--job", job, "--grace", "1").report
    assert report["outcome"] == "failed"
    # Two that end alike at one moment have no culprit; on a busy machine one of them may be later.
    assert report["first"] is None or report["first"]["role"] == "helper"
    assert report["original"]["exit_code"] == 5


def test_redirects_tee_and_log_dir(holdfast: Holdfast) -> None:
    script = holdfast.script("import sys; print('out'); print('err', file=sys.stderr)")
    ran = holdfast.run("--nproc-per-node", "2", "--redirects", "0:3,1:1", "--log-dir", "elsewhere", script)
    assert ran.out == ""
    assert [line for line in ran.err.splitlines() if line.startswith("[")] == ["[worker-1] err"]
    job = ran.report["job"]["id"]
    logs = holdfast.dir / "elsewhere" / job / "attempt-1"
    for rank in (0, 1):
        assert (logs / f"worker-{rank}" / "stdout.log").read_text() == "out\n"
        assert (logs / f"worker-{rank}" / "stderr.log").read_text() == "err\n"
    shown = holdfast("logs", job, "--rank", "0")
    assert "out" in shown.out


def test_json_and_report_file(holdfast: Holdfast) -> None:
    script = holdfast.script("raise SystemExit(4)")
    ran = holdfast.run(
        "--json", "--redirects", "3", "--report", "r.json", "--name", "a-name", "--max-restarts", "0", script
    )
    printed = json.loads(ran.out)
    assert printed == json.loads((holdfast.dir / "r.json").read_text()) == ran.report
    assert printed["job"]["name"] == "a-name"
    assert printed["original"]["exit_code"] == 4
    assert ran.status == printed["code"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run"], "nothing to run"),
        (["run", "missing.py"], "there is no script missing.py"),
        (["run", "."], "without a __main__.py"),
        (["run", "j.yaml"], "--job j.yaml"),
        (["run", "--bogus", "job.py"], "--bogus"),
        (["run", "--nproc-per-node", "many", "job.py"], "--nproc-per-node many"),
        (["run", "--nproc-per-node", "0", "job.py"], "--nproc-per-node 0"),
        (["run", "--nnodes", "4", "job.py"], "--nnodes 4"),
        (["run", "--max-restarts", "-1", "job.py"], "--max-restarts"),
        (["run", "--grace", "soon", "job.py"], "--grace"),
        (["run", "--job", "missing.yaml"], "missing.yaml"),
        (["run", "--job", "job.py", "job.py"], "not both"),
        (["run", "-m", "--no-python", "x"], "contradict"),
        (["run", "--checks", "disc", "job.py"], "disk"),
        (["run", "--plugin", "missing.py", "job.py"], "missing.py"),
        (["run", "--exits", "missing.yaml", "job.py"], "missing.yaml"),
        (["run", "--fault-codes", "missing.json", "job.py"], "missing.json"),
        (["run", "--report", "no/such/dir/r.json", "job.py"], "no/such/dir"),
        (["run", "--master-port", "70000", "job.py"], "--master-port 70000"),
        (["run", "--tee", "9", "job.py"], "--tee"),
        (["show", "nobody"], "nobody"),
        (["logs", "nobody"], "nobody"),
        (["stop", "nobody", "--reason", "x"], "nobody"),
        (["explain", "missing.log"], "missing.log"),
        (["explain", "."], "directory"),
    ],
)
def test_bad_usage_is_status_two_and_starts_nothing(holdfast: Holdfast, args: list[str], said: str) -> None:
    holdfast.script("raise SystemExit('it ran')")
    (holdfast.dir / "j.yaml").write_text("name: x\n")
    ran = holdfast(*args)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "try:" in ran.err
    assert not list(holdfast.home.glob("jobs/*"))


def test_two_runs_share_one_journal(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, signal, time
        if os.environ["RANK"] == "0" and os.environ["HOLDFAST_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)
        """
    )
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(holdfast.run("--nproc-per-node", "3", "--name", "twin", script).status)
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0, 0, 0]
    listed = json.loads(holdfast("jobs", "--json").out)
    assert [job["name"] for job in listed["jobs"]] == ["twin"] * 3


def test_replaying_the_journal_gives_the_same_attempts(holdfast: Holdfast) -> None:
    """What the supervisor did follows from what it wrote down: nothing else had a say."""
    script = holdfast.script(
        """
        import os, signal, sys
        attempt = int(os.environ["HOLDFAST_ATTEMPT"])
        if os.environ["RANK"] == "1" and attempt < 3:
            os.kill(os.getpid(), signal.SIGKILL if attempt == 1 else signal.SIGSEGV)
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", script)
    assert ran.status == 0
    journal = Journal.open(holdfast.home)
    gang, actions = Gang(), list[Action]()
    try:
        for now, event in journal.events(ran.report["job"]["id"]):
            actions += gang.handle(event, now)
    finally:
        journal.close()
    assert gang.report is not None
    from holdfast.record.report_file import to_json_object

    assert json.loads(json.dumps(to_json_object(gang.report))) == ran.report


def test_the_state_directory_is_private(holdfast: Holdfast) -> None:
    ran = holdfast.run(holdfast.script("pass"))
    for path in (holdfast.home, ran.job_dir, ran.job_dir / "attempt-1" / "worker-0"):
        assert Path(path).stat().st_mode & 0o777 == 0o700
    assert not (ran.job_dir / "control.sock").exists()
