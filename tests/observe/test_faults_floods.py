"""Peers that write too much, too long, or without an end: what is good still counts, and nothing else changes."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import T
from conftest import Holdfast, wait_for
from holdfast.model.faults import FaultEvent
from holdfast.observe.devices import fault_socket as inboxes
from holdfast.observe.devices import growing_files
from holdfast.observe.devices.fault_socket import MOST_PEERS, FaultSocket
from holdfast.observe.devices.fault_sources import TOLD_MOST, FileFaults
from holdfast.observe.devices.growing_files import GrowingFile


def good_report(device: str = "gpu3", at: float = T) -> bytes:
    return json.dumps({"who": "pingmesh", "at": at, "device": device, "code": "79"}).encode()


# ---------------------------------------------------------------------------------------------------- the socket


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[FaultSocket]:
    found = FaultSocket(tmp_path / "faults.sock")
    yield found
    found.close()


class Peer:
    """A peer at the socket, which never waits for us."""

    def __init__(self, box: FaultSocket) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(box.path))
        self.socket.setblocking(False)
        self.begun = b""

    def sends(self, data: bytes) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def hears(self) -> list[dict[str, object]]:
        got = self.begun
        try:
            while block := self.socket.recv(1 << 20):
                got += block
        except (BlockingIOError, ConnectionResetError):
            pass
        *whole, self.begun = got.split(b"\n")
        return [json.loads(line) for line in whole]

    def leaves(self) -> None:
        self.socket.close()


def events_taken(box: FaultSocket, count: int = 50) -> list[FaultEvent]:
    return [event for _ in range(count) for event in box.take(T)]


def test_a_good_report_is_heard_beside_writers_that_never_end(flooded: FaultSocket) -> None:
    floods = [Peer(flooded) for _ in range(3)]
    payloads = (b"x" * 200_000, b"\0" * 200_000, b"?\n" * 5_000)
    told: list[FaultEvent] = []
    for number in range(20):
        for flood, payload in zip(floods, payloads, strict=True):
            flood.sends(payload)
        told += flooded.take(T)
        if number == 10:
            honest = Peer(flooded)
            honest.sends(good_report() + b"\n")
    told += events_taken(flooded)
    assert [event.device for event in told] == ["gpu3"]
    assert honest.hears() == [{"ok": True}]
    assert flooded.refused["too long"] == 2
    assert flooded.refused["not JSON"] > 5_000
    assert set(flooded.refused) == {"too long", "not JSON"}
    for peer in (*floods, honest):
        peer.leaves()


@pytest.mark.parametrize(
    ("last", "events", "refused"),
    [
        (good_report(), 1, {}),
        (good_report()[:-5], 0, {"not JSON": 1}),
        (b"", 0, {}),
        (b"  ", 0, {}),
        (b"\0\0", 0, {"not JSON": 1}),
    ],
)
def test_who_leaves_without_a_line_end_has_said_what_is_whole(
    flooded: FaultSocket, last: bytes, events: int, refused: dict[str, int]
) -> None:
    peer = Peer(flooded)
    peer.sends(last)
    assert events_taken(flooded, 3) == []
    peer.leaves()
    assert len(events_taken(flooded, 3)) == events
    assert flooded.refused == refused


def test_newcomers_find_a_place_and_the_silent_make_it(flooded: FaultSocket) -> None:
    first = Peer(flooded)
    events_taken(flooded, 2)
    crowd = []
    for _ in range(3 * MOST_PEERS):
        crowd.append(Peer(flooded))
        events_taken(flooded, 2)
        first.sends(b"\n")
        events_taken(flooded, 1)
    assert first.hears() == [], "a peer that says something now and then is not silent"
    first.sends(good_report("gpu1") + b"\n")
    last = Peer(flooded)
    last.sends(good_report("gpu2") + b"\n")
    assert {event.device for event in events_taken(flooded, 4)} == {"gpu1", "gpu2"}
    (answer,) = crowd[0].hears()
    assert "connect again" in str(answer["error"])
    assert not flooded.refused
    for peer in (first, last, *crowd):
        peer.leaves()


def test_what_the_silent_had_sent_counts_before_they_leave(flooded: FaultSocket) -> None:
    early = Peer(flooded)
    events_taken(flooded, 2)
    begun = Peer(flooded)
    events_taken(flooded, 2)
    begun.sends(good_report()[:20])
    events_taken(flooded, 2)
    crowd = [Peer(flooded) for _ in range(MOST_PEERS)]
    early.sends(good_report("gpu5") + b"\n")
    assert [event.device for event in events_taken(flooded, 4)] == ["gpu5"]
    more = [Peer(flooded) for _ in range(MOST_PEERS)]
    events_taken(flooded, 4)
    assert flooded.refused == {"unfinished": 1}
    for peer in (early, begun, *crowd, *more):
        peer.leaves()


def test_whoever_reads_no_answers_gets_whole_ones_later(flooded: FaultSocket) -> None:
    deaf = Peer(flooded)
    for _ in range(20):
        deaf.sends(b"nonsense\n" * 2_000)
        flooded.take(T)
    answers = deaf.hears()
    assert deaf.begun, "the last answer did not fit"
    assert not any(answer["ok"] for answer in answers)
    events_taken(flooded)
    deaf.hears()
    deaf.sends(b"\n" + good_report() + b"\n")
    events_taken(flooded)
    assert deaf.hears()[-1] == {"ok": True}
    assert not deaf.begun
    deaf.leaves()


def test_without_room_for_another_open_file_a_peer_is_told_so(flooded: FaultSocket) -> None:
    peers = [Peer(flooded) for _ in range(2)]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    full = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208 - names are all that is wanted
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (full, most[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                fillers.append(os.dup(0))
        assert events_taken(flooded, 3) == []
        assert not select.select([flooded.fileno()], [], [], 0)[0], "no peer is announced again and again"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for fd in fillers:
            os.close(fd)
    assert flooded.refused == {"too many open files": 2}
    assert all("try again later" in str(peer.hears()[0]["error"]) for peer in peers)
    later = Peer(flooded)
    later.sends(good_report() + b"\n")
    assert len(events_taken(flooded, 3)) == 1
    for peer in (*peers, later):
        peer.leaves()


def test_a_turn_ends_and_the_next_begins_with_who_was_not_heard(
    flooded: FaultSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [Peer(flooded) for _ in range(3)]
    events_taken(flooded, 2)
    monkeypatch.setattr(inboxes, "TURN_S", 0.0)
    for number, peer in enumerate(peers):
        peer.sends(good_report(f"gpu{number}") + b"\n")
    assert [[event.device for event in flooded.take(T)] for _ in peers] == [["gpu0"], ["gpu1"], ["gpu2"]]
    for peer in peers:
        peer.leaves()


# ------------------------------------------------------------------------------------------------------ the file


def texts_taken(lines: GrowingFile) -> list[str]:
    return [text for text, _ in lines.take(T)]


def test_what_does_not_fit_into_a_turn_is_read_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_files, "TURN_S", 0.0)
    path = tmp_path / "log"
    path.touch()
    lines = GrowingFile(path)
    path.write_text("".join(f"line {number}\n" for number in range(20_000)))
    found: list[str] = []
    takes = 0
    while select.select([lines.fileno()], [], [], 0)[0]:
        found += texts_taken(lines)
        takes += 1
    assert (len(found), found[-1]) == (20_000, "line 19999")
    assert takes > 5
    lines.close()


def test_a_file_of_a_gigabyte_costs_nothing_and_is_followed_when_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 1 << 30)
    lines = GrowingFile(path)
    assert texts_taken(lines) == []
    with path.open("a") as out:
        out.write("at the end\n")
    assert texts_taken(lines) == ["at the end"]
    os.truncate(path, 0)
    with path.open("a") as out:
        out.write("anew\n")
    assert texts_taken(lines) == ["anew"]
    lines.close()


def test_the_last_lines_of_a_file_that_was_moved_away_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    lines = GrowingFile(path)
    path.write_text("one\ntwo\nhalf")
    path.rename(tmp_path / "log.1")
    path.write_text("three\n")
    assert texts_taken(lines) == ["one", "two", "half", "three"]
    path.unlink()
    assert texts_taken(lines) == []
    path.write_text("four\n")
    assert texts_taken(lines) == ["four"]
    lines.close()


def make_directory(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [make_directory, make_fifo, make_loop])
def test_what_is_no_file_is_said_once_and_waited_out(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "log"
    path.write_text("")
    lines = GrowingFile(path)
    path.write_text("one\n")
    path.rename(tmp_path / "log.1")
    make(path)
    assert [*texts_taken(lines), *texts_taken(lines)] == ["one"]
    assert [text for text in lines.news if "cannot be read" in text] == lines.news
    assert len(lines.news) == 1
    path.rename(tmp_path / "old")
    path.write_text("two\n")
    assert select.select([lines.fileno()], [], [], 0)[0]
    assert texts_taken(lines) == ["two"]
    assert lines.news[1:] == [f"{path} can be read again"]
    lines.close()
    make(tmp_path / "other")
    assert "cannot be read" in GrowingFile(tmp_path / "other").missing


def test_a_file_without_read_permission_is_waited_for(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path = tmp_path / "log"
    path.touch()
    lines = GrowingFile(path)
    path.rename(tmp_path / "log.1")
    path.write_text("one\n")
    path.chmod(0)
    assert texts_taken(lines) == []
    assert "permission denied" in lines.news[0]
    path.chmod(0o600)
    assert select.select([lines.fileno()], [], [], 0)[0]
    assert texts_taken(lines) == ["one"]
    lines.close()


def test_a_folder_that_comes_back_is_watched_and_one_that_does_not_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "log").touch()
    lines = GrowingFile(folder / "log")
    (folder / "log").unlink()
    folder.rmdir()
    folder.mkdir()
    while select.select([lines.fileno()], [], [], 0)[0]:
        assert texts_taken(lines) == []
    (folder / "log").write_text("back\n")
    assert select.select([lines.fileno()], [], [], 0)[0]
    assert texts_taken(lines) == ["back"]
    assert lines.news == []
    folder.rename(tmp_path / "elsewhere")
    texts_taken(lines)
    assert "is gone" in lines.news[0]
    lines.close()


def test_a_device_that_nobody_can_wait_for_is_no_log() -> None:
    lines = GrowingFile("/dev/null")
    assert (lines.fileno(), texts_taken(lines)) == (-1, [])
    assert "it is not a log" in lines.missing


def test_a_file_behind_a_link_is_heard_of(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "log").touch()
    path = tmp_path / "link"
    path.symlink_to(real / "log")
    lines = GrowingFile(path)
    (real / "log").write_text("one\n")
    assert select.select([lines.fileno()], [], [], 0)[0]
    assert texts_taken(lines) == ["one"]
    lines.close()


def test_refused_lines_of_a_file_are_counted_by_reason_and_not_told_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    path.touch()
    source = FileFaults(path)
    path.write_bytes(b"nonsense\n" * 500 + b"x" * 300_000 + b"\n[]\n" + good_report() + b"\n")
    events = [event for _ in range(20) for event in source.take(T)]
    assert [event.device for event in events] == ["gpu3"]
    assert source.refused == {"not JSON": 500, "too long": 1, "malformed": 1}
    assert len(source.news) == TOLD_MOST + 1
    assert "not told" in source.news[-1]
    source.close()


# ------------------------------------------------------------------------------------------------- a job meanwhile

BEATS = """
import pathlib, time
pathlib.Path("up").write_text("1")
while not pathlib.Path("stop").exists():
    print("beat", flush=True)
    time.sleep(0.02)
"""


@pytest.mark.real
def test_a_job_goes_on_under_a_flood(holdfast: Holdfast) -> None:
    process = holdfast.start(
        "run", "--no-checks", holdfast.script(BEATS), CUDA_VISIBLE_DEVICES="0,1,2,3", HOLDFAST_KERNEL_LOG="/dev/null"
    )
    wait_for(holdfast.dir / "up")
    (job,) = (holdfast.home / "jobs").iterdir()

    def connect() -> socket.socket:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(30)
        folder = os.open(job, os.O_PATH)
        while not (job / "faults.sock").exists():
            select.select([], [], [], 0.02)
        peer.connect(f"/proc/self/fd/{folder}/faults.sock")
        os.close(folder)
        return peer

    def flood() -> None:
        with connect() as peer:
            for _ in range(32):
                peer.sendall(os.urandom(1 << 20))

    writers = [threading.Thread(target=flood) for _ in range(2)]
    for writer in writers:
        writer.start()
    with connect() as peer:
        peer.sendall(json.dumps({"who": "a", "at": 0, "device": "gpu1", "code": "79"}).encode() + b"\n")
        assert b"days old" in peer.recv(65_536)
        peer.sendall(b'{"who": "a", "at": %d, "device": "gpu9", "code": "79"}\n' % _clock())
        assert json.loads(peer.recv(65_536)) == {"ok": True}
    for writer in writers:
        writer.join()
    (holdfast.dir / "stop").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0, ran.err
    assert ran.report["attempt"] == 1
    assert "could not be believed" in ran.err
    known = {each["device"]: each for each in json.loads(holdfast("devices", "--json").out)["devices"]}
    assert known["gpu9"]["codes"] == ["79"]
    assert set(known) == {"gpu9"}, "no other device is known for anything"
    assert "not JSON" in holdfast("devices").err


def _clock() -> int:
    import time

    return int(time.time())
