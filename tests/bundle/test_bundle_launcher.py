"""The launcher: what it starts, under which names, with which environment; and one sentence where it cannot."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.bundle.build_tools import LAUNCHER, compile_launcher
from holdfast.bundle.hidden_variables import HIDDEN, give_back
from holdfast.bundle.tree_manifest import LOADERS

pytestmark = [pytest.mark.bundle, pytest.mark.real]
TELLS = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done
echo --
exec cat /proc/self/environ
"""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("launcher") / "run"
    compile_launcher(made)
    return made


def tree(place: Path, launcher: Path) -> Path:
    """Instead of a loader a script, which tells its words and its environment."""
    for folder in ("bin", "lib"):
        (place / folder).mkdir(parents=True)
    loader = place / "lib" / LOADERS[platform.machine()]
    loader.write_text(TELLS)
    loader.chmod(0o755)
    for name in ("run", "bin/holdfast", "bin/python3"):
        shutil.copy(launcher, place / name)
    return place


def told(program: Path, *words: str, **env: str) -> tuple[list[str], dict[str, str]]:
    """The loader's words, and the variables that it gets."""
    done = subprocess.run([program, *words], env=env, capture_output=True, check=True, timeout=90)
    front, _, back = done.stdout.partition(b"\n--\n")
    entries = [entry.decode().partition("=") for entry in back.split(b"\0") if entry]
    return front.decode().split("\n"), {name: value for name, _, value in entries if name not in ("PWD", "SHLVL", "_")}


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("run", ["-S", "-m", "holdfast.bundle.entry", "run", "a b", ""]),
        ("bin/holdfast", ["-S", "-m", "holdfast.bundle.entry", "holdfast", "a b", ""]),
        ("bin/python3", ["a b", ""]),
    ],
)
def test_each_name_starts_the_trees_python(launcher: Path, tmp_path: Path, name: str, behind: list[str]) -> None:
    top = tree(tmp_path / "a tree", launcher)
    words, _ = told(top / name, "a b", "")
    python = [f"{top}/lib", "--argv0", f"{top}/bin/python3", f"{top}/libexec/python3", "-I", "-B", "-X", "utf8=1"]
    assert words == ["--library-path", *python, *behind]


def test_an_exchange_directory_leads_to_its_tree_and_a_later_tree_moves_none_that_runs(
    launcher: Path, tmp_path: Path
) -> None:
    first = tree(tmp_path / "pai/holdfast/tree-1", launcher)
    (tmp_path / "pai/holdfast/now").symlink_to("tree-1")
    shutil.copy(launcher, tmp_path / "pai/run")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "pai/run")
    for program in (tmp_path / "pai/run", tmp_path / "elsewhere"):
        words, _ = told(program)
        assert words[1] == f"{first}/lib", "no link is left in it"


def test_what_steers_a_loader_or_a_libc_is_hidden_and_comes_back(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "LD_PRELOAD": "/x.so", "LD_SOMETHING_NEW": "1", "LC_ALL": "de_DE", "LC_TIME": "", "LANG": "de",
        "LANGUAGE": "de", "LOCPATH": "/l", "GCONV_PATH": "/g", "GLIBC_TUNABLES": "a=b", "MALLOC_PERTURB_": "1",
    }  # fmt: skip
    kept = {"LDAP": "1", "LANGUAGES": "2", "PATH": "/bin", "EMPTY": "", "EQUALS": "a=b=c", "PYTHONPATH": "/p"}
    _, seen = told(tree(tmp_path / "tree", launcher) / "run", **given, **kept)
    assert seen == {**kept, **{HIDDEN + name: value for name, value in given.items()}, "LC_ALL": "C.UTF-8"}
    monkeypatch.setattr(os, "environ", dict(seen))
    give_back("pytest")
    assert os.environ == {**given, **kept}


def test_many_and_long_variables_and_words_arrive(launcher: Path, tmp_path: Path) -> None:
    env = {f"LD_{number}": "x" * 1000 for number in range(500)} | {"LONG": "y" * 100_000}
    words, seen = told(tree(tmp_path / "tree", launcher) / "run", *["word" * 100] * 1000, **env)
    assert words[-1000:] == ["word" * 100] * 1000
    assert seen[f"{HIDDEN}LD_499"] == "x" * 1000
    assert len(seen["LONG"]) == 100_000


@pytest.mark.parametrize("name", ["run", "bin/python3"])
def test_without_a_tree_it_says_what_is_missing(launcher: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(launcher, tmp_path / name)
    done = subprocess.run([tmp_path / name], capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 127
    assert done.stderr.startswith(f"holdfast: the runtime cannot start: {tmp_path}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("deep", [3990, 4060, 4200])
def test_a_path_that_is_too_long_is_refused_and_nothing_is_overrun(launcher: Path, tmp_path: Path, deep: int) -> None:
    part = "d" * 200
    here = os.getcwd()  # noqa: PTH109 - a path of this length can only be gone by steps
    try:
        os.chdir(tmp_path)
        length = len(str(tmp_path))
        while length + 201 < deep:
            os.mkdir(part)  # noqa: PTH102 - as above
            os.chdir(part)
            length += 201
        rest = "e" * max(1, deep - length - 1)
        os.mkdir(rest)  # noqa: PTH102 - as above
        os.chdir(rest)
        shutil.copy(launcher, "run")
        done = subprocess.run(["./run"], capture_output=True, text=True, check=False, timeout=90)
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", tmp_path / part], check=True)
    assert done.returncode == 127
    assert done.stderr.startswith("holdfast: the runtime cannot start: ")


def test_source_and_python_know_the_same_names() -> None:
    source = LAUNCHER.read_text()
    assert f'"{HIDDEN}"' in source
    assert [name for name in LOADERS.values() if f'"/lib/{name}"' not in source] == []
