"""The same command typed twice on one machine: two nodes of one job, with what workers and users find on each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast, Ran, free_port

pytestmark = [pytest.mark.real, pytest.mark.key]

TOLD_NAMES = (
    "RANK LOCAL_RANK GROUP_RANK GROUP_WORLD_SIZE WORLD_SIZE LOCAL_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT MASTER_ADDR MASTER_PORT NODE"
)
TELLS_NAMES = f"""
import json, os
told = {{name: os.environ.get(name) for name in "{TOLD_NAMES}".split()}}
open(f"told-{{os.environ['RANK']}}", "w").write(json.dumps(told))
"""


def both(tool: Holdfast, first: list[str], second: list[str], *common: str | Path, **env: str) -> tuple[Ran, Ran]:
    """Two runs; the first hosts the owner unless the second is quicker."""
    processes: list[subprocess.Popen[str]] = []
    for node, words in enumerate((first, second)):
        processes.append(tool.start("run", "--no-checks", *words, *common, NODE=str(node), **env))
    one, other = (tool.finish(process, 60) for process in processes)
    return one, other


def told_by_ranks(tool: Holdfast, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((tool.dir / f"told-{rank}").read_text()) for rank in range(ranks)]


def test_workers_find_torchruns_variables_right_on_each_node(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_NAMES)
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "2", "--rdzv-id", "77"]
    first = ["--node-rank", "1", "--nproc-per-node", "1", "--report", "a.json"]
    second = ["--node-rank", "0", "--nproc-per-node", "2", "--report", "b.json"]
    one, other = both(holdfast, first, second, *endpoint, script)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    seen = told_by_ranks(holdfast, 3)
    assert [(t["NODE"], t["GROUP_RANK"], t["LOCAL_RANK"], t["LOCAL_WORLD_SIZE"]) for t in seen] == [
        ("1", "0", "0", "2"),
        ("1", "0", "1", "2"),
        ("0", "1", "0", "1"),
    ]
    assert {(t["WORLD_SIZE"], t["GROUP_WORLD_SIZE"], t["ROLE_WORLD_SIZE"]) for t in seen} == {("3", "2", "3")}
    assert {(t["TORCHELASTIC_RUN_ID"], t["TORCHELASTIC_RESTART_COUNT"]) for t in seen} == {("77", "0")}
    assert len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in seen}) == 1
    assert [t["ROLE_RANK"] for t in seen] == ["0", "1", "2"]
    reports = [json.loads((holdfast.dir / name).read_text()) for name in ("a.json", "b.json")]
    assert reports[0] == reports[1]


def test_torchruns_variables_say_the_same_as_its_options(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_NAMES)
    env = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    one, other = both(holdfast, ["--node-rank", "0"], ["--node-rank", "1"], script, **env)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    assert "logs of this node's workers" in other.err, "node rank 0 hosts the owner"
    assert [t["NODE"] for t in told_by_ranks(holdfast, 2)] == ["0", "1"]


def test_a_job_file_counts_the_workers_of_all_nodes(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_NAMES)
    roles = "".join(
        f"  {name}: {{count: {count}, command: [python, {script}]}}\n" for name, count in (("a", 3), ("b", 1))
    )
    (holdfast.dir / "j.yaml").write_text(f"name: j\nroles:\n{roles}")
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "2", "--job", "j.yaml"]
    one, other = both(holdfast, ["--node-rank", "0"], ["--node-rank", "1"], *endpoint)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    seen = told_by_ranks(holdfast, 4)
    assert [(t["NODE"], t["LOCAL_RANK"]) for t in seen] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert [(t["ROLE_RANK"], t["ROLE_WORLD_SIZE"]) for t in seen] == [("0", "3"), ("1", "3"), ("2", "3"), ("0", "1")]


def test_a_range_begins_with_those_that_came(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_NAMES)
    common = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "2:4", "--last-call", "0.5"]
    one, other = both(holdfast, [], [], *common, script)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    assert {t["WORLD_SIZE"] for t in told_by_ranks(holdfast, 2)} == {"2"}


def test_a_spare_has_no_worker_and_ends_with_the_job(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_NAMES)
    common = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "1", "--spares", "1"]
    one, other = both(holdfast, ["--node-rank", "0"], ["--node-rank", "1"], *common, script)
    assert (one.status, other.status) == (0, 0), one.err + other.err
    assert [t["WORLD_SIZE"] for t in told_by_ranks(holdfast, 1)] == ["1"]
    assert not (holdfast.dir / "told-1").exists()
