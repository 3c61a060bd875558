"""`holdfast doctor`: describes this installation, and the machine's limits that matter to holdfast."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.options.shared_options import pipeable
from holdfast.cli.output.printing import print_line
from holdfast.model.human_format import counted
from holdfast.model.noun_base import Noun
from holdfast.version import __version__

#: Maps an extra of the Python package to the modules that it installs.
EXTRAS: dict[str, tuple[str, ...]] = {
    "stacks": ("py_spy",),
    "nvidia": ("pynvml",),
    "kubernetes": ("lightkube",),
    "web": ("starlette", "uvicorn", "jinja2"),
    "notify": ("apprise",),
    "otel": ("opentelemetry",),
    "data": ("fsspec", "s3fs", "requests", "zstandard"),
}

_FILES_WANTED = 4096
_SHM_BYTES = 1 << 30


class DoctorFinding(Noun, frozen=True, kw_only=True):
    """A tool or a property of the machine that holdfast uses if it is available."""

    name: str
    ok: bool
    found: str
    #: The features of holdfast that do not work without the tool or property.
    purpose: str
    #: The command with which the user can install the tool or get the property; "" if there is no such command.
    command: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pipeable
def command(as_json: bool) -> None:
    """Show version, Python, platform, extras, and for each missing tool, its features and a line to type."""
    from holdfast.record.state_directory import home_of

    extras = {name: all(importlib.util.find_spec(each) is not None for each in EXTRAS[name]) for name in EXTRAS}
    extras["stacks"] = _py_spy() is not None
    found = list(findings(extras))
    about = {
        "version": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "home": str(home_of(os.environ)),
    }
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.doctor/1", **about, "extras": extras, "findings": found}))
        return
    print_line(f"holdfast {about['version']}, Python {about['python']} ({about['executable']})")
    print_line(f"{about['platform']}, state in {about['home']}")
    print_line("extras: " + ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in extras.items()))
    wide = max(len(each.name) for each in found)
    for each in found:
        print_line(f"  {'ok     ' if each.ok else 'missing'}  {each.name:<{wide}}  {each.found}")
        if not each.ok:
            print_line(f"           {'':<{wide}}  without it: {each.purpose}")
            if each.command:
                print_line(f"           {'':<{wide}}  try: {each.command}")


def findings(extras: dict[str, bool]) -> Iterator[DoctorFinding]:
    """Yield all findings in the order of the output. Each finding needs one file or one call."""
    linux = sys.platform == "linux"
    yield DoctorFinding(
        name="Linux",
        ok=linux,
        found=sys.platform,
        purpose="`holdfast run`; explain, exits, show and jobs work on files",
    )
    if not linux:
        return
    spy = _py_spy()
    yield DoctorFinding(
        name="py-spy",
        ok=spy is not None,
        found=spy or "not installed",
        purpose="stacks of ranks that hang in native code",
        command="pip install 'holdfast-run[stacks]'",
    )
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    yield DoctorFinding(
        name="ptrace",
        ok=scope in ("", "0", "1") or os.geteuid() == 0,
        found=f"yama ptrace_scope {scope}" if scope else "no restriction is known",
        purpose="reading the stacks of ranks with py-spy",
        command="sudo sysctl kernel.yama.ptrace_scope=1",
    )
    yield from _devices(extras)
    yield _kernel_log()
    groups = _text("/proc/self/cgroup")
    controllers = _text("/sys/fs/cgroup/cgroup.controllers")
    writable = os.access("/sys/fs/cgroup", os.W_OK) or bool(_own_group(groups))
    yield DoctorFinding(
        name="cgroups",
        ok=writable,
        found=f"v2 with {controllers}" if controllers else "v1 or none",
        purpose="a memory limit for each role, and killing what workers left behind with their group",
        command="systemd-run --user --scope -p Delegate=yes holdfast run …",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield DoctorFinding(
        name="open files",
        ok=soft >= _FILES_WANTED,
        found=f"{soft} (hard limit {hard})",
        purpose=f"more than {max(soft - 40, 0) // 6} workers: each takes 6",
        command=f"ulimit -n {min(max(hard, soft), 65536) if hard > soft else 65536}",
    )
    yield _shm()
    for name, purpose, command in (
        ("ssh", "jobs over --hosts", "apt-get install openssh-client"),
        ("git", "prerequisites from git", "apt-get install git"),
    ):
        path = shutil.which(name)
        yield DoctorFinding(
            name=name, ok=path is not None, found=path or "not on PATH", purpose=purpose, command=command
        )


def _devices(extras: dict[str, bool]) -> Iterator[DoctorFinding]:
    """Yield the finding about the library that reads accelerators, if there are accelerators."""
    cards = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    if not cards:
        yield DoctorFinding(name="NVIDIA", ok=True, found="no device here", purpose="")
        return
    yield DoctorFinding(
        name="NVML",
        ok=extras["nvidia"],
        found=f"{counted(len(cards), 'device')}; nvidia-ml-py {'is' if extras['nvidia'] else 'is not'} installed",
        purpose="Xids, ECC errors and temperatures where the kernel log cannot be read",
        command="pip install 'holdfast-run[nvidia]'",
    )


def _kernel_log() -> DoctorFinding:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        found, ok = "/dev/kmsg can be read", True
    except OSError as error:
        found, ok = f"/dev/kmsg: {(error.strerror or '').lower()}", False
    return DoctorFinding(
        name="kernel log",
        ok=ok,
        found=found,
        purpose="which process the kernel killed for memory, Xids, disk and link errors",
        command="sudo sysctl kernel.dmesg_restrict=0, or --kernel-log FILE",
    )


def _shm() -> DoctorFinding:
    try:
        stat = os.statvfs("/dev/shm")
        size = stat.f_blocks * stat.f_frsize
    except OSError:
        size = 0
    return DoctorFinding(
        name="/dev/shm",
        ok=size >= _SHM_BYTES,
        found=f"{size / (1 << 30):.1f} GiB",
        purpose="DataLoader workers and NCCL exchange data there, and die of SIGBUS where it is full",
        command="docker run --shm-size=8g …",
    )


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _own_group(groups: str) -> str:
    """Return the directory of this process's control group if the process may create groups in it, else ""."""
    for line in groups.splitlines():
        path = f"/sys/fs/cgroup{line.rpartition(':')[2]}"
        if line.startswith("0::") and os.access(path, os.W_OK):
            return path
    return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
