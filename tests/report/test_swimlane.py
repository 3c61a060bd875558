"""The swimlane says who died when, folds what is equal, and lets no text of others become markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from holdfast.model.events import AgentReported, EvidenceCollected, FaultSeen, HangFound, NodeSilent, StopRequested
from holdfast.model.evidence import HangEvidence, MemoryKill, StopRequest, StopSource
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.model.human_format import utc
from holdfast.report.swimlane import (
    MarkKind,
    NodeLanes,
    Swimlane,
    SwimlaneFacts,
    SwimlaneRow,
    figure,
    scale_of,
    svg,
    swimlane_facts,
    swimlane_from,
    swimlane_of,
)
from swimlane_story import BEGAN, HOSTILE_TEXT, story, tags


def _lanes(swimlane: Swimlane) -> list[tuple[tuple[str, ...], tuple[int, ...], list[MarkKind]]]:
    return [
        (node.nodes, lane.ranks, [mark.kind for mark in lane.marks]) for node in swimlane.nodes for lane in node.lanes
    ]


def test_the_first_cause_has_a_row_of_its_own_and_its_victims_share_one() -> None:
    swimlane = swimlane_of(*story(each=4, culprit=2), now=None)
    assert _lanes(swimlane) == [
        (("n0",), (2,), [MarkKind.OWN_DEATH]),
        (("n0",), (0, 1, 3), [MarkKind.STOPPED]),
    ]
    assert [lane.culprit for lane in swimlane.nodes[0].lanes] == [True, False]


def test_an_attempt_is_a_band_divided_by_its_parts_without_a_gap() -> None:
    band = swimlane_of(*story(), now=None).bands[0]
    assert [part.name for part in band.parts][:3] == ["backoff", "checking", "preparing"]
    assert all(before.end == after.start for before, after in zip(band.parts, band.parts[1:], strict=False))
    assert (band.parts[0].start, band.start, band.end) == (BEGAN - 2, BEGAN, BEGAN + 66)


def test_a_running_attempt_ends_now_and_its_phases_come_from_its_events() -> None:
    events, _ = story()
    swimlane = swimlane_of(events[:5], [], now=BEGAN + 30)
    assert [(part.name, part.start - BEGAN) for part in swimlane.bands[0].parts] == [
        ("checking", 0),
        ("preparing", 1),
        ("starting", 2),
    ]
    assert swimlane.bands[0].running and swimlane.end == BEGAN + 30


def test_a_thousand_ranks_are_one_small_picture() -> None:
    """As large as that of ten thousand: it must not grow with the ranks."""
    swimlane = swimlane_of(*story(nodes=125, each=8, attempts=3, culprit=471), now=None)
    assert [(len(node.nodes), [lane.count for lane in node.lanes]) for node in swimlane.nodes] == [
        (1, [1, 7]),
        (124, [992]),
    ]
    assert len(figure(swimlane, utc).encode()) < 20_000


def test_a_thousand_ranks_with_a_story_each_are_still_small() -> None:
    events, records = story(nodes=125, each=8, attempts=30)
    torn = [
        (at, event)
        for index, (at, event) in enumerate(events)
        if not isinstance(event, AgentReported) or index % 11 or event.report.members[0].state is MemberState.UP
    ]
    page = figure(swimlane_of(torn, records, now=None), utc)
    assert len(page.encode()) < 100_000


def test_hang_fault_memory_kill_lost_node_and_operator_have_their_marks() -> None:
    events, records = story(nodes=2, each=2, culprit=3)
    at = BEGAN + 50
    hang = HangEvidence(attempt=1, silent_s=20, culprits=(3,), why="rank 3 is blocked in load_batch")
    fault = FaultEvent(
        device="gpu1", code="XID-79", assertion=Assertion.OCCUR, at=at, node="n1", text="fell off the bus"
    )
    asked = StopRequest(reason="maintenance", source=StopSource.OPERATOR, who="root")
    events[-1:-1] = [
        (at, HangFound(attempt=1, evidence=hang)),
        (at, FaultSeen(fault=fault)),
        (at + 1, NodeSilent(node="n0", boot=1, silent_s=31)),
        (at + 2, StopRequested(request=asked)),
    ]
    ended, collected = events[-1]
    assert isinstance(collected, EvidenceCollected)
    kills = (MemoryKill(source="kernel log", text="Out of memory: killed process 1000", rank=0),)
    events[-1] = (ended, replace(collected, evidence=replace(collected.evidence, memory_kills=kills)))
    swimlane = swimlane_of(events, records, now=None)
    kinds = {mark.kind for node in swimlane.nodes for lane in node.lanes for mark in lane.marks}
    assert kinds == {MarkKind.HANG, MarkKind.OWN_DEATH, MarkKind.STOPPED, MarkKind.MEMORY_KILL}
    of_nodes = {node.nodes[0]: [mark.kind for mark in node.marks] for node in swimlane.nodes}
    assert of_nodes == {"n0": [MarkKind.LOST], "n1": [MarkKind.FAULT]}
    assert [mark.kind for mark in swimlane.marks] == [MarkKind.OPERATOR, MarkKind.PROGRESS]
    assert "stop asked by root (operator): maintenance" in svg(swimlane, utc)
    silent = [each.silent_from for node in swimlane.nodes for lane in node.lanes for each in lane.stretches]
    assert set(silent) == {at - 20}


def test_places_rise_with_time_and_lead_back_to_their_moments() -> None:
    scale = scale_of(swimlane_of(*story(attempts=3), now=None))
    moments = [BEGAN + seconds for seconds in range(0, 266, 7)]
    places = [scale.place(at) for at in moments]
    assert places == sorted(places)
    assert [scale.moment(place) for place in places] == pytest.approx(moments)


def test_a_short_part_beside_a_long_one_can_be_seen() -> None:
    events, records = story(attempts=2)
    parts = {"checking": 0.01, "running": 300_000.0, "draining": 0.5}
    long = replace(records[0], parts=parts, started_at=BEGAN - 300_000.0)
    swimlane = swimlane_of(events, [long, records[1]], now=None)
    scale = scale_of(swimlane)
    widths = [scale.place(part.end) - scale.place(part.start) for band in swimlane.bands for part in band.parts]
    assert min(widths) > 4 and scale.stretched


def test_a_row_leads_where_the_caller_says() -> None:
    def link(node: NodeLanes, lane: SwimlaneRow) -> str | None:
        return f"/rank?n={node.nodes[0]}&r={lane.ranks[0]}" if lane.culprit else None

    page = figure(swimlane_of(*story(), now=None), utc, link=link)
    assert re.findall(r'<a href="([^"]*)"', page) == ["/rank?n=n0&amp;r=1"]


def test_a_job_of_which_nothing_is_known_is_an_empty_picture() -> None:
    assert "<svg" in figure(swimlane_of([], [], now=None), utc)


def test_the_picture_names_itself_for_those_who_do_not_see_it() -> None:
    page = svg(swimlane_of(*story(), now=None), utc, ident="x")
    assert (
        'aria-labelledby="x-title x-desc"' in page and '<title id="x-title">' in page and '<desc id="x-desc">' in page
    )
    assert "rank 1 on n0, the culprit: own death at" in page


@settings(max_examples=40)
@given(HOSTILE_TEXT, HOSTILE_TEXT)
def test_no_text_of_a_job_becomes_markup(node: str, words: str) -> None:
    """The page of hostile texts has the very tags and attributes that the page of harmless ones has."""

    def page(name: str, said: str) -> str:
        events, records = story(each=2)
        members = (Member(rank=0, state=MemberState.UP),)
        report = Report(node=name, boot=1, attempt=1, stopped=0, sent=0.0, members=members)
        fault = FaultEvent(device=said, code=said, assertion=Assertion.OCCUR, at=BEGAN + 9, node=name, text=said)
        events[1:1] = [
            (BEGAN + 1, AgentReported(report=report)),
            (BEGAN + 9, FaultSeen(fault=fault)),
            (BEGAN + 9, StopRequested(request=StopRequest(reason=said, who=said))),
        ]
        return figure(swimlane_of(events, records, now=None), utc)

    assert tags(page(f"x{node}", words)) == tags(page("x", "harmless"))


def test_facts_that_are_taken_bit_by_bit_make_the_same_picture() -> None:
    events, records = story(nodes=3, each=4, attempts=2, culprit=5)
    facts = SwimlaneFacts()
    for number in range(0, len(events), 3):
        swimlane_facts(events[number : number + 3], facts)
        swimlane_from(facts, records[:1], now=events[-1][0])
    assert swimlane_from(facts, records, now=None) == swimlane_of(events, records, now=None)
