"""holdfast's final code is what Slurm's accounting has of a job."""

from __future__ import annotations

import json
from collections.abc import Callable

from real_slurm import Slurm
from slurm_drilling import ACCOUNTING


def _job(command: str) -> str:
    return (
        f'name: status\nroles:\n  worker: {{count: 1, command: [sh, -c, "{command}"]}}\n'
        "restarts: {max_restarts: 0}\nchecks: []\nslurm: {cpus: 1}\n"
    )


def _ended(slurm: Slurm, command: str, *words: str) -> tuple[int, dict[str, str]]:
    (slurm.home / "job.yaml").write_text(_job(command))
    done = slurm.holdfast("submit", "--json", "job.yaml", *words)
    assert done.wait() == 0, done.err
    number = int(json.loads(done.out)["platform"]["id"])
    slurm.jobs.append(number)
    return number, slurm.ended(number)


def test_the_final_code_is_slurms_exit_code(slurm: Slurm) -> None:
    for command, words, code in (
        ("exit 0", (), "0:0"),
        ("exit 210", (), "210:0"),
        ("echo 'ModuleNotFoundError: No module named nope' >&2; exit 1", (), None),
        ("sleep 60", ("--", "--time-limit", "1"), None),
    ):
        number, record = _ended(slurm, command, *words)
        shown = slurm.holdfast("show", str(number), "--json")
        assert shown.wait() == 0
        final = json.loads(shown.out)["code"]
        assert record["ExitCode"] == (code or f"{final}:0")
        assert record["JobState"] == ("COMPLETED" if final == 0 else "FAILED")


def test_accounting_has_the_final_code(slurm_of: Callable[..., Slurm]) -> None:
    slurm = slurm_of(**ACCOUNTING)
    number, _ = _ended(slurm, "exit 210")
    # sacct prints a status from 128 on less 128.
    slurm.wait(lambda: [row["ExitCode"] for row in slurm.sacct(number)][:1] in (["82:0"], ["210:0"]), "sacct has it")
    assert slurm.sacct(number)[0]["State"] == "FAILED"
    log = (slurm.place / "log" / "jobcomp.txt").read_text()
    assert f"JobId={number} " in log and "ExitCode=210:0" in log
