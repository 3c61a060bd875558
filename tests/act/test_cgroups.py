"""Control groups: what the texts of /proc say, what is answered where nothing may be done, and real groups."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.act.cgroups import ControlGroups, sweep
from holdfast.model.cgroups import limit_in_words, own_directory, parse_membership, parse_mounts
from holdfast.model.job_spec import Placement

HYBRID = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
"""
CGROUP2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
BOUND = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mounts", "membership", "controller", "directory"),
    [
        (HYBRID, "4:memory:/a/b\n0::/\n", "memory", "/sys/fs/cgroup/memory/a/b"),
        (HYBRID, "4:memory:/a/b\n0::/\n", "", "/sys/fs/cgroup/unified"),
        (HYBRID, "1:cpu,cpuacct:/c\n", "cpu", "/sys/fs/cgroup/cpu,cpuacct/c"),
        (HYBRID, "0::/\n", "memory", None),
        (CGROUP2_MOUNT, "0::/user.slice/x.scope\n", "", "/sys/fs/cgroup/user.slice/x.scope"),
        (CGROUP2_MOUNT, "0::/user.slice/x.scope\n", "memory", None),
        (CGROUP2_MOUNT, "0::/../outside\n", "", None),
        (BOUND, "4:memory:/docker/abc/in\n", "memory", "/sys/fs/cgroup/memory/in"),
        (BOUND, "4:memory:/\n", "memory", "/sys/fs/cgroup/memory"),
        (BOUND, "4:memory:/docker/other\n", "memory", None),
        ("", "", "", None),
    ],
)
def test_where_a_process_is(mounts: str, membership: str, controller: str, directory: str | None) -> None:
    found = own_directory(parse_mounts(mounts), parse_membership(membership), controller)

    assert (found[1] if found else None) == directory


DOCKER = "8a1d2ec0b3f44c0b9d0e8a1d2ec0b3f44c0b9d0e8a1d2ec0b3f44c0b9d0e1234"
POD_GROUP = "pod1b2c3d4e_0000_4000_8000_0123456789ab"


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("/slurm_n1/uid_0/job_12/step_batch/task_0", "Slurm's step 12.batch (sbatch --mem, srun --mem)"),
        ("/slurm/uid_1000/job_12/step_3", "Slurm's step 12.3 (sbatch --mem, srun --mem)"),
        ("/slurm/uid_1000/job_12", "Slurm's job 12 (sbatch --mem)"),
        ("/system.slice/slurmstepd.scope/job_12/step_0/user/task_1", "Slurm's step 12.0 (sbatch --mem, srun --mem)"),
        ("/system.slice/gpu-1_slurmstepd.scope/job_12", "Slurm's job 12 (sbatch --mem)"),
        (f"/docker/{DOCKER}", "the container 8a1d2ec0b3f4 (docker run --memory)"),
        (f"/system.slice/docker-{DOCKER}.scope", "the container 8a1d2ec0b3f4 (docker run --memory)"),
        (f"/machine.slice/libpod-{DOCKER}.scope", "the container 8a1d2ec0b3f4 (podman run --memory)"),
        ("/kubepods/burstable/pod1b2c3d4e-0000", "the pod 1b2c3d4e-0000 (resources.limits.memory)"),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD_GROUP}.slice/cri-containerd-{DOCKER}.scope",
            "a container of the pod 1b2c3d4e-0000-4000-8000-0123456789ab (resources.limits.memory)",
        ),
        ("/system.slice/train.service", "systemd's train.service (MemoryMax=)"),
        ("/user.slice/user-1000.slice", "systemd's user-1000.slice (MemoryMax=)"),
        ("/batch/box", "the control group /batch/box"),
    ],
)
def test_whose_limit_a_group_has(directory: str, said: str) -> None:
    assert limit_in_words(directory) == said


def test_blanks_in_a_mount_point() -> None:
    assert parse_mounts("1 2 0:3 / /mnt/a\\040b rw - cgroup2 none rw\nnonsense\n")[0].point == "/mnt/a b"


def fake_proc(tmp_path: Path, mountinfo: str, membership: str) -> Path:
    (tmp_path / "mountinfo").write_text(mountinfo)
    (tmp_path / "cgroup").write_text(membership)
    return tmp_path


def placement(rank: int = 0) -> Placement:
    return Placement(rank=rank, role="worker", role_rank=rank, node="here", local_rank=rank)


def test_nothing_mounted_says_so_and_the_limit_is_not_pretended(tmp_path: Path) -> None:
    groups = ControlGroups.make("job", proc=fake_proc(tmp_path, "", ""))

    assert groups.join(placement(), 1 << 30) == ()
    assert "No control groups are mounted" in groups.missing
    assert groups.unlimited.startswith("The memory limit of worker-0 is not enforced: no control groups are mounted")
    assert not groups.can_limit
    assert groups.container == ()
    assert groups.remove()
    assert not groups.members()


def test_unreadable_proc_is_like_nothing_mounted(tmp_path: Path) -> None:
    assert "No control groups" in ControlGroups.make("job", proc=tmp_path / "none").missing


def test_a_group_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    there = tmp_path / "v2"
    mountinfo = f"30 23 0:26 / {there} rw - cgroup2 cgroup2 rw\n"
    groups = ControlGroups.make("job", proc=fake_proc(tmp_path, mountinfo, "0::/box\n"))

    assert groups.missing == f"Control groups may not be written here ({there}/box)."


def pure_v2(tmp_path: Path, *, limit_between: str = "max") -> tuple[Path, ControlGroups]:
    """A hierarchy as systemd gives a user: the manager's group hands memory down, the shell's scope cannot."""
    top = tmp_path / "v2"
    manager, scope = top / "user@1000.service", top / "user@1000.service" / "shell.scope"
    scope.mkdir(parents=True)
    for directory in (top, manager, scope):
        (directory / "cgroup.procs").touch()
        (directory / "memory.max").write_text("max\n")
    (top / "cgroup.subtree_control").write_text("")
    (manager / "cgroup.subtree_control").write_text("memory pids\n")
    (scope / "cgroup.subtree_control").write_text("")
    (scope / "cgroup.controllers").write_text("")
    (scope / "memory.max").write_text(f"{limit_between}\n")
    (scope / "memory.events").write_text("oom 0\noom_kill 0\n")
    proc = fake_proc(tmp_path, f"30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n", "0::/user@1000.service/shell.scope\n")
    return manager, ControlGroups.make("job", proc=proc)


def test_limits_go_below_the_nearest_group_that_hands_memory_down(tmp_path: Path) -> None:
    manager, groups = pure_v2(tmp_path)
    joined = groups.join(placement(3), 1 << 30, attempt=2)

    assert groups.missing == ""
    assert joined == (manager / "holdfast-job.2" / "worker-3" / "cgroup.procs",)
    assert (manager / "holdfast-job.2" / "worker-3" / "memory.max").read_text() == str(1 << 30)
    assert (manager / "holdfast-job.2" / "worker-3" / "memory.oom.group").read_text() == "1"
    assert [group.rank for group in groups.memory_groups(2)] == [3]
    assert groups.memory_groups(1) == ()


def test_a_limit_above_is_never_left(tmp_path: Path) -> None:
    _, groups = pure_v2(tmp_path, limit_between="104857600")

    assert not groups.can_limit
    assert groups.join(placement(), 1 << 30) == ()
    assert groups.unlimited.startswith(
        "The memory limit of worker-0 is not enforced for it alone: its container's holds, 100 MiB for all"
    )
    assert "not delegated" in groups.unlimited


def test_without_a_limit_nothing_is_made(tmp_path: Path) -> None:
    manager, groups = pure_v2(tmp_path)

    assert groups.join(placement(), None) == ()
    assert not list(manager.glob("holdfast-*"))


# ---------------------------------------------------------------------------------------------- real groups

PROBE_GROUPS = ControlGroups.make("probe")
tracks = pytest.mark.skipif(not PROBE_GROUPS.can_track, reason="no v2 group may be written here")
limits = pytest.mark.skipif(not PROBE_GROUPS.can_limit, reason="no memory group may be written here")


def start_in(joined: tuple[Path, ...], code: str) -> int:
    """A child that joins its groups and then runs `code`, as a worker does."""
    pid = os.fork()
    if pid == 0:
        try:
            for path in joined:
                path.write_text("0")
            os.execv(sys.executable, [sys.executable, "-c", code])
        finally:
            os._exit(99)
    return pid


def wait_status(pid: int) -> int:
    """Its wait status."""
    fd = os.pidfd_open(pid)
    try:
        assert select.select([fd], [], [], 30)[0], "it did not end"
        return os.waitpid(pid, 0)[1]
    finally:
        os.close(fd)


def soon(true: Callable[[], bool]) -> bool:
    """A killed process leaves its group a moment after its last descriptor is closed."""
    for _ in range(100):
        if true():
            return True
        time.sleep(0.05)
    return False


def new_job_name() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.mark.real
@tracks
def test_kill_ends_sessions_of_their_own_too() -> None:
    groups = ControlGroups.make(new_job_name())
    read, write = os.pipe()
    os.set_inheritable(write, True)
    child = f"import os, signal, time; signal.signal(15, 1); os.setsid(); os.write({write}, b'x'); time.sleep(60)"
    pid = start_in(
        groups.join(placement(), None, track=True),
        f"import os, time\nif os.fork() == 0:\n    {child}\nos.write({write}, b'x'); time.sleep(60)",
    )
    os.close(write)
    try:
        said = os.read(read, 1) + os.read(read, 1)
        assert said == b"xx"
        assert groups.members()
        assert len(groups.members()) == 2
        assert not groups.remove()
    finally:
        groups.kill()
        status = wait_status(pid)
    # The pipe's end comes when the last of them, the grandchild, is gone.
    assert os.read(read, 1) == b""
    os.close(read)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert soon(groups.remove)


@pytest.mark.real
@tracks
def test_sweep_finds_what_a_dead_supervisor_left() -> None:
    name = new_job_name()
    groups = ControlGroups.make(name)
    pid = start_in(groups.join(placement(), None, attempt=7, track=True), "import time; time.sleep(60)")
    while not groups.members():
        os.sched_yield()

    assert sweep(name + "-other")
    swept = sweep(name)
    assert os.WTERMSIG(wait_status(pid)) == signal.SIGKILL
    assert swept or soon(lambda: sweep(name))
    assert not groups.members()


@pytest.mark.real
@limits
def test_groups_are_gone_after_the_job() -> None:
    groups = ControlGroups.make(new_job_name())
    joined = groups.join(placement(), 1 << 30, track=True)
    assert os.WEXITSTATUS(wait_status(start_in(joined, "raise SystemExit(3)"))) == 3

    assert groups.remove()
    assert not any(path.parent.exists() for path in joined)


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become an ordinary user")
def test_an_ordinary_user_gets_an_answer() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            groups = ControlGroups.make("job")
            os.write(
                write, f"{groups.join(placement(), 1 << 30, track=True)}: {groups.missing} {groups.unlimited}".encode()
            )
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 4096).decode()
    os.close(read)
    os.waitpid(pid, 0)

    assert said.startswith("(): ")
    assert "The memory limit of worker-0 is not enforced" in said
