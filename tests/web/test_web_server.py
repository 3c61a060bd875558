"""`holdfast web` over real HTTP: who gets in, what each page's twin holds, and what is said where it cannot serve."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from web_site import Served, environment, run, script

from typed_here import typed


def test_without_the_token_there_is_no_page(web: Served) -> None:
    answer = web.ask("/jobs", token=False)
    assert (answer.status, "holdfast web" in answer.text) == (401, True)
    assert web.ask("/jobs?token=wrong", token=False).status == 401
    assert web.ask("/jobs", token=False, headers={"Cookie": f"holdfast-{web.port}=wrong"}).status == 401


def test_the_link_gives_a_cookie_that_no_script_and_no_other_site_can_use(web: Served) -> None:
    answer = web.ask(f"/jobs?sort=name&token={web.token}", token=False)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert 'content="0;url=/jobs?sort=name"' in answer.text, "the token stands in no address that stays"
    inside = web.ask("/jobs", token=False, headers={"Cookie": cookie.partition(";")[0]})
    assert (inside.status, "broken" in inside.text) == (200, True)


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_of_a_foreign_name_gets_nothing(web: Served, name: str) -> None:
    assert web.ask("/jobs", headers={"Host": name}).status == 421


@pytest.mark.parametrize("name", ["localhost:9999", "127.0.0.1", "[::1]:80"])
def test_the_far_end_of_a_tunnel_gets_in(web: Served, name: str) -> None:
    assert web.ask("/jobs", headers={"Host": name}).status == 200


def test_no_script_of_a_page_runs_and_nothing_comes_from_elsewhere(web: Served) -> None:
    policy = web.ask("/jobs").headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy
    assert "http" not in policy


def test_the_newest_jobs_come_first_with_their_cause_and_attempts(web: Served) -> None:
    rows = web.ask("/jobs.json").json["jobs"]
    assert [row["created"] for row in rows] == sorted((row["created"] for row in rows), reverse=True)
    by_name = {row["name"]: row for row in rows}
    assert [dot["kind"] for dot in by_name["again"]["dots"]] == ["own", "ok"]
    assert (by_name["broken"]["state"], by_name["broken"]["culprit"][:6]) == ("failed", "rank 1")
    assert by_name["broken"]["cause"] == "ValueError: expected 4 columns, got 4"
    assert (by_name["good"]["lost_s"], by_name["good"]["cause"]) == (0, "")
    rows = web.ask("/jobs.json?sort=lost").json["jobs"]
    assert [row["lost_s"] for row in rows] == sorted((row["lost_s"] for row in rows), reverse=True)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=failed", {"broken"}),
        ("name=oo", {"good"}),
        ("class=PythonException", set()),
        ("state=failed&name=g", set()),
    ],
)
def test_filters_stand_in_the_address(web: Served, query: str, names: set[str]) -> None:
    assert {row["name"] for row in web.ask(f"/jobs.json?{query}").json["jobs"]} == names


@pytest.mark.parametrize("query", ["sort=size", "page=0", "page=x", "page=%F0%9D%9F%8F"])
def test_an_address_that_means_nothing_says_what_was_expected(web: Served, query: str) -> None:
    answer = web.ask(f"/jobs?{query}")
    assert (answer.status, "expected" in answer.text) == (400, True)


def test_an_unknown_page_says_so(web: Served) -> None:
    assert web.ask("/nothing").status == 404
    assert web.ask("/nothing.json").json == {"error": "There is no such page."}


def web_command(home: Path, *words: str) -> tuple[int, str]:
    done = typed("web", *words, cwd=Path("/"), env=environment(home))
    return done.returncode, done.stderr


def test_a_port_in_use_is_one_message(web: Served) -> None:
    status, said = web_command(web.home, "--port", str(web.port))
    assert status == 2
    assert said.splitlines()[1:] == ["  try: holdfast web --port 0"]
    assert f"port {web.port} is in use" in said


def test_a_host_that_others_reach_has_to_be_insisted_on(web: Served) -> None:
    status, said = web_command(web.home, "--host", "0.0.0.0")
    assert (status, "not encrypted" in said, "--insist" in said) == (2, True, True)


@pytest.mark.parametrize("words", [("--home", "/nowhere/at/all"), ()])
def test_a_missing_state_directory_is_one_message(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, said = web_command(tmp_path / "missing", *words)
    assert (status, "does not exist" in said, said.count("\n")) == (2, True, 2)


def test_without_the_extra_the_message_says_what_to_install(web: Served, tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from holdfast.cli import main; main(['web'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(web.home), capture_output=True, text=True)
    assert (done.returncode, "pip install 'holdfast-run[web]'" in done.stderr) == (2, True)


def test_several_state_directories_are_one_list(
    web: Served, web_of: Callable[..., Served], tmp_path: Path, jobs: dict[str, str]
) -> None:
    (tmp_path / "other").mkdir()
    both = web_of(web.home, "--home", str(web.home), "--home", str(tmp_path / "other"))
    rows = both.ask("/jobs.json").json["jobs"]
    assert len(rows) == len(jobs)
    assert all("?home=" in row["href"] for row in rows)


SITE_PAGES = ("/", "/jobs", "/failures", "/goodput", "/checks", "/devices")


@pytest.mark.parametrize("page", SITE_PAGES)
def test_a_state_directory_that_is_removed_or_damaged_is_named_and_the_others_stay(
    page: str, web_of: Callable[..., Served], home_with_jobs: Path, two_that_go: Served
) -> None:
    answer = two_that_go.ask(page)
    for name, why in (("gone", "no such file or directory"), ("file", "not a directory")):
        assert (
            answer.status == 200
            and f"the state directory {two_that_go.home / name} cannot be read ({why})" in answer.text
        )
    twin = two_that_go.ask(f"{page if page != '/' else '/now'}.json").json
    assert len(twin["trouble"]) == 2
    if page == "/jobs":
        assert {job["name"] for job in twin["jobs"]} == {"good", "again", "broken"}


@pytest.fixture(scope="module")
def two_that_go(
    web_of: Callable[..., Served], home_with_jobs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Served:
    """A server whose second directory was removed under it, and whose third is a file now."""
    folder = tmp_path_factory.mktemp("homes")
    homes = [folder / name for name in ("gone", "file")]
    for home in homes:
        home.mkdir()
    server = web_of(folder, "--home", str(home_with_jobs), "--home", str(homes[0]), "--home", str(homes[1]))
    assert server.ask("/jobs.json").json["trouble"] == []
    for home in homes:
        home.rmdir()
    homes[1].touch()
    return server


def test_a_damaged_journal_is_named_on_the_page_of_checks(web_of: Callable[..., Served], tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(home, script(tmp_path, "pass"))
    server = web_of(home)
    (home / "holdfast.db").write_bytes(b"x" * 8192)
    assert f"{home}/holdfast.db" in server.ask("/checks").text


def test_it_ends_at_once_also_while_a_page_listens(web_of: Callable[..., Served], home_with_jobs: Path) -> None:
    server = web_of(home_with_jobs)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
    connection.request("GET", "/events?at=/jobs", headers={"Authorization": f"Bearer {server.token}"})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"retry")
    server.process.send_signal(signal.SIGINT)
    server.process.wait(timeout=90)
    with contextlib.suppress(http.client.IncompleteRead):  # the connection may end before its last word
        assert answer.read().count(b"event") == 0
    connection.close()


@pytest.mark.parametrize("heard", ["begin", "change"])
def test_a_browser_that_leaves_a_live_page_leaves_no_word_on_the_terminal(
    web_of: Callable[..., Served], home_with_jobs: Path, tmp_path: Path, heard: str
) -> None:
    server = web_of(home_with_jobs)
    for _ in range(8):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
        connection.request("GET", "/events?at=/jobs", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        assert answer.readline().startswith(b"retry")
        if heard == "change":
            run(home_with_jobs, script(tmp_path, "pass"))
            assert any(answer.readline().startswith(b"event: change") for _ in range(4))
        answer.close()
        connection.close()
        if heard == "change":
            break
    assert server.ask("/jobs").status == 200
    server.process.send_signal(signal.SIGINT)
    _, err = server.process.communicate(timeout=90)
    assert "Task" not in err and "Traceback" not in err


def test_of_many_open_pages_the_last_ones_are_told_that_they_do_not_follow(
    web_of: Callable[..., Served], home_with_jobs: Path
) -> None:
    server = web_of(home_with_jobs)
    opened = []
    for _ in range(33):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
        connection.request("GET", "/events?at=/", headers={"Authorization": f"Bearer {server.token}"})
        opened.append((connection, connection.getresponse().readline()))
    assert [line for _, line in opened] == [b"retry: 3000\n"] * 32 + [b"event: full\n"]
    assert server.ask("/jobs").status == 200
    for connection, _ in opened:
        connection.close()


def test_reading_writes_nothing_to_the_state_directory(web: Served, jobs: dict[str, str]) -> None:
    def files() -> dict[str, tuple[int, float]]:
        found = (path for path in web.home.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal")))
        return {str(path): (path.stat().st_size, path.stat().st_mtime) for path in found}

    before = files()
    of_job = f"/job/{jobs['broken']}"
    for page in ("/", "/jobs", "/jobs.json", "/devices", "/failures", "/goodput", "/checks", of_job, f"{of_job}/4/1"):
        assert web.ask(page).status == 200
    assert files() == before


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: loc"]
)
def test_strangers_that_end_no_request_keep_nobody_out(web: Served, sent: bytes) -> None:
    """Any user of the machine may connect, without the token, and stay."""
    with contextlib.ExitStack() as strangers:
        first, *others = [
            strangers.enter_context(socket.create_connection(("127.0.0.1", web.port), 60)) for _ in range(300)
        ]
        for each in (first, *others):
            with contextlib.suppress(ConnectionError):
                each.sendall(sent)
        # Within the first moments many are still being let in.
        assert 200 in (web.ask("/jobs").status for _ in range(50))
        # The last one is closed too, when its header has taken too long.
        with contextlib.suppress(ConnectionError):
            while others[-1].recv(4096):
                pass
        assert web.ask("/jobs").status == 200
