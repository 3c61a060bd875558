"""The suites of tests that run only when they are asked for, and what each needs.

A suite is asked for by its marker in `-m`, by a path or an id below its folder, by the id of one of its tests, or by
`--everything`; the name of a test file asks for all real runs in it. `-m 'not real'` asks for nothing. A suite that was
asked for and cannot run fails; one that was not is never started.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from places import TESTS

#: The marker of real runs that are run by default.
KEY_MARKER = "key"


@dataclass(frozen=True)
class Suite:
    """`missing()` returns the reason why the suite cannot run here, or an empty text. `install`: what to type then."""

    name: str
    about: str
    install: str
    missing: Callable[[], str]
    folder: str = ""


def _libraries(*names: str) -> Callable[[], str]:
    def missing() -> str:
        lacking = [name for name in names if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    return missing


def _programs(*names: str) -> Callable[[], str]:
    def missing() -> str:
        lacking = [name for name in names if shutil.which(name) is None]
        return f"not on PATH: {', '.join(lacking)}" if lacking else ""

    return missing


def _asked_of(module: str, function: str = "missing") -> Callable[[], str]:
    """The answer of a suite's own helper, which is imported only when the suite is asked for."""
    return lambda: str(getattr(importlib.import_module(module), function)())


def _no_gpu() -> str:
    return "" if list(Path("/dev").glob("nvidia[0-9]*")) else "there is no /dev/nvidia0 here"


SUITES = (
    Suite("real", "every real run on one machine", "pip install -e '.[dev]'", lambda: ""),
    Suite(
        "extras",
        "optional libraries, against real servers of theirs",
        "pip install -e '.[dev,dev-engines,dev-libraries,docs]'",
        _libraries("moto", "s3fs", "lightkube", "apprise", "opentelemetry", "kubernetes_validate", "material"),
    ),
    Suite("torch", "workers that import torch", "pip install numpy torch", _libraries("numpy", "torch")),
    Suite(
        "drill",
        "jobs over nodes in network namespaces that lose power and links",
        "apt-get install openssh-server openssh-client iproute2",
        _asked_of("netns"),
        "drills",
    ),
    Suite(
        "bundle",
        "the runtime in images of others",
        "apt-get install musl-tools busybox-static binutils debootstrap podman runc",
        _asked_of("roots"),
        "bundle",
    ),
    Suite(
        "slurm",
        "jobs on a real Slurm",
        "apt-get install slurm-wlm munge slurmdbd slurm-wlm-mysql-plugin mariadb-server iproute2",
        _asked_of("real_slurm"),
        "slurm",
    ),
    Suite(
        "kubernetes",
        "jobs on a real Kubernetes",
        ".ci/run --prepare kubernetes",
        _asked_of("real_kubernetes"),
        "kubernetes",
    ),
    Suite(
        "browser",
        "pages in a real Chromium",
        "pip install -e '.[dev,dev-web]' and apt-get install chromium",
        _asked_of("eyes", "missing_browser"),
        "browser",
    ),
    Suite(
        "recipe",
        "the how-to pages' programs with their libraries",
        "pip install -e '.[dev,recipes]'",
        _libraries("torch", "accelerate", "transformers", "lightning", "wandb", "deepspeed"),
    ),
    Suite(
        "stress",
        "the ten most delicate tests under a load of twenty",
        "apt-get install stress",
        _programs("stress"),
    ),
    Suite("gpu", "a real GPU", "a machine with an NVIDIA GPU, and pip install -e '.[dev,nvidia]'", _no_gpu, "gpu"),
)
BY_NAME = {suite.name: suite for suite in SUITES}


def named_in(expression: str) -> frozenset[str]:
    """The markers that an expression of `-m` asks for: those that it does not negate."""
    found: set[str] = set()

    def visit(node: ast.AST, wanted: bool) -> None:
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                visit(inner, not wanted)
            case ast.Name(id=name):
                if wanted:
                    found.add(name)
            case ast.Call(func=function):
                visit(function, wanted)
            case _:
                for child in ast.iter_child_nodes(node):
                    visit(child, wanted)

    try:
        visit(ast.parse(expression.strip() or "True", mode="eval"), True)
    except SyntaxError:
        return frozenset()  # pytest itself says what is wrong with it
    return frozenset(found)


@dataclass(frozen=True)
class Choice:
    """What this run of pytest asks for: suites, files with all their real runs, and ids of single tests or classes."""

    suites: frozenset[str]
    files: frozenset[Path] = frozenset()
    ids: frozenset[tuple[Path, str]] = frozenset()

    def left_out(self, markers: frozenset[str], path: Path, name: str) -> str:
        """The suite that keeps a test from running, since it was not asked for; empty: the test runs.

        `markers`: of the test; `path`: its file; `name`: the part of its id after the first `::`.
        """
        if any(path == file and (name == id_ or name.startswith((f"{id_}::", f"{id_}["))) for file, id_ in self.ids):
            return ""
        needed = [suite.name for suite in SUITES if suite.name in markers]
        if needed == ["real"] and KEY_MARKER in markers:
            return ""
        if len(needed) > 1:  # tests of any other suite are real runs too
            needed = [name for name in needed if name != "real"]
        suites = self.suites | ({"real"} if path in self.files else set())
        return next((suite for suite in needed if suite not in suites), "")


def choice(words: Sequence[str], expression: str, *, everything: bool) -> Choice:
    """`words`: paths and ids as typed for pytest; `expression`: that of `-m`."""
    if everything:
        return Choice(frozenset(BY_NAME))
    suites = set(named_in(expression) & set(BY_NAME))
    files, ids = set[Path](), set[tuple[Path, str]]()
    for word in words:
        place, _, name = word.partition("::")
        path = Path(place).resolve()
        if name:
            ids.add((path, name))
        elif path.is_file():
            files.add(path)
        suites |= {suite.name for suite in SUITES if suite.folder and path.is_relative_to(TESTS / suite.folder)}
    return Choice(frozenset(suites), frozenset(files), frozenset(ids))


def markers_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(mark.name for mark in item.iter_markers())


@functools.cache
def _missing(name: str) -> str:
    return BY_NAME[name].missing()


def must_be_able_to_run(item: pytest.Item) -> None:
    """Fail a test whose suite was asked for and cannot run here, with the line to type."""
    for name in sorted(markers_of(item) & set(BY_NAME)):
        if why := _missing(name):
            said = f"the suite `{name}` was asked for and cannot run here: {why}\n  try: {BY_NAME[name].install}"
            pytest.fail(said, pytrace=False)
