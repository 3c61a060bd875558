"""What an earlier attempt left behind never explains a later one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conftest import Holdfast

pytestmark = pytest.mark.real

LEAVES = """
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
FILES = {
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


def told(path: Path) -> dict[str, object]:
    """The object of a `runtime.pai.agg.error`."""
    loaded: dict[str, object] = yaml.safe_load("\n".join(path.read_text().splitlines()[1:-1]))
    return loaded


@pytest.mark.parametrize("leaves", FILES.values(), ids=FILES)
def test_a_later_attempt_is_explained_by_its_own_end(holdfast: Holdfast, leaves: str) -> None:
    ran = holdfast.run("--max-restarts", "1", holdfast.script(LEAVES.replace("{leaves}", leaves)))
    report = ran.report
    assert len(report["attempts"]) == 2
    assert (report["phrase"], report["original"]["signal"]) == ("KilledBySignal", "SIGKILL")
    assert report["attempts"][1]["step"] is None
    logs = told(ran.job_dir / "attempt-2" / "runtime.pai.agg.error")["errorLogs"]
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
