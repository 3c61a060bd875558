"""What the gang makes of a prerequisite that could not be had: a failure with its own exit, or another node."""

from __future__ import annotations

import pytest

from gang_play import Play, play, spec
from holdfast.decide.phases import Phase
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure
from holdfast.model.job_spec import JobSpec
from holdfast.model.runtime_plan import Prerequisite, RuntimePlan

__all__ = ["play"]  # fixtures


def fetching() -> JobSpec:
    return spec(runtime=RuntimePlan(prerequisites=(Prerequisite(name="m", uri="https://h/m"),)))


def missed(phrase: str, node: str = "a", *, here: bool = False) -> CheckFailure:
    return CheckFailure(
        check="prerequisite m", message=f"{node}: why", nodes=(node,), blame="", phrase=phrase, elsewhere=here
    )


def test_a_job_with_prerequisites_gives_them_a_time_of_their_own(play: Play) -> None:
    play.submit(fetching())
    order = next(action for action in play.out if isinstance(action, RunChecks))
    timers = play.gang.spec.timers
    assert (order.deadline_s, order.fetch_s) == (timers.check_s, timers.fetch_s)
    play.wait(timers.check_s + 1)
    assert play.at(Phase.CHECKING), "the checks' own limit does not end a fetch"


def test_a_job_without_any_has_the_checks_limit_alone(play: Play) -> None:
    play.submit()
    assert next(action for action in play.out if isinstance(action, RunChecks)).fetch_s == 0


def test_what_is_the_users_ends_the_job_with_its_phrase(play: Play) -> None:
    play.submit(fetching())
    play.check(CheckState.FAIL, failure=missed("DownloadNotFound"))
    play.wait(0.0)
    (record,) = play.gang.records
    assert play.at(Phase.DONE) and record.report.phrase == "DownloadNotFound"
    assert record.decision.kind is DecisionKind.FAIL and not record.decision.avoid


@pytest.mark.parametrize("phrase", ["ObjectStoreThrottled", "DnsFailed", "DownloadTimedOut", "DownloadCorrupt"])
def test_what_may_pass_is_tried_by_another_attempt_that_the_user_does_not_pay_for(play: Play, phrase: str) -> None:
    play.submit(fetching())
    play.check(CheckState.FAIL, failure=missed(phrase))
    play.wait(0.0)
    (record,) = play.gang.records
    assert play.at(Phase.BACKOFF) and record.report.phrase == phrase
    assert record.decision.kind is DecisionKind.RESTART and not record.decision.charged
    play.wait(400.0)
    assert play.at(Phase.CHECKING) and play.gang.attempt == 2


def test_a_full_disk_leaves_its_node_out_and_the_attempt_goes_on(play: Play) -> None:
    play.submit(fetching(), nodes=("a", "b", "c"))
    play.check(CheckState.FAIL, avoid=("a",), failure=missed("DiskFull", here=True))
    assert play.at(Phase.CHECKING) and play.gang.attempt == 1 and not play.gang.records
    play.check()
    assert play.at(Phase.PREPARING) and "a" not in play.gang.attempt_state.roster.nodes


def test_a_full_disk_without_another_node_is_the_end_and_the_storages(play: Play) -> None:
    play.submit(fetching())
    play.check(CheckState.FAIL, avoid=("a",), failure=missed("DiskFull", here=True))
    (record,) = play.gang.records
    assert play.at(Phase.DONE) and (record.report.phrase, record.report.blame) == ("DiskFull", "storage")
