"""Links of a tree that lead out only together, in archives and in copied directories."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from fetched import fetch, nothing_counts
from holdfast.fetch.archives import unpack
from holdfast.fetch.fetch_failures import FetchError
from holdfast.fetch.tree_links import MOST_LINKS, link_outside, stays_inside

#: Links by name, and whether the last one leads out. `d` and `d/e` are directories of the tree, `d/f` is a file.
TREES: dict[str, tuple[dict[str, str], bool]] = {
    "a file": ({"l": "d/f"}, False),
    "a directory": ({"l": "d/e"}, False),
    "nothing": ({"l": "d/none/x"}, False),
    "its own directory": ({"d/l": "."}, False),
    "the top, from below": ({"d/e/l": "../.."}, False),
    "down and up again": ({"l": "d/e/../f"}, False),
    "above": ({"l": "../x"}, True),
    "an absolute path": ({"l": "/etc/passwd"}, True),
    "above through a link": ({"up": "d/e/..", "l": "up/../../x"}, True),
    "above, though its text stays inside": ({"d/e/up": "../..", "l": "d/e/up/../x"}, True),
    "above and back by the name of the tree": ({"d/e/up": "../..", "l": "d/e/up/../top/d/f"}, True),
    "above through nothing": ({"l": "none/../../x"}, True),
    "above through a link of a link": ({"d/e/one": "two", "d/e/two": "../..", "l": "d/e/one/.."}, True),
    "a link that leads out": ({"out": "/etc", "l": "out/passwd"}, True),
    "a circle": ({"one": "l", "l": "one"}, False),
    "a long chain that ends above": (
        {**{f"d/n{at}": f"n{at + 1}" for at in range(MOST_LINKS - 3)}, f"d/n{MOST_LINKS - 3}": "../..", "l": "d/n0"},
        True,
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_a_link_is_followed_link_after_link(name: str, tmp_path: Path) -> None:
    links, leads_out = TREES[name]
    top = _tree(tmp_path / "top", links)
    assert stays_inside(top, list(links)[-1]) is not leads_out
    assert (link_outside(top) is not None) is leads_out


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
@pytest.mark.parametrize("name", TREES)
def test_an_archive_whose_links_lead_out_together_is_not_unpacked(name: str, kind: str, tmp_path: Path) -> None:
    links, leads_out = TREES[name]
    path = tmp_path / "archive"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("d/f", "x")
            zipped.writestr("d/e/g", "x")
            for link, target in links.items():
                entry = zipfile.ZipInfo(link)
                entry.external_attr = 0o120777 << 16
                zipped.writestr(entry, target)
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as tarred:
            for file in ("d/f", "d/e/g"):
                tarred.addfile(tarfile.TarInfo(file), io.BytesIO(b""))
            for link, target in links.items():
                member = tarfile.TarInfo(link)
                member.type, member.linkname = tarfile.SYMTYPE, target
                tarred.addfile(member)
    if leads_out:
        with pytest.raises(FetchError, match="link out of the directory") as caught:
            _unpacked(path, tmp_path / "top")
        assert caught.value.phrase == "ArchiveUnsafe" and not caught.value.passes
    else:
        _unpacked(path, tmp_path / "top")
        assert (tmp_path / "top" / "d" / "f").exists()


@pytest.mark.real
def test_a_copied_directory_leads_nowhere_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    _tree(tmp_path / "top", {"d/e/up": "../..", "l": "d/e/up/../secret"})
    ran = fetch(tmp_path / "o" / "copy", str(tmp_path / "top"))
    copy = tmp_path / "o" / "copy" / "l"
    assert ran.status == 0, ran.text
    assert not copy.is_symlink() and copy.read_text() == "secret", "the file itself, as for any link that leads out"


@pytest.mark.real
def test_an_archive_with_such_links_counts_as_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "t", "w") as archive:
        archive.add(_tree(tmp_path / "top", {"d/e/up": "../..", "l": "d/e/up/../secret"}), ".")
    ran = fetch(tmp_path / "o" / "x", str(tmp_path / "t"), extract=True)
    assert ran.phrase == "ArchiveUnsafe" and nothing_counts(tmp_path / "o" / "x"), ran.text


def _tree(top: Path, links: dict[str, str]) -> Path:
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "f").touch()
    for name, target in links.items():
        (top / name).symlink_to(target)
    return top


def _unpacked(archive: Path, into: Path) -> None:
    unpack(archive, into, "it", None, lambda _: None, lambda: 1 << 40)
