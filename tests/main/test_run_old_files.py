"""What an earlier attempt left behind never explains a later one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from conftest import Holdfast
from holdfast.node.evidence_collector import pai_errors

pytestmark = pytest.mark.real

LEAVES_FILES = """
import os
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
mine = os.path.dirname(os.environ["HOLDFAST_DRAIN"])
attempt = os.path.dirname(mine)
job = os.path.dirname(attempt)
if first:
{leaves}
os.kill(os.getpid(), 9)
"""
REASON = r"""'234346457 ERROR REASON "CUDA error: an illegal memory access was encountered"\n'"""
FILES_LEFT = {
    "a reason in the attempt's directory": f"    open(attempt + '/runtime.pai.error', 'w').write({REASON})",
    "a reason in the worker's directory": f"    open(mine + '/runtime.pai.error', 'w').write({REASON})",
    "a reason beside the attempts": f"    open(job + '/runtime.pai.error', 'w').write({REASON})",
    "an error file": (
        "    open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')"
        """.write('{"message": {"message": "CUDA error: an illegal memory access was encountered"}}')"""
    ),
    "a step": "    open(mine + '/progress', 'w').write('41\\n')",
    "a core": "    open(attempt + '/core.1', 'wb').write(b'No space left on device')",
}


def yaml_of(path: Path) -> dict[str, object]:
    """The object of a `runtime.pai.agg.error`."""
    loaded: dict[str, object] = yaml.safe_load("\n".join(path.read_text().splitlines()[1:-1]))
    return loaded


@pytest.mark.parametrize("leaves", FILES_LEFT.values(), ids=FILES_LEFT)
def test_a_later_attempt_is_explained_by_its_own_end(holdfast: Holdfast, leaves: str) -> None:
    ran = holdfast.run("--max-restarts", "1", holdfast.script(LEAVES_FILES.replace("{leaves}", leaves)))
    report = ran.report
    assert len(report["attempts"]) == 2
    assert (report["phrase"], report["original"]["signal"]) == ("KilledBySignal", "SIGKILL")
    assert report["attempts"][1]["step"] is None
    logs = yaml_of(ran.job_dir / "attempt-2" / "runtime.pai.agg.error")["errorLogs"]
    assert logs == {"user": None, "runtime": None, "diskCleaner": None}


def test_a_component_that_speaks_again_is_heard_again(holdfast: Holdfast) -> None:
    """Its one file beside the attempts is written anew in each."""
    script = holdfast.script(
        f"""
        import os
        job = os.environ["HOLDFAST_DRAIN"].partition("/attempt-")[0]
        open(job + "/runtime.pai.error", "w").write({REASON})
        os.kill(os.getpid(), 9)
        """
    )
    ran = holdfast.run("--max-restarts", "1", script)
    assert {attempt["report"]["phrase"] for attempt in ran.report["attempts"]} == {"IllegalMemoryAccess"}


def calls_of_evidence(job: Path, attempts: int) -> tuple[int, list[str]]:
    """How many Python functions the search for `*.pai.error` calls beside so many attempts, and what it finds."""
    for number in range(1, attempts + 1):
        (job / f"attempt-{number}" / "worker-0").mkdir(parents=True)
    (job / "site").mkdir()
    for path in (job / "a.pai.error", job / "site" / "b.pai.error", job / f"attempt-{attempts}" / "c.pai.error"):
        path.write_text("1 ERROR REASON x")
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = [item.source for item in pai_errors(job, attempts, 0.0)]
    finally:
        sys.setprofile(None)
    return calls, found


def test_a_long_history_costs_a_restart_no_further_looks(tmp_path: Path) -> None:
    calls_of_evidence(tmp_path / "before", 1)  # patterns are compiled once
    few, first = calls_of_evidence(tmp_path / "few", 2)
    many, second = calls_of_evidence(tmp_path / "many", 300)
    assert sorted(first) == sorted(second) == ["a", "b", "c"]
    assert few == many
