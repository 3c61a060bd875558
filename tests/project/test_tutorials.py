"""Every command of the tutorials and of the recipes for libraries prints what its page says.

`HOLDFAST_WRITE_DOCS=1 pytest tests/project/test_tutorials.py` writes what is printed now into the pages.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from page_runs import alike, run_page

from places import DOCS

TUTORIALS = {
    "tutorials/first-failure.md": (),
    "tutorials/first-hang.md": ("torch", "py_spy"),
    "tutorials/first-job-file.md": (),
    "tutorials/first-two-nodes.md": (),
    "how-to/ci.md": (),
}
#: Each page with the modules that it needs.
RECIPES = {
    "how-to/accelerate.md": ("torch", "accelerate"),
    "how-to/lightning.md": ("torch", "lightning"),
    "how-to/deepspeed.md": ("torch", "deepspeed"),
    "how-to/transformers.md": ("torch", "transformers", "accelerate"),
    "how-to/wandb.md": ("wandb",),
}


def _is_there(module: str) -> bool:
    if module == "py_spy":  # a program: its package has no module
        import shutil
        import sys

        return shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is not None
    return importlib.util.find_spec(module) is not None


def _one_line(text: str) -> str:
    """Lines wrap where a machine's name or a path is longer."""
    return " ".join(text.split())


def _holds(name: str, needed: tuple[str, ...], folder: Path) -> None:
    absent = [module for module in needed if not _is_there(module)]
    if absent:
        pytest.fail(f"{name} needs {', '.join(absent)}: pip install -e '.[recipes]'", pytrace=False)
    page, made = run_page(name, folder)
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        (DOCS / name).write_text(made, encoding="utf-8")
        page = made
    assert _one_line(page) == _one_line(made), (
        f"{made}\n\nmake it anew: HOLDFAST_WRITE_DOCS=1 pytest tests/project/test_tutorials.py"
    )


@pytest.mark.real
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_prints_what_its_page_says(name: str, tmp_path: Path) -> None:
    _holds(name, TUTORIALS[name], tmp_path)


@pytest.mark.recipe
@pytest.mark.real
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_its_page_says(name: str, tmp_path: Path) -> None:
    _holds(name, RECIPES[name], tmp_path)


def test_every_page_with_commands_and_their_output_is_run() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "\n```console\n" in path.read_text()}
    assert pages == {*TUTORIALS, *RECIPES}


def test_what_differs_from_run_to_run_is_the_same_on_each_page(tmp_path: Path) -> None:
    one = f"job 20261123-0119-e5jk in {tmp_path}/home/jobs: rank 1 (pid 17), 2026-11-23 01:19:07 UTC, after 0.31 s"
    other = f"job 20270101-2359-zzzz in {tmp_path}/home/jobs: rank 1 (pid 9), 2027-01-01 23:59:00 +09:00, after 12 s"
    assert alike(one, tmp_path) == alike(other, tmp_path)
    assert "rank 1" in alike(one, tmp_path)
