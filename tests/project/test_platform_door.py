"""Platforms stand behind one door: nothing outside of a platform's folder imports it, or names it in a branch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.platforms.platform_registry import BUILT_IN

ROOT = Path(__file__).parents[2] / "src" / "holdfast"
PLATFORMS = ROOT / "platforms"
FOLDERS = sorted(path.name for path in PLATFORMS.iterdir() if (path / "__init__.py").exists())
#: What a branch must not ask for. `ssh` is a job's own server too (`runtime.ssh`): only its imports are looked at.
NAMED = re.compile(r"slurm|kube|\blsf\b|\bsrun\b", re.IGNORECASE)
READERS = {
    # They tell by names of control groups who has set a limit: data of the kernel, which no platform is asked for.
    "model/cgroups.py",
}


def _files() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*.py")):
        inside = path.is_relative_to(PLATFORMS) and path.relative_to(PLATFORMS).parts[0] in FOLDERS
        if not inside:
            yield path


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The imports of a platform's folder, with the line."""
    for node in ast.walk(tree):
        modules: list[str] = []
        match node:
            case ast.Import(names=names):
                modules = [each.name for each in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [f"{module}.{each.name}" for each in names]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
                modules = [module]
        for module in modules:
            parts = module.split(".")
            if parts[:2] == ["holdfast", "platforms"] and len(parts) > 2 and parts[2] in FOLDERS:
                yield getattr(node, "lineno", 0), module


def branches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a file branches on that names a platform, with the line."""
    for node in ast.walk(tree):
        tests: list[ast.AST] = []
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
                tests = [test]
            case ast.Compare():
                tests = [node]
            case ast.comprehension(ifs=ifs):
                tests = [*ifs]
            case ast.match_case(pattern=pattern, guard=guard):
                tests = [pattern, *([guard] if guard is not None else [])]
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "getenv"), args=[asked, *_]):
                tests = [asked]
            case ast.Subscript(slice=ast.Constant() as key):
                tests = [key]
        for part in (each for test in tests for each in ast.walk(test)):
            name = ""
            match part:
                case ast.Constant(value=str(name)) | ast.Name(id=name) | ast.Attribute(attr=name):
                    pass
            if NAMED.search(name):
                yield getattr(node, "lineno", getattr(part, "lineno", 0)), name


def test_no_file_outside_of_a_platforms_folder_imports_it() -> None:
    assert {"kubernetes", "slurm", "ssh"} <= set(FOLDERS)
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}: {module}"
        for path in _files()
        for line, module in imports(ast.parse(path.read_text()))
    ]
    assert not wrong, "\n".join(["ask holdfast.platforms.platform_registry instead", *wrong])


def test_no_file_outside_of_a_platforms_folder_names_it_in_a_branch() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in _files()
        if str(path.relative_to(ROOT)) not in READERS
        for line, name in branches(ast.parse(path.read_text()))
    ]
    assert not wrong, "\n".join(["what differs belongs behind holdfast.platforms.platform.Platform", *wrong])


@pytest.mark.parametrize(
    "text",
    [
        "if platform == 'slurm': pass",
        "if 'SLURM_JOB_ID' in environ: pass",
        "x = 1 if by is StartedBy.SLURM else 2",
        "match name:\n    case 'kubernetes': pass",
        "node = environ.get('SLURMD_NODENAME')",
        "node = environ['HOLDFAST_KUBERNETES_JOB']",
        "while on_kubernetes: pass",
    ],
)
def test_a_branch_on_a_platform_is_found(text: str) -> None:
    assert [*branches(ast.parse(text))]


@pytest.mark.parametrize(
    "text",
    [
        "from holdfast.platforms.slurm.text import hostlist",
        "from holdfast.platforms import kubernetes",
        "import holdfast.platforms.ssh.ssh_command",
        "import importlib\nimportlib.import_module('holdfast.platforms.slurm')",
    ],
)
def test_an_import_of_a_platform_is_found(text: str) -> None:
    assert [*imports(ast.parse(text))]


def test_what_speaks_of_a_platform_without_asking_for_it_is_allowed() -> None:
    text = (
        "HELP = 'With Slurm: drain the node'\nsay(f'Kubernetes: {x}')\nfrom holdfast.platforms.platform import Platform"
    )
    assert not [*imports(ast.parse(text)), *branches(ast.parse(text))]


def test_every_folder_of_a_platform_has_its_row() -> None:
    assert {row.target.split(".")[2] for row in BUILT_IN} == set(FOLDERS)
