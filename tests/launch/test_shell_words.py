"""A line of a job file's `command`: words as a shell splits them, and shell syntax refused."""

from __future__ import annotations

import pytest

from holdfast.launch.jobfile.job_file_values import split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python t.py --lr 0.1", ["python", "t.py", "--lr", "0.1"]),
        ("python \"two words\" '$HOME > f'", ["python", "two words", "$HOME > f"]),
        (r"echo \$HOME a\ b \>", ["echo", "$HOME", "a b", ">"]),
        ('cost "5$" $ 5$', ["cost", "5$", "$", "5$"]),
        ('python -c "print(1); print(2)"', ["python", "-c", "print(1); print(2)"]),
        ("python t.py a=b ~/x {1..3} #1", ["python", "t.py", "a=b", "~/x", "{1..3}", "#1"]),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert split(line) == words


@pytest.mark.parametrize(
    ("line", "syntax"),
    [
        ("echo $RANK > f; echo done", "$RANK"),
        ('echo "rank ${RANK}"', "${RANK}"),
        ("echo $(date)", "$(date)"),
        ("echo `date`", "`"),
        ('echo "`date`"', "`"),
        ("a > f", ">"),
        ("a | b", "|"),
        ("a && b", "&"),
        ("a; b", ";"),
        ("rm *.pt", "*"),
        ("a\nb", "a line break"),
    ],
)
def test_shell_syntax_is_refused_by_name(line: str, syntax: str) -> None:
    with pytest.raises(ValueError, match="is shell syntax") as error:
        split(line)
    assert f"`{syntax.rstrip(chr(34))}" in str(error.value)


@pytest.mark.parametrize("line", ["a 'b", 'a "b', "a \\"])
def test_an_open_quotation_is_one_message(line: str) -> None:
    with pytest.raises(ValueError, match="left open"):
        split(line)
