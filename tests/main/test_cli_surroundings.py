"""Odd surroundings: closed and full streams, small limits, a missing HOME. One message each, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.record.state_directory import home_of

pytestmark = pytest.mark.real


def shell(holdfast: Holdfast, line: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `$HF` is holdfast."""
    env = {**holdfast.env, "HF": f"{sys.executable} -m holdfast"}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, env=env, cwd=holdfast.dir
    )


@pytest.mark.key
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_costs_the_job_nothing(holdfast: Holdfast, closed: str) -> None:
    holdfast.script("print('ran')")
    done = shell(holdfast, f"$HF run --no-checks job.py {closed}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert shell(holdfast, f"$HF jobs {closed}").returncode == 0
    assert holdfast("logs", "job", "--stdout").out == "ran\n"


@pytest.mark.key
@pytest.mark.parametrize("verb", ["jobs", "config", "--help", "exits"])
def test_a_full_disk_behind_the_output_is_one_message(holdfast: Holdfast, verb: str) -> None:
    done = shell(holdfast, f"$HF {verb} > /dev/full")
    assert done.returncode == 1
    [first, _] = done.stderr.splitlines()
    assert first.startswith("holdfast: writing failed") and "No space left on device" in first


def test_too_few_open_files_are_told_before_anything_starts(holdfast: Holdfast) -> None:
    holdfast.script("print('ran')")
    done = shell(holdfast, "ulimit -n 60; $HF run --no-checks --nproc-per-node 30 job.py")
    assert done.returncode == 2
    assert "only 60 files may be open at a time here (ulimit -Hn); holdfast needs 280 for 30 workers" in done.stderr
    assert not holdfast.home.exists()
    assert shell(holdfast, "ulimit -n 60; $HF run --no-checks --nproc-per-node 2 job.py").returncode == 0


def test_no_verb_shows_the_verbs(holdfast: Holdfast) -> None:
    for words, said in (((), "jobs        List the jobs"), (("faults",), "replay  Replay a fault case")):
        ran = holdfast(*words)
        assert ran.status == 2 and ran.err.startswith("Usage: ") and said in ran.err and "try:" not in ran.err


def test_the_state_directory_is_absolute_and_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert home_of({"HOLDFAST_HOME": "state", "HOME": "/h"}) == tmp_path / "state"
    assert home_of({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/holdfast")
    assert home_of({"HOME": "/h"}) == Path("/h/.local/state/holdfast")
    monkeypatch.setenv("HOME", "/h")
    assert home_of({"HOLDFAST_HOME": "~/state", "HOME": "/h"}) == Path("/h/state")


def test_without_a_home_the_list_of_users_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    listed = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for env in ({}, {"HOME": ""}):
        assert home_of(env) == listed / ".local" / "state" / "holdfast"


def test_empty_logs_are_said(holdfast: Holdfast) -> None:
    holdfast.run(holdfast.script("pass"))
    ran = holdfast("logs", "job")
    assert (ran.status, ran.out) == (0, "") and "nothing was written" in ran.err


def test_standby_alone_is_said_to_mean_nothing(holdfast: Holdfast) -> None:
    ran = holdfast.run("--standby", holdfast.script("pass"))
    assert "--standby: nothing is kept waiting" in ran.err


def test_output_that_never_came_out_is_said_at_the_end(holdfast: Holdfast) -> None:
    holdfast.script("print('ran')")
    done = shell(holdfast, "$HF run --no-checks job.py > /dev/full")
    assert done.returncode == 0
    assert "stdout cannot be written (no space left on device): 15 bytes at the end never came out" in done.stderr
    assert "never came out" in shell(holdfast, "$HF run --no-checks --json job.py > /dev/full").stderr
    assert "never came out" not in shell(holdfast, "$HF run --no-checks job.py | true").stderr


@pytest.mark.key
@pytest.mark.parametrize("words", [("job.py",), ("--nproc-per-node", "2", "job.py")])
def test_torchruns_way_of_typing_leads_to_run(holdfast: Holdfast, words: tuple[str, ...]) -> None:
    ran = holdfast(*words)
    assert ran.status == 2 and f"try: holdfast run {words[0]}" in ran.err


@pytest.mark.parametrize("verb", ["run --no-checks --no-python true", "check disk"])
def test_a_working_directory_that_is_gone_is_one_message(holdfast: Holdfast, verb: str) -> None:
    done = shell(holdfast, f"mkdir gone && cd gone && rmdir ../gone && $HF {verb}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "holdfast: the working directory was removed, or moved away"
