"""Unmodified torch.distributed scripts under holdfast. Skipped where torch is not installed."""

from __future__ import annotations

import pytest

from conftest import Holdfast

pytestmark = [pytest.mark.real, pytest.mark.torch]

TRAINS_WITH_GLOO = """
import os, signal, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, first = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
x = torch.ones(8)
for step in range(12):
    if step == 6 and first:
        {fault}
    dist.all_reduce(x)
    x /= dist.get_world_size()
    if rank == 0:
        print("step", step, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("fault", "phrase"),
    [
        ("rank == 1 and os.kill(os.getpid(), signal.SIGKILL)", "KilledBySignal"),
        ("if rank == 1: raise ValueError('cosmic ray')", "UserException"),
    ],
)
def test_gloo_gang_comes_back(holdfast: Holdfast, fault: str, phrase: str) -> None:
    script = holdfast.script(TRAINS_WITH_GLOO.replace("{fault}", fault))
    ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=120)
    assert ran.status == 0, ran.err
    first, second = ran.report["attempts"]
    assert (first["report"]["phrase"], first["report"]["first"]["rank"]) == (phrase, 1)
    assert first["report"]["collateral"] == [0]
    assert first["decision"]["kind"] == "restart"
    assert second["report"]["phrase"] == "Succeeded"
    assert ran.out.count("step 11") == 1


def test_elastic_record_is_honoured(holdfast: Holdfast) -> None:
    """torch's own @record writes the error file; the report has the exception from it."""
    script = holdfast.script(
        """
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            raise LookupError("vocabulary has no <pad>")

        main()
        """
    )
    report = holdfast.run("--max-restarts", "0", script, timeout_s=120).report
    assert report["phrase"] == "UserException"
    assert "vocabulary has no <pad>" in report["reason"]


def test_holdfast_itself_never_imports_torch(holdfast: Holdfast) -> None:
    script = holdfast.script("import torch; print('ok', flush=True)")
    ran = holdfast.run(script, timeout_s=120, PYTHONPROFILEIMPORTTIME="1")
    ours = [line for line in ran.err.splitlines() if line.startswith("import time:")]
    assert ours, "no import was reported"
    assert not [line for line in ours if line.split("|")[-1].strip().split(".")[0] == "torch"]
