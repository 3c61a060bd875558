"""A script of which not everything can be imported beforehand still starts warm, with what can be."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real

WARM = "import os, sys\nprint('warm', 'HOLDFAST_NURSERY' in open('/proc/self/environ').read(), os.environ['RANK'])\n"
NOTES = """
import os, sys
with open(os.environ["NOTES"], "a") as file:
    file.write(__name__ + (" beforehand\\n" if "_holdfast_nursery" in sys.modules else " by a worker\\n"))
"""


@pytest.fixture
def heavy_packages(holdfast: Holdfast) -> Path:
    """Installed: `heavy` and `torch`, harmless; `reads`, which looks who it is; `chats`, with a thread."""
    place = holdfast.dir / "site-packages"
    (place / "torch").mkdir(parents=True)
    for name in ("heavy", "torch/__init__", "torch/part"):
        (place / f"{name}.py").write_text(NOTES)
    (place / "reads.py").write_text("import torch.part, os\n" + NOTES + "rank = os.environ.get('LOCAL_RANK')\n")
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (place / "chats.py").write_text("print('hello from chats')\n" + thread + NOTES)
    return place


def run_warm(holdfast: Holdfast, packages: Path, script: str, *words: str) -> tuple[str, list[str], str]:
    """What was printed; what was imported, by whom; what holdfast said of the start."""
    notes = holdfast.dir / "notes"
    notes.unlink(missing_ok=True)
    path = holdfast.script(script)
    ran = holdfast.run("--warm", *words, path, PYTHONPATH=str(packages), NOTES=str(notes))
    assert ran.status == 0, ran.err
    said = "\n".join(line for line in ran.err.splitlines() if "warm" in line)
    return (
        ran.out.replace("[worker-0] ", "").replace("[worker-1] ", ""),
        notes.read_text().splitlines() if notes.exists() else [],
        said,
    )


def test_what_reads_its_rank_is_left_to_the_workers_and_torchs_part_is_not(
    holdfast: Holdfast, heavy_packages: Path
) -> None:
    script = "import reads\nimport heavy\n" + WARM + "print(reads.rank)\n"
    out, imported, said = run_warm(holdfast, heavy_packages, script, "--nproc-per-node", "2")
    assert sorted(out.splitlines()) == ["0", "1", "warm True 0", "warm True 1"]
    assert "reads reads LOCAL_RANK when it is imported" in said
    assert "every worker imports reads, heavy on its own" in said
    by_workers = [line for line in imported if line.endswith("by a worker")]
    assert by_workers.count("reads by a worker") == by_workers.count("heavy by a worker") == 2
    assert len(by_workers) == 4


def test_what_was_learned_is_known_the_next_time(holdfast: Holdfast, heavy_packages: Path) -> None:
    script = "import heavy\nimport reads\n" + WARM
    _, first, _ = run_warm(holdfast, heavy_packages, script)
    _, second, said = run_warm(holdfast, heavy_packages, script)
    assert first.count("heavy beforehand") == 1
    # Not even tried: nothing is imported twice.
    assert second == ["heavy beforehand", "torch beforehand", "torch.part beforehand", "reads by a worker"]
    assert "every worker imports reads on its own" in said


def test_another_release_is_tried_anew(holdfast: Holdfast, heavy_packages: Path) -> None:
    script = "import heavy\nimport reads\n" + WARM
    run_warm(holdfast, heavy_packages, script)
    (heavy_packages / "reads.py").write_text(NOTES)
    _, imported, said = run_warm(holdfast, heavy_packages, script)
    assert (imported, said) == (["heavy beforehand", "reads beforehand"], "")


def test_a_script_that_has_nothing_else_starts_cold_at_once_the_next_time(
    holdfast: Holdfast, heavy_packages: Path
) -> None:
    script = "import chats\n" + WARM
    out, imported, said = run_warm(holdfast, heavy_packages, script)
    assert (out.count("warm False"), imported) == (1, ["chats beforehand", "chats by a worker"])
    assert "1 threads run" in said
    out, imported, said = run_warm(holdfast, heavy_packages, script)
    assert (out.count("warm False"), imported) == (1, ["chats by a worker"])
    assert "warm start is off" in said and "1 threads run" in said


def test_what_the_import_printed_is_printed_once(holdfast: Holdfast, heavy_packages: Path) -> None:
    out, imported, said = run_warm(holdfast, heavy_packages, "import heavy, chats\n" + WARM)
    assert out.count("hello from chats") == 1 and "warm True" in out
    assert imported == ["heavy beforehand", "chats beforehand", "chats by a worker"]
    assert "1 threads run" in said


def test_an_import_that_fails_is_the_workers_own(holdfast: Holdfast, heavy_packages: Path) -> None:
    (heavy_packages / "sulks.py").write_text(
        "import os\nimport sys\nif '_holdfast_nursery' in sys.modules: raise OSError('no')\n"
    )
    out, imported, said = run_warm(holdfast, heavy_packages, "import heavy, sulks\n" + WARM)
    assert "warm True" in out and imported == ["heavy beforehand"]
    assert "importing sulks failed: OSError: no: every worker imports sulks on its own" in said


def test_what_reads_its_rank_after_torch_is_not_imported_to_its_end(holdfast: Holdfast, heavy_packages: Path) -> None:
    (heavy_packages / "slow.py").write_text("import torch, os\nos.environ.get('RANK')\n" + NOTES)
    _, imported, _ = run_warm(holdfast, heavy_packages, "import slow\n" + WARM)
    assert "slow beforehand" not in imported and "slow by a worker" in imported


def test_the_nursery_that_went_back_serves_the_next_attempt_and_may_die(
    holdfast: Holdfast, heavy_packages: Path
) -> None:
    script = holdfast.script(
        "import heavy, reads\n"
        + WARM
        + "import pathlib, time\nattempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        + "if attempt == 0: os._exit(9)\n"
        + "if attempt == 1: pathlib.Path('up').write_text(str(os.getppid())); time.sleep(60)\n"
    )
    process = holdfast.start("run", "--no-checks", "--warm", script, PYTHONPATH=str(heavy_packages), NOTES="/dev/null")
    supervisor = int(wait_for(holdfast.dir / "up"))
    pids = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    nursery, worker = sorted(pids, key=lambda pid: Path(f"/proc/{pid}/fd/1").readlink().name.startswith("pipe:"))
    os.kill(int(nursery), signal.SIGKILL)
    os.kill(int(worker), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("warm True") >= 2
    assert holdfast.survivors() == []


def test_what_only_gives_memory_back_in_a_thread_may_be_forked(holdfast: Holdfast) -> None:
    pytest.importorskip("pyarrow")
    script = holdfast.script("import pyarrow\n" + WARM + "print(len(pyarrow.array(range(100_000)).to_pylist()))\n")
    ran = holdfast.run("--warm", script, timeout_s=60)
    assert (ran.status, "warm True" in ran.out, "100000" in ran.out) == (0, True, True), ran.err


def test_a_value_that_each_worker_would_set_is_given_to_each(holdfast: Holdfast, heavy_packages: Path) -> None:
    (heavy_packages / "sets.py").write_text("import os\nos.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'\n")
    out, _, said = run_warm(
        holdfast, heavy_packages, "import sets\n" + WARM + "print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])\n"
    )
    assert (out.split(), said) == (["warm", "True", "0", "1"], "")
