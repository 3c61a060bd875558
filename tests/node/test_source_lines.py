"""The source lines around the place of a failure: as they were when it failed, few, and without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.model.exit_report import SourceLines
from holdfast.node.source_lines import MOST_LINE, read_source

TOKEN = "hf_abcdefghijklmnopqrstuvwx"
KEY = f"""
    import os
    def pick(table):
        # password = "correcthorse"
        return table["warmup"]  # token={TOKEN}
        # after it
    pick({{}})
"""
HANGS = """
    import os, signal
    def wait_for_shard():
        # the shard that never comes
        signal.pause()
    if os.environ["RANK"] == "1":
        wait_for_shard()
    signal.pause()
"""


def read(path: Path, line: int, printed: str | None = None, since: float | None = None) -> SourceLines | None:
    return read_source(path, str(path), line, printed=printed, unchanged_since=since)


def source(place: Path, text: str, name: str = "a.py") -> Path:
    path = place / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("line", "first", "lines"),
    [(1, 1, ("a", "b")), (2, 1, ("a", "b", "c")), (3, 2, ("b", "c", "d")), (4, 3, ("c", "d"))],
)
def test_a_place_has_the_line_before_and_the_line_after_it(
    tmp_path: Path, line: int, first: int, lines: tuple[str, ...]
) -> None:
    found = read(source(tmp_path, "a\nb\nc\nd\n"), line)
    assert found is not None and (found.line, found.first, found.lines) == (line, first, lines)
    assert found.failing == "abcd"[line - 1]


def test_no_lines_where_the_file_is_not_the_one_that_ran(tmp_path: Path) -> None:
    path = source(tmp_path, "a\nb\nc\n")
    assert read(path, 2, printed="b") is not None
    assert read(path, 2, printed="something else") is None, "another file stands at this path here"
    assert read(path, 9) is None
    assert read(path, 2, since=path.stat().st_mtime + 1) is not None
    assert read(path, 2, since=path.stat().st_mtime - 1) is None, "it was edited after the failure"


def test_only_sources_are_read(tmp_path: Path) -> None:
    assert read(source(tmp_path, "root:x:0\n", "shadow"), 1) is None
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("pipe.py", "folder.py", "none.py"):
        with pytest.raises(OSError):
            read(tmp_path / name, 1)


def test_lines_are_short_and_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"\xff\xfe\n\tx = '" + b"y" * 5000 + b"'\n")
    found = read(path, 2)
    assert found is not None and len(found.lines[1]) <= MOST_LINE + 2 and found.lines[1].startswith("    x = '")


def test_a_secret_of_several_lines_is_not_shown_in_part(tmp_path: Path) -> None:
    body = "\n".join("MIIEpAIBAAKCAQEA" + "x" * 40 for _ in range(20))
    text = f'key = """-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"""\nuse(key)\nlater()\n'
    for line, shown in ((23, ("use(key)", "later()")), (24, ("later()",)), (12, None), (2, None)):
        found = read(source(tmp_path, text), line)
        assert (found.lines if found is not None else None) == shown, line


@pytest.mark.real
def test_a_report_has_the_source_as_it_was_and_a_later_edit_changes_nothing(holdfast: Holdfast) -> None:
    script = holdfast.script(KEY)
    kept = holdfast.run("--max-restarts", "0", script).report["source_lines"]
    assert (kept["path"], kept["line"], kept["first"], len(kept["lines"])) == (str(holdfast.dir / script), 5, 4, 3)
    assert kept["lines"][0] == '    # password = "***"' and "warmup" in kept["lines"][1]
    assert TOKEN not in str(kept)
    (holdfast.dir / script).write_text("print('all new')\n" * 9)
    shown = holdfast("show", "--verbose").out
    assert '> 5 |     return table["warmup"]' in shown and "  6 |     # after it" in shown and "all new" not in shown


@pytest.mark.real
def test_a_hang_shows_the_line_in_which_its_culprit_stood(holdfast: Holdfast) -> None:
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", "--hang-timeout", "3", holdfast.script(HANGS))
    assert ran.report["phrase"] == "HungWorker" and ran.report["first"]["rank"] == 1
    assert ran.report["source_lines"]["lines"][:2] == ["    # the shard that never comes", "    signal.pause()"]
    assert "wait_for_shard: signal.pause()" in " ".join(holdfast("show").out.split())
