"""The job's state in its ConfigMap: what is written is what a next owner reads, and who comes second loses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, status

from holdfast.clock import Clock
from holdfast.model import events as ev
from holdfast.model.job_spec import NodeInfo
from holdfast.platforms.kubernetes.objects.client_messages import Method
from holdfast.platforms.kubernetes.objects.saved_state import (
    MOST_BYTES,
    Events,
    Header,
    events_of,
    header_of,
    patch,
    version_of,
)
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.state_mirror import StateMirror
from holdfast.reactor import Reactor

HEADER = Header(of="job-uid", owner="mine", pod="train-abc", job_id="20261122-2130-k3f9", name="train")


def node_joined(name: str) -> ev.NodeJoined:
    return ev.NodeJoined(node=NodeInfo(name=name, slots=1), boot=1)


def merged(config: dict[str, Any], change: dict[str, Any], version: str) -> dict[str, Any]:
    """As the API server merges it."""
    found = {"metadata": {"resourceVersion": version}}
    for key in ("data", "binaryData"):
        found[key] = {**config.get(key, {}), **change.get(key, {})}
    return found


def test_what_is_written_is_read_again() -> None:
    events = Events()
    for number in range(3):
        events.add(1763848000.25 + number, node_joined(f"n{number}"))
    config = merged({}, patch(HEADER, events, "7"), "8")
    assert header_of(config) == HEADER and version_of(config) == "8"
    assert list(events_of(config)) == [(1763848000.25 + number, node_joined(f"n{number}")) for number in range(3)]


def test_a_history_that_is_too_long_keeps_its_beginning_and_says_so() -> None:
    events = Events()
    bits = (bytes((7919 * n + k * k * 31) % 251 for k in range(3000)) for n in range(10_000))
    noise = (base64.b85encode(each).decode() for each in bits)
    for number, text in enumerate(noise):
        events.add(float(number), node_joined(text))
        if events.cut:
            break
    assert events.cut and len(events.data) <= MOST_BYTES
    kept = events.count
    events.add(1e9, ev.Tick())
    config = merged({}, patch(HEADER, events, "1"), "2")
    assert len(list(events_of(config))) == kept == events.count


@pytest.mark.parametrize(
    "config", [None, {}, {"data": {"state.json": "{"}}, {"data": {"state.json": '{"format": 99}'}}]
)
def test_a_state_that_cannot_be_read_is_none(config: Any) -> None:
    assert header_of(config) is None and list(events_of(config)) == []


def test_events_that_are_cut_off_or_no_bytes_end_the_history() -> None:
    events = Events()
    events.add(1.0, ev.Tick())
    events.add(2.0, node_joined("n1"))
    whole = base64.b64encode(events.data[:-8]).decode()
    assert len(list(events_of({"binaryData": {"events": whole}}))) < 2
    assert list(events_of({"binaryData": {"events": "&&"}})) == []


class Server:
    """A ConfigMap at the API server."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {"metadata": {"resourceVersion": "1"}}
        self.away = self.starts = False
        self.written = 0

    def answer(self, asked: Asked) -> ApiReply:
        if self.starts:
            role = 'clusterrole.rbac.authorization.k8s.io "system:basic-user" not found'
            return status(403, "Forbidden", f'User "train" cannot patch resource "configmaps": RBAC: {role}')
        if self.away:
            return status(503, "ServiceUnavailable", "etcd has no leader")
        if asked.method == Method.GET:
            return 200, self.config
        version = self.config["metadata"]["resourceVersion"]
        if asked.body["metadata"]["resourceVersion"] != version:
            return status(409, "Conflict", "the object has been modified")
        self.written += 1
        self.config = merged(self.config, asked.body, str(int(version) + 1))
        return 200, self.config


class MirrorPlay:
    """One mirror, and what it says."""

    def __init__(self, environment: dict[str, str], header: Header = HEADER) -> None:
        self.reactor = Reactor(Clock().now)
        self.asking = ApiHelper(self.reactor, environment)
        self.said: list[str] = []
        self.taken: list[str] = []
        self.mirror = StateMirror(
            self.asking, header, "ns", "train", self.said.append, lambda by, now: self.taken.append(by)
        )

    def until(self, what: Callable[[], bool]) -> list[Any]:
        events: list[Any] = []
        end = self.reactor.now() + 60
        while not what():
            assert self.reactor.now() < end, self.said
            self.reactor.wait(lambda news: events.extend(news or ()), longest_s=1.0)
        return events


@pytest.fixture
def mirror_play() -> Iterator[Callable[..., MirrorPlay]]:
    made: list[MirrorPlay] = []

    def make(*words: Any) -> MirrorPlay:
        made.append(MirrorPlay(*words))
        return made[-1]

    yield make
    for each in made:
        each.asking.close()
        each.reactor.close()


@pytest.mark.real
@pytest.mark.extras
def test_an_attempt_waits_until_its_number_is_written(mirror_play: Callable[..., MirrorPlay], tmp_path: Path) -> None:
    server = Server()
    with api(server.answer, tmp_path) as environment:
        mine = mirror_play(environment)
        mine.mirror.begin([(1.0, node_joined("n1"))])
        mine.mirror.at(1)
        mine.mirror.noted(node_joined("n2"), 2.0)
        secured = ev.JournalSecured(attempt=1, cause="c")
        assert not mine.mirror.secured(secured, mine.reactor.now())
        follows = mine.until(lambda: not mine.mirror.writing)
        assert follows == [secured]
        assert [event for _, event in events_of(server.config)] == [node_joined("n1"), node_joined("n2")]
        found = header_of(server.config)
        assert found is not None and (found.owner, found.events) == ("mine", 2)
        assert mine.mirror.secured(secured, mine.reactor.now()) == [secured]


@pytest.mark.real
@pytest.mark.extras
def test_the_owner_before_loses_its_next_write_and_is_told_who_has_the_job(
    mirror_play: Callable[..., MirrorPlay], tmp_path: Path
) -> None:
    server = Server()
    with api(server.answer, tmp_path) as environment:
        mine = mirror_play(environment)
        mine.mirror.begin([(1.0, node_joined("n1"))])
        mine.until(lambda: not mine.mirror.writing)
        theirs = patch(Header(**{**_fields(), "owner": "theirs", "pod": "train-xyz"}), Events(), "2")
        server.config = merged(server.config, theirs, "3")
        mine.mirror.noted(node_joined("n2"), 2.0)
        mine.until(lambda: bool(mine.taken))
        written = server.written
        mine.mirror.noted(node_joined("n3"), 3.0)
        assert (mine.taken, mine.mirror.writing, server.written) == (["train-xyz"], False, written)


@pytest.mark.real
@pytest.mark.extras
def test_without_the_api_server_the_job_goes_on_and_its_state_follows_later(
    mirror_play: Callable[..., MirrorPlay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.platforms.kubernetes.owner.state_mirror.WAIT_S", 0.2)
    server = Server()
    with api(server.answer, tmp_path) as environment:
        mine = mirror_play(environment)
        server.away = True
        mine.mirror.begin([(1.0, node_joined("n1"))])
        secured = ev.JournalSecured(attempt=1, cause="c")
        assert not mine.mirror.secured(secured, mine.reactor.now())
        assert mine.until(lambda: bool(mine.said) and not mine.mirror._waiting) == [secured]
        assert mine.said[0].startswith(
            "the job's state is not written: the API server answers 503 (etcd has no leader)"
        )
        server.away = False
        mine.until(lambda: not mine.mirror.writing)
        assert [event for _, event in events_of(server.config)] == [node_joined("n1")]


@pytest.mark.real
@pytest.mark.extras
def test_a_refusal_holds_nothing_up_and_the_state_follows_when_the_server_has_read_its_roles(
    mirror_play: Callable[..., MirrorPlay], tmp_path: Path
) -> None:
    server = Server()
    with api(server.answer, tmp_path) as environment:
        mine = mirror_play(environment)
        mine.mirror.begin([(1.0, node_joined("n1"))])
        mine.until(lambda: server.written == 1 and not mine.mirror.writing)
        server.starts = True
        mine.mirror.noted(node_joined("n2"), 2.0)
        secured = ev.JournalSecured(attempt=2, cause="c")
        assert not mine.mirror.secured(secured, mine.reactor.now())
        assert mine.until(lambda: bool(mine.said)) == [secured]
        assert not mine.mirror.writing, "the job's end would wait for a server that refuses"
        assert mine.mirror.secured(secured, mine.reactor.now()) == [secured]
        server.starts = False
        mine.until(lambda: server.written == 2)
        assert [event for _, event in events_of(server.config)] == [node_joined("n1"), node_joined("n2")]
        mine.until(lambda: mine.said[-1] == "the job's state is written again")
    assert len(mine.said) == 2


def _fields() -> dict[str, Any]:
    return {name: getattr(HEADER, name) for name in HEADER.__struct_fields__}
