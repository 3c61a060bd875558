"""`explain --format`: GitHub's workflow commands and summary, Markdown, JSON; and the action that uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.explain import command
from holdfast.errors import BadUsage

ACTION = Path(__file__).parents[2] / "contrib" / "github-action"
USERS_FRAME = 'Traceback (most recent call last):\n  File "/app/train.py", line 88, in <module>\n    main()\n'


def printed(tmp_path: Path, text: str, *words: str) -> str:
    (tmp_path / "job.log").write_text(text)
    result = CliRunner().invoke(command, [*words, str(tmp_path / "job.log")])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_github_gets_an_error_at_the_users_line_and_the_report_as_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    text = printed(tmp_path, f"{USERS_FRAME}OSError: [Errno 28] No space left on device\n", "--format", "github")
    first, group, *rest = text.splitlines()
    assert first.startswith("::error file=/app/train.py,line=88,title=DiskFull::")
    assert group == "::group::holdfast explain"
    assert rest[-1] == "::endgroup::"
    assert summary.read_text().startswith("before\n### DiskFull (exit code ")


def test_without_a_users_line_the_log_and_its_line_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    text = printed(tmp_path, "step 1\nOSError: [Errno 28] No space left on device\n", "--format", "github")
    assert text.startswith(f"::error file={tmp_path}/job.log,line=2,title=DiskFull::")


def test_a_log_cannot_write_commands_or_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    evil = f"{USERS_FRAME}RuntimeError: ::add-mask::x %0A::set-output name=a::b ```` <img src=x> | @all ##[error]no\n"
    github = printed(tmp_path, evil, "--format", "github")
    commands = [line for line in github.splitlines() if line.lstrip(" |").startswith(("::", "##["))]
    assert [line.partition(" ")[0] for line in commands] == ["::error", "::group::holdfast", "::endgroup::"]
    assert "%250A" in commands[0]
    page = printed(tmp_path, evil, "--format", "markdown")
    head = page.partition("<details>")[0]
    assert "<img" not in head
    assert "@all" not in head
    assert page.count("`````") == 2


def test_a_success_is_a_notice(tmp_path: Path) -> None:
    report = CliRunner().invoke(command, ["--exit-code", "0", "--format", "github", "-"], input="done\n").stdout
    assert report.startswith(("::notice ", "::error "))


def test_json_is_a_format_and_excludes_the_others(tmp_path: Path) -> None:
    assert json.loads(printed(tmp_path, "KeyError: 1\n", "--format", "json"))["schema"] == "holdfast.report/1"
    error = CliRunner().invoke(command, ["--json", "--format", "markdown", str(tmp_path / "job.log")]).exception
    assert isinstance(error, BadUsage)
    assert "exclude each other" in error.message


def test_a_summary_that_cannot_be_written_gets_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "a.md"))
    (tmp_path / "job.log").write_text("KeyError: 1\n")
    error = CliRunner().invoke(command, ["--format", "github", str(tmp_path / "job.log")]).exception
    assert isinstance(error, BadUsage)
    assert "$GITHUB_STEP_SUMMARY" in error.message


def act(tmp_path: Path, logs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's script as a runner does, with a `holdfast` on PATH that is this tree's."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (folder / "holdfast").chmod(0o755)
    known = {
        **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LOGS": logs, "VERSION": "",
        "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "HOLDFAST_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    return subprocess.run(
        ["bash", str(ACTION / "explain.sh")], env=known, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_the_action_prints_the_error_and_writes_summary_outputs_and_comment(tmp_path: Path) -> None:
    for rank, text in enumerate(
        ["Connection reset by peer\n", f"{USERS_FRAME}OSError: [Errno 28] No space left on device\n"]
    ):
        (tmp_path / f"rank{rank}.log").write_text(text)
    done = act(tmp_path, "rank*.log\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("::error file=/app/train.py,line=88,title=DiskFull::")
    assert (tmp_path / "output").read_text() == "class=DiskFull\nrerun=never\n"
    assert (tmp_path / "holdfast-report.md").read_text().startswith("### DiskFull")
    assert (tmp_path / "summary").read_text().startswith("### DiskFull")


def test_the_action_runs_no_text_of_its_input(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("KeyError: 1\n")
    done = act(tmp_path, "a.log $(touch${IFS}made) ;touch")
    assert done.returncode != 0
    assert "there is no file" in done.stderr
    assert not (tmp_path / "made").exists()
    assert act(tmp_path, "  \n").returncode == 1
