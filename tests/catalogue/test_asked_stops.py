"""Stops that components ask for: their own phrase and code, and `*.pai.error` files while the job runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for
from holdfast.catalogue.exit_rows import load
from holdfast.catalogue.stop_phrases import choose, known, misshapen, own_row
from holdfast.explain.logs.stop_file_lines import order_of, words_of
from holdfast.safe_files import end_of_file

SLEEPER = """
import pathlib, time
pathlib.Path("up").write_text("yes")
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("phrase", "code", "who", "words"),
    [
        ("quota", None, "", "CamelCase"),
        ("Node Drained", None, "", "CamelCase"),
        ("X" * 80 + "y", None, "", "CamelCase"),
        ("Mine", 205, "", "workers' own contract"),
        ("Mine", 0, "", "no code"),
        ("Mine", 137, "", "no code"),
        ("Mine", 255, "", "no code"),
        ("Mine", 300, "", "no code"),
        ("Mine", 198, "scheduler", "the disk cleaner's"),
        ("KilledByDiskCleaner", None, "", "the disk cleaner's"),
        ("KilledByDiskCleaner", 190, "diskCleaner", "one phrase has one code"),
        ("Preempted", 190, "", "one phrase has one code"),
        ("KilledBySignal", None, "", "cannot be asked for"),
        ("", 195, "", "needs a phrase"),
    ],
)
def test_a_phrase_or_a_code_that_may_not_be_is_refused_in_words(
    phrase: str, code: int | None, who: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        choose(phrase, code, who, load())


def test_a_known_phrase_keeps_its_code_and_an_own_one_gets_one() -> None:
    assert choose("", None, "", load()) == ("StoppedByOperator", None)
    assert choose("Preempted", 196, "", load()) == ("Preempted", None)
    assert choose("NodeDrained", 195, "scheduler", load()) == ("NodeDrained", 195)
    assert choose("NodeDrained", None, "scheduler", load()) == ("NodeDrained", 250)
    assert choose("", 198, "diskCleaner", load()) == ("KilledByDiskCleaner", None)


def test_an_own_code_puts_the_blame_on_nobody() -> None:
    legal = [code for code in range(-1, 400) if not misshapen("Mine", code, "diskCleaner")]
    assert legal == [*range(160, 200), *range(220, 255)]
    assert {own_row("Mine", code).blame for code in legal} == {"unknown"}
    assert [code for code in legal if own_row("Mine", code).rerun == "never"] == [250]
    assert "Mine" not in known(load())


@pytest.mark.parametrize(
    ("lines", "phrase", "code", "trouble"),
    [
        ([], "StoppedByOperator", None, ""),
        (['PHRASE "NodeDrained"', 'CODE "195"'], "NodeDrained", 195, ""),
        (['PHRASE "NodeDrained"', "CODE many"], "StoppedByOperator", None, "is no number"),
        (["CODE 198"], "StoppedByOperator", None, "the disk cleaner's"),
    ],
)
def test_the_words_of_an_order(lines: list[str], phrase: str, code: int | None, trouble: str) -> None:
    text = ['ACTION "KILL"', 'REASON "old"', 'REASON "the node is drained"', *lines]
    order = order_of("scheduler", words_of(f"234346457 ERROR {line}" for line in text), load())
    assert order is not None
    assert (order.reason, order.phrase, order.code) == ("the node is drained", phrase, code)
    assert trouble in order.trouble


def test_an_order_without_a_reason_is_none() -> None:
    assert order_of("scheduler", {"ACTION": "KILL"}, load()) is None
    assert order_of("scheduler", {"ACTION": "LOG", "REASON": "x"}, load()) is None


def test_only_the_end_of_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100_000 + b"end")
    assert end_of_file(tmp_path / "big", 5) == b"xxend"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        end_of_file(tmp_path / "pipe", 5)


@pytest.mark.real
def test_a_kill_order_in_a_file_is_obeyed_while_the_job_runs(holdfast: Holdfast) -> None:
    started = holdfast.start("run", "--no-checks", "--grace", "1", holdfast.script(SLEEPER))
    wait_for(holdfast.dir / "up")
    [attempt] = holdfast.home.glob("jobs/*/attempt-1")
    (attempt / "noise.pai.error").write_bytes(os.urandom(30_000))
    (attempt / "gone.pai.error").symlink_to("/nowhere")
    (attempt / "endless.pai.error").symlink_to("/dev/zero")
    os.mkfifo(attempt / "pipe.pai.error")
    (attempt / "other.pai.error").write_text('1 ERROR ACTION "KILL"\n')
    for line in ('ACTION "KILL"', 'REASON "the node is drained"', 'SOLUTION "wait"', "PHRASE NodeDrained", "CODE 195"):
        with (attempt / "scheduler.pai.error").open("a") as file:
            file.write(f"234346457 ERROR {line}\n")
    ran = holdfast.finish(started)
    report = ran.report
    assert (ran.status, report["code"], report["phrase"]) == (195, 195, "NodeDrained")
    assert (report["reason"], report["solution"], report["blame"]) == ("the node is drained", "wait", "unknown")
    assert report["evidence"][0]["source"] == "scheduler.pai.error"
    agg = (attempt / "runtime.pai.agg.error").read_text()
    assert 'reason: "the node is drained"' in agg
    assert "exitcode: 195" in agg


@pytest.mark.real
def test_a_disk_cleaner_of_the_site_stops_a_job_with_its_own_words(holdfast: Holdfast) -> None:
    started = holdfast.start("run", "--no-checks", "--grace", "1", holdfast.script(SLEEPER))
    wait_for(holdfast.dir / "up")
    [attempt] = holdfast.home.glob("jobs/*/attempt-1")
    whole = attempt / ".fresh"
    whole.write_text('2 ERROR ACTION "KILL"\n2 ERROR REASON "it used most disk space"\n2 ERROR SOLUTION "elsewhere"\n')
    whole.rename(attempt / "diskCleaner.pai.error")
    ran = holdfast.finish(started)
    assert (ran.status, ran.report["phrase"], ran.report["reason"]) == (
        198, "KilledByDiskCleaner", "it used most disk space",
    )  # fmt: skip
    assert ran.report["trigger"] == "diskCleanerErrorLog"


@pytest.mark.real
def test_stop_takes_a_phrase_and_a_code_and_refuses_what_may_not_be(holdfast: Holdfast) -> None:
    started = holdfast.start("run", "--no-checks", "--grace", "1", "--name", "x", holdfast.script(SLEEPER))
    wait_for(holdfast.dir / "up")
    stop = ("stop", "x", "--reason", "quota is over")
    refused = holdfast(*stop, "--phrase", "Preempted", "--code", "190")
    assert refused.status == 2
    assert "Preempted has code 196, and 190 was given" in refused.err
    assert holdfast(*stop, "--code", "201").status == 2
    assert holdfast(*stop, "--phrase", "QuotaIsOver", "--code", "197", "--who", "quotad").status == 0
    ran = holdfast.finish(started)
    assert (ran.status, ran.report["phrase"], ran.report["outcome"]) == (197, "QuotaIsOver", "failed")
    assert "asked by quotad" in ran.report["reason"]


@pytest.mark.real
def test_an_own_phrase_without_a_code_is_a_users_stop(holdfast: Holdfast) -> None:
    started = holdfast.start("run", "--no-checks", "--grace", "1", "--name", "x", holdfast.script(SLEEPER))
    wait_for(holdfast.dir / "up")
    assert holdfast("stop", "x", "--reason", "the rack is upgraded", "--phrase", "RackFirmware").status == 0
    report = holdfast.finish(started).report
    assert (report["code"], report["phrase"], report["outcome"], report["blame"]) == (
        250, "RackFirmware", "stopped", "unknown",
    )  # fmt: skip
