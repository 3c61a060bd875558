"""What `prepare` lays down stays this user's: no other user can exchange it, whatever stood there before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_tree import small_tree

from holdfast.bundle.tree_copy import TreeNotInstalled, lay_down
from holdfast.errors import BadUsage
from holdfast.main.prepare_container import _lay_job
from holdfast.safe_directories import Exposed, enter

OTHER = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The runtime that is laid down."""
    small_tree(tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        yield Path(place)


def own(path: Path) -> Path:
    """Give the path itself, not what it leads to, to another user."""
    os.lchown(path, OTHER, OTHER)
    return path


def as_other(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python as another user."""
    become = f"import os, sys; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})\n"
    command = [sys.executable, "-I", "-c", become + code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def folder(path: Path, mode: int = 0o755, uid: int = 0) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


def of_a_group(path: Path) -> None:
    os.chown(folder(path, 0o775), 0, OTHER)


def linked(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


#: What stands at DIR before, the place that is refused, and words of the refusal. `away` is a directory of root's.
PLANTED: dict[str, tuple[Callable[[Path, Path], object], str, str]] = {
    "a directory of another user": (lambda pai, away: own(folder(pai)), "pai", "belongs to another user (uid 65534)"),
    "a directory for everyone": (lambda pai, away: folder(pai, 0o777), "pai", "everyone may write to it (mode 0777)"),
    "a directory for a group": (
        lambda pai, away: of_a_group(pai),
        "pai",
        "its group may write to it (mode 0775)",
    ),
    "a link of another user": (lambda pai, away: own(linked(pai, away)), "pai", "link that another user"),
    "a link to another user's directory": (lambda pai, away: pai.symlink_to(own(away)), "away", "another user (uid"),
    "holdfast/ of another user": (lambda pai, away: own(folder(folder(pai) / "holdfast")), "pai/holdfast", "(uid 65"),
    "holdfast as a link": (
        lambda pai, away: (folder(pai) / "holdfast").symlink_to(away),
        "pai/holdfast",
        "it is a link, and a directory was expected",
    ),
    "holdfast/ for everyone": (lambda pai, away: folder(folder(pai) / "holdfast", 0o777), "pai/holdfast", "everyone"),
    "holdfast/ for everyone, sticky": (
        lambda pai, away: folder(folder(pai) / "holdfast", 0o1777),
        "pai/holdfast",
        "everyone may write to it (mode 1777)",
    ),
    "holdfast/ planted in a sticky directory": (
        lambda pai, away: own(folder(folder(pai, 0o1777) / "holdfast")),
        "pai/holdfast",
        "belongs to another user",
    ),
}


@ROOT_ONLY
@pytest.mark.parametrize("planted", PLANTED)
def test_what_another_user_could_exchange_is_refused(planted: str, source: Path, tmp_path: Path) -> None:
    plant, where, words = PLANTED[planted]
    away = folder(tmp_path / "away")
    plant(tmp_path / "pai", away)
    with pytest.raises(TreeNotInstalled) as met:
        lay_down(source, tmp_path / "pai")
    said = str(met.value)
    assert f"{tmp_path / where}: " in said and words in said, said
    assert met.value.phrase == "PermissionDenied" and met.value.hint
    assert list(away.iterdir()) == [], "nothing is written through a link"
    assert not (tmp_path / "pai" / "run").exists()


@ROOT_ONLY
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o775])
@pytest.mark.parametrize("uid", [0, OTHER])
def test_each_directory_above_counts(mode: int, uid: int, source: Path, tmp_path: Path) -> None:
    above = folder(tmp_path / "above", mode)
    os.chown(above, uid, OTHER)
    (above / "between").mkdir()
    if mode == 0o755 and uid == 0:
        assert lay_down(source, above / "between" / "pai").fresh
        return
    with pytest.raises(TreeNotInstalled, match=f"{above}: "):
        lay_down(source, above / "between" / "pai")
    assert list((above / "between").iterdir()) == []


@ROOT_ONLY
def test_a_link_of_roots_is_followed_and_each_of_its_directories_counts(source: Path, tmp_path: Path) -> None:
    folder(tmp_path / "real")
    (tmp_path / "link").symlink_to("./real/../real")
    assert lay_down(source, tmp_path / "link" / "pai").run == tmp_path / "link/pai/run"
    assert (tmp_path / "real/pai/run").exists()
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(TreeNotInstalled, match=f"{tmp_path}/real: everyone may write"):
        lay_down(source, tmp_path / "link" / "pai")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(TreeNotInstalled, match="too many levels"):
        lay_down(source, tmp_path / "one")


@ROOT_ONLY
def test_what_another_user_put_into_a_sticky_directory_is_replaced(source: Path, open_path: Path) -> None:
    pai = folder(open_path / "pai", 0o1777)
    precious = open_path / "precious"
    precious.write_text("root's")
    planted = as_other(
        "to, run, precious, pid = sys.argv[1:]\n"
        "open(to + '/run', 'w').write(run); os.chmod(to + '/run', 0o755)\n"
        "for name in ('job.yaml', f'.job.yaml.{pid}'): os.symlink(precious, f'{to}/{name}')\n",
        pai,
        (source / "run").read_text(),
        precious,
        os.getpid(),
    )
    assert planted.returncode == 0, planted.stderr
    job = open_path / "job.yaml"
    job.write_text("command: true\n")
    assert lay_down(source, pai).fresh, "the same bytes, which another user can change"
    _lay_job(job, job.read_bytes(), pai)
    for name in ("run", "job.yaml"):
        found = (pai / name).lstat()
        assert (found.st_uid, found.st_mode & 0o170022) == (0, 0o100000), name
    assert precious.read_text() == "root's"
    own(pai / "job.yaml")
    _lay_job(job, job.read_bytes(), pai)
    assert (pai / "job.yaml").lstat().st_uid == 0


@ROOT_ONLY
@pytest.mark.parametrize("at", ["", "bin", "lib/python3.11/module.pyc", "bin/sh"])
def test_a_tree_of_another_user_is_laid_down_anew(at: str, source: Path, tmp_path: Path) -> None:
    laid = lay_down(source, tmp_path / "pai")
    own(laid.place / at)
    assert lay_down(source, tmp_path / "pai").fresh
    assert {path.lstat().st_uid for path in [laid.place, *laid.place.rglob("*")]} == {0}


def test_only_its_user_may_hold_the_lock(source: Path, tmp_path: Path) -> None:
    lay_down(source, tmp_path / "pai")
    assert (tmp_path / "pai/holdfast/lock").stat().st_mode & 0o077 == 0


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "volume"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "t", place], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def test_a_volume_that_everyone_may_write_is_taken_with_a_warning(source: Path, volume: Path) -> None:
    said: list[str] = []
    assert lay_down(source, volume, said.append).fresh
    assert said == [
        f"everyone may write to {volume} (mode 0777): whoever else mounts it can exchange what its tasks start"
    ]
    (volume / "holdfast").chmod(0o2775)  # as a volume's group (fsGroup) is given by Kubernetes
    assert not lay_down(source, volume, said.append).fresh
    own(volume / "holdfast")
    with pytest.raises(TreeNotInstalled, match="holdfast: it belongs to another user"):
        lay_down(source, volume)


@ROOT_ONLY
def test_a_user_may_use_a_directory_of_the_users_group_below_another_users(open_path: Path) -> None:
    """Directories of a project are made by one user and shared by its group: root alone refuses them."""
    before = os.geteuid()
    shared = folder(open_path / "shared", 0o775)
    os.chown(shared, 1234, OTHER)
    mine = folder(shared / "mine", uid=OTHER)
    os.seteuid(OTHER)
    try:
        os.close(enter(mine))
        with pytest.raises(Exposed, match="another user"):
            enter(shared)
    finally:
        os.seteuid(before)
    with pytest.raises(Exposed):
        enter(mine)


@ROOT_ONLY
def test_a_job_file_is_not_laid_into_a_directory_of_another_user(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("command: true\n")
    pai = own(folder(tmp_path / "pai"))
    with pytest.raises(BadUsage, match="belongs to another user"):
        _lay_job(job, job.read_bytes(), pai)
    assert list(pai.iterdir()) == []


@ROOT_ONLY
@pytest.mark.real
def test_prepare_says_one_sentence_and_what_to_type(source: Path, tmp_path: Path) -> None:
    pai = folder(tmp_path / "pai")
    own(folder(pai / "holdfast"))
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "prepare", "--into", pai, "--tree", source],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode != 0 and "Traceback" not in ran.stderr
    assert f"{pai}/holdfast: it belongs to another user (uid {OTHER})" in ran.stderr
    assert f"rm -rf {pai}/holdfast" in ran.stderr
    assert list((pai / "holdfast").iterdir()) == []
