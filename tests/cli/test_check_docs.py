"""checks.md keeps up with the checks: each has its section with question, cost, schedule and every parameter."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.check_registry import BUILT_IN
from holdfast.model.check_results import CheckInfo
from holdfast.node.check_entry import catalogue, choices_from_text, plan_checks
from places import DOCS

CHECKS_PAGE = (DOCS / "reference" / "checks.md").read_text(encoding="utf-8")
INFOS = catalogue(names=tuple(BUILT_IN))


def section(name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^##)", CHECKS_PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return " ".join(found[1].split())


@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_every_check_has_its_section(info: CheckInfo) -> None:
    text = section(info.name)
    assert info.question in text
    assert f"Cost: {info.cost}." in text
    assert ("*Default" in text) == info.by_default
    assert (f"may run during a job, every {info.interval_s:g} s" in text) == info.during_job
    listed = text.rpartition("Parameters: ")[2]
    assert sorted(re.findall(r"`([a-z_]+)`", re.sub(r"\(.*?\)", "", listed))) == sorted(
        param.name for param in info.params
    )


def test_no_check_is_described_that_is_gone() -> None:
    assert set(re.findall(r"^### (\w+)$", CHECKS_PAGE, re.MULTILINE)) == set(BUILT_IN)


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"^```python\n# rack\.py\n(.*?)^```", CHECKS_PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "rack.py"
    path.write_text(textwrap.dedent(code))
    [check] = plan_checks(choices_from_text("scratch"), plugins=[path]).checks
    assert check.profile.info.question == "Is /scratch writable?"
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "check", "scratch:retries=0", "--plugin", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOLDFAST_HOME": str(tmp_path)},
    )
    assert done.returncode == (0 if Path("/scratch").is_dir() else 252)
    assert done.stdout.startswith("scratch  ")
