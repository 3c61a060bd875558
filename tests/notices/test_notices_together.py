"""Jobs that die of one cause within minutes: who is told what, and what is kept of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from notice_inbox import Inbox, inbox

from holdfast.model.codec import encode
from holdfast.model.notice_messages import NoticeKind
from holdfast.notices import message_grouping
from holdfast.notices.message_grouping import MOST_JOBS, MOST_TOLD, WINDOW_S, GroupBook, key_of, with_message

__all__ = ["inbox"]  # the fixture

JOB_END = NoticeKind.JOB_ENDED
QUOTA = "QuotaExceeded|status 1|OSError|train.py:{place}:save||no room in /data/{user}/ckpt-{n}|"


def sends(book: GroupBook, key: str, jobs: range, now: float) -> tuple[GroupBook, dict[int, str]]:
    """The book after these jobs, and what was said of other jobs by each that sent a message."""
    said = {}
    for number in jobs:
        book, words = with_message(book, key, f"job{number}", now + number)
        if words is not None:
            said[number] = words
    return book, said


def test_the_first_job_sends_a_message_and_then_the_tenth_with_what_was_not_sent() -> None:
    _, said = sends(GroupBook(), "k", range(1, 21), 1000.0)
    assert list(said) == [1, 10]
    assert said[1] == ""
    assert said[10].startswith("10 jobs had the same in 1 minute; 8 of them sent no message: job1, job2, ")


def test_a_later_occasion_sends_a_message_again_and_says_what_was_not_sent_before() -> None:
    book, _ = sends(GroupBook(), "k", range(1, 4), 1000.0)
    _, words = with_message(book, "k", "job9", 1001.0 + WINDOW_S)
    assert words == "Before, 3 jobs had the same within 15 minutes; 2 of them sent no message."


def test_a_clock_that_was_set_back_holds_no_message_back() -> None:
    book, _ = with_message(GroupBook(), "k", "job1", 1000.0)
    assert with_message(book, "k", "job2", 10.0)[1] == ""


def test_another_owner_of_a_job_does_not_tell_the_same_again() -> None:
    book, _ = with_message(GroupBook(), "k", "job1", 1000.0)
    assert with_message(book, "k", "job1", 1001.0) == (book, None)


def test_what_is_kept_has_a_limit() -> None:
    book = GroupBook()
    for number in range(3 * MOST_TOLD):
        book, _ = with_message(book, f"k{number}", "job", float(number))
    book, _ = sends(book, "k", range(1, 500), 1000.0)
    assert len(book.told) == MOST_TOLD and len(book.told[-1].last) == MOST_JOBS
    assert len(encode(book)) < 100_000


def test_causes_are_equal_whatever_numbers_and_paths_their_messages_name() -> None:
    one = key_of(["u"], JOB_END, QUOTA.format(place=7, user="ada", n=17), "a")
    assert one == key_of(["u"], JOB_END, QUOTA.format(place=7, user="bob", n=4), "b")
    assert one != key_of(["u"], JOB_END, QUOTA.format(place=8, user="ada", n=17), "a")
    assert one != key_of(["v"], JOB_END, QUOTA.format(place=7, user="ada", n=17), "a"), "other people"


@pytest.mark.parametrize("kind", [JOB_END, NoticeKind.HANG_FOUND])
def test_a_failure_that_says_nothing_and_a_hang_are_told_for_each_name_of_a_job(kind: NoticeKind) -> None:
    nothing = "Unexplained|status 1|||||"
    assert key_of(["u"], kind, nothing, "a") != key_of(["u"], kind, nothing, "b")
    assert key_of(["u"], kind, nothing, "a") == key_of(["u"], kind, nothing, "a")


def test_a_device_is_one_device_whichever_job_tells_of_it() -> None:
    held = NoticeKind.DEVICE_HELD
    assert key_of(["u"], held, "n1|gpu0|79", "a") == key_of(["u"], held, "n1|gpu0|79", "b")
    assert key_of(["u"], held, "n1|gpu0|79", "a") != key_of(["u"], held, "n1|gpu1|79", "a")


def sending(home: Path, url: str, job: str) -> subprocess.Popen[bytes]:
    message = {"urls": [url], "title": "t", "body": f"{job} FAILED", "home": str(home), "job": job, "key": "k"}
    with (home / f"{job}.json").open("w+b") as given:
        given.write(json.dumps(message).encode())
        given.seek(0)
        command = [sys.executable, "-P", "-m", "holdfast.notices.send_message"]
        return subprocess.Popen(command, stdin=given, stderr=subprocess.PIPE)


def sent_together(home: Path, url: str, jobs: range) -> list[str]:
    """What the processes print that send for all these jobs at once."""
    processes = [sending(home, url, f"job{number}") for number in jobs]
    return [process.communicate(timeout=120)[1].decode() for process in processes]


@pytest.mark.real
def test_jobs_that_end_at_the_same_moment_send_one_message(inbox: Inbox, tmp_path: Path) -> None:
    assert set(sent_together(tmp_path, inbox.url, range(6))) == {""}
    assert len(inbox.got) == 1
    [one] = json.loads((tmp_path / message_grouping.FILE_NAME).read_text())["told"]
    assert (one["jobs"], one["unsent"]) == (6, 5)
    assert "geheim" not in (tmp_path / message_grouping.FILE_NAME).read_text()


@pytest.mark.real
def test_a_message_that_does_not_come_through_holds_no_other_back(inbox: Inbox, tmp_path: Path) -> None:
    wrong = "json://127.0.0.1:9/"
    assert "was not taken" in sent_together(tmp_path, wrong, range(1))[0]
    assert sent_together(tmp_path, inbox.url, range(1, 2)) == [""]
    assert [each["message"] for each in inbox.got] == ["job1 FAILED"]


@pytest.mark.real
@pytest.mark.parametrize("broken", ["damaged", "no file", "full"])
def test_a_file_that_cannot_be_used_holds_no_message_back(inbox: Inbox, tmp_path: Path, broken: str) -> None:
    book = tmp_path / message_grouping.FILE_NAME
    match broken:
        case "damaged":
            book.write_text('{"told": [{"k')
        case "no file":
            book.mkdir()
        case "full":
            book.symlink_to("/dev/full")
    assert sent_together(tmp_path, inbox.url, range(1)) == [""]
    assert [each["message"] for each in inbox.got] == ["job0 FAILED"]
