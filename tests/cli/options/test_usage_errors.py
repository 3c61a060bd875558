"""Bad usage that click finds: each message says what was expected, and the line to type."""

from __future__ import annotations

import pytest

from typed_here import Cli, cli, home

__all__ = ["cli", "home"]  # fixtures


@pytest.mark.parametrize(
    ("typed", "said", "line"),
    [
        ("show X --html", "--html: expected FILE behind it", "holdfast show X --html report.html"),
        ("status X --html", "--html: expected FILE behind it", "holdfast status X --html report.html"),
        ("logs --rank", "--rank: expected R behind it", "holdfast logs --rank R"),
        ("run --nproc-per-node", "--nproc-per-node: expected N behind it", "holdfast run --nproc-per-node N"),
        ("prune --keep-jobs", "--keep-jobs: expected N behind it", "holdfast prune --keep-jobs N"),
        ("faults report --device", "--device: expected D behind it", "holdfast faults report --device D"),
        ("jobs --json=1", "--json takes no value", "holdfast jobs --json"),
        ("doctor now", "`holdfast doctor` takes no argument: `now` is too much", "holdfast doctor"),
        ("devices gpu0 gpu1", "`holdfast devices` takes no argument: `gpu0 gpu1` is too much", "holdfast devices"),
        ("show a b", "`holdfast show` takes one JOB: `b` is too much", "holdfast show a"),
        ("jobs a b --json", "`holdfast jobs` takes one JOB: `b` is too much", "holdfast jobs a --json"),
        ("release", "`holdfast release`: expected DEVICE", "holdfast release DEVICE --reason TEXT"),
        ("release gpu0", "`holdfast release`: expected --reason TEXT", "holdfast release gpu0 --reason TEXT"),
        ("faults report", "expected --device D", "holdfast faults report --device D --code C"),
        ("completion", "expected bash, fish or zsh", "holdfast completion bash"),
        ("stop a --code many", "--code: expected a whole number, got 'many'", "holdfast stop --help"),
        ("completion tcsh", "SHELL: 'tcsh' is not one of 'bash', 'fish', 'zsh'", "holdfast completion --help"),
    ],
)
def test_a_mistake_is_answered_with_the_line_to_type(cli: Cli, typed: str, said: str, line: str) -> None:
    status, out, err = cli(*typed.split())
    told, _, tried = err.partition("\n  try: ")
    assert (status, out) == (2, "") and said in told
    assert tried == f"{line}\n"
