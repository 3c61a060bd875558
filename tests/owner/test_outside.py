"""What the owner does with signals and their platform's word: evidence of deaths waits for it, for a bounded time."""

from __future__ import annotations

import signal

import pytest
from msgspec import structs

from holdfast.model import events as ev
from holdfast.model.evidence import AttemptEvidence, StopRequest, StopSource, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.owner.external_events import ARRIVES_S, ExternalEvents
from holdfast.reactor import Reactor
from holdfast.record.job_directory import nowhere


class SlurmNews:
    """A platform that is asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.asking = self.holding = self.writing = False
        self.signals: list[tuple[int, str]] = []
        self.since: list[float] = []

    def signalled(self, number: int, node: str, now: float) -> None:
        self.signals.append((number, node))
        self.asking = True

    def felled(self, since: float) -> None:
        self.since.append(since)

    def noted(self, event: ev.Event, now: float) -> None:
        """Slurm is told nothing of it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} is not asked for here")


def collected(number: int | None = None, stop: StopRequest | None = None, status: int = 1) -> ev.EvidenceCollected:
    code = None if number else status
    exit_ = WorkerExit(role="worker", rank=0, node="n2", attempt=1, signal=number, exit_code=code, ended_at=0.9)
    worker = WorkerEvidence(role="worker", rank=0, exit=exit_)
    return ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence(attempt=1, workers=(worker,), stop=stop))


def outside(platform: SlurmNews | None) -> ExternalEvents:
    return ExternalEvents(Reactor(lambda: 0.0), platform, nowhere("job", 0.0), lambda text: None)  # type: ignore[arg-type]  # a part of one


def signalled() -> ev.NodeSignalled:
    return ev.NodeSignalled(node="n2", boot=1, number=signal.SIGTERM)


def test_a_platform_is_asked_what_a_signal_means() -> None:
    slurm = SlurmNews()
    assert list(outside(slurm).follows(signalled(), 1, 0.0)) == []
    assert slurm.signals == [(signal.SIGTERM, "n2")]


def test_without_a_platform_a_signal_is_a_request_to_stop() -> None:
    (asked,) = outside(None).follows(signalled(), 1, 5.0)
    assert isinstance(asked, ev.StopRequested)
    assert (asked.request.source, asked.request.signal) == (StopSource.SIGNAL, signal.SIGTERM)
    assert "n2" in asked.request.reason


def test_evidence_waits_until_the_platform_has_answered() -> None:
    slurm = SlurmNews()
    out, evidence = outside(slurm), collected()
    out.follows(signalled(), 1, 0.0)
    assert out.holds(evidence, 0.0)
    assert list(out.released(9.0)) == []
    slurm.asking = False
    assert list(out.released(9.1)) == [evidence]
    assert list(out.released(9.2)) == []


@pytest.mark.parametrize("evidence", [collected(signal.SIGTERM), collected(status=143)])
def test_a_death_by_sigterm_waits_a_moment_for_the_signal_that_may_have_caused_it(
    evidence: ev.EvidenceCollected,
) -> None:
    """A worker that handles SIGTERM leaves with 128 and its number."""
    out = outside(SlurmNews())
    assert out.holds(evidence, 1.0)
    assert list(out.released(1.0 + ARRIVES_S / 2)) == []
    assert list(out.released(1.0 + ARRIVES_S)) == [evidence]


def test_a_platform_is_asked_what_it_has_to_do_with_deaths_by_sigterm() -> None:
    slurm = SlurmNews()
    out, evidence = outside(slurm), collected(signal.SIGTERM)
    out.holds(evidence, 1.0)
    assert slurm.since == [0.9], "since the first of them"
    slurm.asking = True
    assert list(out.released(9.0)) == []
    assert out.holds(collected(status=143), 9.0)
    assert slurm.since == [0.9], "an answer is on its way"


def test_a_death_by_our_own_sigterm_delays_no_restart() -> None:
    worker = collected(signal.SIGTERM).evidence.workers[0]
    assert worker.exit is not None
    ours = structs.replace(worker, exit=structs.replace(worker.exit, after_stop=True))
    evidence = ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence(attempt=1, workers=(ours,)))
    assert not outside(SlurmNews()).holds(evidence, 0.0)


def test_other_evidence_waits_for_nothing() -> None:
    stop = StopRequest(reason="enough")
    assert not outside(SlurmNews()).holds(collected(), 0.0)
    assert not outside(SlurmNews()).holds(collected(signal.SIGTERM, stop), 0.0)
    assert not outside(None).holds(collected(signal.SIGTERM), 0.0)
