"""Memory kills, hangs and limits in real gangs: the evidence is taken first, and the right rank is named."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for
from holdfast.model.cgroups import own_directory, parse_membership, parse_mounts

pytestmark = pytest.mark.real

COLLECTIVE = """
import os, pathlib, signal, socket, sys, threading, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def all_reduce():
    # Waits for a message that never comes, as a rank does whose peer hangs.
    left, right = socket.socketpair()
    left.recv(1)
def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def sleep_for_ever():
    time.sleep(100_000)
if rank == 1:
    {culprit}
all_reduce()
"""


def limits_here() -> bool:
    from holdfast.act.cgroups import ControlGroups

    return ControlGroups.make("probe").can_limit


@pytest.mark.skipif(not limits_here(), reason="no control group with memory limits may be written here")
def test_memory_limit_of_a_worker(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, time
        if os.environ["RANK"] == "1":
            hoard = []
            while True:
                hoard.append(bytearray(b"x" * (8 << 20)))
        time.sleep(60)
        """
    )
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"name: hungry\nroles: {{worker: {{count: 2, command: [{sys.executable}, {script}], "
        "resources: {memory: 128M}}}\n"
    )
    ran = holdfast.run("--job", job)
    report = ran.report
    assert (report["phrase"], report["first"]["rank"]) == ("HostOutOfMemoryKilled", 1)
    assert report["original"]["signal"] == "SIGKILL"
    assert "128" in report["reason"]
    assert report["attempts"][0]["decision"]["kind"] == "fail"
    assert not [path for path in Path("/sys/fs/cgroup").rglob(f"*{report['job']['id']}*") if path.is_dir()]


def memory_directory(version: int) -> Path | None:
    """Where groups with memory limits can be made below the group of this test."""
    proc = Path("/proc/self")
    mounts, paths = parse_mounts((proc / "mountinfo").read_text()), parse_membership((proc / "cgroup").read_text())
    found = own_directory(mounts, paths, "memory" if version == 1 else "")
    if found is None or not os.access(found[1], os.W_OK):
        return None
    directory = Path(found[1])
    if version == 1:
        return directory
    hands_down = (directory / "cgroup.subtree_control").read_text().split()
    return directory if "memory" in hands_down else None


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def step_of_300_mib(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The group of a task as Slurm makes it: the limit is that of the step above."""
    above = memory_directory(request.param)
    if above is None:
        pytest.skip(f"no memory group of version {request.param} can be made here")
    job = above / f"holdfast_test_{os.getpid()}" / "uid_0" / "job_7"
    task = job / "step_0" / "task_0"
    for directory in (job.parent.parent, job.parent, job, job / "step_0", task):
        directory.mkdir()
        if request.param == 2 and directory != task:
            (directory / "cgroup.subtree_control").write_text("+memory")
    limit = "memory.limit_in_bytes" if request.param == 1 else "memory.max"
    (job / "step_0" / limit).write_text(str(300 << 20))
    yield task
    for directory in (task, job / "step_0", job, job.parent, job.parent.parent):
        directory.rmdir()


def test_a_memory_kill_at_the_limit_of_slurms_step_without_the_kernel_log(
    holdfast: Holdfast, step_of_300_mib: Path
) -> None:
    joining = holdfast.script(f'#!/bin/sh\necho 0 > {step_of_300_mib}/cgroup.procs\nexec {sys.executable} "$@"\n', "in")
    joining.chmod(0o755)
    holdfast.python = str(joining)
    script = holdfast.script(
        """
        import os, time
        hoard = []
        while os.environ["RANK"] == "1":
            hoard.append(bytearray(b"x" * (8 << 20)))
        time.sleep(60)
        """
    )
    no_log = holdfast.script("", "kmsg")
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", "--kernel-log", no_log, script)
    report = ran.report

    assert (report["phrase"], report["code"], report["first"]["rank"]) == ("HostOutOfMemoryKilled", 227, 1)
    assert "killed at the memory limit of Slurm's step 7.0 (sbatch --mem, srun --mem)" in report["reason"]
    assert "limit 300.0 MiB, peak 300.0 MiB" in report["reason"]
    assert any("oom_kill rose by 1" in item["text"] for item in report["evidence"])


@pytest.mark.key
@pytest.mark.parametrize("culprit", ["os.kill(os.getpid(), signal.SIGSTOP)", "deadlock()", "sleep_for_ever()"])
def test_hang_names_the_rank_that_differs(holdfast: Holdfast, culprit: str) -> None:
    script = holdfast.script(COLLECTIVE.replace("{culprit}", culprit))
    ran = holdfast.run(
        "--nproc-per-node", "4", "--hang-timeout", "2", "--grace", "1", "--max-restarts", "0", script, timeout_s=90
    )
    report = ran.report
    assert (report["phrase"], report["first"]["rank"]) == ("HungWorker", 1)
    assert any(item["kind"] == "hang" for item in report["evidence"])


@pytest.mark.parametrize("saves", [False, True])
def test_without_py_spy_the_stacks_are_written_at_the_stop(holdfast: Holdfast, tmp_path: Path, saves: bool) -> None:
    """In the place of the SIGTERM that would have ended them; who has a handler for that one is left to it."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)  # no py-spy lies beside it
    holdfast.python = str(python)
    handler = "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n" if saves else ""
    script = holdfast.script("import os, signal\n" + handler + COLLECTIVE.replace("{culprit}", "sleep_for_ever()"))
    ran = holdfast.run(
        *("--nproc-per-node", "3", "--hang-timeout", "1", "--grace", "5", "--max-restarts", "0", script),
        timeout_s=90,
        PATH="/usr/bin:/bin",
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
    )
    report = ran.report
    assert report["phrase"] == "HungWorker"
    assert "py-spy is not installed" in ran.err
    told = [item["text"] for item in report["evidence"] if item["source"] == "faulthandler"]
    if saves:
        assert told == []
    else:
        assert report["first"]["rank"] == 1
        assert any("sleep_for_ever" in text for text in told)
        # The two that wait stand at one place, which is printed once; the terminal has the report alone.
        assert len([text for text in told if "all_reduce" in text]) == 1
        assert any(text.startswith("ranks 0 and 2 ") for text in told)
        assert "Fatal Python error" not in ran.err
        assert "Extension modules" not in ran.err
        logs = ran.job_dir / "attempt-1"
        assert "Fatal Python error" in (logs / "worker-0" / "stderr.log").read_text()
        assert "sleep_for_ever (" in report["reason"]


def test_progress_keeps_a_silent_job_alive(holdfast: Holdfast) -> None:
    """It says nothing and mostly sleeps, but its steps go on."""
    script = holdfast.script(
        """
        import time, holdfast
        for step in range(16):
            time.sleep(0.25)
            holdfast.progress(step)
        """
    )
    ran = holdfast.run("--hang-timeout", "1.5", script)
    assert ran.status == 0


BEAT = """
    import sys, threading, time, holdfast
    def beat():
        for number in range(1000):
            print(time.strftime("%H:%M:%S"), "alive", number, flush=True)
            time.sleep(0.2)
    threading.Thread(target=beat, daemon=True).start()
    for step in range(4):
        {step}
    {then}
"""


@pytest.mark.parametrize("step", ["holdfast.progress(step)", "print('step', step, flush=True)"])
def test_a_heartbeat_line_hides_no_hang(holdfast: Holdfast, step: str) -> None:
    script = holdfast.script(BEAT.format(step=step, then="time.sleep(1000)"))
    report = holdfast.run("--hang-timeout", "1.5", "--max-restarts", "0", script, timeout_s=90).report
    assert report["phrase"] == "HungWorker"
    assert "no rank has printed anything new for" in report["reason"]


def test_a_spinning_rank_is_found_without_its_stack(holdfast: Holdfast, tmp_path: Path) -> None:
    refuses = tmp_path / "py-spy"
    refuses.write_text("#!/bin/sh\necho 'Permission denied' >&2\nexit 1\n")
    refuses.chmod(0o755)
    script = holdfast.script(COLLECTIVE.replace("{culprit}", "exec('while True: pass')"))
    ran = holdfast.run(
        *("--nproc-per-node", "3", "--hang-timeout", "2", "--max-restarts", "0", script),
        timeout_s=90,
        PATH=f"{tmp_path}:/usr/bin:/bin",
    )
    assert (ran.report["phrase"], ran.report["first"]["rank"]) == ("HungWorker", 1)


@pytest.mark.key
def test_no_progress_twice_is_the_end(holdfast: Holdfast) -> None:
    """The same exception at the same place, and no step further: a third try would end so again."""
    script = holdfast.script(
        """
        import holdfast
        for step in range(5):
            holdfast.progress(step)
        raise ZeroDivisionError("division by zero")
        """
    )
    report = holdfast.run(script).report
    assert [a["decision"]["kind"] for a in report["attempts"]] == ["restart", "fail"]
    assert "same ZeroDivisionError" in report["attempts"][1]["decision"]["reason"]


@pytest.mark.key
def test_progress_makes_it_worth_going_on(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, holdfast
        attempt = int(os.environ["HOLDFAST_ATTEMPT"])
        for step in range(attempt * 5):
            holdfast.progress(step)
        if attempt < 4:
            raise ZeroDivisionError("division by zero")
        """
    )
    report = holdfast.run(script).report
    assert report["outcome"] == "succeeded"
    assert len(report["attempts"]) == 4


def test_restarts_are_counted_and_do_not_replace_the_cause(holdfast: Holdfast) -> None:
    script = holdfast.script("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    report = holdfast.run("--max-restarts", "1", "--same-failure", "off", script).report
    assert (report["phrase"], report["original"]["signal"]) == ("NativeCrash", "SIGSEGV")
    assert [a["decision"]["kind"] for a in report["attempts"]] == ["restart", "fail"]
    assert "the only restart is used" in report["attempts"][1]["decision"]["reason"]


@pytest.mark.key
def test_every_attempt_has_a_fresh_port(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, signal
        print("port", os.environ["MASTER_PORT"], os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] != "2":
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = holdfast.run("--same-failure", "off", script)
    lines = [line.split()[2:] for line in ran.out.splitlines()]
    assert [count for _, count in lines] == ["0", "1", "2"]
    assert len({port for port, _ in lines}) == 3


def test_hang_in_the_middle_of_a_restart_is_not_the_old_one(holdfast: Holdfast) -> None:
    """The first attempt hangs, the second runs: one restart, one HungWorker in the first attempt's report."""
    script = holdfast.script(
        """
        import os, time
        if os.environ["HOLDFAST_ATTEMPT"] == "1":
            time.sleep(1000)
        print("through", flush=True)
        """
    )
    ran = holdfast.run("--hang-timeout", "1", "--grace", "1", script)
    assert ran.status == 0
    first, second = ran.report["attempts"]
    assert first["report"]["phrase"] == "HungWorker"
    assert second["report"]["phrase"] == "Succeeded"


@pytest.mark.key
def test_workers_see_what_torchrun_gives(holdfast: Holdfast) -> None:
    script = holdfast.script("import json, os; print(json.dumps(dict(os.environ)))")
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "5", "--rdzv-id", "run-7", script)
    import json

    seen = {line.split("] ", 1)[0]: json.loads(line.split("] ", 1)[1]) for line in ran.out.splitlines()}
    env = seen["[worker-1"]
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "ROLE_NAME": "worker",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "run-7",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "HOLDFAST_ATTEMPT": "1",
        "HOLDFAST_HOME": str(holdfast.home),
    }
    assert {key: env.get(key) for key in expected} == expected
    assert env["HOLDFAST_JOB"] == ran.report["job"]["id"]
    assert env["TORCHELASTIC_ERROR_FILE"]
    assert env["MASTER_PORT"] == seen["[worker-0"]["MASTER_PORT"]


def test_one_worker_does_not_get_omp_num_threads(holdfast: Holdfast) -> None:
    """As torchrun does it: only several workers on a machine share its cores."""
    script = holdfast.script("import os; print(os.environ.get('OMP_NUM_THREADS'))")
    env = {key: value for key, value in holdfast.env.items() if key != "OMP_NUM_THREADS"}
    holdfast.env = env
    assert holdfast.run(script).out == "[worker-0] None\n"


def test_standard_input_is_passed_on(holdfast: Holdfast) -> None:
    """Standard input reaches the workers when it is no terminal; without one they read end of file at once."""
    script = holdfast.script("import sys; print(repr(sys.stdin.read()))")
    assert holdfast.run(script).out == "[worker-0] ''\n"


def test_wait_for_is_honest(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was not written"):
        wait_for(tmp_path / "never", timeout_s=0.05)


def test_a_loud_end_costs_the_owner_little_and_is_explained_by_all_of_it(holdfast: Holdfast) -> None:
    """What a failed rank wrote is read on its node: of its words an end travels, of its error file the reading."""
    script = holdfast.script(
        """
        import json, os, sys, time
        rank = int(os.environ["RANK"])
        stack = "x" * 50_000 + "\\nValueError: the batch of rank %d has no labels" % rank
        message = {"message": "ValueError", "extraInfo": {"py_callstack": stack, "timestamp": "1"}}
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": message}, file)
        print("é" * 20_000, file=sys.stderr, flush=True)
        os._exit(7)
        """
    )
    job = holdfast.dir / "job.yaml"
    elsewhere = holdfast.dir / "elsewhere.json"
    job.write_text(
        "name: loud\nrestarts: {max_restarts: 0}\nroles: {worker: {count: 1, "
        f"command: [{sys.executable}, {script}], env: {{TORCHELASTIC_ERROR_FILE: {elsewhere}}}}}}}\n"
    )
    for ran in (holdfast.run("--nproc-per-node", "4", "--max-restarts", "0", script), holdfast.run("--job", job)):
        assert "ValueError: the batch of rank" in ran.report["reason"]
        assert ran.report["phrase"] == "UserException"
    with sqlite3.connect(holdfast.home / "holdfast.db") as db:
        rows = [row for (row,) in db.execute("SELECT event FROM events") if b'"agent_reported"' in row]
    assert any(b'"exit_code":7' in row for row in rows)
    assert max(map(len, rows)) < 4 * 4096
    assert elsewhere.exists()
