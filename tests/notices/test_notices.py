"""`--on-event`, `--on-end`, `--notify`, `--summary`: real commands, and a real server that messages come to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from notice_inbox import Inbox, inbox

import holdfast
from holdfast.errors import BadUsage
from holdfast.model.codec import encode
from holdfast.model.notice_messages import Beginning, Notice, NoticeKind, NoticePlan
from holdfast.notices.markdown_summary import markdown

__all__ = ["inbox"]  # fixtures

pytestmark = pytest.mark.real
EVENTS = 3000


@pytest.fixture(autouse=True)
def scripts_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    Path("good.py").write_text("print('fine')\n")
    Path("bad.py").write_text("import sys\nsys.exit(7)\n")
    return tmp_path


def ran(script: str, **options: Any) -> tuple[holdfast.Report, str]:
    """The report, and what holdfast said."""
    said = io.StringIO()
    with redirect_stderr(said):
        report = holdfast.run(script, no_checks=True, **options)
    return report, said.getvalue()


def test_each_event_starts_the_command_with_json_on_stdin_and_variables() -> None:
    said = "$HOLDFAST_EVENT $HOLDFAST_JOB_NAME $HOLDFAST_PHRASE $HOLDFAST_DECISION"
    command = f'echo "{said}" >> events; cat >> bodies; echo >> bodies'
    report, _ = ran("bad.py", max_restarts=1, on_event=command, on_end="cat > end.json")
    assert Path("events").read_text().splitlines() == [
        "job_started bad  ",
        "attempt_ended bad Unexplained restart",
        "budget_nearly_spent bad Unexplained restart",
        "attempt_ended bad Unexplained fail",
        "job_ended bad Unexplained ",
    ]
    bodies = [json.loads(line) for line in Path("bodies").read_text().splitlines()]
    assert {body["job"]["id"] for body in bodies} == {report.job_id}
    assert json.loads(Path("end.json").read_text())["report"] == report.to_dict()


@pytest.mark.extras
def test_a_hang_is_an_event_that_wakes_a_person(inbox: Inbox) -> None:
    Path("still.py").write_text("import time\ntime.sleep(600)\n")
    more = {"max_restarts": 0, "grace": 1, "hang_timeout": 1}
    ran("still.py", on_event='echo "$HOLDFAST_EVENT" >> events', notify=[inbox.url], **more)
    assert Path("events").read_text().split() == ["job_started", "hang_found", "attempt_ended", "job_ended"]
    assert [each["title"] for each in inbox.got] == ["holdfast: still: hang found", "holdfast: still: job ended"]


def test_a_command_that_hangs_is_killed_with_its_children_and_the_job_goes_on() -> None:
    mark = f"HOLDFAST_TEST_MARK={os.getpid()}"
    command = f"export {mark}; setsid sleep 600 & sleep 600 & sleep 600"
    report, said = ran("bad.py", max_restarts=1, on_event=command, notice_timeout=1)
    assert (report.code, report.attempts) == (255, 2)
    assert said.count("--on-event: killed after 1 s (--notice-timeout); the job is not affected") == 1
    assert "--on-event: 4 events dropped: more came than could be sent" in said or "event" in said
    living = [path for path in Path("/proc").glob("[0-9]*/environ") if mark.encode() in _environ_bytes(path)]
    assert living == []


def _environ_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # gone, or another user's


def test_a_command_that_fails_is_one_line_and_changes_no_exit() -> None:
    report, said = ran("good.py", on_event="echo no such server >&2; exit 3")
    assert report.ok
    assert said.count("holdfast: --on-event: exit status 3: no such server; the job is not affected") == 1


def told_notices(plan: NoticePlan, notices: list[Notice]) -> str:
    """What the helper says that has read all of them at once."""
    head = Beginning(plan=plan, job="j1", name="demo", home="/nowhere")
    lines = b"".join(encode(each) + b"\n" for each in (head, *notices))
    command = [sys.executable, "-P", "-m", "holdfast.notices"]
    return subprocess.run(command, input=lines, capture_output=True, check=True, timeout=60).stdout.decode()


def test_thousands_of_events_wait_in_a_queue_with_a_limit() -> None:
    os.mkfifo("gate")
    many = [Notice(kind=NoticeKind.ATTEMPT_ENDED, text=f"{n}", body={"n": n}) for n in range(EVENTS)]
    # The first command waits for nothing that comes: all others queue behind it until the limit.
    command = "[ -e first ] || { touch first; cat gate; }; cat >> told; echo >> told"
    said = told_notices(NoticePlan(on_event=command, limit_s=2.0), many)
    numbers = [json.loads(line)["n"] for line in Path("told").read_text().splitlines()] if Path("told").exists() else []
    assert len(numbers) <= 64 and numbers == sorted(numbers)
    assert "events dropped: more came than could be sent" in said
    assert len(said.splitlines()) <= 4


@pytest.mark.extras
def test_people_get_one_message_for_equal_notices_and_few_before_the_end(inbox: Inbox) -> None:
    equal = [Notice(kind=NoticeKind.DEVICE_HELD, text="gpu0 is HELD", fingerprint="a", wakes=True)] * 10
    others = [Notice(kind=NoticeKind.HANG_FOUND, text="it hangs", fingerprint=f"{n}", wakes=True) for n in range(10)]
    quiet = [Notice(kind=NoticeKind.ATTEMPT_ENDED, text="no news", fingerprint="q")]
    end = [Notice(kind=NoticeKind.JOB_ENDED, text="FAILED", fingerprint="end", wakes=True)]
    assert told_notices(NoticePlan(notify=(inbox.url,)), [*equal, *others, *quiet, *end]) == ""
    titles = [each["title"] for each in inbox.got]
    assert titles == ["holdfast: demo: device held", *["holdfast: demo: hang found"] * 4, "holdfast: demo: job ended"]
    assert "15 further notices of this job were not sent." in inbox.got[-1]["message"]


@pytest.mark.extras
def test_a_success_sends_no_message_and_a_failure_does(inbox: Inbox) -> None:
    assert ran("good.py", notify=[inbox.url])[0].ok
    assert inbox.got == []
    report, _ = ran("bad.py", max_restarts=0, notify=[inbox.url])
    [message] = inbox.got
    assert report.reason in message["message"] and f"holdfast show {report.job_id}" in message["message"]


@pytest.mark.extras
def test_an_address_is_a_secret_everywhere(inbox: Inbox, scripts_at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("leak.py").write_text(
        f"import os\nprint(os.environ.get('HOLDFAST_NOTIFY'))\nraise ValueError('{inbox.url}')\n"
    )
    wrong = "json://token-abcdefgh@127.0.0.1:9/"
    monkeypatch.setenv("HOLDFAST_NOTIFY", f"{inbox.url},{wrong}")
    report, said = ran("leak.py", max_restarts=0, on_event="cat >> bodies")
    assert "--notify: exit status 1: address 2 (json://***) was not taken" in said
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "config", "--json"], capture_output=True, text=True, check=True
    ).stdout
    own = "".join(line for line in said.splitlines() if line.startswith(("holdfast:", "  ")))
    texts = [own, shown, report.text(), Path("bodies").read_text()]
    # A worker's log is the worker's own.
    files = [path for path in (scripts_at / "home").rglob("*") if path.is_file() and path.suffix != ".log"]
    texts += [path.read_bytes().decode(errors="replace") for path in files]
    assert not [text for text in texts if "geheim1234" in text or "abcdefgh" in text]
    [log] = (scripts_at / "home").rglob("stdout.log")
    assert log.read_text() == "None\n", "the worker had the variable"


def test_without_the_extra_no_job_starts_and_a_line_says_what_to_type(
    scripts_at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scripts_at / "gone").mkdir()
    (scripts_at / "gone" / "apprise.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(scripts_at / "gone"))
    with pytest.raises(BadUsage, match="apprise is not installed: pip install 'holdfast-run\\[notify\\]'"):
        ran("bad.py", max_restarts=0, notify=["json://127.0.0.1:9"])
    assert not list((scripts_at / "home").glob("jobs/*"))


def test_the_summary_is_appended_and_githubs_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("step.md").write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    report, _ = ran("bad.py", max_restarts=0)
    text = Path("step.md").read_text()
    assert text.startswith("# before\n\n## FAILED: bad\n") and f"`holdfast show {report.job_id}`" in text
    ran("good.py", summary="own.md")
    assert Path("own.md").read_text().startswith("\n## SUCCEEDED: good\n")
    assert Path("step.md").read_text() == text


def test_no_text_of_others_is_read_as_markdown() -> None:
    report = holdfast.explain(
        "ValueError: | <img src=x onerror=alert(1)> [a](http://b) ``` `c`\n", exit_code=1
    ).to_dict()
    hostile = {**report, "job": {"id": "j", "name": "n"}, "outcome": "failed", "attempts": []}
    text = markdown(hostile)
    [table, fenced] = text.split("````text")
    assert "<img" not in table and "[a]" not in table and "| <" not in table
    assert fenced.count("````") == 1


def test_a_job_file_has_the_same_keys() -> None:
    roles = {"worker": {"count": 1, "command": ["true"]}}
    job = {"name": "told", "roles": roles, "on_end": "cat > end.json", "summary": "s.md", "notify": []}
    said = io.StringIO()
    with redirect_stderr(said):
        report = holdfast.run(job, no_checks=True)
    assert json.loads(Path("end.json").read_text())["job"] == {"id": report.job_id, "name": "told"}
    assert "SUCCEEDED: told" in Path("s.md").read_text()


def test_a_run_without_notices_imports_none_of_it() -> None:
    unwanted = {"holdfast.owner.notice_sender", "holdfast.model.notice_messages"}
    code = (
        f"import holdfast.main.run_command, holdfast.main.single_machine_run, sys; print({unwanted} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
