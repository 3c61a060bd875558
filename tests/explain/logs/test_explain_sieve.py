"""The fast way through a block finds every line that the slow way finds."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import re2

from holdfast.catalogue.exit_rows import Catalogue, ExitRow, load, parse_rows, read_rows, stored
from holdfast.explain.logs import prefilter as sieve_module
from holdfast.explain.logs.prefilter import MOST_STOPS, is_blind, options, unanchored, widened
from holdfast.explain.logs.row_matcher import Matcher, built_in

ORDINARY = [
    "2026-11-20 22:02:33,186 [INFO] trainer: step {n} loss 2.{n} grad_norm 0.{n} lr 1e-4 tokens/s {n}",
    "node7:{n}:{n} [3] NCCL INFO Channel {n}/0 : 1[1] -> 2[2] via P2P/CUMEM comm 0x{n}",
    '10.0.0.{n}:{n} - "POST /v1/completions HTTP/1.1" 200 OK',
    "[WARNING] data: shard {n} is small, failed to use the cache, error rate 0.{n}, retry not needed",
    "Loading checkpoint shards: 100%|██████████| 4/4 [00:11<00:00,  2.9s/it]",
    "\x1b[32mepoch {n}\x1b[0m: l'évaluation a duré {n} s",
    "",
    "une ligne en latin-1: l'\udce9valuation",
]


@cache
def somewhere(pattern: str) -> Any:
    """For a text of many lines: what matches in one of them matches in the whole."""
    return re2.compile(f"(?m:{pattern})", options())


def slow(matcher: Matcher, block: bytes, most: int) -> list[tuple[int, str]]:
    """Every pattern on every line, but for those that no place of the whole block holds."""

    def valid(piece: bytes) -> str:
        return re.sub("[\udc80-\udcff]", "?", piece.decode("utf-8", "surrogateescape"))

    whole = valid(block)
    patterns = [
        (wording.id, matcher.compiled(pattern))
        for _, wording in matcher.catalogue.wordings
        if somewhere(pattern := unanchored(wording.pattern)).search(whole)
    ]
    found = []
    left = Counter[str]()
    begin = 0
    for line in block.split(b"\n"):
        text = valid(line)
        for name, pattern in patterns:
            match = pattern.search(text)
            if match is not None and left[name] < most:
                left[name] += 1
                found.append((begin + len(text[: match.start()].encode()), name))
        begin += len(line) + 1
    return sorted(found)


def fast(matcher: Matcher, block: bytes, most: int) -> list[tuple[int, str]]:
    return sorted((place, wording.id) for place, wording in matcher.places(block, most))


def lines_of_samples() -> list[str]:
    return [line for row in read_rows() for w in row.wordings for sample in w.samples for line in sample.split("\n")]


def test_every_sample_is_found() -> None:
    owned = [
        (wording, line)
        for row in read_rows()
        for wording in row.wordings
        for sample in wording.samples
        for line in sample.split("\n")
        if built_in().has(unanchored(wording.pattern), [line])
    ]
    for start in range(0, len(owned), 400):
        part = owned[start : start + 400]
        block = "\n".join(line for _, line in part).encode()
        found = fast(built_in(), block, 400)
        begin = 0
        for wording, line in part:
            end = begin + len(line.encode())
            assert any(begin <= place <= end and name == wording.id for place, name in found), wording.id
            begin = end + 1


def test_random_mixtures() -> None:
    rng = random.Random(0)
    samples = lines_of_samples()
    matcher = Matcher(load())  # what one log taught should not hide a line of the next
    for share, length in ((0.02, 200), (0.5, 100), (0.9, 300), (0.02, 100), (0.9, 100), (0.5, 200)):
        lines = []
        for _ in range(length):
            text = rng.choice(samples) if rng.random() < share else rng.choice(ORDINARY)
            lines.append(text.replace("{n}", str(rng.randrange(10_000))))
        block = "\n".join(lines).encode("utf-8", "surrogateescape")
        cut = rng.randrange(200)
        block = block[cut : len(block) - cut]  # a block may begin and end within a character
        assert fast(matcher, block, 4) == slow(built_in(), block, 4)


def test_a_log_full_of_telling_words_changes_the_way_and_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []

    def noted(name: str, way: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            ways.append(name)
            return way(*args)

        return call

    for name in ("_by_set", "_open_gate"):
        monkeypatch.setattr(sieve_module.Prefilter, name, noted(name, getattr(sieve_module.Prefilter, name)))
    rows = parse_rows(
        "- phrase: Odd\n  code: 221\n  blame: workload\n  rerun: never\n  what: odd\n"
        "  wordings:\n  - {id: often, pattern: 'frobnicated [0-9]+ times'}\n"
        "  - {id: seldom, pattern: 'zonked [0-9] times'}\n"
    )
    matcher = Matcher(Catalogue([stored(row) for row in rows]))
    dull = ["x: frobnicated never; zonked often"] * (501 + MOST_STOPS)
    dull[20] = dull[400] = "y: frobnicated 3 times"
    dull[500] = "z: zonked 2 times"
    block = "\n".join(dull).encode()
    answers = [fast(matcher, block, 4) for _ in range(3)]
    assert answers == [slow(matcher, block, 4)] * 3
    assert len(answers[0]) == 3
    assert ways == ["_open_gate", "_by_set", "_open_gate"]


def test_widened_patterns_match_what_the_exact_ones_match() -> None:
    for row in read_rows():
        for wording in row.wordings:
            exact = re2.compile(unanchored(wording.pattern), options())
            wide = re2.compile(widened(wording.pattern), options())
            for line in (line for sample in wording.samples for line in sample.split("\n")):
                assert exact.search(line) is None or wide.search(line) is not None, wording.id


def test_a_pattern_that_re2_refuses_costs_only_itself() -> None:
    row = parse_rows(
        "- phrase: Odd\n  code: 221\n  blame: workload\n  rerun: never\n  what: odd\n"
        "  wordings:\n  - {id: bad, pattern: '(?=x)\\d{2}'}\n  - {id: good, pattern: '\\d\\d-odd'}\n"
    )[0]
    assert isinstance(row, ExitRow)
    matcher = Matcher(Catalogue([row]))
    assert [wording.id for _, wording in matcher.places(b"a\n12-odd\n", 4)] == ["good"]
    assert {name for name, _ in matcher.broken} <= {"(?=x)\\d{2}"}


def test_no_rows_and_no_text() -> None:
    assert Matcher(Catalogue(())).places(b"anything\n", 4) == []
    assert built_in().places(b"", 4) == []
    assert built_in().places(b"\n\n", 4) == []


@pytest.mark.parametrize(
    ("pattern", "blind"),
    [
        (r"step \d+ of [0-9]{1,20}(?P<code2>\w+).{0,120}\x1b", True),
        (r"HTTP 50[0-4]", False),
        (r"Xid[^\n]*79\b", False),
        (r"rank [1-9]\d*", False),
    ],
)
def test_a_pattern_is_blind_where_digits_are_all_the_same_to_it(pattern: str, blind: bool) -> None:
    assert is_blind(pattern) is blind


def test_lines_that_differ_in_digits_only_are_judged_each() -> None:
    matcher = Matcher(load())
    for number in (12, 79, 13, 79, 48):
        line = f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1234"
        assert [hit.wording.id for hit in matcher.line(line)] == [
            wording.id for _, wording in matcher.catalogue.wordings if matcher.has(wording.pattern, [line])
        ]


def test_a_crowd_of_wordings_in_one_block_changes_nothing_in_the_next() -> None:
    matcher = Matcher(load())
    chosen = random.Random(7)
    samples = lines_of_samples()
    few = chosen.sample(samples, 3)
    for lines in (samples, few * 60, ORDINARY * 20, chosen.sample(samples, 200) + few * 20, samples[::-1], few * 60):
        numbered = [re.sub(r"\d", lambda _: str(chosen.randrange(10)), line) for line in lines]
        block = "\n".join(numbered[:250]).encode("utf-8", "surrogateescape")
        assert fast(matcher, block, 4) == slow(matcher, block, 4)
