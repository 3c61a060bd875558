"""Linked exceptions: the one that left the program comes first, then the ones from which it was raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from explain_builders import ended_rank, report_of_workers

from conftest import Holdfast
from holdfast.report.brief_report import render_exit
from holdfast.report.failure_place import scene_of

THREE = """
def low(table):
    return table["lr"]
def mid(table):
    try:
        return low(table)
    except KeyError as error:
        raise ValueError("no rate") from error
def top(table):
    try:
        return mid(table)
    except ValueError as error:
        raise RuntimeError("cannot build the optimizer") from error
top({})
"""
REPLACED = """
def get(key):
    try:
        return {}[key]
    except KeyError:
        raise RuntimeError("no " + key)
get("warmup")
"""
CLEAN_UP = """
class Model:
    def close(self):
        self.handle.close()
def train():
    try:
        raise ValueError("loss: -3")
    finally:
        Model().close()
train()
"""
NO_HANDLE = "AttributeError: 'Model' object has no attribute 'handle'"
SUPPRESSED = REPLACED.replace('" + key)', '" + key) from None')
SAME_TYPE = """
try:
    raise ValueError("shape (2, 3)")
except ValueError as error:
    raise ValueError("layer 3") from error
"""
NO_MESSAGE = """
class ConfigError(Exception):
    pass
try:
    {}["lr"]
except KeyError as error:
    raise ConfigError from error
"""
QUOTED = """
try:
    open("/no/such/vocab.txt")
except OSError as error:
    raise RuntimeError(f"cannot load: {error}") from error
"""
IN_A_GROUP = "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])"


def printed_by(program: str, folder: Path) -> str:
    (folder / "t.py").write_text(program)
    return subprocess.run([sys.executable, "t.py"], cwd=folder, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(
    ("program", "chain"),
    [
        (
            THREE,
            ("RuntimeError: cannot build the optimizer", "because ValueError: no rate", "because KeyError: 'lr'"),
        ),
        (REPLACED, ("RuntimeError: no warmup", "because KeyError: 'warmup'")),
        (CLEAN_UP, (NO_HANDLE, "while handling ValueError: loss: -3")),
        (SUPPRESSED, ()),
        (SAME_TYPE, ("ValueError: layer 3", "because ValueError: shape (2, 3)")),
        (NO_MESSAGE, ("ConfigError", "because KeyError: 'lr'")),
        (
            QUOTED,
            (
                "RuntimeError: cannot load: [Errno 2] No such file or directory: '/no/such/vocab.txt'",
                "because FileNotFoundError: [Errno 2] No such file or directory: '/no/such/vocab.txt'",
            ),
        ),
    ],
    ids=["three", "replaced", "clean-up", "from None", "same type", "no message", "quoted"],
)  # fmt: skip
def test_the_exception_that_left_the_program_comes_first(program: str, chain: tuple[str, ...], tmp_path: Path) -> None:
    report = report_of_workers([ended_rank(0, said=printed_by(program, tmp_path))])
    assert report.chain == chain
    shown = render_exit(report, scene_of(report, None), width=200).splitlines()
    below = [line.split(maxsplit=1)[1] for line in shown if line.startswith(("  because ", "  while "))]
    assert below == [text.removeprefix("because ").removeprefix("while ") for text in chain[1:]]
    if chain:
        assert shown[0].endswith(chain[0])
        assert report.evidence[0].text.startswith(chain[0])
        quoted = chain[1].partition(": ")[2] in chain[0]  # the outer one has all words, so the reason has no other
        assert quoted or f"raised {chain[0]}" in report.reason


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups of exceptions")
def test_exceptions_of_a_group_are_not_the_cause_of_each_other(tmp_path: Path) -> None:
    assert report_of_workers([ended_rank(0, said=printed_by(IN_A_GROUP, tmp_path))]).chain == ()


def test_ranks_with_the_same_chain_have_it_in_one_report(tmp_path: Path) -> None:
    said = printed_by(THREE, tmp_path)
    report = report_of_workers([ended_rank(rank, said=said) for rank in range(4)])
    assert report.first is None and report.chain[0] == "RuntimeError: cannot build the optimizer"
    told = "all 4 ranks raised RuntimeError: cannot build the optimizer, because ValueError: no rate, because"
    assert report.reason.startswith(told)


@pytest.mark.real
def test_a_run_shows_the_place_of_the_cause_and_the_calls_to_it(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--max-restarts", "1", holdfast.script(THREE), COLUMNS="400")
    told = ran.err[ran.err.index("FAILED: ") :].splitlines()
    assert told[:3] == [
        "FAILED: RuntimeError: cannot build the optimizer",
        "  because  ValueError: no rate",
        "  because  KeyError: 'lr'",
    ]
    where = next(at for at, line in enumerate(told) if line.startswith("  where "))
    assert told[where].endswith('in low:  return table["lr"]')
    assert [call.split()[0] for call in told[where + 1].split(" by ")[1].split(" ← ")] == ["mid", "top"]
    assert "ended with the same RuntimeError" in ran.err
    assert ran.report["chain"][0] == "RuntimeError: cannot build the optimizer"
