"""Settings of a job over nodes whose configuration files differ: the owner's count for the job, a node's for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pair_of_nodes import Pair, pair

__all__ = ["pair"]  # a fixture

pytestmark = pytest.mark.real

TALKS = """
for number in range(400):
    print(f"line {number} of a worker that prints a lot", flush=True)
wait_for("go")
"""
CHECK = """
import os
from pathlib import Path
from holdfast.checks import PreCheckOperator, PreCheckResult

class RackDoor(PreCheckOperator):
    '''Is the door of the rack closed?'''

    def check(self, *args, **kwargs):
        Path(f"checked-{Path(os.environ['HOLDFAST_HOME']).name}").touch()
        return PreCheckResult()

    def failed_actions(self, *args, **kwargs):
        return []
"""


def rotated(logs: Path) -> list[str]:
    """The files of a worker's standard output below a directory: the present one, and those that were put aside."""
    return sorted(path.name for path in logs.rglob("stdout.log*") if not path.name.endswith(".times"))


def test_a_site_file_on_the_owners_node_counts_on_every_node(pair: Pair) -> None:
    (pair.holdfast.dir / "rack.py").write_text(CHECK)
    pair.checks = []
    pair.configure(pair.a, "log-size: 4K\nlog-kept: 2\nchecks: rackdoor\nplugin: rack.py\n")
    pair.configure(pair.b, "log-size: 1G\nno-checks: true\n")
    pair.start(TALKS)
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]
    assert sorted(path.name for path in pair.holdfast.dir.glob("checked-*")) == ["checked-a", "checked-b"]
    assert rotated(pair.a) == rotated(pair.b) == ["stdout.log", "stdout.log.1", "stdout.log.2"]


def test_what_is_each_nodes_stays_each_nodes(pair: Pair) -> None:
    pair.configure(pair.a, "hang-warning: 0\n")
    pair.configure(pair.b, f"log-dir: {pair.holdfast.dir}/elsewhere\n")
    pair.start(TALKS)
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]
    assert rotated(pair.a) == rotated(pair.holdfast.dir / "elsewhere") == ["stdout.log"]
    assert rotated(pair.b) == []


def test_an_option_that_the_owner_overrules_is_named_where_it_was_typed(pair: Pair) -> None:
    pair.configure(pair.a, "log-size: 4K\n")
    pair.start_a(TALKS)
    pair.start_b(TALKS, "--log-size", "1G", "--log-attempts", "3")
    pair.go()
    a, b = pair.finish()
    assert (a.status, b.status) == (0, 0)
    assert "--log-size, --log-attempts have no effect on this node: they are settings of the job" in b.err
    assert "no effect" not in a.err
    assert len(rotated(pair.b)) > 1


def test_a_node_that_cannot_read_what_the_owner_names_leaves_with_the_reason(pair: Pair) -> None:
    rules = pair.holdfast.dir / "rules.yaml"
    rules.write_text("codes: {}\n")
    pair.configure(pair.a, f"fault-rules: {rules}\njoin-timeout: 4\n")
    pair.start_a(TALKS)
    rules.unlink()
    pair.start_b(TALKS)
    a, b = pair.finish()
    assert b.status == 2
    assert f"{rules}: no such file" in b.err
    assert a.status != 0
    assert f"it cannot use the settings of the job: {rules}: no such file" in a.err


@pytest.mark.parametrize(
    ("rank", "ends", "status"),
    [(0, "sys.exit(93)", 93), (1, "sys.exit(93)", 93), (1, "os.kill(os.getpid(), 9)", 137)],
)
def test_the_users_status_is_that_of_every_node(pair: Pair, rank: int, ends: str, status: int) -> None:
    rest = f"wait_for('go')\nif rank == '{rank}': {ends}\ntime.sleep(600)\n"
    pair.start(rest, "--max-restarts", "0", "--exit-status", "user")
    pair.go()
    assert [ran.status for ran in pair.finish()] == [status, status]


def test_a_success_is_zero_on_every_node(pair: Pair) -> None:
    pair.start("", "--max-restarts", "0", "--exit-status", "user")
    assert [ran.status for ran in pair.finish()] == [0, 0]


@pytest.mark.parametrize(
    ("first", "second", "labels"), [("7:", "8:", {"[7-0] ", "[8-1] "}), ("a", "b", {"[a-0] ", "[b-1] "})]
)
def test_a_line_has_the_role_of_its_own_node(pair: Pair, first: str, second: str, labels: set[str]) -> None:
    said = "print('hello from ' + os.environ['ROLE_NAME'])\n"
    pair.start_a(said, "--role", first)
    pair.start_b(said, "--role", second)
    lines = {line for ran in pair.finish() for line in ran.out.splitlines() if "hello" in line}
    assert lines == {f"{label}hello from {role}" for label, role in zip(sorted(labels), (first, second), strict=True)}
