"""No text of a job, a log, a device or an address adds an element, an attribute or a header to what is served."""

from __future__ import annotations

import asyncio
import functools
import html
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from hostile_home import ENDED, HOME_AT, Word, hostile_home, hostile_report
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from holdfast.model.environment_diff import FILE
from holdfast.model.human_format import utc
from holdfast.notices.markdown_summary import markdown
from holdfast.record.job_views import detail, events, look
from holdfast.report.page import page as page_of
from holdfast.report.report_json import pretty, to_json_object
from holdfast.web.html_rendering import Rendering
from holdfast.web.page_parts import Home
from holdfast.web.token_access import form_token
from holdfast.web.web_site import ServerSetup, WebSite

SITE_TOKEN = "a-token"
ATTACKS = (
    "<script>document.title='in'</script>",
    "</script></title></style></textarea></pre><h1>in</h1>",
    "'\"><svg onload=alert(1)>",
    "\" onfocus=alert(1) autofocus x='",
    "' onmouseover='alert(1)",
    "` onclick=alert(1) `",
    "javascript:alert(1)",
    "//evil.example/",
    "{{ 7 * 7 }}{% include 'layout.html' %}${7}",
    "<!-- ",
    " --><![CDATA[ ]]>",
    "&lt;b&gt;&#x3c;i&#62;",
    "\x1b[31m\x1b]0;title\x07\x9b31m",
    "\u202e\u2066\u200f\ufeff\u2028\u2029\x85",
    "\x00\x01\x0b\x0c\x7f",
    "a\r\nSet-Cookie: in=1\r\n\r\n<p>",
    'a"} 1\nholdfast_in{x="\\',
    "| cell |\n\n# Heading\n\n[a](javascript:alert(1)) ![b](http://evil.example) ```",
    "\\",
    "../../etc/passwd",
    "?token=&home=#",
)
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WORD_LISTS = st.lists(st.lists(st.sampled_from(ATTACKS) | ANY_TEXT, max_size=3).map("".join), min_size=5, max_size=5)
LOG = st.lists(st.sampled_from([one.encode() for one in ATTACKS]) | st.binary(max_size=40), max_size=6).map(b"\n".join)
LINK_ATTRIBUTES = ("href", "src", "action", "formaction", "xlink:href", "content")
#: Attributes that say what an element does: each has its own word there. A text of others stands in none of them.
OUR_ATTRIBUTES = ("class", "id", "type", "name", "method", "rel", "role", "http-equiv", "for", "tabindex")


#: The lines of a report depend on what the log says: within them each element is looked at by itself.
IN_A_FAILURE = {
    "p": {"", "faint"}, "dl": {"report"}, "dt": {""}, "a": {""}, "pre": {"log tail", "log source"},
    "span": {"", "number", "deciding"},
    "dd": {"where", "because", "while", "reason", "seen", "class", "fix", "log", "others", "left"},
}  # fmt: skip


class Shape(HTMLParser):
    """What a page consists of, without its texts; where its links lead is looked at here."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[object] = []
        self.in_a_failure = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("style", "srcdoc"), (tag, name, value)
            if name in LINK_ATTRIBUTES and name != "content":
                own = (value or "").startswith(("/", "#", "data:,", "https://holdfast-run.github.io/"))
                assert own and not (value or "").startswith(("//", "/\\")), (tag, name, value)
        if self.in_a_failure:
            assert dict(attrs).get("class", "") in IN_A_FAILURE[tag], (tag, attrs)
            assert {name for name, _ in attrs} <= {"class", "href", "tabindex", "role", "aria-label"}, (tag, attrs)
            return
        self.in_a_failure = tag == "div" and dict(attrs).get("class") in ("failure", "live")
        self.parts.append((tag, [(name, value if name in OUR_ATTRIBUTES else "") for name, value in attrs]))

    def handle_endtag(self, tag: str) -> None:
        if self.in_a_failure and tag in IN_A_FAILURE:
            return
        self.in_a_failure = False
        self.parts.append(tag)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    unknown_decl = handle_pi = handle_comment


class RawReply(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask_site(site: WebSite, path: str, query: str = "", method: str = "GET", body: bytes = b"") -> RawReply:
    """One request at the door of the pages, as a server passes it on."""
    sent: list[Any] = []
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, object]:
        for message in given:
            return message
        return await asyncio.Future()  # the reader stays

    async def send(message: Any) -> None:
        sent.append(message)

    typed = (b"content-type", b"application/x-www-form-urlencoded")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": quote(path).encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {SITE_TOKEN}".encode()), typed],
        "client": None, "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def answered() -> None:
        await app_of(site)(scope, receive, send)

    asyncio.run(answered())
    return RawReply(sent[0]["status"], sent[0]["headers"], b"".join(one.get("body", b"") for one in sent[1:]))


#: Templates are compiled once for all sites: that takes four times as long as to fill them in.
_COMPILED: dict[str, Rendering] = {}


@functools.lru_cache(maxsize=2)
def app_of(site: WebSite) -> Any:
    return site.app()


@contextmanager
def site_of(word: Word, log: bytes) -> Iterator[tuple[WebSite, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        place = hostile_home(home, word, log)
        site = WebSite(ServerSetup((Home("key", home, True),), SITE_TOKEN, 80, lambda: HOME_AT))
        site._rendering = _COMPILED.setdefault(SITE_TOKEN, site._rendering)
        try:
            yield site, home
        finally:
            place.lock.release()


def words_of(texts: Sequence[str]) -> Word:
    """One text for each name: equal names have equal texts, different names different ones."""
    order: dict[str, str] = {}
    return lambda name: order.setdefault(name, f"x{name}{texts[len(order) % len(texts)]}")


def pages_seen(word: Word, log: bytes, asked: str) -> tuple[dict[str, list[object]], dict[str, RawReply]]:
    """The shape of every page, and what every twin and download says."""
    said = quote(asked.encode())
    job = f"/job/{ENDED}"
    shapes: dict[str, list[object]] = {}
    others: dict[str, RawReply] = {}
    with site_of(word, log) as (site, home):
        for path, query, status in (
            ("/", "", 200),
            ("/jobs", "", 200),
            ("/jobs", f"name=x&node={said}&state={said}&class={said}&blame={said}", 200),
            ("/devices", "", 200),
            ("/failures", "days=0", 200),
            ("/failures", f"days=0&name={said}&class={said}", 200),
            ("/goodput", "days=0&by=name", 200),
            ("/checks", "", 200),
            (job, "", 200),
            (f"{job}/2/1", "", 200),
            (f"{job}/2/1", f"q={said}", 200),
            (f"{job}/2/1", f"line={said}", 400),
            (f"{job}/at", f"t={HOME_AT - 150:.3f}", 200),
            (f"{job}/at", f"t={said}", 400),
            (f"/job/{asked}", "", 404),
            (f"/{asked}/none", "", 404),
            (job, f"home={said}", 404),
        ):
            answer = ask_site(site, path, query)
            assert answer.status == status, (path, query, answer.text)
            page = f"{path.replace(asked, '@')}?{query.replace(said, '@')}"
            shapes[page] = _shape(answer)
            twin = ask_site(site, f"{'/now' if path == '/' else path}.json", query)
            assert twin.status == status
            others[f"{page} as JSON"] = twin
        form = f"form={form_token(SITE_TOKEN)}&device={said}&reason={said}&code={said}".encode()
        for path in ("/devices/release", "/devices/report"):
            answer = ask_site(site, path, "", "POST", form.replace(b"&reason", b"&none") + b"&assertion=none")
            assert answer.status in (400, 403)
            shapes[path] = _shape(answer)
        shapes["done"] = _shape(RawReply(200, [], site._rendering.done("Done", f"x{asked}").encode()))
        known = detail(look(home), next(view for view in look(home).jobs if view.id == ENDED))
        report = pretty(to_json_object(hostile_report(word)))
        html = page_of(known, list(events(home, ENDED)), utc, now=HOME_AT, report_json=report, written_by="x")
        shapes["show --html"] = _shape(RawReply(200, [], html.encode()))
        others["the log"] = ask_site(site, f"{job}/2/1/stderr.log")
        others["the metrics"] = ask_site(site, "/metrics")
        others["the summary"] = RawReply(200, [], markdown(json.loads(report)).encode())
    return shapes, others


def _shape(answer: RawReply) -> list[object]:
    assert not STEERS.search(answer.text), STEERS.search(answer.text)
    parser = Shape()
    parser.feed(answer.text)
    parser.close()
    return parser.parts


@functools.cache
def calm(lines: int) -> tuple[dict[str, list[object]], dict[str, RawReply]]:
    """What there is with harmless texts and so many lines in each log."""
    return pages_seen(lambda name: f"x{name}", b"\n".join([b"x"] * lines), "asked")


def series(metrics: str) -> list[tuple[str, list[str]]]:
    """The names and labels of all numbers, without what stands in the labels."""
    families = text_string_to_metric_families(metrics)
    return sorted((sample.name, sorted(sample.labels)) for family in families for sample in family.samples)


def outline(summary: str) -> list[str]:
    """Of Markdown all that is more than words: how each line begins, its cells, its fences."""
    found, fence = [], ""
    for line in summary.splitlines():
        if fence:
            if line == fence:
                fence = ""
                found.append("fence")
            continue
        if line.startswith("```"):
            fence = line.removesuffix("text")
            found.append("fence")
            continue
        bare = re.sub(r"\\[!-/:-@\[-`{-~]|&(amp|lt|gt);", "", line)
        found.append(re.sub(r"[^]|`*_\[~<>!@$#\\]|(?<!^)#", "", bare))
    return found


@given(WORD_LISTS, LOG, st.sampled_from(ATTACKS) | ANY_TEXT)
@example([*ATTACKS], b"\n".join(one.encode() for one in ATTACKS), "".join(ATTACKS))
@settings(max_examples=12, deadline=None)
def test_no_text_of_others_adds_an_element_an_attribute_or_a_header(words: list[str], log: bytes, said: str) -> None:
    asked = f"asked{said}"
    lines = f"x\n{log.decode('latin-1')}x".encode("latin-1")
    shapes, others = pages_seen(words_of(words), lines, asked)
    expected, harmless = calm(lines.count(b"\n") + 1)
    for page, shape in shapes.items():
        assert shape == expected[page], page
    for what, answer in others.items():
        for name, value in answer.headers:
            assert not re.search(rb"[\x00-\x1f\x7f-\xff]", name + value), (what, name, value)
        named = [name for name, _ in answer.headers]
        assert named == [name for name, _ in harmless[what].headers], what
        if what.endswith("JSON"):
            assert dict(answer.headers)[b"content-type"] == b"application/json"
            json.loads(answer.text)
    of_log = dict(others["the log"].headers)
    assert others["the log"].body == lines, "a download is the file as it is"
    assert of_log[b"content-disposition"] == f'attachment; filename="{ENDED}-attempt-2-rank-1-stderr.log"'.encode()
    assert (of_log[b"content-type"], of_log[b"x-content-type-options"]) == (b"text/plain; charset=utf-8", b"nosniff")
    assert series(others["the metrics"].text) == series(harmless["the metrics"].text)
    assert outline(others["the summary"].text) == outline(harmless["the summary"].text)


def test_an_environment_that_is_a_link_shows_no_other_file(tmp_path: Path) -> None:
    (secret := tmp_path / "secret.json").write_text('{"A": "1", "TOKEN_OF": "root:x:0:0"}')
    with site_of(lambda name: "worker", b"a line\n") as (site, home):
        first, second = (home / "jobs" / ENDED / f"attempt-{number}" / "worker-1" / FILE for number in (1, 2))
        first.write_text('{"A": "1"}')
        second.write_bytes(secret.read_bytes())
        assert b"root:x" in ask_site(site, f"/job/{ENDED}/2/1").body, "the environments are compared"
        second.unlink()
        second.symlink_to(secret)
        reply = ask_site(site, f"/job/{ENDED}/2/1")
        assert reply.status == 200 and b"root:x" not in reply.body


@pytest.mark.parametrize("which", ["stdout.log", "worker-1", "attempt-2"])
def test_a_log_that_is_a_link_shows_no_other_file(tmp_path: Path, which: str) -> None:
    """A worker can put a link there, and `holdfast web --home` of a user may be root's."""
    secret = b"root:x:0:0\n"
    with site_of(lambda name: "worker", b"a line\n") as (site, home):
        path = home / "jobs" / ENDED / "attempt-2"
        path = {"attempt-2": path, "worker-1": path / "worker-1"}.get(which, path / "worker-1" / which)
        elsewhere = tmp_path / which
        if path.is_dir():
            shutil.copytree(path, elsewhere)
            for log in elsewhere.rglob("*.log"):
                log.write_bytes(secret)
        else:
            elsewhere.write_bytes(secret)
        path.rename(path.with_name("before"))
        path.symlink_to(elsewhere)
        for address, query in (
            (f"/job/{ENDED}/2/1", ""),
            (f"/job/{ENDED}/2/1", "by=time"),
            (f"/job/{ENDED}/2/1", "q=root"),
            (f"/job/{ENDED}/2/1/stdout.log", ""),
            (f"/job/{ENDED}/at", f"t={HOME_AT - 150:.3f}"),
            (f"/job/{ENDED}", ""),
        ):
            reply = ask_site(site, address, query)
            assert reply.status in (200, 404) and b"root:x" not in reply.body, (address, query)
        assert ask_site(site, f"/job/{ENDED}/2/1/stdout.log").status == 404


def test_lines_of_a_megabyte_are_a_small_page_and_a_whole_download() -> None:
    log = b"\n".join(word * (1 << 20) for word in (b"<", b"\xff", b"\x1b[", "\u202e".encode(), b"\r")) + b"\n"
    with site_of(lambda name: f"x{name}", log) as (site, _):
        page = ask_site(site, f"/job/{ENDED}/2/1")
        assert page.status == 200 and len(page.body) < 300_000
        _shape(page)
        _shape(ask_site(site, f"/job/{ENDED}/2/1", "q=%3C"))
        _shape(ask_site(site, f"/job/{ENDED}/at", f"t={HOME_AT - 150:.3f}"))
        assert ask_site(site, f"/job/{ENDED}/2/1/stdout.log").body == log


ODD_NAMES = (
    "/",
    "//",
    "..",
    ".",
    "%2f",
    "%",
    "?",
    "#",
    "a b",
    "a+b",
    "a&b=c",
    "\u00fc\u4e2d\U0001f680",
    "'\"<",
    "\\",
    ".json",
    "/1/0",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_each_link_on_the_pages_of_a_job_with_an_odd_name_leads_to_a_page(name: str) -> None:
    with site_of(lambda word: name if word == "name" else word, b"line\n") as (site, _):
        seen: dict[str, int] = {}
        waiting = [
            "/",
            "/jobs",
            "/failures?days=0",
            "/goodput?days=0&by=name",
            f"/jobs?name={quote(name)}",
            f"/job/{ENDED}",
        ]
        while waiting:
            address = waiting.pop()
            path, _, query = address.partition("?")
            reply = ask_site(site, unquote(path), query)
            seen[address] = reply.status
            if reply.headers and b"html" in dict(reply.headers).get(b"content-type", b""):
                links = [html.unescape(link).partition("#")[0] for link in re.findall(r'href="(/[^"]*)"', reply.text)]
                waiting += [link for link in links if link not in seen and link not in waiting and len(seen) < 80]
        assert {address: status for address, status in seen.items() if status not in (200, 204)} == {}
        assert ask_site(site, f"/job/{name}").status == 404
        assert ENDED in ask_site(site, "/jobs", f"name={quote(name, safe='')}").text
