"""The command that compares outputs with stored ones: it finds a changed line, and what is stored is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast_testing import oracles


def test_what_is_stored_of_simulations_is_of_all_seeds_and_no_invariant_broke() -> None:
    lines = (oracles.STORED / "actions.txt").read_text(encoding="utf-8").splitlines()
    assert [int(line.split()[0]) for line in lines] == list(oracles.SEEDS)
    assert [line for line in lines if not re.fullmatch(r"\d+ [0-9a-f]{16}", line)] == []


def test_journals_of_earlier_versions_give_the_stored_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert oracles.main(["compare", "journals"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^journals/0\.1\.0\.actions\.txt: \d+ lines, all equal$", told, re.MULTILINE)


def test_a_changed_line_is_shown_and_a_missing_file_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert oracles.main(["write", "journals", "--stored", str(tmp_path)]) == 0
    assert oracles.main(["compare", "journals", "--stored", str(tmp_path)]) == 0
    first, second = sorted((tmp_path / "journals").iterdir())
    text = first.read_text(encoding="utf-8")
    first.write_text(text.replace('"restart"', '"fail"', 1), encoding="utf-8")
    second.unlink()
    capsys.readouterr()
    assert oracles.main(["compare", "journals", "--stored", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"journals/{first.name}: DIFFERS" in told and f"journals/{second.name}: DIFFERS" in told
    assert told.rstrip().endswith(
        "2 files differ; where that is meant: python -m holdfast_testing.oracles write journals"
    )


def test_an_unknown_name_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        oracles.main(["compare", "journal"])
    assert ended.value.code == 2
    assert "there is no oracle journal: expected reports, help, schemas" in capsys.readouterr().err
