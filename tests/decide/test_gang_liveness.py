"""Who is silent, and when a silent node is surely fenced."""

from __future__ import annotations

import pytest
from decide_builders import LEASES
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.liveness import Liveness
from holdfast.model.events import NodeFenced, NodeSilent

FENCE_S = 36.0


@pytest.fixture
def two_watched() -> Liveness:
    made = Liveness(LEASES)
    made.expect(["a", "b"], 0.0)
    return made


def news_until(watch: Liveness, end: float) -> list[tuple[float, type, str]]:
    """Everything it says up to `end`, with the moment."""
    said = []
    while (wake := watch.next_wake()) is not None and wake <= end:
        said += [(wake, type(event), event.node) for event in watch.due(wake)]
        again = watch.next_wake()
        assert again is None or again > wake
    return said


def test_nobody_is_accused_while_all_speak(two_watched: Liveness) -> None:
    for beat in range(1, 100):
        now = 5.0 * beat
        assert two_watched.heard("a", 1, now)
        assert two_watched.heard("b", 1, now)
        assert news_until(two_watched, now) == []


def test_silent_after_a_lease_and_fenced_only_when_the_lease_is_surely_over(two_watched: Liveness) -> None:
    two_watched.heard("a", 1, 10.0)
    two_watched.heard("b", 1, 45.0)
    said = news_until(two_watched, 10.0 + FENCE_S)
    assert said[0] == (40.0, NodeSilent, "a")
    assert [when for when, kind, _ in said if kind is NodeFenced] == [10.0 + FENCE_S]
    assert {node for _, _, node in said} == {"a"}


def test_silence_is_told_again_every_beat_for_whoever_asks_later(two_watched: Liveness) -> None:
    two_watched.heard("b", 1, 1000.0)
    told = [when for when, kind, node in news_until(two_watched, 80.0) if kind is NodeFenced and node == "a"]
    assert told == [36.0, 41.0, 46.0, 51.0, 56.0, 61.0, 66.0, 71.0, 76.0]


def test_a_word_ends_the_silence(two_watched: Liveness) -> None:
    two_watched.heard("b", 1, 1000.0)
    assert news_until(two_watched, 35.0)
    two_watched.heard("a", 1, 35.0)
    assert news_until(two_watched, 64.9) == []
    assert news_until(two_watched, 65.0) == [(65.0, NodeSilent, "a")]


def test_a_node_that_never_spoke_is_silent_too(two_watched: Liveness) -> None:
    two_watched.heard("b", 1, 20.0)
    (event,) = [event for event in two_watched.due(30.0) if isinstance(event, NodeSilent)]
    assert (event.node, event.boot, event.silent_s) == ("a", 0, 30.0)


def test_an_agent_of_before_is_not_heard_and_must_not_be_acknowledged(two_watched: Liveness) -> None:
    assert two_watched.heard("a", 2, 10.0)
    assert not two_watched.heard("a", 1, 39.0)
    assert (40.0, NodeSilent, "a") in news_until(two_watched, 40.0)
    assert two_watched.heard("c", 7, 40.0)


def test_an_owner_that_was_away_accuses_nobody(two_watched: Liveness) -> None:
    two_watched.heard("a", 1, 10.0)
    assert two_watched.due(500.0) == [], "what was said meanwhile is still unread"
    assert news_until(two_watched, 504.9) == []
    assert {node for _, kind, node in news_until(two_watched, 505.0) if kind is NodeSilent} == {"a", "b"}


def test_after_a_crash_everybody_has_a_whole_lease(two_watched: Liveness) -> None:
    two_watched.heard("a", 3, 10.0)
    two_watched.expect(["a", "b"], 100.0)
    assert news_until(two_watched, 129.9) == []
    assert not two_watched.heard("a", 2, 129.0), "boots are not forgotten"


def test_an_owner_that_is_back_knows_whose_silence_it_hears() -> None:
    """A fence of another agent than the last one heard is ignored: a node lost meanwhile would never be fenced."""
    watch = Liveness(LEASES)
    watch.expect(["a", "b"], 0.0, {"a": 3})
    assert {(event.node, event.boot) for event in watch.due(30.0)} == {("a", 3), ("b", 0)}


def test_the_end_of_an_earlier_agent_forgets_no_node(two_watched: Liveness) -> None:
    two_watched.heard("a", 2, 10.0)
    two_watched.heard("b", 1, 1000.0)
    two_watched.forget("a", 1)
    assert news_until(two_watched, 40.0) == [(40.0, NodeSilent, "a")]


def test_a_node_whose_agent_has_ended_is_not_called_silent(two_watched: Liveness) -> None:
    two_watched.heard("a", 2, 10.0)
    two_watched.heard("b", 1, 1000.0)
    two_watched.forget("a", 2)
    assert news_until(two_watched, 500.0) == []
    assert two_watched.heard_at("a") is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.01, 20.0)), max_size=40))
def test_fenced_never_before_lease_drift_and_beat_have_passed(words: list[tuple[str, float]]) -> None:
    watch, now = Liveness(LEASES), 0.0
    watch.expect(["a", "b"], now)
    last = {"a": 0.0, "b": 0.0}
    for node, pause in words:
        now += pause
        while (wake := watch.next_wake()) is not None and wake <= now:
            for event in watch.due(wake):
                assert wake - last[event.node] >= (FENCE_S if isinstance(event, NodeFenced) else 30.0) - 1e-9
        watch.heard(node, 1, now)
        last[node] = now
