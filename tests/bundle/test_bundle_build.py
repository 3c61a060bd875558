"""`python -m holdfast.bundle OUT`: one sentence where no tree can be built; and what `prepare` takes its tree from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_tree import small_tree

from conftest import Holdfast
from holdfast.bundle import python_files, tree_choice
from holdfast.bundle.tree_choice import find_tree


def built(out: Path, *tools: str, tmp_path: Path) -> tuple[int, str]:
    """Status and words of a build that finds these tools alone."""
    path = tmp_path / "tools"
    path.mkdir()
    for tool in tools:
        (path / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.bundle", out],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.startswith("holdfast: ")
    return done.returncode, done.stderr


def test_without_a_compiler_it_says_which_package_has_one(tmp_path: Path) -> None:
    status, said = built(tmp_path / "out", tmp_path=tmp_path)
    assert status == 1
    assert "there is neither musl-gcc nor gcc\n  try: apt-get install musl-tools" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tools"], "nothing is left"


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="no musl-gcc is installed")
def test_without_a_busybox_it_says_which_package_has_one(tmp_path: Path) -> None:
    status, said = built(tmp_path / "out", "musl-gcc", "gcc", "as", "ld", tmp_path=tmp_path)
    assert status == 1
    assert "try: apt-get install busybox-static" in said


def test_a_directory_that_exists_is_left_alone(tmp_path: Path) -> None:
    status, said = built(tmp_path, tmp_path=tmp_path)
    assert status == 1
    assert f"{tmp_path} exists" in said


def test_all_that_holdfast_needs_is_shipped() -> None:
    told = (Path(__file__).parent.parent.parent / "pyproject.toml").read_text()
    needed = told.partition("\ndependencies = [\n")[2].partition("]")[0]
    names = {line.strip().strip('",').partition(">")[0] for line in needed.splitlines()}
    assert names - set(python_files.SHIPPED) == {"cryptography"}, "its place is OpenSSL's library's"


def test_prepare_takes_the_tree_that_is_asked_for_then_the_variables_then_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tree(tmp_path / "image")
    monkeypatch.setattr(tree_choice, "IN_IMAGE", tmp_path / "image")
    env = {"HOLDFAST_TREE": "/by/variable"}
    assert find_tree(Path("/asked"), env, print) == Path("/asked")
    assert find_tree(None, env, print) == Path("/by/variable")
    assert find_tree(None, {}, print) == tmp_path / "image"


def test_a_task_starts_with_what_prepare_has_laid_down(holdfast: Holdfast, tmp_path: Path) -> None:
    small_tree(tmp_path / "tree")
    into = tmp_path / "pai"
    first = holdfast("prepare", "--into", into, HOLDFAST_TREE=str(tmp_path / "tree"))
    assert (first.status, first.out) == (0, f"{into}/run is holdfast 1.0, 0 MB\n")
    again = holdfast("prepare", "--into", into, "--tree", tmp_path / "tree")
    assert (again.status, again.out) == (0, f"{into}/run is there already (holdfast 1.0, 0 MB)\n")
    small_tree(tmp_path / "newer", "1.1")
    newer = holdfast("prepare", "--into", into, "--tree", tmp_path / "newer")
    assert newer.out == f"{into}/run is holdfast 1.1, 0 MB, in place of 1.0\n"
    assert subprocess.run([into / "run"], capture_output=True, check=True).stdout == b"run of 1.1\n"


def test_a_wrong_job_file_is_told_before_anything_is_written(holdfast: Holdfast, tmp_path: Path) -> None:
    small_tree(tmp_path / "tree")
    (tmp_path / "job.yaml").write_text("name: x\nrolls: {}\n")
    done = holdfast("prepare", "--into", tmp_path / "pai", "--tree", tmp_path / "tree", "--job", tmp_path / "job.yaml")
    assert done.status == 2
    assert "rolls" in done.err
    assert not (tmp_path / "pai").exists()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_job_file_lies_beside_run_and_has_the_readers_that_it_had(
    holdfast: Holdfast, tmp_path: Path, mode: int
) -> None:
    small_tree(tmp_path / "tree")
    job = tmp_path / "job.yaml"
    job.write_text("name: x\nroles: {worker: {count: 1, command: [true]}}\n".replace("true", "'true'"))
    job.chmod(mode)
    done = holdfast("prepare", "--into", tmp_path / "pai", "--tree", tmp_path / "tree", "--job", job)
    assert done.status == 0, done.err
    laid = tmp_path / "pai/job.yaml"
    assert laid.read_text() == job.read_text()
    assert laid.stat().st_mode & 0o777 == mode
    before = laid.stat().st_ctime_ns
    holdfast("prepare", "--into", tmp_path / "pai", "--tree", tmp_path / "tree", "--job", job)
    assert laid.stat().st_ctime_ns == before


def test_a_place_that_cannot_be_written_is_one_sentence(holdfast: Holdfast, tmp_path: Path) -> None:
    small_tree(tmp_path / "tree")
    (tmp_path / "file").write_text("")
    done = holdfast("prepare", "--into", tmp_path / "file/pai", "--tree", tmp_path / "tree")
    assert done.status == 1
    assert f"the runtime cannot be laid down in {tmp_path}/file/pai: not a directory ({tmp_path}/file)" in done.err
    assert "Traceback" not in done.err
