"""A file from a web server that cuts, lies, stalls and refuses: whole or not at all, and each failure by its name."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetched import PLAIN_ENVIRONMENT, fetch, nothing_counts, order_bytes
from web_server import Web, web_server

pytestmark = pytest.mark.real
RANDOM_CONTENT = os.urandom(300_000)
SHA256 = hashlib.sha256(RANDOM_CONTENT).hexdigest()


@pytest.fixture(scope="module")
def web_of_file() -> Iterator[Web]:
    with web_server(RANDOM_CONTENT) as web:
        yield web


@pytest.fixture
def fresh_web(web_of_file: Web) -> Web:
    web_of_file.content = RANDOM_CONTENT
    web_of_file.asked.clear()
    web_of_file.counts.clear()
    return web_of_file


@pytest.mark.parametrize("path", ["file/m", "plain/m", "nolength/m"])
def test_a_file_is_fetched_whole(fresh_web: Web, tmp_path: Path, path: str) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/{path}")
    assert ran.status == 0 and (tmp_path / "m").read_bytes() == RANDOM_CONTENT
    assert ran.done[0].bytes == len(RANDOM_CONTENT) and not ran.done[0].there
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.holdfast-lock", ".m.holdfast.json", "m"]


def test_what_is_there_whole_is_not_asked_for_again(fresh_web: Web, tmp_path: Path) -> None:
    fetch(tmp_path / "m", f"{fresh_web.url}/file/m")
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/file/m")
    assert ran.done[0].there and len(fresh_web.asked) == 1


def test_a_file_that_was_cut_goes_on_where_it_was(fresh_web: Web, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/cut/100000/m")
    assert (tmp_path / "m").read_bytes() == RANDOM_CONTENT and ran.done[0].tries == 2
    assert ran.again[0].trouble.phrase == "DownloadFailed"
    assert fresh_web.asked[1][1]["Range"] == "bytes=100000-" and ran.done[0].resumed_bytes == 100_000


def test_a_file_that_is_another_one_after_the_cut_begins_anew(fresh_web: Web, tmp_path: Path) -> None:
    fetch(tmp_path / "m", f"{fresh_web.url}/changed/100000/m")
    assert (tmp_path / "m").read_bytes() == bytes(reversed(RANDOM_CONTENT))


def test_a_server_that_is_busy_is_asked_again(fresh_web: Web, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/busy/1/m")
    assert ran.status == 0 and ran.again[0].trouble.phrase == "ObjectStoreThrottled"


@pytest.mark.parametrize(
    ("path", "phrase", "tries"),
    [
        ("status/404/m", "DownloadNotFound", 1),
        ("status/401/m", "DownloadRefused", 1),
        ("status/403/m", "DownloadRefused", 1),
        ("status/500/m", "DownloadFailed", 2),
        ("status/503/m", "ObjectStoreThrottled", 2),
        ("short/m", "DownloadFailed", 2),
        ("chunkcut/m", "DownloadFailed", 2),
    ],
)
def test_a_failure_has_its_phrase_and_is_tried_again_only_where_it_may_pass(
    fresh_web: Web, tmp_path: Path, path: str, phrase: str, tries: int
) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/{path}", tries=2)
    assert (ran.status, ran.phrase, ran.failed.tries) == (1, phrase, tries)
    assert nothing_counts(tmp_path / "m")


def test_a_server_that_stalls_is_given_up(fresh_web: Web, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/stalls/m", stall_s=0.5, tries=1)
    assert ran.phrase == "DownloadTimedOut" and nothing_counts(tmp_path / "m")


@pytest.mark.parametrize("path", ["file/m", "nolength/m", "endless/m"])
def test_more_than_is_allowed_is_not_fetched(fresh_web: Web, tmp_path: Path, path: str) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/{path}", most_bytes=200_000)
    assert ran.phrase == "DownloadTooLarge" and nothing_counts(tmp_path / "m")


def test_another_checksum_is_no_content_and_the_right_one_is(fresh_web: Web, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/file/m", sha256="0" * 64, tries=2)
    assert ran.phrase == "DownloadCorrupt" and ran.failed.tries == 2 and nothing_counts(tmp_path / "m")
    assert fetch(tmp_path / "m", f"{fresh_web.url}/file/m", sha256=SHA256.upper()).status == 0


def test_a_checksum_holds_over_a_cut(fresh_web: Web, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/cut/100000/m", sha256=SHA256)
    assert ran.status == 0 and ran.done[0].resumed_bytes == 100_000


def test_secrets_stand_in_no_word_and_go_to_no_other_host(tmp_path: Path) -> None:
    with web_server(RANDOM_CONTENT) as other, web_server(RANDOM_CONTENT, elsewhere=other.url) as web:
        uri = web.url.replace("://", "://ada:geheim@")
        ran = fetch(tmp_path / "a", f"{uri}/login/a?token=geheim")
        moved = fetch(tmp_path / "b", f"{uri}/moved/file/b")
        refused = fetch(tmp_path / "c", f"{uri.replace('geheim', 'falsch')}/login/c?token=geheim")
        assert ran.status == moved.status == 0 and refused.phrase == "DownloadRefused"
        assert "geheim" not in ran.text + moved.text + refused.text and "falsch" not in refused.text
        assert "Authorization" in web.asked[0][1] and "Authorization" not in other.asked[0][1]


def test_a_netrc_is_a_login(fresh_web: Web, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password geheim\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert fetch(tmp_path / "m", f"{fresh_web.url}/login/m", env={"HOME": str(tmp_path)}).status == 0


def test_a_proxy_of_the_environment_is_used_and_no_proxy_is_honoured(fresh_web: Web, tmp_path: Path) -> None:
    proxy = {"http_proxy": fresh_web.url}
    assert fetch(tmp_path / "m", "http://data.invalid/file/m", env=proxy).status == 0
    assert fresh_web.asked[0][0] == "http://data.invalid/file/m"
    closed = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    assert fetch(tmp_path / "n", f"{fresh_web.url}/file/m", env=closed).status == 0


def test_a_name_without_an_address_and_a_closed_port_are_told_apart(tmp_path: Path) -> None:
    assert fetch(tmp_path / "m", "http://nowhere.invalid/m", tries=1).phrase == "DnsFailed"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert fetch(tmp_path / "m", f"http://127.0.0.1:{port}/m", tries=1).phrase == "DownloadUnreachable"


def test_a_fetch_that_is_killed_leaves_nothing_that_counts_and_the_next_goes_on(fresh_web: Web, tmp_path: Path) -> None:
    into = tmp_path / "m"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast.fetch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=PLAIN_ENVIRONMENT,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(order_bytes(into, f"{fresh_web.url}/stalls/m"))
        process.stdin.close()
        told = b""
        while b"fetch_moved" not in told:
            told = process.stdout.readline()
            assert told, "it ended before anything came"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and nothing_counts(into)
    assert fetch(into, f"{fresh_web.url}/file/m").status == 0 and into.read_bytes() == RANDOM_CONTENT


def test_two_that_want_the_same_wait_for_one_another(fresh_web: Web, tmp_path: Path) -> None:
    into = tmp_path / "m"
    first = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast.fetch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=PLAIN_ENVIRONMENT,
    )
    assert first.stdin is not None and first.stdout is not None
    with first:
        first.stdin.write(order_bytes(into, f"{fresh_web.url}/stalls/m", stall_s=1.0, tries=1))
        first.stdin.close()
        while b"fetch_moved" not in first.stdout.readline():
            pass
        ran = fetch(into, f"{fresh_web.url}/file/m")
    kinds = [type(word).__name__ for word in ran.words]
    assert kinds[0] == "FetchWaits" and "a test" in ran.text and ran.status == 0
    assert into.read_bytes() == RANDOM_CONTENT


def test_something_else_that_lies_there_stays(fresh_web: Web, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("mine")
    ran = fetch(tmp_path / "m", f"{fresh_web.url}/file/m")
    assert ran.phrase == "PlaceTaken" and (tmp_path / "m").read_text() == "mine"


def test_another_uri_takes_the_place_of_the_one_before(fresh_web: Web, tmp_path: Path) -> None:
    fetch(tmp_path / "m", f"{fresh_web.url}/file/m")
    fresh_web.content = b"new"
    assert fetch(tmp_path / "m", f"{fresh_web.url}/file/n").status == 0
    assert (tmp_path / "m").read_bytes() == b"new" and not (tmp_path / ".m.holdfast-part").exists()
