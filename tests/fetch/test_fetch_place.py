"""From a path: trees, links, archives that mean harm, disks that are full or read-only, fetches that were killed."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetched import fetch, nothing_counts
from holdfast.fetch.target_place import sync_tree
from small_disks import small_disk

pytestmark = pytest.mark.real


def content(top: Path) -> dict[str, bytes | str]:
    """Relative path → bytes, or where a link leads."""
    return {
        str(path.relative_to(top)): f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes()
        for path in top.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def packed_tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "a" / "b" / "x.bin").write_bytes(os.urandom(70_000))
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "inside").symlink_to("a/b/x.bin")
    return top


def test_a_directory_is_copied_with_its_links_and_modes(packed_tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outer").write_text("outer")
    (packed_tree / "outside").symlink_to(tmp_path / "outer")
    ran = fetch(tmp_path / "o" / "copy", str(packed_tree))
    copy = tmp_path / "o" / "copy"
    assert ran.status == 0 and content(copy) == {**content(packed_tree), "outside": b"outer"}
    assert (copy / "empty").is_dir() and os.access(copy / "run.sh", os.X_OK)
    assert not os.access(copy / "a" / "b" / "x.bin", os.X_OK)
    assert fetch(copy, str(packed_tree)).done[0].there


def test_what_is_not_there_and_what_is_no_file_are_told(tmp_path: Path) -> None:
    assert fetch(tmp_path / "o", str(tmp_path / "none")).phrase == "DataNotFound"
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    for name in (tmp_path / "tree" / "pipe", tmp_path / "tree", "/dev/zero", "/proc/self"):
        ran = fetch(tmp_path / "o", str(name))
        assert ran.phrase == "DataNotFound" and nothing_counts(tmp_path / "o"), ran.text


def test_a_tree_that_is_larger_than_allowed_is_not_copied(packed_tree: Path, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "o", str(packed_tree), most_bytes=50_000)
    assert ran.phrase == "DownloadTooLarge" and nothing_counts(tmp_path / "o")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_is_unpacked(packed_tree: Path, tmp_path: Path, mode: str) -> None:
    with tarfile.open(tmp_path / "t", mode) as archive:  # type: ignore[call-overload]  # each mode is one that it takes
        archive.add(packed_tree, ".")
    ran = fetch(tmp_path / "o", str(tmp_path / "t"), extract=True)
    assert ran.status == 0 and content(tmp_path / "o") == content(packed_tree), ran.text
    assert os.access(tmp_path / "o" / "run.sh", os.X_OK)


@pytest.mark.extras
def test_a_tar_in_zstd_is_unpacked(packed_tree: Path, tmp_path: Path) -> None:
    import zstandard

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(packed_tree, ".")
    (tmp_path / "t").write_bytes(zstandard.compress(plain.getvalue()))
    assert fetch(tmp_path / "o", str(tmp_path / "t"), extract=True).status == 0
    assert content(tmp_path / "o") == content(packed_tree)


def test_a_zip_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/x.txt", "x" * 5000)
    assert fetch(tmp_path / "o", str(tmp_path / "z"), extract=True).status == 0
    assert content(tmp_path / "o") == {"d/x.txt": b"x" * 5000}


def _tar(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """Members: name, kind, and where a link leads."""
    with tarfile.open(path, "w") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"evil") if member.size else None)
    return path


FILE, SYMBOLIC, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", FILE, "")],
        [("/tmp/evil", FILE, "")],
        [("a/../../evil", FILE, "")],
        [("link", SYMBOLIC, "/tmp")],
        [("link", SYMBOLIC, "../..")],
        [("a/link", SYMBOLIC, "../../out")],
        [("out", SYMBOLIC, "a"), ("out/evil", FILE, "")],
        [("hard", HARD, "/etc/passwd")],
        [("hard", HARD, "../outside")],
        [("null", tarfile.CHRTYPE, "")],
        [("pipe", tarfile.FIFOTYPE, "")],
    ],
)
def test_an_archive_that_leads_out_or_has_devices_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    ran = fetch(tmp_path / "o" / "x", str(_tar(tmp_path / "t", *members)), extract=True)
    assert ran.phrase == "ArchiveUnsafe" and nothing_counts(tmp_path / "o" / "x")
    assert not list(tmp_path.rglob("evil"))


def test_a_zip_that_leads_out_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("../evil", "x")
    assert fetch(tmp_path / "o" / "x", str(tmp_path / "z"), extract=True).phrase == "ArchiveUnsafe"


def test_a_bomb_is_stopped_and_a_damaged_archive_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 3_000_000)
    (tmp_path / "zeros").write_bytes(b"\0" * 3_000_000)
    with tarfile.open(tmp_path / "t", "w:gz") as packed:
        packed.add(tmp_path / "zeros", "zeros")
    for name in "zt":
        ran = fetch(tmp_path / "o", str(tmp_path / name), extract=True, most_bytes=1_000_000)
        assert ran.phrase == "DownloadTooLarge" and nothing_counts(tmp_path / "o"), ran.text
    (tmp_path / "d").write_bytes((tmp_path / "t").read_bytes()[:2000])
    assert fetch(tmp_path / "o", str(tmp_path / "d"), extract=True).phrase == "DataCorrupt"
    (tmp_path / "p").write_bytes(b"no archive at all" * 100)
    assert fetch(tmp_path / "o", str(tmp_path / "p"), extract=True).phrase == "DataCorrupt"


@pytest.fixture
def disk_of_1m(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as disk:
        yield disk


def test_a_disk_that_is_too_small_is_named_before_a_byte_comes_and_is_the_nodes(
    disk_of_1m: Path, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2_000_000)
    ran = fetch(disk_of_1m / "big", str(tmp_path / "big"))
    assert ran.phrase == "DiskFull" and ran.failed.trouble.here and "2000000 bytes" in ran.failed.trouble.words
    assert not any(path.stat().st_size > 4096 for path in disk_of_1m.rglob("*") if path.is_file())


def test_a_disk_that_fills_while_an_archive_unpacks_is_named(disk_of_1m: Path, tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(b"\0" * 5_000_000)
    with tarfile.open(tmp_path / "t", "w:gz") as packed:
        packed.add(tmp_path / "zeros", "zeros")
    ran = fetch(disk_of_1m / "o", str(tmp_path / "t"), extract=True)
    assert ran.phrase == "DiskFull" and nothing_counts(disk_of_1m / "o"), ran.text


def test_a_read_only_disk_is_the_nodes(disk_of_1m: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    subprocess.run(["mount", "-o", "remount,ro", str(disk_of_1m)], check=True)
    ran = fetch(disk_of_1m / "x", str(tmp_path / "x"))
    assert ran.phrase == "ReadOnlyFilesystem" and ran.failed.trouble.here


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_this_user_may_not_write_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / "o").mkdir(mode=0o500)
    assert fetch(tmp_path / "o" / "x", str(tmp_path / "x")).phrase == "PermissionDenied"


def test_a_record_without_its_content_counts_as_nothing(packed_tree: Path, tmp_path: Path) -> None:
    """A process that was killed between the two last steps leaves that."""
    into = tmp_path / "o"
    fetch(into, str(packed_tree / "run.sh"))
    into.unlink()
    ran = fetch(into, str(packed_tree / "run.sh"))
    assert not ran.done[0].there and into.read_bytes() == (packed_tree / "run.sh").read_bytes()


def test_a_tree_that_was_half_there_goes_on(packed_tree: Path, tmp_path: Path) -> None:
    into = tmp_path / "o"
    fetch(into, str(packed_tree))
    part = tmp_path / ".o.holdfast-part"
    # As it was a moment before its end: one file of it is still missing.
    (tmp_path / ".o.holdfast.json").unlink()
    part.mkdir()
    into.rename(part / "data")
    (part / "data" / "run.sh").unlink()
    again = fetch(into, str(packed_tree))
    assert again.status == 0 and content(into) == content(packed_tree)


def test_a_tree_is_flushed_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An fsync for each of 300,000 entries takes a quarter of an hour."""
    for number in range(100):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "f").write_bytes(b"xy")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert sync_tree(tmp_path) == 200
    assert len(synced) < 5
