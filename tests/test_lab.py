"""The lab's cases are in order, and some are provoked for real (all of them: python -m holdfast.testing.lab)."""

from __future__ import annotations

import pytest

from holdfast.catalogue.exits import load
from holdfast.model.exits import Blame
from holdfast.testing.lab import cases, main, run_cases

CASES = {case.name: case for case in cases()}
QUICK = ("missing-module", "early-decoy", "one-of-four", "disk-full", "segfault", "address-in-use", "hub-503")


def test_there_are_enough_kinds_and_each_is_told_apart_by_its_name() -> None:
    assert len(CASES) == len(cases()) >= 60
    assert len({case.phrases[0] for case in CASES.values()}) >= 30


def test_answers_are_phrases_and_blames_that_exist() -> None:
    known = set(load().by_phrase)
    for case in CASES.values():
        assert set(case.phrases) <= known, case.name
        assert case.blame in set(Blame), case.name
        assert bool(case.script) != bool(case.command), case.name
        assert case.rank is None or 0 <= case.rank < case.workers, case.name


def test_real_failures_get_their_phrase_blame_and_culprit() -> None:
    outcomes = list(run_cases([CASES[name] for name in QUICK], jobs=2))
    assert [f"{o.name}: {o.wrong}" for o in outcomes if not o.right] == []
    assert [o.name for o in outcomes] == list(QUICK)


def test_the_lab_lists_its_cases_and_refuses_an_unknown_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert set(CASES) <= set(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as refused:
        main(["no-such-case"])
    assert refused.value.code == 2
    assert "no-such-case" in capsys.readouterr().err
