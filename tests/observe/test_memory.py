"""Memory kills: what counters and kernel lines say together, and a real kill in a real group."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.act.cgroups import ControlGroups
from holdfast.model.cgroups import MemoryGroup
from holdfast.model.job_spec import Placement
from holdfast.observe.kernel_log import KernelLog
from holdfast.observe.memory_watch import MemoryWatch

KILL = "{why} Killed process {pid} (python3) total-vm:9000kB, anon-rss:4000kB, file-rss:96kB, shmem-rss:0kB, UID:0"
WHY = "oom-kill:constraint={c},nodemask=(null),cpuset=/,mems_allowed=0{memcg},task_memcg={task},task=python3,pid={pid}"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[Path, KernelLog]]:
    path = tmp_path / "kmsg"
    path.touch()
    log = KernelLog(path)
    yield path, log
    log.close()


def logged(path: Path, *texts: str) -> None:
    with path.open("a") as out:
        for text in texts:
            out.write(f"3,1,{int(time.monotonic() * 1e6)},-;{text}\n")


def v2(directory: Path, *, killed: int, oom: int = 0, limit: str = "max", rank: int | None = None) -> MemoryGroup:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.events").write_text(f"low 0\nhigh 0\nmax 5\noom {oom}\noom_kill {killed}\n")
    (directory / "memory.max").write_text(f"{limit}\n")
    (directory / "memory.peak").write_text("1000\n")
    return MemoryGroup(directory=str(directory), version=2, rank=rank)


def v1(directory: Path, *, killed: int, limit: int, peak: int, rank: int | None = None) -> MemoryGroup:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n")
    (directory / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (directory / "memory.max_usage_in_bytes").write_text(f"{peak}\n")
    return MemoryGroup(directory=str(directory), version=1, rank=rank)


def test_no_witness_no_kill() -> None:
    assert MemoryWatch().kills({0: [1]}, 0) == ()


def test_the_host_ran_out(kernel: tuple[Path, KernelLog]) -> None:
    path, log = kernel
    watch = MemoryWatch(kernel=log, pids_are_ours=True)
    logged(path, WHY.format(c="CONSTRAINT_NONE", memcg=",global_oom", task="/user", pid=70))
    logged(path, KILL.format(why="Out of memory:", pid=70), KILL.format(why="Out of memory:", pid=999))
    (kill,) = watch.kills({0: [50], 1: [60, 70]}, time.time() - 60)

    assert (kill.rank, kill.pid, kill.scope, kill.source) == (1, 70, "host", "kernel log")
    assert kill.rss_bytes == 4096 * 1024
    assert kill.at == pytest.approx(time.time(), abs=10)


def test_older_kernels_words(kernel: tuple[Path, KernelLog]) -> None:
    path, log = kernel
    logged(path, "Out of memory: Killed process 70, UID 1000, (my app) total-vm:1kB, anon-rss:2kB, file-rss:3kB")
    (kill,) = MemoryWatch(kernel=log, pids_are_ours=True).kills({4: [70]}, 0)

    assert (kill.rank, kill.rss_bytes) == (4, 5 * 1024)


def test_kills_before_the_attempt_are_another_attempts(kernel: tuple[Path, KernelLog]) -> None:
    path, log = kernel
    logged(path, KILL.format(why="Out of memory:", pid=70))

    assert MemoryWatch(kernel=log, pids_are_ours=True).kills({0: [70]}, time.time() + 60) == ()


def test_a_pid_of_another_namespace_names_nobody(kernel: tuple[Path, KernelLog]) -> None:
    path, log = kernel
    logged(path, KILL.format(why="Memory cgroup out of memory:", pid=70))
    (kill,) = MemoryWatch(kernel=log, pids_are_ours=False).kills({0: [70]}, 0)

    assert (kill.rank, kill.pid, kill.scope) == (None, None, "container")


def test_a_kill_of_another_users_process_is_not_of_a_container_on_the_same_machine(
    kernel: tuple[Path, KernelLog],
) -> None:
    path, log = kernel
    line = KILL.format(why="Memory cgroup out of memory:", pid=70)
    logged(path, line.replace("UID:0", "UID:1500 pgtables:608kB oom_score_adj:0"))
    assert MemoryWatch(kernel=log, pids_are_ours=False, uid=0).kills({0: [70]}, 0) == ()
    assert len(MemoryWatch(kernel=log, pids_are_ours=False, uid=1500).kills({0: [70]}, 0)) == 1
    assert len(MemoryWatch(kernel=log, pids_are_ours=True, uid=0).kills({0: [70]}, 0)) == 1, "the pid is a worker's"


def test_the_groups_name_finds_the_rank_whatever_the_pid(kernel: tuple[Path, KernelLog], tmp_path: Path) -> None:
    path, log = kernel
    group = v2(tmp_path / "holdfast-job.1" / "worker-2", killed=0, rank=2)
    task = "/docker/abc/holdfast-job.1/worker-2"
    logged(path, WHY.format(c="CONSTRAINT_MEMCG", memcg=f",oom_memcg={task}", task=task, pid=12345))
    logged(path, KILL.format(why="Memory cgroup out of memory:", pid=12345))
    (kill,) = MemoryWatch(kernel=log, pids_are_ours=False).kills({2: [7]}, 0, [group])

    assert (kill.rank, kill.scope) == (2, "worker")


def test_another_jobs_kill_is_not_ours_though_the_group_above_counts_it(
    kernel: tuple[Path, KernelLog], tmp_path: Path
) -> None:
    path, log = kernel
    above = v2(tmp_path / "above", killed=3)
    for ours in (True, False):
        watch = MemoryWatch([above], log, pids_are_ours=ours)
        v2(tmp_path / "above", killed=4)
        assert watch.kills({0: [7]}, 0) != (), "a kill without an explanation may be ours"
        task = "/docker/abc/holdfast-other.1/worker-0"
        logged(path, WHY.format(c="CONSTRAINT_MEMCG", memcg=f",oom_memcg={task}", task=task, pid=12345))
        logged(path, KILL.format(why="Memory cgroup out of memory:", pid=12345))
        assert watch.kills({0: [7]}, 0) == ()
        path.write_text("")
        v2(tmp_path / "above", killed=3)
        log = KernelLog(path)
    log.close()


def test_counter_and_line_of_one_kill_are_one(kernel: tuple[Path, KernelLog], tmp_path: Path) -> None:
    path, log = kernel
    group = v2(tmp_path / "worker-1", killed=1, oom=1, limit="2000", rank=1)
    logged(path, KILL.format(why="Memory cgroup out of memory:", pid=70))
    (kill,) = MemoryWatch(kernel=log, pids_are_ours=True).kills({1: [70]}, 0, [group])

    assert (kill.rank, kill.pid, kill.scope, kill.limit_bytes) == (1, 70, "worker", 2000)
    assert kill.source == "cgroup v2 memory.events"
    assert kill.rss_bytes == 4096 * 1024


def test_a_kill_in_a_group_that_was_not_full_came_from_above(tmp_path: Path) -> None:
    box = v2(tmp_path / "box", killed=3, oom=2, limit="5000")
    watch = MemoryWatch([box])
    worker = v2(tmp_path / "box" / "worker-0", killed=1, rank=0)
    v2(tmp_path / "box", killed=4, oom=2, limit="5000")
    (host,) = watch.kills({0: [1]}, 0, [worker])
    v2(tmp_path / "box", killed=4, oom=3, limit="5000")
    (container,) = watch.kills({0: [1]}, 0, [worker])

    assert (host.scope, host.rank, host.limit_bytes) == ("host", 0, None)
    assert (container.scope, container.rank, container.limit_bytes) == ("container", 0, 5000)


def test_only_what_rose_since_the_mark_counts(tmp_path: Path) -> None:
    box = v1(tmp_path / "box", killed=5, limit=1000, peak=1000)
    watch = MemoryWatch([box])
    before = watch.kills({0: [1]}, 0)
    v1(tmp_path / "box", killed=6, limit=1000, peak=1000)
    (kill,) = watch.kills({0: [1]}, 0)
    watch.mark()

    assert before == ()
    assert (kill.rank, kill.scope, kill.limit_bytes) == (None, "container", 1000)
    assert kill.source == "cgroup v1 memory.oom_control"
    assert watch.kills({0: [1]}, 0) == ()


def test_v1_without_a_limit_is_no_limit(tmp_path: Path) -> None:
    group = v1(tmp_path / "worker-0", killed=1, limit=9223372036854771712, peak=10, rank=0)
    (kill,) = MemoryWatch().kills({0: [1]}, 0, [group])

    assert (kill.scope, kill.limit_bytes) == ("host", None)


STEP_GROUP = "slurm_n1/uid_0/job_7/step_0"


def test_the_limit_of_slurms_step_is_named_with_its_peak(tmp_path: Path) -> None:
    """v1 counts the kill in the group of the process, which has no limit; the limit is the step's."""
    task = v1(tmp_path / STEP_GROUP / "task_0", killed=0, limit=9223372036854771712, peak=10)
    step = v1(tmp_path / STEP_GROUP, killed=0, limit=1000, peak=10)
    job = v1(tmp_path / STEP_GROUP / "..", killed=0, limit=1000, peak=10)
    watch = MemoryWatch([task, step, job])
    v1(tmp_path / STEP_GROUP / "task_0", killed=1, limit=9223372036854771712, peak=990)
    v1(tmp_path / STEP_GROUP, killed=0, limit=1000, peak=999)
    (kill,) = watch.kills({0: [1], 1: [2]}, 0)

    assert (kill.rank, kill.scope, kill.count) == (None, "container", 1)
    assert (kill.limit_bytes, kill.peak_bytes) == (1000, 999)
    assert kill.limited_by == "Slurm's step 7.0 (sbatch --mem, srun --mem)"
    assert kill.text == f"oom_kill rose by 1 in {tmp_path / STEP_GROUP}/task_0; the counter names no process"


def test_under_v2_the_group_whose_limit_it_was_is_the_innermost_that_ran_out(tmp_path: Path) -> None:
    scope = tmp_path / "system.slice" / "slurmstepd.scope" / "job_7"
    groups = [v2(scope / "step_0" / "user", killed=0), v2(scope / "step_0", killed=0), v2(scope, killed=0, limit="9")]
    watch = MemoryWatch(groups)
    for directory in (scope / "step_0" / "user", scope / "step_0"):
        v2(directory, killed=2)
    v2(scope, killed=2, oom=1, limit="9")
    (kill,) = watch.kills({0: [1]}, 0)

    assert (kill.limit_bytes, kill.peak_bytes, kill.count) == (9, 1000, 2)
    assert kill.limited_by == "Slurm's job 7 (sbatch --mem)"


def test_a_peak_of_an_earlier_attempt_is_no_limit_reached_in_this_one(tmp_path: Path) -> None:
    box = v1(tmp_path / "box", killed=1, limit=1000, peak=1000)
    (tmp_path / "box" / "memory.failcnt").write_text("8\n")
    watch = MemoryWatch([box])
    v1(tmp_path / "box", killed=2, limit=1000, peak=1000)
    (host,) = watch.kills({0: [1]}, 0)
    (tmp_path / "box" / "memory.failcnt").write_text("9\n")
    (container,) = watch.kills({0: [1]}, 0)

    assert (host.scope, host.limit_bytes) == ("host", None)
    assert (container.scope, container.limit_bytes) == ("container", 1000)


def test_what_the_kernel_log_tells_of_a_kill_the_groups_complete(
    kernel: tuple[Path, KernelLog], tmp_path: Path
) -> None:
    path, log = kernel
    box = v1(tmp_path / STEP_GROUP, killed=0, limit=1000, peak=10)
    watch = MemoryWatch([box], log, pids_are_ours=True)
    v1(tmp_path / STEP_GROUP, killed=1, limit=1000, peak=1000)
    logged(path, KILL.format(why="Memory cgroup out of memory:", pid=70))
    (kill,) = watch.kills({3: [70]}, 0)

    assert (kill.rank, kill.pid, kill.source) == (3, 70, "kernel log")
    assert (kill.limit_bytes, kill.limited_by) == (1000, "Slurm's step 7.0 (sbatch --mem, srun --mem)")


# ---------------------------------------------------------------------------------------------- a real one

TAKES_300_MB = "x = bytearray(300 << 20)"
GREEDY_CHILD = f"import os, sys\npid = os.fork()\nif pid == 0:\n    {TAKES_300_MB}\nos.waitpid(pid, 0)\nsys.exit(1)"


@pytest.mark.real
@pytest.mark.skipif(not ControlGroups.make("probe").can_limit, reason="no memory group may be written here")
@pytest.mark.parametrize("code", [TAKES_300_MB, GREEDY_CHILD], ids=["worker", "child"])
def test_a_worker_at_its_limit(code: str) -> None:
    groups = ControlGroups.make(f"test-{uuid.uuid4().hex[:8]}")
    kernel = KernelLog()
    watch = MemoryWatch(groups.container, kernel)
    began = time.time()
    limit = 64 << 20
    joined = groups.join(Placement(rank=5, role="worker", role_rank=5, node="here", local_rank=5), limit)
    pid = os.fork()
    if pid == 0:
        try:
            for path in joined:
                path.write_text("0")
            os.execv(sys.executable, [sys.executable, "-c", code])
        finally:
            os._exit(99)
    try:
        fd = os.pidfd_open(pid)
        assert select.select([fd], [], [], 60)[0], "it did not end"
        os.close(fd)
        status = os.waitpid(pid, 0)[1]
        kills = watch.kills({5: [pid]}, began, groups.memory_groups(1))
    finally:
        groups.kill()
        kernel.close()
    assert groups.unlimited == ""
    assert groups.remove()
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if code == TAKES_300_MB else 1)
    (kill,) = kills
    assert (kill.rank, kill.scope, kill.limit_bytes) == (5, "worker", limit)
    assert kill.peak_bytes is not None
    assert kill.peak_bytes > limit * 0.9
