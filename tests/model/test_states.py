"""States are enums in the code, and the words that they always were on disk."""

from __future__ import annotations

import pytest

from holdfast.model.check_results import CheckState
from holdfast.model.codec import decode_event, encode
from holdfast.model.events import ChecksFinished, StopRequested
from holdfast.model.evidence import AttemptEvidence, Deadline, StopRequest, StopSource
from holdfast.model.exit_report import Evidence, EvidenceKind
from holdfast.untrusted import Malformed, json_as


def test_the_words_on_disk_are_those_of_0_1_0() -> None:
    assert {source.value for source in StopSource} >= {
        "operator", "signal", "time limit", "disk cleaner", "fault", "hang", "supervisor",
    }  # fmt: skip
    assert b'"state":"PASS"' in encode(ChecksFinished(attempt=1, round=1, state=CheckState.PASS))
    assert b'"source":"signal"' in encode(StopRequest(reason="SIGTERM", source=StopSource.SIGNAL))
    assert b'"deadline":"start"' in encode(AttemptEvidence(deadline=Deadline.START))


def test_a_journal_of_0_1_0_that_names_a_component_is_read() -> None:
    line = b'{"type":"stop_requested","request":{"reason":"full","source":"scheduler.pai.error"}}'
    event = decode_event(line)
    assert isinstance(event, StopRequested)
    assert event.request.source is StopSource.COMPONENT


def test_a_journal_whose_checks_asked_for_other_nodes_is_read() -> None:
    line = b'{"type":"checks_finished","attempt":1,"round":1,"state":"FAIL","avoid":["n1"],"replace":["n1"]}'
    event = decode_event(line)
    assert isinstance(event, ChecksFinished)
    assert event.avoid == ("n1",)


def test_evidence_of_a_kind_of_another_version_is_text() -> None:
    assert json_as(b'{"kind":"container","text":"t"}', Evidence).kind is EvidenceKind.LOG
    assert b'"kind":"exit_code"' in encode(Evidence(kind=EvidenceKind.EXIT_CODE, text="t"))


def test_a_state_that_no_check_has_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_event(b'{"type":"checks_finished","attempt":1,"round":1,"state":"MAYBE"}')
