"""The dates in a report: years and zones that stamps leave out come from the log's file, and no date is made up."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.report.brief_report import render_exit
from holdfast.report.failure_place import FailurePlace

WATCHDOG_OF_2 = (
    "[rank2]:[E{stamp}.123456789 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=1042, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600023 milliseconds"
    " before timing out.\n"
)


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def evidence_time(text: str, written_at: float | None, utc_offset_s: float = 0.0) -> float | None:
    """Of the deciding line of this log."""
    log = LogExcerpt(source="rank2.log", text=text, written_at=written_at, utc_offset_s=utc_offset_s)
    return explain(AttemptEvidence(workers=(WorkerEvidence(rank=2, log=log),))).evidence[0].at


def test_a_stamp_without_a_year_is_of_the_year_in_which_its_file_was_written() -> None:
    at = evidence_time(WATCHDOG_OF_2.format(stamp="0314 09:14:39"), moment("2021-03-14T09:20:00+00:00"))
    assert at == pytest.approx(moment("2021-03-14T09:14:39.123456+00:00"))


def test_a_line_of_new_years_eve_that_is_read_in_the_new_year_is_of_the_old_year() -> None:
    at = evidence_time(WATCHDOG_OF_2.format(stamp="1231 23:59:58"), moment("2027-01-01T00:00:10+00:00"))
    assert at == pytest.approx(moment("2026-12-31T23:59:58.123456+00:00"))


def test_a_line_of_new_year_may_seem_a_little_younger_than_its_file() -> None:
    """Its writer's clock shows another zone, or is ahead."""
    at = evidence_time(WATCHDOG_OF_2.format(stamp="0101 00:30:00"), moment("2026-12-31T23:59:58+00:00"))
    assert at == pytest.approx(moment("2027-01-01T00:30:00.123456+00:00"))


def test_a_leap_day_is_of_a_leap_year() -> None:
    at = evidence_time(WATCHDOG_OF_2.format(stamp="0229 12:00:00"), moment("2026-06-01T00:00:00+00:00"))
    assert at == pytest.approx(moment("2024-02-29T12:00:00.123456+00:00"))


def test_a_stamp_without_a_zone_is_local_time() -> None:
    written = moment("2026-11-22T09:15:00+09:00")
    assert evidence_time(WATCHDOG_OF_2.format(stamp="1122 09:14:39"), written, 9 * 3600) == pytest.approx(
        moment("2026-11-22T09:14:39.123456+09:00")
    )
    logged = "2026-11-22 09:14:39,500 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert evidence_time(logged, written, 9 * 3600) == pytest.approx(moment("2026-11-22T09:14:39.5+09:00"))


def test_a_stamp_with_a_zone_keeps_it() -> None:
    logged = "2026-11-22T09:14:39.5Z ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    at = evidence_time(logged, moment("2026-11-23T00:00:00+00:00"), 9 * 3600)
    assert at == pytest.approx(moment("2026-11-22T09:14:39.5+00:00"))


@pytest.mark.parametrize(
    "line",
    [
        "09:14:39 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        "[1234567.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n",
    ],
)
def test_where_only_a_clock_time_is_known_no_date_is_shown(line: str) -> None:
    log = LogExcerpt(source="job.log", text=line, written_at=moment("2026-11-22T09:20:00+00:00"))
    report = explain(AttemptEvidence(workers=(WorkerEvidence(log=log),)))
    assert report.phrase != "Unexplained"
    assert {item.at for item in report.evidence} == {None}
    assert "1970" not in render_exit(report, FailurePlace())


def test_a_log_alone_never_dates_the_culprit() -> None:
    log = LogExcerpt(source="a", text=WATCHDOG_OF_2.format(stamp="1122 09:14:39"), written_at=1_795_000_000.0)
    report = explain(AttemptEvidence(workers=(WorkerEvidence(log=log),)))
    assert report.first is not None
    assert report.first.at is None


def explained_in(*args: str, tz: str, stdin: str = "") -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "explain", "--json", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TZ": tz},
    )
    loaded: dict[str, object] = json.loads(done.stdout)
    return loaded


def test_an_old_file_read_in_tokyo(tmp_path: Path) -> None:
    log = tmp_path / "rank2.log"
    log.write_text(WATCHDOG_OF_2.format(stamp="1231 23:59:58"))
    written = moment("2020-01-01T00:00:05+09:00")
    os.utime(log, (written, written))
    report = explained_in(str(log), tz="Asia/Tokyo")
    assert report["evidence"][0]["at"] == pytest.approx(moment("2019-12-31T23:59:58.123456+09:00"))  # type: ignore[index]  # JSON's objects are not typed


def test_standard_input_is_of_now() -> None:
    then = time.time() - 60
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(then + 9 * 3600))
    report = explained_in("-", tz="Asia/Tokyo", stdin=WATCHDOG_OF_2.format(stamp=stamp))
    assert abs(report["evidence"][0]["at"] - then) < 2  # type: ignore[index]  # JSON's objects are not typed


@pytest.mark.real
def test_the_culprits_time_is_that_of_its_exit(holdfast: Holdfast) -> None:
    """Rank 2 never joins; the others write stamps of another day, and give up on it."""
    script = holdfast.script(
        f"""
        import os, sys, time
        rank = int(os.environ["RANK"])
        if rank == 2:
            time.sleep(60)
        time.sleep(0.2)
        sys.stderr.write({WATCHDOG_OF_2.format(stamp="0704 09:14:39")!r}.replace("ank 2", f"ank {{rank}}"))
        sys.stderr.flush()
        os.abort()
        """
    )
    began = time.time()
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script, TZ="Asia/Tokyo")
    report = ran.report
    assert (report["phrase"], report["first"]["rank"]) == ("CollectiveTimeout", 2)
    assert began < report["first"]["at"] < time.time()
    assert "1970" not in ran.err
    (said,) = [item for item in report["evidence"] if "Watchdog caught" in item["text"] and item["kind"] == "log"]
    year = datetime.datetime.fromtimestamp(time.time(), datetime.UTC).year
    assert said["at"] in [pytest.approx(moment(f"{before}-07-04T09:14:39.123456+09:00")) for before in (year, year - 1)]
