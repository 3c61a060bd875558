"""The pages Failures and Goodput, and /metrics, of real jobs and of a long history."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families
from web_site import Served

from holdfast_testing.history_generator import make_history

MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def long_history(web_of: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server on 400 jobs of half a year."""
    home = tmp_path_factory.mktemp("long")
    make_history(home, jobs=400, ranks=64, now=1_795_000_000.0)
    return web_of(home)


def test_equal_failures_are_one_group_with_their_jobs_and_what_another_attempt_did(web: Served) -> None:
    found = web.ask("/failures.json").json
    by_jobs = {job["name"]: group for group in found["groups"] for job in group["newest"]}
    again = by_jobs["again"]
    assert (again["count"], again["jobs"], again["retried"], again["helped"]) == (1, 1, 1, 1)
    assert again["fingerprint"] != by_jobs["broken"]["fingerprint"], "it is another program"
    assert sum(group["count"] for group in found["groups"]) == found["count"]
    assert sum(row["count"] for row in found["classes"]) == found["count"]
    assert found["mtbf_s"] > 0 and found["mttr_s"] > 0


def test_the_page_of_failures_shows_what_its_twin_holds(web: Served) -> None:
    page, found = web.ask("/failures").text, web.ask("/failures.json").json
    for group in found["groups"]:
        assert group["phrase"] in page and all(f"/job/{job['id']}" in page for job in group["newest"])
    for row in found["nodes"]:
        assert row["node"] in page


def test_a_class_in_the_address_leaves_the_others_out(long_history: Served) -> None:
    found = long_history.ask("/failures.json?days=0&class=HungWorker").json
    assert {group["phrase"] for group in found["groups"]} == {"HungWorker"}
    assert len(found["classes"]) > 3, "the map keeps all classes, so that one can choose another"


def test_a_node_with_most_failures_of_a_kind_is_named(long_history: Served) -> None:
    found = long_history.ask("/failures.json?days=0&class=AcceleratorLost").json
    assert any("on gpu-013" in group["shared"] for group in found["groups"])
    assert found["nodes"][0]["node"] == "gpu-013"


def test_all_time_is_told_apart_and_the_parts_come_to_the_whole(long_history: Served) -> None:
    found = long_history.ask("/goodput.json?days=0").json
    whole = found["all"]
    assert whole["wall_s"] == pytest.approx(sum(whole["seconds"].values()))
    assert whole["ettr"] == pytest.approx(whole["seconds"]["productive"] / whole["wall_s"])
    causes = {"lost_work", "start", "checks", "detection", "hang", "drain", "decision", "backoff"}
    assert causes <= set(whole["seconds"])
    days = long_history.ask("/goodput.json?days=0").json
    assert [row["label"] for row in days["rows"]] == sorted((row["label"] for row in days["rows"]), reverse=True)
    assert [one["day"] for one in days["trend"]] == [row["label"] for row in reversed(days["rows"])]
    assert 0 < sum(row["wall_s"] for row in days["rows"]) < whole["wall_s"] and days["left_out"] > 0
    for by in ("week", "name"):
        rows = long_history.ask(f"/goodput.json?days=0&by={by}").json["rows"]
        assert sum(row["wall_s"] for row in rows) == pytest.approx(whole["wall_s"])
        for row in rows:
            assert sum(piece["width"] for piece in row["pieces"]) == pytest.approx(1000, abs=1)


def test_the_page_of_equal_failures_has_each_of_them_by_day(long_history: Served) -> None:
    [group, *_] = sorted(long_history.ask("/failures.json?days=0").json["groups"], key=lambda each: -each["count"])
    address = f"/failures/group{{}}?{urlencode({'key': group['fingerprint']})}"
    found = long_history.ask(address.format(".json")).json
    assert (found["count"], found["phrase"], found["reason"]) == (group["count"], group["phrase"], group["reason"])
    assert (found["first_at"], found["last_at"]) == (group["first_at"], group["last_at"])
    assert sum(found["nodes"].values()) <= found["count"] == len(found["failures"]) + found["left_out"]
    assert {failure["job"] for failure in found["failures"]} >= {job["id"] for job in group["newest"]}
    assert 0 < sum(one["count"] for one in found["days"]) <= found["count"] and len(found["days"]) <= 60
    assert max(one["height"] for one in found["days"]) == 100
    text = long_history.ask(address.format("")).text
    assert f"Seen {found['count']} times" in text and text.count("<tr>") == 1 + len(found["failures"])
    assert f"/failures/group?{urlencode({'key': group['fingerprint']}, quote_via=quote)}" in html.unescape(
        long_history.ask("/failures?days=0").text
    )
    assert long_history.ask("/failures/group?key=none").status == 404


def test_a_name_in_the_address_is_all_that_is_counted(long_history: Served) -> None:
    rows = long_history.ask("/goodput.json?days=0&by=name").json["rows"]
    alone = long_history.ask(f"/goodput.json?days=0&name={rows[0]['label']}").json
    assert alone["all"]["wall_s"] == pytest.approx(rows[0]["wall_s"])


@pytest.mark.parametrize(
    "path", ["/goodput?by=hour", "/goodput?days=x", "/failures?days=-1", "/failures?days=99999999"]
)
def test_a_choice_that_there_is_not_says_what_was_expected(web: Served, path: str) -> None:
    answer = web.ask(path)
    assert (answer.status, "expected" in answer.text) == (400, True)


@pytest.mark.parametrize("path", ["/failures?days=0", "/goodput?days=0", "/goodput?days=0&by=name"])
def test_a_long_history_is_a_short_page_without_style_in_it(long_history: Served, path: str) -> None:
    text = long_history.ask(path).text
    assert len(text.encode()) < MOST_BYTES
    assert not re.search(r"style=|<script(?! src)", text), "the policy of the pages forbids both"


def test_a_home_without_jobs_has_pages_too(web_of: Callable[..., Served], tmp_path: Path) -> None:
    empty = web_of(tmp_path)
    assert "No attempt has failed" in empty.ask("/failures").text
    assert "No attempt of these jobs has ended" in empty.ask("/goodput").text


def test_prometheus_reads_what_is_served_under_metrics(web: Served) -> None:
    answer = web.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    ended = {sample.labels["job"]: sample.value for sample in families["holdfast_jobs_ended"].samples}
    assert ended == {"good": 1, "again": 1, "broken": 1}
    assert web.ask("/metrics", token=False).status == 401
