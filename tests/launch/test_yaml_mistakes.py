"""A mistake in YAML is named where it is, and not where the parser noticed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.untrusted import Malformed, yaml_value
from typed_here import Cli, cli, home

__all__ = ["cli", "home"]  # fixtures


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("name: a\nimage: x\nscript train.py\nroles: 2\n", 3, 7, "a colon is missing behind `script`"),
        ("name: a\nscript train.py\n\n# roles\nroles: 2\n", 2, 7, "a colon is missing behind `script`"),
        ("name: a\nroles:\n  worker\n    count: 2\n", 3, 9, "a colon is missing behind `worker`"),
        ("roles:\n  - a\n  - name b\n    x: 1\n", 3, 9, "a colon is missing behind `name`"),
        ("name:a\nroles:\n  w: 1\n", 1, 6, "a blank is missing behind the colon"),
        ("-a\nb: 1\n", 1, 1, "a blank is missing behind `-`"),
        ("name: a\ncommand: echo: b\n", 2, 14, "a value with `: ` or a colon at its end needs quotes"),
        ("a: b:\n", 1, 5, "a value with `: ` or a colon at its end needs quotes"),
        ("name: a\n  image: b\n", 2, 3, "this line is indented deeper than line 1, which has a value already"),
        ("roles:\n\tworker: 2\n", 2, 1, "a tab stands here; YAML takes blanks only"),
        ("a:\t1\n\tb: 2\n", 2, 1, "a tab stands here; YAML takes blanks only"),
        ("name: 'a\nroles:\n  w: 1\n", 1, 7, "the quote that begins here has no end"),
        ("roles:\n  w: {command: [a, b}\nx: 1\n", 2, 16, "the `[` that opens here is not closed"),
        ("roles:\n  w: {count: 2\nx: 1\n", 2, 6, "the `{` that opens here is not closed"),
        ("roles:\n    w:\n      count: 1\n   x: 2\n", 4, 4, "this line's indentation is that of no line above it"),
        ("roles:\n  - a\n - b\n", 3, 2, "this line's indentation is that of no line above it"),
        ("- a\nb: 1\n", 2, 1, "expected `- ` as in line 1, which begins a list"),
        ("b: 1\n- a\n", 2, 1, "a list's `-` stands where a `key: value` was expected"),
        ("name: @a\n", 1, 7, "a value that begins with `@` needs quotes"),
        ("name: *.py\n", 1, 7, "a value that begins with `*` needs quotes"),
        ('name: "C:\\dir"\n', 1, 10, "a backslash in double quotes begins an escape; use single quotes"),
        ('name: "a" b\n', 1, 11, "nothing may follow the end of a value"),
        ("command: {{ x }}\n", 1, 10, "a text that begins with `{` needs quotes"),
        ("a: 1\n---\nb: 2\n", 2, 1, "one document was expected; a second one begins here"),
    ],
)
def test_the_place_is_that_of_the_mistake(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        yaml_value(text)
    assert (str(caught.value), caught.value.line) == (said, line)
    shown = caught.value.excerpt.splitlines()
    [at] = [number for number, each in enumerate(shown) if each.startswith(f"    {line:>4} | ")]
    assert shown[at].endswith(text.splitlines()[line - 1].replace("\t", " "))
    assert shown[at + 1] == f"         | {' ' * (column - 1)}^"
    assert caught.value.column == column


@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a: [", "'", "\t", "a: \n\t", "é: 'ü\n", "%", "a:\r\n  b\r\n   c: 1\r\n"]
)
def test_any_text_is_a_value_or_one_error(text: str) -> None:
    try:
        yaml_value(text)
    except Malformed as error:
        assert "\n" not in str(error)


def test_the_values_of_secrets_are_not_shown() -> None:
    with pytest.raises(Malformed) as caught:
        yaml_value("secrets:\n  token: hf_verysecret1\n  other hf_verysecret2\n  third: hf_verysecret3\n")
    assert "hf_very" not in caught.value.excerpt and "token: …" in caught.value.excerpt


def test_a_job_file_is_shown_with_the_line_to_mend(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: a\nroles:\n  worker\n    count: 2\n")
    status, _, err = cli("run", "--job", "bad.yaml", EDITOR="nano")
    assert status == 2
    assert err == (
        "holdfast: job file bad.yaml, line 3, column 9: a colon is missing behind `worker`\n"
        "       2 | roles:\n       3 |   worker\n         |         ^\n       4 |     count: 2\n"
        "  try: nano +3 bad.yaml\n"
    )


def test_settings_and_accelerates_file_are_shown_too(cli: Cli, home: Path, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text("num_machines 1\nnum_processes: 2\n")
    status, _, err = cli("run", "--accelerate-config", "accelerate.yaml", "train.py")
    assert status == 2 and "       1 | num_machines 1\n         |             ^\n" in err
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("grace 5\nmax-restarts: 2\n")
    status, _, err = cli("config")
    assert status == 2 and "line 1: expected YAML: a colon is missing behind `grace`\n       1 | grace 5\n" in err


def test_keys_are_listed_once_and_the_meant_one_comes_first(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("nam: a\nimge: b\nfoo: c\nroles:\n  w: {cont: 1, comand: [a]}\n  v: {cont: 1}\n")
    status, _, err = cli("run", "--job", "job.yaml")
    assert status == 2
    assert "there is no key `nam`; did you mean `name`? expected some of: name, roles, " in err
    assert "there is no key `imge`; did you mean `image`?\n" in err and "there is no key `foo`\n" in err
    assert err.count("expected some of: name, roles, ") == 1
    assert err.count("`roles.w`: there is no key `cont`; did you mean `count`? expected some of: ") == 1
    assert "`roles.v`: there is no key `cont`; did you mean `count`?\n" in err
