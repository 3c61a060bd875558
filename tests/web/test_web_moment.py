"""All ranks at one moment: what each had written by then, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from web_site import Served, run, script

STEPS_IN_TURN = """
    import os, time
    rank = int(os.environ["RANK"])
    for step in range(4):
        if step % 2 == rank:
            print(f"step {step} <b>of</b> rank {rank}", flush=True)
        time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def site_of_turns(web_of: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, str]:
    folder = tmp_path_factory.mktemp("turns")
    home = folder / "home"
    assert run(home, script(folder, STEPS_IN_TURN)) == 0
    web = web_of(home)
    return web, web.ask("/jobs.json").json["jobs"][0]["id"]


def stream_lines(page: dict[str, object]) -> list[str]:
    streams = page["streams"]
    assert isinstance(streams, list)
    return sorted(line["text"] for stream in streams for line in stream["lines"])


def test_the_page_has_what_each_rank_had_written_by_then_and_nothing_later(site_of_turns: tuple[Served, str]) -> None:
    web, job = site_of_turns
    whole = web.ask(f"/job/{job}/at.json").json
    told = {line["text"]: line["at"] for stream in whole["streams"] for line in stream["lines"]}
    assert sorted(told) == sorted(f"step {n} <b>of</b> rank {n % 2}" for n in range(4))
    third = told["step 2 <b>of</b> rank 0"]
    then = web.ask(f"/job/{job}/at.json?t={third:.3f}").json
    assert stream_lines(then) == ["step 0 <b>of</b> rank 0", "step 1 <b>of</b> rank 1", "step 2 <b>of</b> rank 0"]
    before = web.ask(f"/job/{job}/at.json?t={whole['begun'] - 1:.3f}").json
    assert stream_lines(before) == [] and before["silent"] == [0, 1]


def test_a_step_leads_to_a_moment_near_this_one(site_of_turns: tuple[Served, str]) -> None:
    web, job = site_of_turns
    page = web.ask(f"/job/{job}/at.json").json
    back = next(step for step in page["steps"] if step["name"] == "-1 s")
    assert web.ask(back["href"]).status == 200
    assert float(re.findall(r"t=([\d.]+)", back["href"])[0]) == pytest.approx(page["at"] - 1, abs=0.01)


def test_the_cursor_of_the_swimlane_leads_to_moments_of_the_job(site_of_turns: tuple[Served, str]) -> None:
    web, job = site_of_turns
    text = web.ask(f"/job/{job}").text
    moments = [float(found) for found in re.findall(rf'href="/job/{job}/at\?t=([\d.]+)"', text)]
    assert len(moments) > 100 and moments == sorted(moments)
    assert web.ask(f"/job/{job}/at?t={moments[50]}").status == 200


def test_a_line_of_a_log_is_text_on_the_page(site_of_turns: tuple[Served, str]) -> None:
    web, job = site_of_turns
    text = web.ask(f"/job/{job}/at").text
    assert "&lt;b&gt;of&lt;/b&gt; rank 0" in text and "<b>of" not in text


@pytest.mark.parametrize(
    ("moment", "status"), [("soon", 400), ("nan", 400), ("1e400", 400), ("-5", 200), ("9e15", 200)]
)
def test_a_moment_that_is_none_is_refused_and_a_far_one_is_not(
    site_of_turns: tuple[Served, str], moment: str, status: int
) -> None:
    web, job = site_of_turns
    assert web.ask(f"/job/{job}/at?t={moment}").status == status


def test_a_row_of_the_swimlane_leads_to_the_page_of_its_rank(site_of_turns: tuple[Served, str]) -> None:
    web, job = site_of_turns
    text = web.ask(f"/job/{job}").text
    picture = text[text.index('<svg class="sw-picture"') : text.index("</svg>", text.index("sw-picture"))]
    rows = re.findall(r'<a href="(/job/[^"]+/1/\d+)"><text', picture)
    assert rows and all(web.ask(row).status == 200 for row in rows)
