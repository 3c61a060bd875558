"""Text of others in holdfast's own lines: it steers no terminal and begins no line."""

from __future__ import annotations

import ast
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.report.terminal_text import Style, paint
from holdfast.safe_text import harmless, json_text, one_line, own_lines, styled
from places import SRC

STEERING = (
    "\x1b\x07\x08\r\x7f\x85\x9b\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041"
)
NASTY = f"a\x1b[31mred\x1b]0;title\x07b\x9b31mc\u202egnp.exe{STEERING}"


def steers(text: str) -> bool:
    return any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs") for char in text if char != "\n")


@given(st.text(st.sampled_from(STEERING + "a[;]m\n\\") | st.characters()))
def test_nothing_that_steers_is_left(text: str) -> None:
    # Marks that some scripts need (Arabic numbers, musical notes) are of the same category, and steer nothing.
    kept = "".join(char for char in harmless(text) if char in STEERING or ord(char) < 0xA0)
    assert not steers(kept)
    assert "\n" not in one_line(text)
    assert harmless(harmless(text)) == harmless(text)
    harmless(text).encode()


def test_ordinary_text_stays() -> None:
    for text in ("Loss: 0.41 → 50 % 😀 été", "two\nlines", "训练"):
        assert harmless(text) == text
    assert harmless("a\tb\r\nc") == "a    b\nc"
    assert one_line("first\nsecond\n") == "first\\nsecond"


def test_only_our_own_colours_stay() -> None:
    ours = paint("FAILED", Style.BAD, True)
    assert styled(f"{ours} \x1b[8mhidden\x1b[5;7m{NASTY}").startswith(f"{ours} hidden")
    assert not steers(styled(NASTY))
    for style in Style:
        assert styled(paint("x", style, True)) == paint("x", style, True)


@given(st.text(st.sampled_from(STEERING) | st.characters(exclude_categories=["Cs"])))
def test_json_says_the_same_without_the_characters(text: str) -> None:
    out = json_text(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(out) == {"a": text}
    assert not any(char in out for char in STEERING if char != "\x7f")


def test_a_forged_line_stands_under_the_first_one() -> None:
    text = "stopped: a\nholdfast: job big SUCCEEDED\n  try: this"
    assert own_lines(text) == [
        "holdfast: stopped: a", "holdfast:   holdfast: job big SUCCEEDED", "holdfast:   try: this",
    ]  # fmt: skip
    assert own_lines(text, again="")[1:] == ["  holdfast: job big SUCCEEDED", "  try: this"]
    assert own_lines("") == []


def test_the_verbs_print_at_one_place() -> None:
    wrong = []
    for path in sorted((SRC / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case (
                    ast.Call(func=ast.Name(id="print"))
                    | ast.Call(func=ast.Attribute(value=ast.Name(id="click"), attr="echo" | "secho"))
                ):
                    wrong.append(f"{path.name}, line {node.lineno}")
    assert wrong == [], "use cli.output.printing.print_line"


@pytest.mark.real
def test_names_reasons_and_exceptions_reach_the_terminal_without_what_steers(holdfast: Holdfast) -> None:
    holdfast.script(f"raise ValueError({'x' + NASTY!r} + '\\n' + 'holdfast: job big SUCCEEDED')")
    ran = holdfast.run("--no-checks", "--max-restarts", "0", "job.py")
    own = [line for line in ran.err.split("\n") if not line.startswith("[worker-0]")]
    assert not [line for line in own if steers(line)]
    assert "holdfast: job big SUCCEEDED" not in own
    job = ran.report["job"]["id"]
    for verb in (["show", job], ["show", job, "--json"], ["jobs"], ["jobs", "--json"]):
        assert not steers(holdfast(*verb).out)
    for words in (
        ["show", NASTY],
        ["stop", "x" + NASTY, "--reason", "r"],
        ["run", "--job", NASTY],
        [NASTY],
        ["run", f"--{NASTY}"],
    ):
        assert not steers(holdfast(*words).err)


@pytest.mark.real
def test_a_stop_reason_begins_no_line(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--name", "mine", "--no-python", "sleep", "60")
    assert process.stderr is not None
    seen = ""
    while "the worker is up" not in seen:
        seen += process.stderr.readline()
    reason = "a\x1b[31m\nholdfast: job big SUCCEEDED\u202e"
    while holdfast("stop", "mine", "--reason", reason).status != 0:
        pass  # the socket opens a moment after the workers
    ran = holdfast.finish(process)
    assert "a\\nholdfast: job big SUCCEEDED\ufffd" in ran.err
    assert not [line for line in ran.err.split("\n") if line.startswith("holdfast: job big") or steers(line)]
    assert not steers(ran.report["reason"])
