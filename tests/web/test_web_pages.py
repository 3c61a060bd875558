"""What the pages tell of real jobs, by their twins and their HTML, over real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_site import Served, environment, run, script

from holdfast.record.job_views import look, look_at
from holdfast.web.log_excerpt import Excerpt, ExcerptLine, by_time


def test_a_failed_job_says_who_why_and_what_was_decided(web: Served, jobs: dict[str, str]) -> None:
    job = web.ask(f"/job/{jobs['broken']}.json").json
    assert (job["state"], job["headline"]) == ("failed", job["report"]["reason"])
    assert "ValueError: expected 4 columns" in job["headline"]
    assert [one["used"] for one in job["budgets"]] == [3, 0, 4]
    assert job["attempts"][-1]["record"]["decision"]["kind"] == "fail"
    assert job["evidence"][0]["kind"] == "exception", "what decided comes first"
    [other] = job["others"]
    assert other["ranks"] == "rank 0"
    # Rank 0 may have finished before rank 1 failed, or not.
    assert other["why"].startswith(("finished its work (exit status 0", "ran until holdfast stopped"))
    assert len(job["swimlane"]["bands"]) == 4


def test_a_page_of_a_job_has_the_class_the_fix_and_the_swimlane(web: Served, jobs: dict[str, str]) -> None:
    text = web.ask(f"/job/{jobs['broken']}").text
    for part in ("UserException", "<dt>Fix</dt>", "Other ranks", 'class="sw-picture"', "all 3 restarts are used"):
        assert part in text


def test_a_page_of_a_job_opens_with_the_words_of_the_terminal_and_the_culprits_log(
    web: Served, jobs: dict[str, str], home_with_jobs: Path
) -> None:
    job = web.ask(f"/job/{jobs['broken']}.json").json
    assert job["exception"] == "ValueError: expected 4 columns, got 4"
    typed = [sys.executable, "-m", "holdfast", "show", jobs["broken"]]
    shown = subprocess.run(typed, env=environment(home_with_jobs), capture_output=True, text=True, check=True).stdout
    words = " ".join(shown.split())
    labels = [entry["label"] for entry in job["entries"]]
    assert labels[:5] == ["", "where", "class", "fix", "log"] and labels[5:] in ([], ["others"])
    for entry in job["entries"]:
        for line in f"{entry['label']} {entry['text']}".splitlines():
            assert " ".join(line.split()) in words, entry
    source = job["source"]
    assert [len(source["lines"]), source["line"] - source["first"]] == [3, 1]
    assert source["lines"][1].strip() in words, "the line that failed"
    assert [line["text"] for line in job["tail"]["lines"]][-1] == job["exception"]
    assert [line["deciding"] for line in job["tail"]["lines"]].count(True) == 1
    assert job["tail_href"] == f"/job/{jobs['broken']}/4/1"


def test_a_page_of_a_job_that_succeeded_has_no_failure(web: Served, jobs: dict[str, str]) -> None:
    job = web.ask(f"/job/{jobs['good']}.json").json
    assert (job["exception"], job["entries"], job["tail"]) == ("", [], None)


def test_an_unknown_job_says_so(web: Served) -> None:
    assert (web.ask("/job/none").status, "no job `none`" in web.ask("/job/none").text) == (404, True)


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..", "x%00y", "%ff", "a" * 300])
def test_no_name_of_a_job_leads_out_of_the_state_directory(web: Served, name: str) -> None:
    for path in (f"/job/{name}", f"/job/{name}/1/0", f"/job/{name}/1/0/stderr.log", f"/events?at=/job/{name}x"):
        if not path.startswith("/events"):
            assert web.ask(path).status == 404


def test_the_log_of_a_rank_has_the_line_that_decided(web: Served, jobs: dict[str, str]) -> None:
    page = web.ask(f"/job/{jobs['broken']}/4/1.json").json
    [line] = [line for log in page["logs"] for line in log["lines"] if line["deciding"]]
    assert line["text"] == "ValueError: expected 4 columns, got 4"
    assert page["logs"][0]["stream"] == "stderr", "the stream that decided comes first"
    assert page["reason"] and not web.ask(f"/job/{jobs['broken']}/4/0.json").json["reason"]


def test_a_log_is_searched_and_downloaded(web: Served, jobs: dict[str, str]) -> None:
    at = f"/job/{jobs['broken']}/4/1"
    found = {log["stream"]: log for log in web.ask(f"{at}.json?q=VALUEerror").json["logs"]}
    assert (found["stderr"]["found"], found["stdout"]["found"]) == (2, 0)
    whole = web.ask(f"{at}/stdout.log")
    assert (whole.text, "attachment" in whole.headers["content-disposition"]) == ("step 1 loss 2.5 of rank 1\n", True)
    assert web.ask(f"{at}/other.log").status == 404


@pytest.fixture(scope="module")
def empty_site(web_of: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server on a state directory in which each test runs a job of its own."""
    home = tmp_path_factory.mktemp("other") / "home"
    home.mkdir(mode=0o700)
    return web_of(home)


def newest(server: Served) -> str:
    return str(server.ask("/jobs.json").json["jobs"][0]["id"])


def test_both_streams_of_a_rank_stand_in_the_order_of_their_times(empty_site: Served, tmp_path: Path) -> None:
    """Each line waits until holdfast has read the one before: their times differ."""
    text = """
        import os, sys, time
        from pathlib import Path
        place = Path(os.environ["HOME_OF_TEST"]) / "jobs" / os.environ["HOLDFAST_JOB"]
        for turn in range(3):
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
                print(name, turn, flush=True, file=stream)
                log = place / f"attempt-1/worker-0/{name}.log"
                while f"{name} {turn}" not in log.read_text():
                    time.sleep(0.01)
                time.sleep(0.02)
    """
    script(tmp_path, text)
    typed = [sys.executable, "-m", "holdfast", "run", "--no-checks", str(tmp_path / "job.py")]
    env = {**environment(empty_site.home), "HOME_OF_TEST": str(empty_site.home)}
    subprocess.run(typed, env=env, check=True, capture_output=True)
    at = f"/job/{newest(empty_site)}/1/0"
    merged = empty_site.ask(f"{at}.json?by=time").json["merged"]
    assert [one["line"]["text"] for one in merged] == [
        f"{name} {turn}" for turn in range(3) for name in ("stdout", "stderr")
    ]
    assert all(one["stream"] in one["line"]["text"] for one in merged)
    page = empty_site.ask(f"{at}?by=time").text
    assert 'id="log-merged"' in page and 'id="log-stdout"' not in page
    assert "Both streams by time</a>" in empty_site.ask(at).text


def test_streams_of_which_a_page_has_parts_are_merged_for_the_time_that_both_cover(tmp_path: Path) -> None:
    def some(stream: str, first: int, times: list[float | None], total: int) -> Excerpt:
        lines = tuple(ExcerptLine(number=first + at, text=f"{stream}{at}", at=time) for at, time in enumerate(times))
        return Excerpt(stream=stream, lines=lines, total=total)

    out, err = some("o", 5, [10.0, 20.0, 30.0], 9), some("e", 1, [5.0, 15.0, 30.0, 35.0], 4)
    assert [one.line.text for one in by_time((out, err))] == ["o0", "e1", "o1", "o2", "e2"]
    assert by_time((out, some("e", 1, [5.0, None], 2))) == ()
    assert by_time(()) == ()


def test_a_long_log_stays_a_small_page(empty_site: Served, tmp_path: Path) -> None:
    text = """
        for number in range(20_000):
            print(f"line {number} " + "x" * 200)
    """
    run(empty_site.home, script(tmp_path, text), "--name", "long")
    at = f"/job/{newest(empty_site)}/1/0"
    page = empty_site.ask(at)
    assert len(page.text) < 300_000
    assert "line 19999" in page.text and "of 20000" in page.text
    assert "line 10000 " in empty_site.ask(f"{at}?stream=stdout&line=10001").text


_HOSTILE_WORDS = st.sampled_from(
    ["<script>document.title='in'</script>", "<img src=x onerror=alert(1)>", "'\"><svg onload=alert(1)>", "{{ 7 * 7 }}",
     "</pre><h1>in</h1>", "javascript:alert(1)", "\x1b[31m", "\u202etxt", "&lt;b&gt;", "]]>", "${7}"]
)  # fmt: skip
_WORDS = st.lists(st.one_of(_HOSTILE_WORDS, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)), max_size=4)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, empty_site: Served) -> tuple[Served, str]:
    """A server on a job whose log the test writes anew."""
    run(empty_site.home, script(tmp_path_factory.mktemp("hostile"), "print('x')"), "--name", "log")
    return empty_site, newest(empty_site)


@given(words=_WORDS)
@settings(max_examples=30)
def test_no_log_and_no_search_becomes_an_element(hostile: tuple[Served, str], words: list[str]) -> None:
    """Elements are counted: the page of any log has those of the page of a harmless one."""
    import html.parser
    from urllib.parse import quote

    class Elements(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[str] = set()
            self.attributes: set[str] = set()

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.add(tag)
            self.attributes |= {name for name, _ in attrs}

    server, job = hostile
    text = " ".join(words)
    log = server.home / "jobs" / job / "attempt-1" / "worker-0" / "stdout.log"
    log.write_text(text, encoding="utf-8")
    page = server.ask(f"/job/{job}/1/0?q={quote(text.strip()[:100])}")
    assert page.status == 200
    elements = Elements()
    elements.feed(page.text)
    assert not elements.seen & {"img", "svg", "iframe", "object"}
    assert not [name for name in elements.attributes if name.startswith("on")]
    assert "\x1b" not in page.text and "\u202e" not in page.text
    assert page.text.count("<script") == 1 and page.text.count("<h1") == 1


def test_the_page_of_a_rank_tells_how_its_environment_differs_from_the_attempt_before(
    empty_site: Served, tmp_path: Path
) -> None:
    run(empty_site.home, script(tmp_path, 'import os, sys; sys.exit(int(os.environ["HOLDFAST_ATTEMPT"]) < 2)'))
    at = f"/job/{newest(empty_site)}"
    assert empty_site.ask(f"{at}/1/0.json").json["environment"] is None
    alike = empty_site.ask(f"{at}/2/0.json").json["environment"]
    assert (alike["before"], alike["differences"]) == (1, [])
    assert "The environment is that of attempt 1." in empty_site.ask(f"{at}/2/0").text
    file = empty_site.home / "jobs" / newest(empty_site) / "attempt-2" / "worker-0" / "environment.json"
    changed = {**json.loads(file.read_text()), "NCCL_IB_DISABLE": "<b>1</b>", "WORLD_SIZE": "7"}
    file.write_text(json.dumps(changed))
    assert empty_site.ask(f"{at}/2/0.json").json["environment"]["differences"] == [
        {"name": "NCCL_IB_DISABLE", "before": None, "now": "<b>1</b>"},
        {"name": "WORLD_SIZE", "before": "2", "now": "7"},
    ]
    page = empty_site.ask(f"{at}/2/0").text
    assert "&lt;b&gt;1&lt;/b&gt;" in page and "<b>1</b>" not in page and "not set" in page
    file.write_text("[")
    assert empty_site.ask(f"{at}/2/0.json").json["environment"] is None


@pytest.mark.parametrize("digits", ["9" * 10, "9" * 5000])
def test_a_number_without_an_end_is_no_page(web: Served, jobs: dict[str, str], digits: str) -> None:
    for path in (f"{digits}/0", f"1/{digits}", f"{digits}/0.json", f"1/{digits}/stdout.log"):
        assert web.ask(f"/job/x/{path}").status == 404, path
    job = f"/job/{jobs['broken']}"
    for query in ("days", "t", "line", "page", "attempt", "before", "after"):
        for path in ("/jobs", "/failures", "/goodput", f"{job}/1/0", f"{job}/at", job):
            assert web.ask(f"{path}?{query}={digits}").status in (200, 400, 404), (path, query)


@pytest.mark.real
def test_the_page_of_a_rank_that_hung_has_its_stack_where_none_could_be_read_before_its_end(
    empty_site: Served, tmp_path: Path
) -> None:
    """py-spy is refused here, so the only stacks are those that the ranks print when they are killed."""
    refuses = tmp_path / "bin" / "py-spy"
    refuses.parent.mkdir()
    refuses.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    refuses.chmod(0o755)
    text = """
        import os, signal
        def waits_for_a_shard():
            signal.pause()
        if os.environ["RANK"] == "1":
            waits_for_a_shard()
        signal.pause()
    """
    typed = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--nproc-per-node", "2", "--hang-timeout", "3"]
    typed += ["--max-restarts", "0", "--name", "hung", str(script(tmp_path, text))]
    env = {**environment(empty_site.home), "PATH": f"{refuses.parent}:{os.environ['PATH']}"}
    done = subprocess.run(typed, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 248, done.stderr
    job = newest(empty_site)
    page = empty_site.ask(f"/job/{job}/1/1.json").json
    [own] = [stack for stack in page["stacks"] if stack["here"]]
    assert own["ranks"] == "rank 1" and "waits_for_a_shard" in own["place"], page["stacks"]
    assert own["frames"].splitlines()[0].startswith("waits_for_a_shard (")
    assert "waits_for_a_shard" in empty_site.ask(f"/job/{job}").text
    assert "no stack could be read" not in empty_site.ask(f"/job/{job}/1/1").text


class Words(HTMLParser):
    """The words of a page's main part: its titles, the labels of its lists with their texts, and its tables."""

    KEPT = ("h1", "h2", "summary", "dt", "dd", "th", "td", "li", "p")
    #: The picture has its own tests. A page without a server has no button and no link.
    LEFT_OUT = ("figure", "button", "pre", "a")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._inside: list[str] = []
        self._left_out = 0
        self.feed(page.partition("<main")[2].partition("</main>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._left_out += tag in self.LEFT_OUT
        if tag in self.KEPT and not self._left_out:
            self.found.append((tag, ""))
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._left_out -= tag in self.LEFT_OUT
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside and not self._left_out:
            tag, text = self.found[-1]
            self.found[-1] = tag, " ".join(f"{text} {data}".split())

    def until(self, *titles: str) -> list[tuple[str, str]]:
        """The words up to one of these titles, without elements that have no text."""
        ends = [at for at, (tag, text) in enumerate(self.found) if tag in ("h2", "summary") and text in titles]
        return [found for found in self.found[: min(ends, default=None)] if found[1]]

    @property
    def titles(self) -> list[str]:
        return [text for tag, text in self.found if tag in ("h2", "summary")]


def test_the_page_of_a_job_and_its_page_for_a_ticket_have_the_same_words_in_the_same_order(
    web: Served, jobs: dict[str, str], home_with_jobs: Path
) -> None:
    for name, last in (("broken", "fail"), ("again", "succeed"), ("good", "succeed")):
        typed = [sys.executable, "-m", "holdfast", "show", jobs[name], "--html", "-"]
        done = subprocess.run(typed, env=environment(home_with_jobs), capture_output=True, text=True, check=True)
        static, served = Words(done.stdout), Words(web.ask(f"/job/{jobs[name]}").text)
        assert [title for title in served.titles if title != "Logs"] == [
            title for title in static.titles if title not in ("Environment", "The report as JSON")
        ]
        ends = ("Logs", f"Decision: {last}")
        links = (": what each had written by then.",)
        assert [found for found in served.until(*ends) if found[1] not in links] == static.until(*ends)


def test_one_job_of_the_journal_is_read_as_it_is_among_all(jobs: dict[str, str], home_with_jobs: Path) -> None:
    views = look(home_with_jobs).jobs
    assert {view.id for view in views} == set(jobs.values())
    assert [look_at(home_with_jobs, view.id) for view in views] == list(views)
    for unknown in ("", "none", "x\0y", "\udcff", "%", "..", "'"):
        assert look_at(home_with_jobs, unknown) is None
