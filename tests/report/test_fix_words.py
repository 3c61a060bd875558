"""The fix of a report: whole sentences, for this failure, that repeat no line above them."""

from __future__ import annotations

from typing import Any

import pytest

from builders import exit_report
from holdfast.catalogue.exit_rows import load
from holdfast.model.exit_report import Culprit, Original
from holdfast.model.phrases import Phrase
from holdfast.report.failure_place import FailurePlace, UserFrame
from holdfast.report.fix_words import MOST_SENTENCES, fix_of, sentences_of

PLACE = FailurePlace(frames=(UserFrame(path="/srv/t.py", line=3, function="main"),))
ROWS = load().by_phrase


def fix(phrase: str, place: FailurePlace = PLACE, **changes: Any) -> str:
    fields: dict[str, Any] = {"solution": ROWS[phrase].solution, "first": Culprit(role="worker", rank=2, node="n")}
    return fix_of(exit_report(ROWS[phrase].code, phrase, **(fields | changes)), place, "j1")


@pytest.mark.parametrize("phrase", sorted(ROWS))
def test_a_fix_is_at_most_two_whole_sentences_of_its_class(phrase: str) -> None:
    text = fix(phrase, FailurePlace())
    assert text
    assert len(sentences_of(text)) <= MOST_SENTENCES
    assert text.endswith((".", "`", "?", "!", "dmesg.txt"))
    assert text.count("(") == text.count(")") and text.count("`") % 2 == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Find the line (python -m json.tool, or jq -c . FILE > /dev/null) and drop it. Then run again.", 2),
        ("Run `tar czf x. -C A .` there. `ls` shows it.", 2),
        ('See 1.5 GiB (e.g. The limit. Or not) here. "So" it is.', 2),
        ("One only", 1),
    ],
)
def test_a_dot_inside_of_brackets_or_a_command_ends_no_sentence(text: str, count: int) -> None:
    found = sentences_of(text)
    assert len(found) == count
    assert " ".join(found) == text


@pytest.mark.parametrize("status", [2, 3, 7, 42, 99])
def test_a_status_without_a_word_is_searched_by_its_number(status: int) -> None:
    text = fix("Unexplained", original=Original(exit_code=status))
    assert text.startswith(f"Search what rank 2 runs for `sys.exit({status})`")
    assert "NCCL" not in text


def test_what_the_report_knows_stands_in_the_fix() -> None:
    assert fix("HostOutOfMemoryKilled", reason="rank 2: killed, limit 300.0 MiB, peak 300.0 MiB").startswith(
        "Raise the limit of 300.0 MiB, or use less: fewer data-loader workers"
    )
    assert fix("CollectiveTimeout").startswith("Look at what rank 2 did then: `holdfast logs j1 --attempt 1 --rank 2`.")
    assert fix("HungWorker").startswith("Find out why rank 2 stays there")
    assert "Find the rank" in fix("CollectiveTimeout", original=Original(exit_code=1))


@pytest.mark.parametrize("phrase", [Phrase.USER_EXCEPTION, Phrase.NATIVE_CRASH, Phrase.HUNG_WORKER])
def test_a_place_that_is_shown_is_not_named_again(phrase: Phrase) -> None:
    assert "Start at the last frame" not in fix(phrase)
    assert "Look at the Python line" not in fix(phrase)
    assert "Look at the stacks" not in fix(phrase)


def test_a_report_without_a_solution_has_no_fix() -> None:
    assert fix("UserException", solution="") == ""
