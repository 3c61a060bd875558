"""The page on the gang and the code say the same."""

from __future__ import annotations

import re

import msgspec
import pytest

from holdfast.decide.phases import MEANING, diagram
from holdfast.model.job_spec import Timers
from holdfast_testing import simulate
from holdfast_testing.mutants import MUTANTS
from places import DOCS

GANG_PAGE = (DOCS / "internals" / "gang.md").read_text(encoding="utf-8")
TESTING_PAGE = (DOCS / "internals" / "testing.md").read_text(encoding="utf-8")


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in GANG_PAGE


@pytest.mark.parametrize(("phase", "meaning"), MEANING.items())
def test_every_phase_has_its_meaning(phase: str, meaning: str) -> None:
    assert f"| {phase} | {meaning} |" in GANG_PAGE


def test_every_timer_has_its_default_and_its_argument() -> None:
    told = dict(re.findall(r"^\| `(\w+_s)` \| ([\d.]+) \| .{20,} \|$", GANG_PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in told.items()} == msgspec.structs.asdict(Timers())


def test_every_mutant_is_told_with_what_it_breaks() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \| ([\w, ]+) \| (search|seeds) \|$", GANG_PAGE, re.MULTILINE)
    assert rows == [
        (mutant.name, mutant.wrong, ", ".join(sorted(mutant.breaks)), "search" if mutant.bounds else "seeds")
        for mutant in MUTANTS
    ]


def test_every_invariant_that_a_mutant_breaks_is_on_the_page() -> None:
    told = set(re.findall(r"^\| (I\d+|[a-z]+) \| ", GANG_PAGE, re.MULTILINE))
    assert set().union(*(mutant.breaks for mutant in MUTANTS)) <= told
    assert {f"I{number}" for number in range(1, 13)} <= told


def test_every_option_of_the_simulation_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        simulate.main(["--help"])
    page = TESTING_PAGE.split("## The simulation")[1].split("\n## ")[0]
    options = set(re.findall(r"(--[a-z]+)", capsys.readouterr().out)) - {"--help"}
    assert options == set(re.findall(r"`(?:[^`]* )?(--[a-z]+)(?: [A-Z]+)?`", page)) | {"--trace"}
