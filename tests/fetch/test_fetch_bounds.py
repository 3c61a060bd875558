"""What a hostile archive or server claims costs no memory, no endless requests and no second try."""

from __future__ import annotations

import bz2
import fcntl
import gzip
import io
import lzma
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fetched import PLAIN_ENVIRONMENT, fetch, nothing_counts, order_bytes
from holdfast.fetch import object_stores
from holdfast.fetch.archives import unpack
from holdfast.fetch.fetch_failures import FetchError
from holdfast.fetch.object_stores import StoreSource
from holdfast.fetch.prerequisite_uris import Uri, UriKind
from holdfast.fetch.target_place import TargetPlace
from web_server import web_server

MANY = 64 << 20
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def _header(kind: bytes, size: int, name: str = "long") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def _of_long_name(kind: bytes) -> bytes:
    """An archive with one header of MANY bytes before a file."""
    text = b"a" * (MANY - 1) + b"\0"
    if kind in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        length = len(str(MANY))
        text = f"{MANY} comment=".encode() + b"a" * (MANY - length - len(" comment=") - 1) + b"\n"
    return _header(kind, MANY) + text + _header(tarfile.REGTYPE, 0, "x") + bytes(1024)


KINDS = {
    "a name": tarfile.GNUTYPE_LONGNAME,
    "a link": tarfile.GNUTYPE_LONGLINK,
    "attributes": tarfile.XHDTYPE,
    "attributes of all": tarfile.XGLTYPE,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", ["plain", "gzip"])
def test_a_header_without_end_is_refused(kind: str, packed: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(PACKED[packed](_of_long_name(KINDS[kind])))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FetchError, match="an entry has more than 1048576 bytes of header") as caught:
        _unpacked(tmp_path / "t", tmp_path / "o")
    assert caught.value.phrase == "ArchiveUnsafe"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MANY // 2 // 1024


def test_a_map_of_holes_without_end_is_refused(tmp_path: Path) -> None:
    member = bytearray(_header(tarfile.GNUTYPE_SPARSE, 0, "holes"))
    member[482] = 1  # another block of the map follows
    member[148:156] = b" " * 8
    member[148:156] = f"{sum(member):06o}\0 ".encode()
    block = (b"%011o\0" % 0) * 42 + b"\1" + bytes(7)
    (tmp_path / "t").write_bytes(bytes(member) + block * 10_000 + bytes(1024))
    with pytest.raises(FetchError, match="bytes of header"):
        _unpacked(tmp_path / "t", tmp_path / "o")


def test_a_file_that_is_mostly_holes_counts_as_large_as_it_is(tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(3 << 30)
    if shutil.which("tar") is None:
        pytest.skip("needs the tar command")
    subprocess.run(["tar", "-C", tmp_path, "--sparse", "-cf", tmp_path / "t", "holes"], check=True)
    with pytest.raises(FetchError) as caught:
        _unpacked(tmp_path / "t", tmp_path / "o", most_bytes=10 << 20)
    assert caught.value.phrase == "DownloadTooLarge"


def test_an_archive_of_headers_only_is_bounded_too(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for number in range(200):
            member = tarfile.TarInfo(f"d{number}")
            member.type, member.pax_headers = tarfile.DIRTYPE, {"comment": "a" * (1_000_000)}
            archive.addfile(member)
    (tmp_path / "t").write_bytes(packed.getvalue())
    with pytest.raises(FetchError, match="most of which are in no file") as caught:
        _unpacked(tmp_path / "t", tmp_path / "o", most_bytes=1 << 20)
    assert caught.value.phrase == "DownloadTooLarge"


@pytest.mark.parametrize("packed", PACKED)
def test_every_packing_is_still_unpacked(packed: str, tmp_path: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(300):
            member = tarfile.TarInfo(f"{'d' * 120}/{'e' * 120}/{number}")
            member.size = 5
            archive.addfile(member, io.BytesIO(b"12345"))
    (tmp_path / "t").write_bytes(PACKED[packed](plain.getvalue()))
    assert _unpacked(tmp_path / "t", tmp_path / "o") == 1500
    assert len(list((tmp_path / "o").rglob("*"))) == 302


@pytest.mark.parametrize("name", ["/".join(["d" * 200] * 40), "n" * 256, "é" * 200])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_name_that_no_file_system_takes_is_the_archives(name: str, kind: str, tmp_path: Path) -> None:
    if kind == "tar":
        with tarfile.open(tmp_path / "t", "w") as tarred:
            tarred.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    else:
        with zipfile.ZipFile(tmp_path / "t", "w") as zipped:
            zipped.writestr(name, b"")
    with pytest.raises(FetchError, match="255 bytes for a name and 4095 for a path") as caught:
        _unpacked(tmp_path / "t", tmp_path / "o")
    assert caught.value.phrase == "ArchiveUnsafe" and not caught.value.passes


def test_the_directory_of_a_zip_is_bounded(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("x", "x")
    data = bytearray((tmp_path / "z").read_bytes())
    at = data.rfind(b"PK\5\6")
    data[at + 12 : at + 16] = (300 << 20).to_bytes(4, "little")
    (tmp_path / "z").write_bytes(data)
    with pytest.raises(FetchError) as caught:
        _unpacked(tmp_path / "z", tmp_path / "o")
    assert caught.value.phrase in ("DownloadTooLarge", "DataCorrupt")


def test_a_listing_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        """A file system of fsspec whose directories have no end."""

        def info(self, path: str) -> dict[str, str]:
            return {"name": path, "type": "directory"}

        def walk(self, top: str, detail: bool) -> object:
            number = 0
            while True:
                number += 1
                name = f"{top}/{number}"
                yield top, {}, {name: {"name": name, "type": "file", "size": 1}}

    monkeypatch.setattr(object_stores, "MOST_ENTRIES", 1000)
    monkeypatch.setattr(object_stores, "_hdfs", lambda uri, stall_s: (Endless(), "/top"))
    uri = Uri(kind=UriKind.HDFS, url="hdfs://h/top", shown="hdfs://h/top")
    with pytest.raises(FetchError, match="more than 1000 files") as caught:
        StoreSource(uri, 1.0).entries()
    assert caught.value.phrase == "DownloadTooLarge"


@pytest.mark.real
@pytest.mark.parametrize("path", ["range/5", "range/900", "range/" + "9" * 5000, "range/x"])
def test_a_server_that_sends_other_ranges_is_asked_twice_at_most(path: str, tmp_path: Path) -> None:
    with web_server(b"content") as web:
        ran = fetch(tmp_path / "o", f"{web.url}/{path}/f", tries=1)
        assert ran.phrase == "DownloadFailed" and "another range" in ran.text, ran.text
        assert len(web.asked) <= 2


@pytest.mark.real
@pytest.mark.parametrize(("claim", "phrase"), [("9" * 25, "DownloadTooLarge"), ("9" * 5000, "")])
def test_a_length_that_no_disk_has_is_the_servers(claim: str, phrase: str, tmp_path: Path) -> None:
    with web_server(b"content") as web:
        ran = fetch(tmp_path / "o", f"{web.url}/claims/{claim}/f", tries=1)
    if phrase:
        assert ran.phrase == phrase and not ran.failed.trouble.here and "whole disk" in ran.text, ran.text
    else:
        # A number of 5,000 digits is no length: the end of the connection is the end of the file, or a failure.
        assert ran.status == 0 or ran.phrase == "DownloadFailed", ran.text


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_what_another_user_has_put_there_is_no_content(tmp_path: Path) -> None:
    source, into = tmp_path / "good", tmp_path / "o" / "thing"
    source.write_text("good\n")
    sha256 = subprocess.run(["sha256sum", source], capture_output=True, text=True, check=True).stdout.split()[0]
    more: tuple[dict[str, Any], ...] = ({"sha256": sha256}, {})
    for words in more:
        assert fetch(into, str(source), **words).done[0].bytes == 5
        into.write_text("EVIL\n")
        for path in (into, into.parent / ".thing.holdfast.json"):
            os.chown(path, 65534, 65534)
        ran = fetch(into, str(source), **words)
        if words:
            assert ran.status == 0 and into.read_text() == "good\n"
        else:
            assert ran.phrase == "PlaceTaken" and "another user" in ran.text
        into.write_text("good\n")
        os.chown(into, 65534, 65534)
        os.chown(into.parent / ".thing.holdfast.json", 65534, 65534)
        if words:
            assert fetch(into, str(source), **words).done[0].there, "the same content, as its sha256 shows"
        shutil.rmtree(into.parent)


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_what_the_user_who_brought_holdfast_has_put_there_counts(tmp_path: Path) -> None:
    """In a pod the init container's user owns holdfast's files and the data, and the task runs as another user."""
    brought, into = tmp_path / "brought", tmp_path / "o" / "thing"
    (tmp_path / "good").write_text("good\n")
    assert fetch(into, str(tmp_path / "good")).status == 0
    shutil.copytree(Path(holdfast.__file__).parent, brought / "holdfast")
    for path in (into, into.parent / ".thing.holdfast.json", *brought.rglob("*")):
        os.chown(path, 10001, 10001)
    env = {"PYTHONPATH": str(brought)}
    assert fetch(into, str(tmp_path / "good"), env=env).done[0].there
    os.chown(into, 10002, 10002)
    ran = fetch(into, str(tmp_path / "good"), env=env)
    assert ran.phrase == "PlaceTaken" and "another user" in ran.text


def test_only_its_user_may_hold_the_lock(tmp_path: Path) -> None:
    with TargetPlace(tmp_path / "thing", "key").held("a test", lambda _: None):
        [lock] = tmp_path.glob(".thing.holdfast-lock")
        assert lock.stat().st_mode & 0o077 == 0


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
@pytest.mark.parametrize("name", [".thing.holdfast-part", ".thing.holdfast-lock"])
@pytest.mark.parametrize("kind", ["file", "directory", "link", "held"])
def test_what_another_user_has_put_beside_is_replaced(name: str, kind: str, tmp_path: Path) -> None:
    """A file that another user holds locked would let the fetch wait for as long as that user likes."""
    source, into, away = tmp_path / "good", tmp_path / "o" / "thing", tmp_path / "away"
    source.write_text("good\n")
    into.parent.mkdir(mode=0o777)
    into.parent.chmod(0o1777)
    away.mkdir()
    planted = into.parent / name
    if kind == "link":
        planted.symlink_to(away)
    elif kind == "directory":
        planted.mkdir()
        (planted / "data").write_text("EVIL\n")
    else:
        planted.write_text("EVIL\n")
    os.lchown(planted, 65534, 65534)
    with planted.open() if kind == "held" else nullcontext() as held:
        if held is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
        ran = fetch(into, str(source))
    assert ran.status == 0 and into.read_text() == "good\n", ran.text
    assert list(away.iterdir()) == []
    assert {path.lstat().st_uid for path in into.parent.iterdir()} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_another_user_has_put_beside_and_cannot_be_removed_is_refused() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o1777)
        (part := Path(place) / ".thing.holdfast-part").mkdir()
        os.chown(part, 1234, 1234)
        os.seteuid(65534)
        try:
            with pytest.raises(FetchError, match=r"another user's, who could change thing while it comes") as met:
                TargetPlace(Path(place, "thing"), "key").prepare()
        finally:
            os.seteuid(0)
        assert met.value.phrase == "PlaceTaken"


@pytest.mark.real
def test_a_fetch_without_memory_is_no_fault_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1000)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({300 << 20},) * 2)\n"
    broken = (
        "from holdfast.fetch import fetch_item\n"
        "def no_memory(self, *words): raise MemoryError\n"
        "fetch_item.ItemFetch._file = no_memory\n"
        "from holdfast.fetch.__main__ import main\nraise SystemExit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", limited + broken],
        input=order_bytes(tmp_path / "o", str(tmp_path / "x")),
        capture_output=True,
        env=PLAIN_ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1 and b'"fetch_failed"' in ended.stdout, ended
    assert b"DownloadFailed" not in ended.stdout and b"memory" in ended.stdout
    assert nothing_counts(tmp_path / "o")


def _unpacked(archive: Path, into: Path, most_bytes: int | None = None) -> int:
    return unpack(archive, into, "it", most_bytes, lambda _: None, lambda: 1 << 40)
