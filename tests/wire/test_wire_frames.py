"""Messages as bytes and back: in any pieces, of any length that is allowed, with moments as ages."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import events as ev
from holdfast.model.evidence import AttemptEvidence, StopRequest, StopSource, WorkerEvidence
from holdfast.model.job_spec import JobSetting, JobSpec, Role
from holdfast.untrusted import Malformed
from holdfast.wire.message_frames import (
    LONGEST_BYTES,
    LONGEST_MESSAGE_BYTES,
    FrameReader,
    FromAgent,
    FromOwner,
    Sent,
    TooLong,
    frame,
)
from holdfast.wire.node_messages import Foreign, Refused, Welcome
from wire_ends import beat, hello


def read(data: bytes, kind: Any = FromAgent, now: float = 0.0, piece: int = 1 << 16) -> list[Any]:
    inbox = FrameReader(kind)
    return [message for at in range(0, len(data), piece) for message in inbox.take(data[at : at + piece], now)]


def evidence(size: int) -> ev.EvidenceCollected:
    workers = tuple(WorkerEvidence(rank=rank, start_failed="x" * 10_000) for rank in range(size // 10_000))
    return ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence(workers=workers))


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_messages_come_out_of_any_pieces_in_order(piece: int) -> None:
    said: list[Sent] = [hello(), beat(1.0), ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence()), beat(2.0)]
    assert read(b"".join(frame(each, 0.0) for each in said), piece=piece) == said


@pytest.mark.parametrize("size", [900_000, LONGEST_BYTES, 3 * LONGEST_BYTES, 12_000_000])
def test_a_message_of_several_frames_arrives_whole(size: int) -> None:
    inbox = FrameReader(FromAgent)
    data = frame(hello(), 0.0) + frame(evidence(size), 0.0) + frame(beat(), 0.0)
    found = [each for at in range(0, len(data), 16_000) for each in inbox.take(data[at : at + 16_000], 0.0)]
    assert found == [hello(), evidence(size), beat()]
    assert inbox.held == 0


def test_a_message_beyond_all_measure_is_not_sent() -> None:
    with pytest.raises(TooLong, match=f"at most {LONGEST_MESSAGE_BYTES}"):
        frame(evidence(LONGEST_MESSAGE_BYTES), 0.0)


MORE = 1 << 31


@pytest.mark.parametrize(
    "data",
    [
        (LONGEST_BYTES + 1).to_bytes(4, "big"),
        (MORE | (LONGEST_BYTES + 1)).to_bytes(4, "big"),
        (MORE | 5).to_bytes(4, "big") + b"abcde",
        MORE.to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        ((MORE | LONGEST_BYTES).to_bytes(4, "big") + bytes(LONGEST_BYTES)) * 16 + b"\x00\x00\x00\x01",
    ],
    ids=["long", "long with more", "a short part", "an empty part", "all bits", "too many parts"],
)
def test_what_is_too_long_or_in_odd_parts_is_malformed_at_its_announcement(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_what_came_before_a_malformed_frame_counts() -> None:
    inbox, found = FrameReader(FromAgent), []
    with pytest.raises(Malformed):
        for message in inbox.take(frame(hello(), 0.0) + b"\x00\x00\x00\x01\xc1" + frame(beat(), 0.0), 0.0):
            found.append(message)  # noqa: PERF402 - what was given before the error is wanted
    assert (found, inbox.held) == ([hello()], 0)


def test_a_size_that_is_claimed_and_not_there_costs_nothing() -> None:
    claims = b"\x82\xa4type\xa5hello\xa8kept_out\xdd\xff\xff\xff\xff"
    with pytest.raises(Malformed, match="truncated"):
        read(len(claims).to_bytes(4, "big") + claims)


def test_depth_is_bounded() -> None:
    deep = b"\x82\xa4type\xa5hello\xa1z" + b"\x91" * 900_000
    with pytest.raises(Malformed, match="nests deeper"):
        read(len(deep).to_bytes(4, "big") + deep)


def test_moments_travel_as_ages() -> None:
    request = StopRequest(reason="r", solution="s", source=StopSource.OPERATOR, at=1000.0)
    (found,) = read(frame(ev.StopRequested(request=request), 1005.0), now=77.0)
    assert found.request.at == 72.0


def test_half_characters_can_be_sent() -> None:
    (found,) = read(frame(Refused(reason="a\ud800b", hint="", code=2), 0.0), FromOwner)
    assert found.reason == "a?b"


def test_a_hello_of_another_version_says_at_least_which() -> None:
    strange = b"\x84\xa4type\xa5hello\xa8protocol\x07\xa7version\xa33.0\xa4more\xc0"
    data = len(strange).to_bytes(4, "big") + strange
    assert read(data) == [Foreign(protocol=7, version="3.0")]
    with pytest.raises(Malformed):
        read(frame(beat(), 0.0) + data)


def test_a_welcome_carries_the_job() -> None:
    spec = JobSpec(name="j", roles=(Role(name="w", count=2, command=("x",)),))
    values = (True, 5, 2.5, "1M", ("a", "b"))
    sent = tuple(JobSetting(name="n", value=value, source=2, origin="a file") for value in values)
    welcome = Welcome(job_id="id", node="n", spec=spec, term=2, owner="o", settings=sent)
    assert read(frame(welcome, 0.0), FromOwner) == [welcome]
