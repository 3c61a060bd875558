"""`holdfast show --html`: one page for a ticket, from a real job; no text of the job can make another page of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from conftest import Holdfast
from drilling import Cluster
from holdfast.model.decisions import JobReport
from holdfast.model.exit_report import Evidence, EvidenceKind, Outcome
from holdfast.model.human_format import utc
from holdfast.record.job_views import JobDetail, JobState, JobView
from holdfast.report.page import page
from holdfast.report.report_json import pretty, to_json_object
from swimlane_story import BEGAN, HOSTILE_TEXT, story, tags

API_KEY = "sk-abcdefghijklmnopqrstuvwx"
LEAKS_KEY = f"""
    import os, sys
    if os.environ["RANK"] == "1":
        print("logging in with api_key={API_KEY}", file=sys.stderr)
        raise KeyError("<b>labels</b> & more, api_key={API_KEY}")
    sys.stdin.read()
    import signal; signal.pause()
"""


@pytest.mark.real
def test_the_page_of_a_failed_job_says_why_who_and_what_next(holdfast: Holdfast) -> None:
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "1", holdfast.script(LEAKS_KEY), "--api-key", API_KEY)
    made = holdfast("show", "--html", "job.html")
    assert made.status == 0 and made.out == ""
    text = (holdfast.dir / "job.html").read_text()
    assert "&lt;b&gt;labels&lt;/b&gt; &amp; more" in text and "<b>labels" not in text
    for said in (
        "UserException",
        "the culprit",
        "Other ranks",
        "ranks 0 and 2",
        "Decision: fail",
        "--max-restarts",
    ):
        assert said in text
    assert "job.py:5 in &lt;module&gt;" in text and "/attempt-2/worker-1/stderr.log:" in text
    assert ran.report["job"]["id"] in text and str(ran.report["code"]) in text
    assert "&gt; 5 |     raise KeyError(&quot;&lt;b&gt;labels&lt;/b&gt; &amp; more, api_key=***" in text
    assert API_KEY not in text and API_KEY.encode() not in (holdfast.dir / "job.html").read_bytes()
    assert "<script" not in text and not re.search(r"(?:src|href)=[\"'](?!#)", text) and "url(http" not in text
    assert stat.S_IMODE((holdfast.dir / "job.html").stat().st_mode) == 0o666 & ~_umask()


@pytest.mark.real
def test_a_dash_is_stdout_and_only_the_page_is_there(holdfast: Holdfast) -> None:
    holdfast.run("--max-restarts", "0", holdfast.script("raise ValueError(1)"))
    made = holdfast("show", "--html", "-")
    assert made.out.startswith("<!doctype html>") and made.out.endswith("</html>\n") and made.err == ""


@pytest.mark.real
def test_what_is_no_file_stays_as_it_is_with_one_message(holdfast: Holdfast) -> None:
    holdfast.run("--max-restarts", "0", holdfast.script("raise ValueError(1)"))
    (holdfast.dir / "folder").mkdir()
    os.mkfifo(holdfast.dir / "pipe")
    for name, said in [
        ("folder", "is a directory, and a file was expected"),
        ("pipe", "is a named pipe, and a file was expected"),
        ("/dev/null", "is a device, and a file was expected"),
        ("nowhere/job.html", "there is no directory"),
        ("", "the name of the file is empty"),
    ]:
        made = holdfast("show", "--html", name)
        assert (made.status, made.out) == (2, "")
        assert said in made.err and made.err.count("holdfast:") == 1 and "Traceback" not in made.err
    both = holdfast("show", "--html", "x.html", "--json")
    assert both.status == 2 and not (holdfast.dir / "x.html").exists()


@pytest.mark.real
def test_a_link_to_a_file_stays_a_link(holdfast: Holdfast) -> None:
    holdfast.run("--max-restarts", "0", holdfast.script("raise ValueError(1)"))
    (holdfast.dir / "real.html").write_text("old")
    (holdfast.dir / "link.html").symlink_to("real.html")
    assert holdfast("show", "--html", "link.html").status == 0
    assert (holdfast.dir / "link.html").is_symlink()
    assert (holdfast.dir / "real.html").read_text().startswith("<!doctype html>")


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def _known(
    name: str, said: str, *, nodes: int = 1, each: int = 3, attempts: int = 2, node: str = "n{}"
) -> tuple[JobDetail, str]:
    """A failed job whose texts are `said`, and its report as JSON."""
    _, records = story(nodes=nodes, each=each, attempts=attempts, node_name=node)
    evidence = tuple(
        Evidence(kind=EvidenceKind.LOG, text=f"line\n{said}", source=said, at=BEGAN, node=said) for _ in range(3)
    )
    worse = [
        replace(
            record,
            report=replace(
                record.report, phrase=said, reason=said, solution=f"x{said}", evidence=evidence, hint=f"x{said}"
            ),
            decision=replace(record.decision, reason=said, avoid=(said,)),
        )
        for record in records
    ]
    report = JobReport(job_id="j", name=name, outcome=Outcome.FAILED, report=worse[-1].report, attempts=tuple(worse))
    view = JobView(id="j", name=name, created=BEGAN, host=said, pid=1, state=JobState.ENDED, ended=BEGAN + 200)
    return JobDetail(view=view, report=report, attempts=report.attempts), pretty(to_json_object(report))


@settings(max_examples=40)
@given(HOSTILE_TEXT, HOSTILE_TEXT)
def test_no_text_of_a_job_adds_a_tag_or_an_attribute_to_its_page(name: str, said: str) -> None:
    def written(name: str, said: str) -> str:
        known, as_json = _known(f"x{name}", f"x{said}", node="n{}" + name.replace("{", "").replace("}", ""))
        events, _ = story(each=3, attempts=2, node_name="n{}" + name.replace("{", "").replace("}", ""), name=said)
        return page(known, events, utc, now=BEGAN, report_json=as_json, written_by=said)

    assert tags(written(name, said)) == tags(written("harmless", "harmless"))
    assert not set("\x00\x1b\u202e") & set(written(name, said))


def test_the_page_of_a_thousand_ranks_is_small_enough_for_a_ticket() -> None:
    """As large as that of ten thousand: it must not grow with the ranks."""
    known, as_json = _known("big", "said", nodes=125, each=8, attempts=24)
    events, _ = story(nodes=125, each=8, attempts=24)
    written = page(known, events, utc, now=BEGAN, report_json=as_json, written_by="a test")
    assert len(written.encode()) <= 240_000


def test_a_job_that_runs_has_a_page_too() -> None:
    events, _ = story()
    view = JobView(id="j", name="lives", created=BEGAN, host="h", pid=1, state=JobState.RUNNING)
    written = page(
        JobDetail(view=view, report=None, attempts=()), events[:5], utc, now=BEGAN + 9, report_json="{}", written_by="a"
    )
    assert ">running</span>" in written and "attempt 1: running" in written


def test_a_page_without_a_journal_has_its_attempts_all_the_same() -> None:
    known, as_json = _known("job", "said")
    written = page(known, [], utc, now=BEGAN, report_json=as_json, written_by="a test")
    assert "2 attempts of 0 ranks" in written and "ranks 0 and 2" in written


@pytest.mark.real
def test_the_page_says_of_a_hang_that_the_others_waited(holdfast: Holdfast) -> None:
    script = """
        import os, socket, time
        one, other = socket.socketpair()
        time.sleep(600) if os.environ["RANK"] == "1" else one.recv(1)
    """
    holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", "--hang-timeout", "1", holdfast.script(script))
    text = holdfast("show", "--html", "-").out
    assert "nothing moved for" in text and "hang at" in text
    assert "waited; the hang detector names another rank" in text


@pytest.mark.real
@pytest.mark.drill
def test_the_page_of_a_job_over_nodes_shows_the_node_that_lost_its_power(cluster: Callable[..., Cluster]) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "2", "--spares", "1", "--rdzv-conf", "last_call_timeout=2")
    job.common_step(1)
    lost = next(node for node in (job.net[2], job.net[3]) if node.host in job.hosts(1).values())
    lost.power_cut()
    job.common_step(2)
    job.finish()
    job.end(but=[lost.number])
    made = job.holdfast(job.net[1], "show", "--html", job.net[1].place / "job.html")
    assert made.wait() == 0, made.err
    text = (job.net[1].place / "job.html").read_text()
    assert "node lost at" in text and "has been silent for" in text and lost.host in text
    assert "10.77.0.1" in text and "stop asked" not in text
    assert text.count("attempt 1: NodeFailed") >= 1 and "finished at" in text
    if folder := os.environ.get("HOLDFAST_TESTS_PICTURES"):
        (Path(folder) / "drill.html").write_text(text)
