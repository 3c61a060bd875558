"""A pipe whose last program hides the failure of the first is warned of once; a pipe that asks a question is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.launch.pipeline_status import hiding_pipe, pipe_warning


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("python train.py 2>&1 | tee train.log", ("python", "tee")),
        ("#!/bin/bash\n# a note\npython3 train.py |& tee l\necho done\n", ("python3", "tee")),
        ("cd code && torchrun --standalone t.py | ts", ("torchrun", "ts")),
        ("A=\"$(a | b)\" exec ./t \"${x}\" | tee \"$log\"", ("t", "tee")),
        ('"$PYTHON" t.py | tee l', ("$PYTHON", "tee")),
        ("python t.py \\\n  --lr 1 |\n  grep -v warning | tee x || exit 1", ("python", "tee")),
        ("{ python t.py; } | tee l", ("the commands before it", "tee")),
        ("(python a; python b) | tee l", ("python", "tee")),
        ("cat <<E\na | b\nE\npython t.py | cat", ("python", "cat")),
    ],
)  # fmt: skip
def test_the_pipe_that_hides_a_failure(text: str, pair: tuple[str, str]) -> None:
    assert hiding_pipe(text) == pair


@pytest.mark.parametrize(
    "text",
    [
        "python a.py || true",
        "python a.py >| log; python b.py & wait",
        "echo x | sed s/a/b/; nvidia-smi | grep MiB; ls *.pt | wc -l",
        "if python x.py | grep y; then a; fi; ! python x.py | grep y",
        "x=$(python a.py | tail -1); y=`python a.py | tail -1`",
        "case $1 in a|b) python x.py;; c | d) y;; esac",
        "python t.py --say 'a | b' \"c | d\" # e | f",
        "[[ $x =~ a|b ]] && python t.py",
        "python t.py 2> >(tee errors)",
    ],
)
def test_a_pipe_that_hides_nothing_is_no_matter(text: str) -> None:
    assert hiding_pipe(text) is None


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        (("bash", "-c", "python t.py | tee l"), "the command"),
        (("env", "A=1", "/bin/sh", "-xec", "python t.py | tee l"), "the command"),
        (("bash", "run.sh"), "the script run.sh"),
        (("bash", "-e", "run.sh", "more"), "the script run.sh"),
        (("./run.sh",), "the script ./run.sh"),
        (("bash", "-o", "pipefail", "run.sh"), ""),
        (("bash", "-c", "set -o pipefail; python t.py | tee l"), ""),
        (("bash", "-c", "python t.py | tee l; exit ${PIPESTATUS[0]}"), ""),
        (("bash", "safe.sh"), ""),
        (("./data",), ""),
        (("nosuch",), ""),
        (("echo", "a | b"), ""),
    ],
)
def test_the_text_is_where_the_shell_reads_it(tmp_path: Path, command: tuple[str, ...], warned: str) -> None:
    (tmp_path / "run.sh").write_text("#!/usr/bin/env bash\npython3 train.py | tee train.log\n")
    (tmp_path / "safe.sh").write_text("set -euo pipefail\npython3 train.py | tee train.log\n")
    (tmp_path / "data").write_text("python3 train.py | tee train.log\n")
    said = pipe_warning(command, tmp_path)
    assert said.startswith(warned) and bool(said) == bool(warned)


@pytest.mark.real
def test_a_run_warns_once(holdfast: Holdfast) -> None:
    ran = holdfast.run("--nproc-per-node", "2", "--no-python", "bash", "-c", "false | cat")
    assert ran.status == 0
    assert ran.err.count("a failure of false counts as a success; write `set -o pipefail`") == 1
