"""The search for bad nodes in pairs: exactly the bad ones are named as long as two good nodes can meet."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.pair_search import Pair, PairSearch, search


class Nodes:
    """Nodes of which some fail, are slow, or both; good pairs take 0.9 to 1.3 s."""

    def __init__(self, bad: set[int], slow: set[int], seed: int) -> None:
        self.bad, self.slow, self.random = bad, slow, random.Random(seed)
        self.waves: list[list[Pair]] = []

    def __call__(self, wave: Sequence[Pair]) -> list[float | None]:
        self.waves.append(list(wave))
        return [self.one(pair) for pair in wave]

    def one(self, pair: Pair) -> float | None:
        if self.bad.intersection(pair):
            return None
        return self.random.uniform(0.9, 1.3) * (6 if self.slow.intersection(pair) else 1)


@st.composite
def troubled(draw: st.DrawFn) -> tuple[int, set[int], set[int], int]:
    count = draw(st.integers(3, 60))
    bad = draw(st.sets(st.integers(0, count - 1), max_size=count // 3))
    slow = {node for node in bad if draw(st.booleans())}
    return count, bad - slow, slow, draw(st.integers(0, 1000))


@given(troubled())
def test_exactly_the_bad_nodes_are_named(case: tuple[int, set[int], set[int], int]) -> None:
    count, bad, slow, seed = case
    nodes = Nodes(bad, slow, seed)
    found = search(count, nodes)
    assert found.bad == bad | slow
    assert found.suspects == []
    assert found.cleared == set(range(count)) - bad - slow


@given(troubled())
def test_a_wave_never_has_a_node_twice_and_no_pair_meets_again(case: tuple[int, set[int], set[int], int]) -> None:
    count, bad, slow, seed = case
    nodes = Nodes(bad, slow, seed)
    search(count, nodes)
    met: set[frozenset[int]] = set()
    for wave in nodes.waves:
        members = [node for pair in wave for node in pair]
        assert len(members) == len(set(members))
        for pair in wave:
            assert frozenset(pair) not in met
            met.add(frozenset(pair))


def test_healthy_nodes_need_one_round_and_an_odd_one_a_second() -> None:
    even, odd = Nodes(set(), set(), 1), Nodes(set(), set(), 1)
    assert search(8, even).cleared == set(range(8))
    assert search(9, odd).cleared == set(range(9))
    assert [len(wave) for wave in even.waves] == [4]
    assert [len(wave) for wave in odd.waves] == [4, 1]


def test_one_bad_of_eight_needs_two_rounds() -> None:
    nodes = Nodes({5}, set(), 1)
    assert search(8, nodes).bad == {5}
    assert [len(wave) for wave in nodes.waves] == [4, 2]


def test_of_two_nobody_can_tell() -> None:
    found = search(2, Nodes({1}, set(), 1))
    assert found.bad == set()
    assert found.suspects == [0, 1]


def test_all_bad_is_said_to_be_unknown() -> None:
    found = search(5, Nodes(set(range(5)), set(), 1))
    assert found.bad == set()
    assert found.suspects == [0, 1, 2, 3, 4]


def test_a_link_is_told_from_its_nodes() -> None:
    def run(wave: Sequence[Pair]) -> list[float | None]:
        return [None if pair == (2, 3) else 1.0 for pair in wave]

    found = search(8, run)
    assert found.bad == set()
    assert found.suspects == []
    assert found.links == [(2, 3)]


@pytest.mark.parametrize("count", [0, 1])
def test_nobody_to_meet(count: int) -> None:
    found = PairSearch(count)
    assert found.next_wave() == []
    assert found.next_wave() == []
