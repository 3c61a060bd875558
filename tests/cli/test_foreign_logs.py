"""`explain slurm:1234`, `pod/NAME`, `job/NAME`, `ray:DIR`, with stand-ins for the programs of Slurm and Kubernetes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.explain import command
from holdfast.errors import BadUsage
from holdfast.platforms import program_output

FULL = "OSError: [Errno 28] No space left on device"
SCONTROL = """\
JobId=1234 JobName=train
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
   StdErr={out}
   StdOut={out}
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of programs that comes first on PATH, and is all that explain finds there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def answer(*words: str) -> tuple[str, str]:
    """Return the class and what was written to stderr."""
    result = CliRunner().invoke(command, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["phrase"], result.stderr


def refusal(word: str) -> str:
    error = CliRunner().invoke(command, [word]).exception
    assert isinstance(error, BadUsage), error
    return error.message


def test_the_output_of_a_slurm_job_is_read_where_scontrol_names_it(tmp_path: Path, programs: Path) -> None:
    out = tmp_path / "slurm-1234.out"
    out.write_text(f"step 1\n{FULL}\n")
    (tmp_path / "shown").write_text(SCONTROL.format(state="FAILED", out=out))
    program(programs, "scontrol", f'[ "$*" = "show job 1234" ] && cat {tmp_path}/shown')
    phrase, told = answer("slurm:1234")
    assert phrase == "DiskFull"
    assert f"read 2 logs of slurm:1234: {out}, scontrol show job 1234" in told


def test_what_slurm_says_of_a_job_without_output_is_enough(tmp_path: Path, programs: Path) -> None:
    (tmp_path / "shown").write_text(SCONTROL.format(state="PREEMPTED", out="/nonexistent"))
    program(programs, "scontrol", f"cat {tmp_path}/shown")
    assert answer("slurm:1234")[0] == "Preempted"


def test_a_job_that_slurmctld_has_forgotten_is_read_from_the_accounting(tmp_path: Path, programs: Path) -> None:
    (tmp_path / "slurm-77.out").write_text(f"{FULL}\n")
    program(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    head = "JobID|JobName|State|ExitCode|DerivedExitCode|NodeList|WorkDir|Comment"
    program(programs, "sacct", f"echo '{head}'; echo '77|train|FAILED|1:0|0:0|n1|{tmp_path}|'")
    phrase, told = answer("slurm:77")
    assert phrase == "DiskFull"
    assert "sacct -j 77" in told


def test_a_job_that_slurm_does_not_know_and_a_wrong_number_get_one_message(programs: Path) -> None:
    program(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    program(programs, "sacct", "echo 'JobID|State'")
    assert "neither scontrol nor sacct knows this job (slurm_load_jobs error: Invalid job id" in refusal("slurm:9")
    assert "expected the number of a job" in refusal("slurm:--help")


def test_a_program_that_is_missing_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    assert "scontrol was not found" in refusal("slurm:1")
    assert "kubectl was not found" in refusal("pod/a")


def pod(name: str, *, restarts: int = 0, reason: str = "Error", code: int = 1) -> dict[str, object]:
    state = {"terminated": {"exitCode": code, "reason": reason}} if not restarts else {"running": {}}
    last = {"terminated": {"exitCode": code, "reason": reason}} if restarts else {}
    status = {"containerStatuses": [{"name": "c", "restartCount": restarts, "state": state, "lastState": last}]}
    return {"kind": "Pod", "metadata": {"name": name}, "status": {"phase": "Failed", **status}}


def kubectl(folder: Path, *, logs: dict[str, str], shown: dict[str, object]) -> None:
    """Make a kubectl that knows the logs of pods (`NAME` or `NAME previous`), and what `get KIND NAME` prints."""
    for name, text in logs.items():
        (folder / f"logs {name}").write_text(text)
    for name, value in shown.items():
        (folder / f"get {name}").write_text(json.dumps(value))
    script = """\
echo "$*" >> "$(dirname "$0")/asked"
file="$(dirname "$0")/$1 $2"
[ "$1" = get ] && file="$(dirname "$0")/get $2 $3"
case "$*" in *--previous*) file="$file previous" ;; *"get pods"*) file="$(dirname "$0")/get pods" ;; esac
[ -f "$file" ] || { echo "Error from server (NotFound): $2 not found" >&2; exit 1; }
cat "$file"
"""
    program(folder, "kubectl", script)


def test_a_pod_is_its_log_and_its_status(programs: Path) -> None:
    kubectl(programs, logs={"a": f"step 1\n{FULL}\n"}, shown={"pod a": pod("a")})
    assert answer("pod/a")[0] == "DiskFull"
    assert "--all-containers=true" in (programs / "asked").read_text()


def test_a_namespace_stands_before_the_pod(programs: Path) -> None:
    kubectl(programs, logs={"a": f"{FULL}\n"}, shown={"pod a": pod("a")})
    assert answer("ml/pod/a")[0] == "DiskFull"
    assert all("--namespace=ml" in line for line in (programs / "asked").read_text().splitlines())


def test_a_container_that_was_started_again_has_its_failure_in_the_log_before(programs: Path) -> None:
    kubectl(programs, logs={"a": "starting\n", "a previous": f"{FULL}\n"}, shown={"pod a": pod("a", restarts=2)})
    assert answer("pod/a")[0] == "DiskFull"


def test_a_pod_without_a_log_is_explained_by_its_status(programs: Path) -> None:
    kubectl(programs, logs={}, shown={"pod a": pod("a", reason="OOMKilled", code=137)})
    assert answer("pod/a")[0] == "HostOutOfMemoryKilled"


def test_a_job_is_all_its_pods(programs: Path) -> None:
    kubectl(
        programs,
        logs={"t-0": "ConnectionResetError: [Errno 104] Connection reset by peer\n", "t-1": f"{FULL}\n"},
        shown={"job t": {"kind": "Job", "metadata": {"name": "t"}}, "pods": {"items": [pod("t-0"), pod("t-1")]}},
    )
    phrase, told = answer("job/t")
    assert phrase == "DiskFull"
    assert "kubectl logs t-0" in told


def test_a_pod_that_is_not_there_gets_one_message(programs: Path) -> None:
    kubectl(programs, logs={}, shown={})
    assert "pod/a: kubectl does not find it: Error from server (NotFound)" in refusal("pod/a")


def test_the_output_of_a_program_is_bounded_in_bytes_and_time(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_output, "MOST_BYTES", 1000)
    program(programs, "scontrol", "yes JobState=PREEMPTED")
    assert answer("slurm:1")[0] == "Preempted"
    monkeypatch.setattr(program_output, "LIMIT_S", 0.2)
    program(programs, "scontrol", "exec sleep 600")
    program(programs, "sacct", "exit 1")
    assert "neither scontrol nor sacct knows" in refusal("slurm:1")


def test_the_newest_session_of_ray_is_read_without_the_logs_of_its_agents(tmp_path: Path, programs: Path) -> None:
    logs = tmp_path / "ray" / "session_1" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "ray" / "session_latest").symlink_to("session_1")
    (logs / "worker-ab-01-77.err").write_text(f"{FULL}\n")
    (logs / "worker-cd-01-78.out").write_text("")
    (logs / "dashboard_agent.log").write_text("CUDA out of memory\n")
    os.utime(logs / "worker-ab-01-77.err", (time.time(), time.time()))
    phrase, told = answer(f"ray:{tmp_path}/ray")
    assert phrase == "DiskFull"
    assert "read 1 log of ray:" in told
    assert "there is no such directory" in refusal(f"ray:{tmp_path}/none")
    (tmp_path / "empty").mkdir()
    assert "no logs of Ray in" in refusal(f"ray:{tmp_path}/empty")
