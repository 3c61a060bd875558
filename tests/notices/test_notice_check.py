"""Notices are tried before a job starts: what could not arrive is said then, and not when the message was due."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from notice_inbox import Inbox, inbox

from conftest import Holdfast
from holdfast.launch.notice_check import notice_problems
from holdfast.model.notice_messages import NoticePlan

__all__ = ["inbox"]  # fixtures


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-mailer -s done me@here", "no-such-mailer"),
        ("./notify.sh", "./notify.sh"),
        ("/no/such/notify --now", "/no/such/notify"),
        ("  no-such-mailer", "no-such-mailer"),
        ("cat > end.json", ""),
        ("cd /tmp && ls", ""),
        ("test -s x || echo empty", ""),
        (". ./lines.sh", ""),
        ("TOKEN=1 no-such-mailer", ""),
        ("$MAILER done", ""),
        ("(echo a; echo b) > x", ""),
        ("'my program' x", ""),
        ("", ""),
    ],
)
def test_a_command_whose_program_the_shell_does_not_find_is_named(command: str, missing: str) -> None:
    for option, plan in (("--on-event", NoticePlan(on_event=command)), ("--on-end", NoticePlan(on_end=command))):
        found = [(problem.text, problem.certain) for problem in notice_problems(plan, os.environ)]
        assert found == ([(f"{option}: the shell finds no program {missing} on this node", False)] if missing else [])


def test_the_program_is_looked_for_where_the_command_will_run(tmp_path: Path) -> None:
    mailer = tmp_path / "no-such-mailer"
    mailer.write_text("#!/bin/sh\n")
    mailer.chmod(0o755)
    plan = NoticePlan(on_end="no-such-mailer me")
    assert list(notice_problems(plan, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})) == []


@pytest.mark.real
def test_a_missing_program_is_a_warning_at_the_start(holdfast: Holdfast) -> None:
    ran = holdfast.run("--on-end", "no-such-mailer me@here", holdfast.script("print('trained')"))
    first = ran.err.partition("the worker is up")[0]
    assert "warning: --on-end: the shell finds no program no-such-mailer on this node" in first
    assert ran.status == 0


@pytest.mark.real
@pytest.mark.parametrize("place", ["nosuch/x.md", "folder", "locked.md"])
def test_a_summary_that_cannot_be_written_is_refused_at_the_start(holdfast: Holdfast, place: str) -> None:
    (holdfast.dir / "folder").mkdir()
    (holdfast.dir / "locked.md").touch(0o444)
    if place == "locked.md" and os.getuid() == 0:
        pytest.skip("root may write it")
    ran = holdfast("run", "--no-checks", "--summary", place, holdfast.script("print('trained')"))
    assert (ran.status, ran.out) == (2, "")
    assert f"--summary {holdfast.dir / place}: " in ran.err and "try: " in ran.err


@pytest.mark.real
def test_the_summary_of_an_environment_that_is_gone_is_a_warning(holdfast: Holdfast) -> None:
    ran = holdfast.run(holdfast.script("print('trained')"), GITHUB_STEP_SUMMARY="/no/such/folder/step.md")
    assert ran.status == 0
    assert "warning: $GITHUB_STEP_SUMMARY: " in ran.err.partition("the worker is up")[0]


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize("url", ["nosuch://token-abcdefgh@host", "no address at all", "slack:/token-abcdefgh"])
def test_an_address_that_apprise_does_not_know_is_refused_at_the_start(holdfast: Holdfast, url: str) -> None:
    ran = holdfast("run", "--no-checks", holdfast.script("print('trained')"), HOLDFAST_NOTIFY=f"json://h/,{url}")
    assert (ran.status, ran.out) == (2, "")
    assert "--notify: address 2 (" in ran.err and "no address that apprise knows" in ran.err
    assert "abcdefgh" not in ran.err and "holdfast notify --test" in ran.err


@pytest.mark.real
@pytest.mark.extras
def test_a_test_message_reaches_each_address_or_says_why_not(holdfast: Holdfast, inbox: Inbox) -> None:
    sent = holdfast("notify", "--test", HOLDFAST_NOTIFY=inbox.url)
    assert (sent.status, sent.out) == (0, "address 1 (json://***): took the message\n")
    [message] = inbox.got
    assert "test" in message["title"] and "This is a test" in message["message"]
    both = holdfast("notify", "--test", "--notify", f"{inbox.url},json://token-abcdefgh@127.0.0.1:9/")
    assert both.status == 1 and len(inbox.got) == 2
    assert "address 2 (json://***): did not: " in both.out and "abcdefgh" not in both.out + both.err


@pytest.mark.real
def test_a_test_of_nobody_says_what_was_expected(holdfast: Holdfast) -> None:
    nobody = holdfast("notify", "--test")
    assert nobody.status == 2 and "no address is set" in nobody.err and "HOLDFAST_NOTIFY=" in nobody.err
    assert "--test was expected" in holdfast("notify").err
