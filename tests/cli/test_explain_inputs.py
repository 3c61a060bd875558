"""`explain` takes directories, globs, compressed logs and archives, and refuses what exceeds the limits."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.explain import command
from holdfast.errors import BadUsage
from holdfast.node import compressed_logs, named_logs
from holdfast.node.named_logs import logs_of

FULL = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 88, in <module>\n    main()\n'
    "OSError: [Errno 28] No space left on device\n"
)
GONE = "ConnectionResetError: [Errno 104] Connection reset by peer\n"


def run(*words: str) -> Result:
    return CliRunner().invoke(command, [*words, "--json"])


def answer(*words: str) -> tuple[str, int | None]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    return report["phrase"], report["first"] and report["first"]["rank"]


def refusal(*words: str) -> str:
    error = run(*words).exception
    assert isinstance(error, BadUsage), error
    return error.message


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a directory with the logs of ranks 0, 2 and 10 among other files. Rank 10's disk is full."""
    top = tmp_path / "run"
    for rank in (0, 2, 10):
        (top / f"rank{rank}").mkdir(parents=True)
        (top / f"rank{rank}" / "stdout.log").write_text("step 1\n")
        (top / f"rank{rank}" / "stderr.log").write_text(FULL if rank == 10 else GONE)
    (top / "train.py").write_text("raise MemoryError('CUDA out of memory')\n")
    (top / "model.safetensors").write_bytes(b"\0" * 100)
    (top / ".hidden.log").write_text("CUDA error: an illegal memory access was encountered\n")
    return top


def test_a_directory_is_the_logs_in_it_and_their_names_have_the_ranks(tree: Path) -> None:
    result = run(str(tree))
    assert answer(str(tree)) == ("DiskFull", 10)
    assert f"read 6 logs of {tree}: {tree}/rank0/stderr.log" in result.stderr
    assert f"{tree}/rank2/stderr.log" in result.stderr  # before rank10


def test_a_directory_without_names_of_logs_is_its_texts(tmp_path: Path) -> None:
    (tmp_path / "attempt1").write_text(FULL)
    (tmp_path / "core.1234").write_bytes(b"\x7fELF\0\0\0\0")
    assert answer(str(tmp_path))[0] == "DiskFull"
    assert "read 1 log of" in run(str(tmp_path)).stderr


def test_older_parts_of_a_rotated_log_are_no_further_ranks(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(FULL)
    (tmp_path / "job.log.1").write_text(GONE)
    (tmp_path / "job.log.2.gz").write_bytes(gzip.compress(GONE.encode()))
    assert "read 1 log of" in run(str(tmp_path)).stderr


def test_a_glob_is_expanded_also_over_directories(tree: Path) -> None:
    assert answer(f"{tree}/*/stderr.log") == ("DiskFull", 10)
    assert answer(f"{tree}/**/std*.log") == ("DiskFull", 10)


def test_a_path_that_exists_wins_over_a_glob_and_a_foreign_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rank[0]*.log", "slurm:12"):
        Path(name).write_text(FULL)
        assert answer(name)[0] == "DiskFull"
        assert run(name).stderr == ""
    (tmp_path / "pod").mkdir()
    Path("pod/a").write_text(FULL)
    assert answer("pod/a")[0] == "DiskFull"


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_compressed_log_is_read_whole_or_cut(suffix: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    text = "".join(f"step {number} loss 2.5\n" for number in range(20_000))
    packed = compress(text.encode()) + compress(FULL.encode())
    (tmp_path / f"a.log.{suffix}").write_bytes(packed)
    assert answer(str(tmp_path / f"a.log.{suffix}")) == ("DiskFull", None)
    (tmp_path / f"cut.{suffix}").write_bytes(compress((FULL + text[:200]).encode())[:-9])
    assert run(str(tmp_path / f"cut.{suffix}")).exit_code == 0


def test_zstd_is_read_or_the_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log.zst"
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.compress(FULL.encode()))
    assert answer(str(path))[0] == "DiskFull"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    assert "is compressed with zstd, and this Python has no library for it" in refusal(str(path))


def test_a_log_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_logs, "LEAST_LIMIT_BYTES", 1 << 20)
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(b"step 1 loss 2.5\n" * (1 << 19)))
    assert "unpacks to more than 200 times its size" in refusal(str(path))


def packed_tar(path: Path, mode: str, members: dict[str, str]) -> str:
    opened: Any = tarfile.open
    with opened(path, mode) as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return str(path)


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_is_the_logs_in_it(suffix: str, tmp_path: Path) -> None:
    mode = "w:" + suffix.partition(".")[2]
    path = packed_tar(
        tmp_path / f"logs.{suffix}", mode, {"j/rank0/err": GONE, "j/rank10/err": FULL, "j/a.py": "CUDA out of memory"}
    )
    assert answer(path) == ("DiskFull", 10)
    assert f"read 2 logs of {path}: logs.{suffix}/j/rank0/err" in run(path).stderr


def test_a_zip_is_the_logs_in_it(tmp_path: Path) -> None:
    path = tmp_path / "logs_1.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank1/1_train.txt", FULL)
        archive.writestr("rank0/1_train.txt", GONE)
        archive.writestr("image.png", "CUDA out of memory")
    assert answer(str(path)) == ("DiskFull", 1)


def test_nothing_of_an_archive_is_written_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("CUDA out of memory\n")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    path = work / "evil.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("rank0.log")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
        pipe = tarfile.TarInfo("rank1.log")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
        info = tarfile.TarInfo("../../out.log")
        info.size = len(FULL)
        archive.addfile(info, io.BytesIO(FULL.encode()))
    assert answer(str(path))[0] == "DiskFull"
    assert "read 1 log of" in run(str(path)).stderr
    assert sorted(each.name for each in work.iterdir()) == ["evil.tar"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret", "work"]


def test_a_damaged_an_empty_and_a_too_large_archive_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path(packed_tar(tmp_path / "a.tar", "w", {f"rank{n}.log": FULL * 2000 for n in range(3)})).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:400_000])
    assert "is damaged" in refusal(str(tmp_path / "cut.tar"))
    (tmp_path / "cut.zip").write_bytes(b"PK\3\4" + b"x" * 300)
    assert "is damaged" in refusal(str(tmp_path / "cut.zip"))
    none = packed_tar(tmp_path / "none.tar", "w", {"a.py": "x"})
    assert "has no log" in refusal(none)
    monkeypatch.setattr("holdfast.node.archived_logs.LEAST_LIMIT_BYTES", 1000)
    monkeypatch.setattr("holdfast.node.archived_logs.RATIO", 1)
    bomb = packed_tar(tmp_path / "b.tar.gz", "w:gz", {"rank0.log": FULL * 20_000})
    assert "unpacks to more than" in refusal(bomb)


def test_the_number_of_files_and_the_depth_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path
    for _ in range(14):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "a.log").write_text(FULL)
    assert "has no log" in refusal(str(tmp_path))
    for number in range(4):
        (tmp_path / f"rank{number}.log").write_text(FULL)
    monkeypatch.setattr(named_logs, "MOST_LOGS", 3)
    assert "has more than 3 files" in refusal(str(tmp_path))
    assert "has more than 3 files" in refusal(f"{tmp_path}/*.log")
    monkeypatch.setattr(named_logs, "MOST_ENTRIES", 2)
    assert "has more than 2 files" in refusal(str(tmp_path))


def test_a_link_to_a_directory_above_is_no_endless_tree(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(FULL)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert "read 1 log of" in run(str(tmp_path)).stderr


def test_many_logs_keep_short_tails(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"rank{number}.log").write_text(GONE if number != 33 else FULL)
    found = logs_of(str(tmp_path))
    assert found is not None
    assert {log.tail_bytes for log in found if not isinstance(log, str)} == {(128 << 20) // 70}
    assert answer(str(tmp_path)) == ("DiskFull", 33)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("nope.log", "there is no file nope.log"),
        ("nope*.log", "no file matches nope*.log"),
        ("a/b", "there is no file"),
    ],
)
def test_what_is_not_there_gets_one_message(
    word: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    assert told in refusal(word)


def test_an_empty_directory_says_what_was_expected(tmp_path: Path) -> None:
    assert "has no log: files such as rank0.log" in refusal(str(tmp_path))
