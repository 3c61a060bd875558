"""The lab's cases are in order, and some are provoked for real.

All of them: python -m holdfast_testing.lab, and with --hangs."""

from __future__ import annotations

import pytest

from holdfast.catalogue.exit_rows import load
from holdfast.model.exit_report import Blame
from holdfast.observe.python_stacks import find_py_spy
from holdfast_testing.lab import cases, hangs, main, run_cases

LAB_CASES = {case.name: case for case in cases()}
QUICK_CASES = ("missing-module", "early-decoy", "one-of-four", "disk-full", "segfault", "address-in-use", "hub-503")


def test_there_are_enough_kinds_and_each_is_told_apart_by_its_name() -> None:
    assert len(LAB_CASES) == len(cases()) >= 60
    assert len({case.phrases[0] for case in LAB_CASES.values()}) >= 30


def test_answers_are_phrases_and_blames_that_exist() -> None:
    known = set(load().by_phrase)
    for case in LAB_CASES.values():
        assert set(case.phrases) <= known, case.name
        assert case.blame in set(Blame), case.name
        assert bool(case.script) != bool(case.command), case.name
        assert case.rank is None or 0 <= case.rank < case.workers, case.name


@pytest.mark.real
def test_real_failures_get_their_phrase_blame_and_culprit() -> None:
    outcomes = list(run_cases([LAB_CASES[name] for name in QUICK_CASES], jobs=2))
    assert [f"{o.name}: {o.wrong}" for o in outcomes if not o.right] == []
    assert [o.name for o in outcomes] == list(QUICK_CASES)


def test_the_lab_lists_its_cases_and_refuses_an_unknown_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert set(LAB_CASES) <= set(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as refused:
        main(["no-such-case"])
    assert refused.value.code == 2
    assert "no-such-case" in capsys.readouterr().err


def test_there_are_enough_kinds_of_hang_and_each_is_told_apart_by_its_name() -> None:
    found = hangs()
    assert len({case.name for case in found}) == len(found) >= 25
    for case in found:
        assert case.rank is None or 0 <= case.rank < case.workers, case.name
        assert 2 <= case.workers <= 4, case.name
        compile(case.script, case.name, "exec")


@pytest.mark.real
@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")
def test_a_real_hang_names_the_rank_that_the_others_wait_for() -> None:
    case = next(case for case in hangs() if case.name == "accept-at-top-level")
    (outcome,) = run_cases([case])
    assert outcome.wrong == ""
