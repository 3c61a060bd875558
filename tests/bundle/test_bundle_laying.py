"""`prepare` lays a tree down: whole or not at all, as often as one likes, one version after another."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tree import small_tree

from holdfast.bundle import tree_copy
from holdfast.bundle.tree_copy import TreeNotInstalled, lay_down
from holdfast.bundle.tree_manifest import differs, read_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    small_tree(tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def pai(tmp_path: Path) -> Path:
    return tmp_path / "pai"


def said(run: Path) -> str:
    return subprocess.run([run], capture_output=True, text=True, check=True, timeout=90).stdout


def state(place: Path) -> dict[str, tuple[int, int]]:
    """Each file with its number and the moment at which something was last changed of it."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in [place, *place.rglob("*")]}


def test_a_tree_is_laid_down_with_its_run(tree: Path, pai: Path) -> None:
    laid = lay_down(tree, pai)
    assert laid.fresh and laid.before == ""
    assert said(pai / "run") == "run of 1.0\n"
    assert differs(pai / "holdfast/now", read_tree(tree)) == ""
    assert (pai / "holdfast/now/bin/sh").readlink() == Path("busybox")


def test_a_repeated_call_touches_nothing(tree: Path, pai: Path) -> None:
    lay_down(tree, pai)
    before = state(pai)
    assert not lay_down(tree, pai).fresh
    assert state(pai) == before


def test_all_users_may_read_and_start_it_under_a_private_umask(tree: Path, pai: Path) -> None:
    os.umask(0o077)
    lay_down(tree, pai)
    for path in [pai, *pai.rglob("*")]:
        if path.name != "lock" and not path.is_symlink():
            wanted = 0o555 if path.is_dir() or path.name in ("run", "busybox") else 0o444
            assert path.stat().st_mode & 0o777 & wanted == wanted, path


def test_directories_on_the_way_are_open_to_all_users_too(tree: Path, tmp_path: Path) -> None:
    os.umask(0o077)
    (tmp_path / "mine").mkdir(mode=0o700)
    lay_down(tree, tmp_path / "mine/new/newer/pai")
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "mine", *(tmp_path / "mine").glob("new*/newer*"))]
    assert modes == [0o700, 0o755], "what was there stays as it was"


def test_another_version_takes_the_place_of_the_one_before(tree: Path, pai: Path, tmp_path: Path) -> None:
    small_tree(tmp_path / "newer", "1.1")
    (pai / "data").mkdir(parents=True)
    lay_down(tree, pai)
    running = (pai / "holdfast/now").resolve()
    laid = lay_down(tmp_path / "newer", pai)
    assert laid.before == "1.0"
    assert said(pai / "run") == "run of 1.1\n"
    assert differs(running, read_tree(tree)) == "", "a task may still run from it"
    assert (pai / "data").is_dir(), "all else is not ours"


def test_at_most_one_version_is_kept_beside_the_one_that_is_used(pai: Path, tmp_path: Path) -> None:
    for number in range(4):
        small_tree(tmp_path / str(number), f"1.{number}")
        lay_down(tmp_path / str(number), pai)
    kept = {read_tree(place).version for place in (pai / "holdfast").glob("tree-*")}
    assert kept == {"1.2", "1.3"}


def test_a_damaged_tree_is_laid_down_anew(tree: Path, pai: Path) -> None:
    laid = lay_down(tree, pai)
    (laid.place / "lib/python3.11/module.pyc").write_bytes(b"")
    assert lay_down(tree, pai).fresh
    assert differs(laid.place, read_tree(tree)) == ""
    assert [path.name for path in (pai / "holdfast").glob(".*")] == []


def test_a_run_of_the_sites_own_is_replaced_by_ours(tree: Path, pai: Path) -> None:
    lay_down(tree, pai)
    (pai / "run").write_text("#!/bin/sh\necho the site\n")
    assert said(pai / "holdfast/now/run") == "run of 1.0\n", "writing over `run` is no harm to the tree"
    assert lay_down(tree, pai).fresh
    assert said(pai / "run") == "run of 1.0\n"


def test_a_copy_that_was_killed_leaves_the_version_before_and_is_cleared_away(
    tree: Path, pai: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_down(tree, pai)
    small_tree(tmp_path / "newer", "1.1")
    with monkeypatch.context() as killed:
        killed.setattr(tree_copy, "_remove", lambda path: None)
        killed.setattr(tree_copy, "differs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tree_copy._copy(tmp_path / "newer", read_tree(tmp_path / "newer"), pai / "holdfast/tree-x")
    assert len(list((pai / "holdfast").glob(".laying-*"))) == 1
    assert said(pai / "run") == "run of 1.0\n"
    lay_down(tmp_path / "newer", pai)
    assert list((pai / "holdfast").glob(".laying-*")) == []


def interrupt(*_: object) -> str:
    raise KeyboardInterrupt


def test_two_at_once_lay_down_one(tree: Path, pai: Path) -> None:
    small = "from pathlib import Path; from holdfast.bundle.tree_copy import lay_down; import sys"
    code = f"{small}; print(lay_down(Path(sys.argv[1]), Path(sys.argv[2])).run)"
    python = sys.executable
    many = [subprocess.Popen([python, "-c", code, tree, pai], stdout=subprocess.PIPE) for _ in range(4)]
    assert [one.wait(timeout=60) for one in many] == [0, 0, 0, 0]
    assert differs(pai / "holdfast/now", read_tree(tree)) == ""
    assert len(list((pai / "holdfast").iterdir())) == 3, "the tree, the link, the lock"
    for one in many:
        assert one.stdout is not None
        one.stdout.close()


@pytest.mark.parametrize(
    ("number", "words", "phrase"),
    [
        (errno.ENOSPC, "its file system is full", "DiskFull"),
        (errno.EDQUOT, "the quota there is used up", "QuotaExceeded"),
        (errno.EROFS, "it is mounted read-only", "ReadOnlyFilesystem"),
        (errno.EACCES, "this user may not write there, uid 0", "PermissionDenied"),
        (errno.EIO, "reports an error of input or output", "StorageIoError"),
    ],
)
def test_what_is_refused_is_one_sentence_and_leaves_nothing(
    tree: Path, pai: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, phrase: str
) -> None:
    def refuse(source: Path, to: Path) -> None:
        raise OSError(number, os.strerror(number), str(to))

    monkeypatch.setattr(shutil, "copyfile", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TreeNotInstalled, match=words) as met:
        lay_down(tree, pai)
    assert met.value.phrase == phrase
    assert not (pai / "run").exists()
    assert [path.name for path in (pai / "holdfast").iterdir()] == ["lock"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A directory on which the test mounts something."""
    place = tmp_path / "mounted"
    place.mkdir()
    yield place
    subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def mount(place: Path, options: str) -> None:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "t", place], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("nothing may be mounted here")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("noexec,size=9m", "is mounted noexec: no program in it can be started"),
        ("size=1m", r"has 1 MB left, and the runtime takes \d MB"),
        ("ro,size=9m", "it is mounted read-only"),
    ],
)
def test_a_file_system_that_cannot_take_it_is_named(tree: Path, mounted: Path, options: str, words: str) -> None:
    mount(mounted, options)
    with pytest.raises(TreeNotInstalled, match=words):
        lay_down(tree, mounted)
    assert not (mounted / "run").exists()


def test_what_lies_read_only_and_whole_is_fine(tree: Path, mounted: Path) -> None:
    mount(mounted, "size=20m")
    lay_down(tree, mounted)
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    assert not lay_down(tree, mounted).fresh


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda tree: (tree / "TREE.json").unlink(), "holds no runtime"),
        (lambda tree: (tree / "TREE.json").write_text("{}"), "holds no runtime"),
        (lambda tree: (tree / "bin/busybox").write_text(""), "is damaged: bin/busybox"),
        (lambda tree: (tree / "bin/sh").unlink(), "is damaged: bin/sh"),
        (lambda tree: (tree / "run").chmod(0o644), "is damaged: run"),
    ],
)
def test_a_broken_source_is_refused(tree: Path, pai: Path, break_it: object, words: str) -> None:
    assert callable(break_it)
    break_it(tree)
    with pytest.raises(TreeNotInstalled, match=words):
        lay_down(tree, pai)
    assert not pai.exists()


def test_a_tree_for_another_processor_is_refused(tree: Path, pai: Path) -> None:
    text = (tree / "TREE.json").read_text()
    (tree / "TREE.json").write_text(text.replace(os.uname().machine, "riscv64"))
    with pytest.raises(TreeNotInstalled, match="is for riscv64, and this machine is a"):
        lay_down(tree, pai)
