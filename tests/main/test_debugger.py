"""`breakpoint()` in a job: one rank reads the terminal, and the report says so of the others."""

from __future__ import annotations

import pytest

from conftest import Holdfast, Ran
from processes import Terminal

STOPS = """
import os
from pathlib import Path
steps = 3
breakpoint()
Path(f"went-on-{os.environ['RANK']}").touch()
"""


@pytest.mark.real
@pytest.mark.parametrize(("reader", "other"), [("0", "1"), ("1", "0")])
def test_a_rank_without_a_terminal_is_named_with_the_line_to_write(holdfast: Holdfast, reader: str, other: str) -> None:
    script = str(holdfast.script(STOPS))
    terminal = Terminal(holdfast, "run", "--no-checks", "--nproc-per-node", "2", "--stdin", reader, script)
    assert terminal.ends() == 236
    report = Ran(236, "", "", holdfast.home).report
    assert report["first"]["rank"] == int(other) and len(report["attempts"]) == 1
    assert f"rank {other} has no terminal: rank {reader} reads that of the job" in report["reason"]
    assert report["solution"].startswith(f'Write `if os.environ["RANK"] == "{reader}": breakpoint()`')
    assert f"`--stdin {other}`" in report["solution"]


@pytest.mark.real
def test_a_job_without_a_terminal_is_told_to_start_from_one(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--no-checks", "--nproc-per-node", "2", holdfast.script(STOPS))
    assert "no terminal, which a debugger reads" in ran.report["reason"]
    assert "Start the job from a terminal" in ran.report["solution"]


@pytest.mark.real
def test_a_debugger_that_its_reader_leaves_is_no_lack_of_a_terminal(holdfast: Holdfast) -> None:
    terminal = Terminal(holdfast, "run", "--no-checks", str(holdfast.script(STOPS)))
    terminal.wait_for(b"(Pdb)")
    terminal.types(b"q\n")
    assert terminal.ends() == 236
    assert b"no terminal" not in terminal.said and b"Nothing to repair if you typed" in terminal.said
