"""Files that options name are tried before anything starts; the message says what stands in the way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Words that take root's right to write anywhere from a command; they start nothing where root runs nothing.
AS_A_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
@pytest.mark.parametrize("option", ["--report", "--metrics-file"])
@pytest.mark.parametrize(
    ("file", "said", "line"),
    [
        ("closed/r.json", "this user may not write in the directory {}/closed", "ls -ld {}/closed"),
        ("closed/a/r.json", "this user may not write in the directory {}/closed", "ls -ld {}/closed"),
        ("locked/r.json", "this user may not write in the directory {}/locked", "ls -ld {}/locked"),
        ("locked/a/r.json", "this user may not write in the directory {}/locked", "ls -ld {}/locked"),
        ("train.py/r.json", "expected a directory, and {}/train.py is a file", "ls -l {}/train.py"),
        ("train.py/a/r.json", "expected a directory, and {}/train.py is a file", "ls -l {}/train.py"),
        ("a/b/r.json", "there is no directory {}/a/b", "mkdir -p {}/a/b"),
        ("train.py", "the file is there and cannot be written", "ls -l train.py"),
        ("open", "it is a directory; expected a file to write", "{option} open/"),
    ],
)
def test_what_stands_in_the_way_of_a_new_file_is_said(
    tmp_path: Path, option: str, file: str, said: str, line: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('began')\n")
    script.chmod(0o444)
    for name, mode in (("closed", 0o000), ("locked", 0o555), ("open", 0o755)):
        (tmp_path / name).mkdir(mode=mode)
    words = [sys.executable, "-m", "holdfast", "run", "--no-checks", option, file, "train.py"]
    done = subprocess.run([*AS_A_USER, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    told, _, tried = done.stderr.partition("\n  try: ")
    assert said.format(tmp_path) in told
    assert tried.startswith(line.format(tmp_path, option=option))
