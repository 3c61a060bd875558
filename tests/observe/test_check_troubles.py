"""Planted troubles, each found by its check with the node and the number; and no trouble where there is none."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.model.check_interface import AvoidNode, Node, Note, PreCheckResult, StopJob, Verdict
from holdfast.model.check_results import Site
from holdfast.model.faults import DeviceStanding, Standing
from holdfast.model.job_spec import Completion, JobSpec, Role
from holdfast.model.runtime_plan import Hook, HookMoment, Prerequisite, RuntimePlan
from holdfast.observe.checks.check_base import BuiltIn, Bytes, size, size_of
from holdfast.observe.checks.clock import Clock
from holdfast.observe.checks.cpu import Cpu
from holdfast.observe.checks.disk import Disk
from holdfast.observe.checks.driver import Driver, numbers
from holdfast.observe.checks.files import Files
from holdfast.observe.checks.leftovers import Leftovers
from holdfast.observe.checks.limits import Limits
from holdfast.observe.checks.matmul import Matmul
from holdfast.observe.checks.memory import Memory, Shm
from holdfast.observe.checks.mounts import Mounts, touch
from holdfast.observe.checks.names import Names
from holdfast.observe.checks.pairs import Pairs
from holdfast.observe.checks.ports import Ports
from holdfast.observe.checks.processes import Hogs, Processes
from holdfast.observe.checks.python_program import program_of
from holdfast.observe.checks.standing import StandingCheck
from holdfast_testing import planted_troubles

CHECKED_NODE = "node-3"


def check_result(
    check: type[BuiltIn] | BuiltIn, job: JobSpec | None = None, cwd: str = "/tmp", **params: Any
) -> PreCheckResult:
    operator = check if isinstance(check, BuiltIn) else check()
    site = params.pop("site", Site(node=CHECKED_NODE, cwd=cwd))
    return operator.check(site=site, job=job, nodes=[Node(name=CHECKED_NODE)], attempt=1, now=time.time(), **params)


def found_message(result: PreCheckResult) -> str:
    """The message of a failure that names this node."""
    assert not result.is_success(), result
    assert isinstance(result, Verdict)
    assert not result.inconclusive
    assert result.abnormal_nodes == [CHECKED_NODE]
    assert result.solution
    assert result.result_msg.startswith(f"{CHECKED_NODE}: ")
    return result.result_msg.removeprefix(f"{CHECKED_NODE}: ")


def command_job(*command: str, **env: str) -> JobSpec:
    return JobSpec(name="j", roles=(Role(name="worker", count=1, command=command, env=env),))


@pytest.fixture
def mounted_place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A mounted tmpfs with the options of the test's parameter."""
    try:
        with planted_troubles.tmpfs(tmp_path / "mounted", request.param) as point:
            yield point
    except planted_troubles.CannotPlant as why:
        pytest.skip(str(why))


# ------------------------------------------------------------------------------------------------------- storage


@pytest.mark.parametrize("mounted_place", ["size=1m"], indirect=True)
def test_a_full_disk(mounted_place: Path) -> None:
    (mounted_place / "ballast").write_bytes(bytes((1 << 20) - (100 << 10)))
    message = found_message(check_result(Disk, paths=[str(mounted_place)], min_free="50GB"))
    assert message == f"0.102 of 1.05 MB free on {mounted_place}, 50 GB asked"


@pytest.mark.parametrize("mounted_place", ["size=200m,nr_inodes=20"], indirect=True)
def test_no_inodes(mounted_place: Path) -> None:
    for number in range(10):
        (mounted_place / str(number)).touch()
    message = found_message(check_result(Disk, paths=[str(mounted_place)], min_free="1MB", min_inodes=100))
    assert f"9 of 20 inodes free on {mounted_place}, 100 asked" in message
    message = found_message(check_result(Files, outputs=[str(mounted_place)], min_free="1MB"))
    assert "of 20 inodes free" in message


@pytest.mark.parametrize("mounted_place", ["size=1m"], indirect=True)
def test_what_a_low_disk_leads_to(mounted_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unasked, too little is a warning, nothing at all a failure, and the state directory is never one."""
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    check = Disk()

    def actions(site: Site, low: str = "warn") -> list[type]:
        assert not check_result(check, site=site, low=low).is_success()
        return [type(action) for action in check.failed_actions()]

    assert actions(Site(node=CHECKED_NODE, cwd=str(mounted_place))) == [Note]
    assert actions(Site(node=CHECKED_NODE, cwd=str(mounted_place)), low="fail") == [AvoidNode]
    (mounted_place / "ballast").write_bytes(bytes(1 << 20))
    assert actions(Site(node=CHECKED_NODE, cwd=str(mounted_place))) == [AvoidNode]
    assert actions(Site(node=CHECKED_NODE, cwd="/dev/shm", home=str(mounted_place)), low="fail") == [Note]


@pytest.mark.parametrize("mounted_place", ["ro"], indirect=True)
def test_a_program_on_a_read_only_image_is_no_failure(mounted_place: Path) -> None:
    site = Site(node=CHECKED_NODE, cwd=str(mounted_place))
    assert check_result(Disk, site=site).is_success()
    check = Mounts()
    assert "is mounted read-only" in found_message(check_result(check, site=site))
    assert [type(action) for action in check.failed_actions()] == [Note]


@pytest.mark.parametrize("mounted_place", ["size=1m"], indirect=True)
def test_a_tiny_shm(mounted_place: Path) -> None:
    assert (
        found_message(check_result(Shm, path=str(mounted_place)))
        == f"1.05 of 1.05 MB free on {mounted_place}, 16.8 MB asked"
    )


@pytest.mark.parametrize("mounted_place", ["ro"], indirect=True)
def test_a_read_only_mount(mounted_place: Path) -> None:
    assert (
        found_message(check_result(Mounts, paths=[str(mounted_place)]))
        == f"{mounted_place} (tmpfs) is mounted read-only, and {mounted_place} is on it"
    )
    assert check_result(Mounts, paths=[str(mounted_place)], writable=False).is_success()


def test_a_disk_path_that_is_not_there() -> None:
    assert found_message(check_result(Disk, paths="/:/no/such/place")) == "/no/such/place does not exist"
    assert found_message(check_result(Disk, paths=["/no/such/place"])) == "/no/such/place does not exist"


@pytest.fixture
def dead_mount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A mount whose server hangs, or (parameter True) is lost."""
    try:
        with planted_troubles.dead_mount(tmp_path / "dead", lost=request.param) as point:
            yield point
    except planted_troubles.CannotPlant as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("dead_mount", [False], indirect=True)
def test_a_mount_that_does_not_answer(dead_mount: Path) -> None:
    assert (
        found_message(check_result(Mounts, paths=[str(dead_mount)], wait_s=0.5))
        == f"{dead_mount} has not answered within 0.5 s"
    )
    assert f"{dead_mount} has not answered" in found_message(check_result(Mounts, paths=["/"], all=True, wait_s=0.5))


@pytest.mark.parametrize("dead_mount", [True], indirect=True)
def test_a_mount_that_lost_its_server(dead_mount: Path) -> None:
    assert touch(str(dead_mount)) != 0
    assert found_message(check_result(Mounts, paths=[str(dead_mount)])) == f"{dead_mount} has lost its server"


# ------------------------------------------------------------------------------------------------- the job's files


def script_job(folder: Path, text: str) -> JobSpec:
    path = folder / "train.py"
    path.write_text(text)
    return command_job(sys.executable, "-u", str(path), "--lr", "0.1")


def test_a_missing_module(tmp_path: Path) -> None:
    the_job = script_job(tmp_path, "import os\nimport json, flash_attention_9 as fa\n")
    assert "train.py line 2 imports `flash_attention_9`, which is not installed" in found_message(
        check_result(Files, the_job)
    )


def test_a_syntax_error(tmp_path: Path) -> None:
    assert "train.py line 2 does not parse: " in found_message(
        check_result(Files, script_job(tmp_path, "import os\ndef f(:\n"))
    )


def test_a_missing_script_and_module() -> None:
    assert (
        found_message(check_result(Files, command_job("python3", "trian.py")))
        == "trian.py cannot be read: No such file or directory"
    )
    message = found_message(check_result(Files, command_job(sys.executable, "-m", "no_such_package.train")))
    assert message == "no module named `no_such_package` for `-m no_such_package.train`"


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import apex_9\nexcept ImportError:\n    apex_9 = None\n",
        "try:\n    import apex_9\nexcept (ValueError, ModuleNotFoundError):\n    pass\n",
        "def f():\n    import apex_9\n",
        "import sys\nsys.path.insert(0, 'lib')\nimport apex_9\n",
        "if False:\n    import apex_9\n",
        "from __future__ import annotations\nimport os.path, json.decoder\nfrom . import neighbour\n",
        "import helper\nfrom helper.inner import x\n",
        "x = '\\d'\n",
    ],
)
def test_imports_that_may_resolve_are_no_trouble(tmp_path: Path, text: str) -> None:
    (tmp_path / "helper.py").write_text("")
    assert check_result(Files, script_job(tmp_path, text)).is_success()


def test_python_path_of_the_role_counts(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "apex_9.py").write_text("")
    path = tmp_path / "a.py"
    path.write_text("import apex_9\n")
    assert check_result(Files, command_job(sys.executable, str(path), PYTHONPATH=str(tmp_path / "lib"))).is_success()
    assert not check_result(Files, command_job(sys.executable, str(path))).is_success()


def test_another_interpreter_is_asked_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import json, apex_9, msgspec\n")
    other = tmp_path / "python-other"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    other.chmod(0o755)
    message = found_message(check_result(Files, command_job(str(other), str(path))))
    assert "imports `apex_9`" in message
    assert "imports `msgspec`" in message, "installed for holdfast's Python, not for this one"


def certain_class(the_job: JobSpec, folder: Path) -> str:
    """The class that the default check of the program ends the job with; empty: it only warns."""
    check = Files()
    result = check_result(check, the_job, cwd=str(folder), program="certain")
    assert isinstance(result, Verdict)
    assert not result.is_success()
    stops = [type(action) for action in check.failed_actions()] == [StopJob]
    assert stops == bool(result.phrase)
    return result.phrase


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("import apex_9\n", "ModuleNotFound"),
        ("from apex_9.optimizers import FusedAdam\n", "ModuleNotFound"),
        ('"""Trains."""\nfrom __future__ import annotations\nimport os, json\nimport apex_9\n', "ModuleNotFound"),
        ("import os\nos.environ['A'] = '1'\nos.environ.setdefault('B', '2')\nimport apex_9\n", "ModuleNotFound"),
        ("import warnings\nwarnings.filterwarnings('ignore')\nimport msgspec\nimport apex_9\n", "ModuleNotFound"),
        ("LR = 0.1\ndef step():\n    run()\nimport apex_9\n", "ModuleNotFound"),
        ("x = (\nprint(1)\n", "SyntaxError"),
        ("print 'of Python 2'\n", "SyntaxError"),
        ("if True:\n\tx = 1\n        y = 2\n", "SyntaxError"),
        ("return 1\n", "SyntaxError"),
        ("x = 1\0\n", "SyntaxError"),
        # what runs before the import may install the module, or end the program
        ("import os\nos.system('pip install apex_9')\nimport apex_9\n", ""),
        ("import helper\nimport apex_9\n", ""),
        ("from . import helper\nimport apex_9\n", ""),
        ("import os\nif os.path.exists('x'):\n    raise SystemExit\nimport apex_9\n", ""),
        ("print('first')\nimport apex_9\n", ""),
        ("@hook\ndef f():\n    pass\nimport apex_9\n", ""),
        ("try:\n    import apex_9\nfinally:\n    print('end')\n", ""),
        # an import hook may compile it
        ("import msgspec\nimport kernels_9\n", ""),
    ],
)
def test_a_mistake_that_is_certain_ends_the_job(tmp_path: Path, text: str, phrase: str) -> None:
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "kernels_9.pyx").write_text("")
    assert certain_class(script_job(tmp_path, text), tmp_path) == phrase


def test_a_module_that_is_missing_is_certain(tmp_path: Path) -> None:
    assert certain_class(command_job(sys.executable, "-m", "no_such_package.train"), tmp_path) == "ModuleNotFound"


def test_another_python_finds_its_own_syntax_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import json\nx = = 1\n")
    other = tmp_path / "python-other"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    other.chmod(0o755)
    assert certain_class(command_job(str(other), str(path)), tmp_path) == "SyntaxError"


def test_the_interpreters_options_and_the_workers_variables_count(tmp_path: Path) -> None:
    """A `sitecustomize` of the workers may provide the module, and -I keeps it from being loaded."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['apex_9'] = types.ModuleType('a')\n"
    )
    path = tmp_path / "a.py"
    path.write_text("import apex_9\n")
    lib = str(tmp_path / "lib")
    assert check_result(Files, command_job(sys.executable, str(path), PYTHONPATH=lib)).is_success()
    assert certain_class(command_job(sys.executable, "-I", str(path), PYTHONPATH=lib), tmp_path) == "ModuleNotFound"


def test_a_mistake_is_not_certain_where_something_may_mend_it_first(tmp_path: Path) -> None:
    the_job = script_job(tmp_path, "import apex_9\n")
    installs = Hook(when=HookMoment.BEFORE, command=("pip", "install", "apex_9"))
    after = msgspec.structs.replace(installs, when=HookMoment.ENDED)
    fetched = Prerequisite(name="code", uri="https://example.org/code.tgz")
    [role] = the_job.roles
    lenient = msgspec.structs.replace(role, completion=Completion(min_failed=None))
    for change, phrase in (
        ({"runtime": RuntimePlan(hooks=(installs,))}, ""),
        ({"runtime": RuntimePlan(hooks=(after,))}, "ModuleNotFound"),
        ({"runtime": RuntimePlan(prerequisites=(fetched,))}, ""),
        ({"roles": (lenient,)}, ""),
    ):
        assert certain_class(msgspec.structs.replace(the_job, **change), tmp_path) == phrase


def test_inputs_and_outputs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert found_message(check_result(Files, inputs=[str(tmp_path / "gone")])).endswith(
        "gone cannot be read: No such file or directory"
    )
    assert "is a file, expected a directory" in found_message(check_result(Files, outputs=[str(tmp_path / "file")]))
    assert "asked" in found_message(check_result(Files, outputs=[str(tmp_path / "new" / "deep")], min_free="900TB"))
    assert check_result(
        Files, inputs=[str(tmp_path), str(tmp_path / "file")], outputs=[str(tmp_path / "new")]
    ).is_success()
    assert not (tmp_path / "new").exists()


def test_a_program_of_another_roles_image_is_not_missed(tmp_path: Path) -> None:
    the_job = script_job(tmp_path, "1 +")
    [role] = the_job.roles
    apart = msgspec.structs.replace(the_job, roles=(role, msgspec.structs.replace(role, name="ps", image="other:1")))
    assert check_result(Files, apart).is_success()
    both = tuple(msgspec.structs.replace(each, image="same:1") for each in apart.roles)
    assert not check_result(Files, msgspec.structs.replace(the_job, roles=both)).is_success()


def test_what_a_broken_program_leads_to(tmp_path: Path) -> None:
    check = Files()
    assert not check_result(check, script_job(tmp_path, "1 +")).is_success()
    assert [type(action) for action in check.failed_actions()] == [StopJob]
    assert not check_result(check, script_job(tmp_path, "1 +"), program="warn").is_success()
    assert [type(action) for action in check.failed_actions()] == [Note]
    assert check_result(check, script_job(tmp_path, "1 +"), program="off").is_success()


@pytest.mark.parametrize(
    ("command", "script_", "module"),
    [
        (("python", "a.py"), "a.py", ""),
        (("/usr/bin/python3.11", "-u", "-W", "error", "-X", "dev", "a.py", "-m", "b"), "a.py", ""),
        (("python3", "-m", "pkg.train", "x.py"), "", "pkg.train"),
        (("a.py", "b.py"), "a.py", ""),
    ],
)
def test_the_program_of_a_command(command: tuple[str, ...], script_: str, module: str) -> None:
    program = program_of(command)
    assert program is not None
    assert (program.script, program.module) == (script_, module)


@pytest.mark.parametrize("command", [(), ("bash", "a.sh"), ("python", "-c", "pass"), ("python",), ("python", "-")])
def test_a_command_without_a_program_of_python(command: tuple[str, ...]) -> None:
    assert program_of(command) is None


# ------------------------------------------------------------------------------------------------------- the host


def test_too_little_memory() -> None:
    assert found_message(check_result(Memory, min_free="900TB")).endswith(" free, 900 TB asked")
    assert found_message(check_result(Memory, per_worker="50TB", site=Site(node=CHECKED_NODE, workers=4))).endswith(
        " free, 200 TB asked"
    )


def test_limits() -> None:
    assert "open files (ulimit -n): " in found_message(check_result(Limits, min_open_files=2**40))
    assert "more processes, 1099511627776 asked" in found_message(check_result(Limits, min_processes=2**40))


def test_a_busy_port_and_who_holds_it() -> None:
    with planted_troubles.busy_port() as port:
        message = found_message(check_result(Ports, ports=[port]))
        assert message.startswith(f"port {port} is taken by pid {os.getpid()} (")
        assert f"port {port} is taken" in found_message(check_result(Ports, command_job("x", MASTER_PORT=str(port))))
        typed = Site(node=CHECKED_NODE, port=port)
        assert f"port {port} is taken" in found_message(check_result(Ports, site=typed))
        later = Ports().check(site=typed, job=None, nodes=[Node(name=CHECKED_NODE)], attempt=2, now=time.time())
        assert later.is_success(), "the second attempt takes another port"
    assert check_result(Ports, ports=[port]).is_success()
    assert found_message(check_result(Ports, ports=[70000])) == "70000 is no port; there are 1 to 65535"


def test_a_peer_that_does_not_resolve() -> None:
    message = found_message(check_result(Names, peers=["no-such-host.invalid"], hostname=False))
    assert "the name of the peer `no-such-host.invalid` does not resolve" in message


class TimeServer(threading.Thread):
    """Answers one SNTP question with a clock that is off."""

    def __init__(self, off_s: float) -> None:
        super().__init__()
        self.off_s = off_s
        self.link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.link.bind(("127.0.0.1", 0))
        self.link.settimeout(20)
        self.name = f"127.0.0.1:{self.link.getsockname()[1]}"

    def run(self) -> None:
        _, address = self.link.recvfrom(512)
        now = time.time() + self.off_s + 2_208_988_800
        self.link.sendto(b"\x24\x02" + bytes(38) + struct.pack("!II", int(now), int(now % 1 * 2**32)), address)
        self.link.close()


@pytest.mark.parametrize(("off_s", "words"), [(90.0, "90.00 s behind"), (-90.0, "90.00 s ahead of")])
def test_a_clock_that_is_off(off_s: float, words: str) -> None:
    server = TimeServer(off_s)
    server.start()
    message = found_message(check_result(Clock, reference=server.name, wait_s=20))
    server.join()
    assert message.startswith("its clock is ")
    assert message.endswith(f" {words.split(' ', 2)[2]} {server.name}, 1 s allowed")
    assert abs(float(message.split()[3]) - 90) < 5


def test_a_reference_that_does_not_answer_is_inconclusive() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = check_result(Clock, reference=f"127.0.0.1:{silent.getsockname()[1]}", wait_s=0.2)
    assert isinstance(result, Verdict)
    assert result.inconclusive


def test_the_clock_of_shared_storage(tmp_path: Path) -> None:
    assert check_result(Clock, shared=str(tmp_path)).is_success()
    assert list(tmp_path.iterdir()) == []


def test_zombies() -> None:
    children = [subprocess.Popen(["true"]) for _ in range(12)]
    for child in children:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    message = found_message(check_result(Processes, max_zombies=5))
    for child in children:
        child.wait()
    assert f"children of pid {os.getpid()}" in message
    assert "zombies, 5 allowed" in message


def test_a_process_that_holds_an_accelerator(tmp_path: Path) -> None:
    device = tmp_path / "nvidia7"
    device.touch()
    code = f"f = open({str(device)!r}); print(flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    result = check_result(Leftovers, devices=[str(tmp_path / "nvidia[0-9]")])
    message = found_message(result)
    assert message.startswith(f"pid {holder.pid} (")
    assert isinstance(result, Verdict)
    assert result.devices == ["nvidia7"]
    holder.communicate(b"\n")
    assert check_result(Leftovers, devices=[str(tmp_path / "nvidia[0-9]")]).is_success()


def sysfs(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_a_clock_that_is_held_down(tmp_path: Path) -> None:
    folder = "devices__system__cpu__cpu0__cpufreq__"
    sysfs(tmp_path, **{f"{folder}cpuinfo_max_freq": "3500000", f"{folder}scaling_max_freq": "800000"})
    expected = "the clock of 1 core is held down: cpu0 may run at 0.80 of 3.50 GHz, 50 % asked"
    assert found_message(check_result(Cpu, sys=str(tmp_path))) == expected
    assert check_result(Cpu, sys=str(tmp_path), min_clock_percent=20).is_success()


def test_a_zone_that_is_too_hot(tmp_path: Path) -> None:
    zone = "class__thermal__thermal_zone0__"
    sysfs(
        tmp_path,
        **{f"{zone}temp": "101500", f"{zone}type": "x86_pkg_temp"},
        **{f"{zone}trip_point_0_type": "passive", f"{zone}trip_point_0_temp": "90000"},
        **{f"{zone}trip_point_1_type": "critical", f"{zone}trip_point_1_temp": "100000"},
    )
    assert (
        found_message(check_result(Cpu, sys=str(tmp_path))) == "x86_pkg_temp is at 102 °C, its critical point is 100 °C"
    )


def test_too_few_cores() -> None:
    assert found_message(check_result(Cpu, min_cores=4096)).endswith(" cores usable, 4096 asked")


def test_a_hog_on_every_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with planted_troubles.hogs(cores):
        message = found_message(check_result(Hogs, window_s=1.0))
    assert f"of {len(cores)} cores idle, 50 % asked; cores used: pid " in message


def test_memory_errors_of_the_host(tmp_path: Path) -> None:
    sysfs(tmp_path, devices__system__edac__mc__mc0__ue_count="3", devices__system__edac__mc__mc1__ue_count="0")
    message = found_message(check_result(StandingCheck, sys=str(tmp_path), kernel_log="/dev/null"))
    assert message == "3 uncorrectable memory errors on controller mc0 since boot"


def test_hardware_xids_of_the_kernel_log(tmp_path: Path) -> None:
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    line = "{},{},{},-;NVRM: Xid (PCI:0000:3b:00): {}, pid=77, GPU has fallen off the bus.\n"
    log = tmp_path / "kmsg"
    log.write_text(
        line.format(4, 1, int(up_s / 4 * 1e6), 48)
        + line.format(4, 2, int(up_s * 0.9 * 1e6), 79)
        + line.format(4, 3, int(up_s * 0.95 * 1e6), 13)
    )
    empty = str(tmp_path / "no-sysfs")
    message = found_message(check_result(StandingCheck, kernel_log=str(log), sys=empty, xid_window_s=up_s / 2))
    assert message == f"Xid 79 of the GPU at 0000:3b:00, {up_s / 10 / 60:.0f} minutes ago"
    message = found_message(check_result(StandingCheck, kernel_log=str(log), sys=empty, xid_window_s=up_s))
    assert "Xid 48" in message
    assert "Xid 13" not in message, "of the program's making"


def test_a_device_that_is_held(tmp_path: Path) -> None:
    held = DeviceStanding(device="gpu3", node=CHECKED_NODE, standing=Standing.HELD, reason="five times Xid 94 in a day")
    check = StandingCheck()
    site = Site(node=CHECKED_NODE, kept_out=(held,))
    message = found_message(check_result(check, site=site, sys=str(tmp_path), kernel_log="/dev/null"))
    assert message == "gpu3 is HELD: five times Xid 94 in a day"
    check_result(check, site=site, sys=str(tmp_path), kernel_log="/dev/null", devices="warn")
    assert [type(action) for action in check.failed_actions()] == [Note]
    node = DeviceStanding(device=CHECKED_NODE, node=CHECKED_NODE, standing=Standing.ISOLATED)
    check_result(
        check,
        site=Site(node=CHECKED_NODE, kept_out=(held, node)),
        sys=str(tmp_path),
        kernel_log="/dev/null",
        devices="warn",
    )
    assert Note not in [type(action) for action in check.failed_actions()]


def test_too_few_accelerators() -> None:
    assert found_message(check_result(Driver, devices=4096)).endswith(" accelerators answer, 4096 asked")
    assert numbers("535.129.03") < numbers("550.54") < numbers("1000")


# ------------------------------------------------------------------------------------------------------- the gang


class DeadGroup(Matmul):
    def measure(self, index: int) -> float:
        if index == 2:
            os.kill(os.getpid(), 9)
        return super().measure(index)


@pytest.mark.parametrize("with_numpy", [pytest.param(True, marks=pytest.mark.torch), False])
def test_a_slow_and_a_wrong_group(with_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_numpy:
        import importlib.util

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wide: dict[str, Any] = {"groups": 3, "size": 64 if with_numpy else 24, "repeats": 40}
    assert check_result(Matmul, **wide, slow_factor=50).is_success()
    message = found_message(check_result(planted_troubles.SlowGroup, **wide, slow_factor=20))
    assert message.startswith("group 1 (cpu")
    assert "times the median of 3 groups, 20 allowed" in message
    message = found_message(check_result(planted_troubles.WrongGroup, **wide, slow_factor=50))
    assert message.startswith("group 0 (cpu")
    assert "1 of " in message
    assert "numbers of a known product are wrong" in message
    assert "group 2 (cpu" in found_message(check_result(DeadGroup, **wide, slow_factor=50))


@pytest.mark.parametrize(("groups", "bad"), [(3, 0), (4, 3), (7, 6)])
@pytest.mark.parametrize("how", ["garbles", "slow", "silent"])
def test_a_bad_group_is_named_and_not_its_partner(groups: int, bad: int, how: str) -> None:
    check = planted_troubles.BadPair()
    check.victim, check.how = bad, how
    result = check_result(check, groups=groups, wait_s=1.0, message="64KiB", repeats=5)
    message = found_message(result)
    assert message.startswith(f"group {bad}: the exchange with group ")
    assert isinstance(result, Verdict)
    assert result.devices == [f"group {bad}"]


def test_healthy_groups_exchange() -> None:
    assert check_result(Pairs, groups=5, message="64KiB", slack_s=1).is_success()


@pytest.mark.torch
def test_an_all_reduce_and_a_wrong_sum() -> None:
    from holdfast.observe.checks.collective import Collective

    class WrongSum(Collective):
        def disturb(self, index: int, numbers: Any) -> Any:
            if index == 1:
                numbers[7] += 1
            return numbers

    assert check_result(Collective, groups=2, backend="gloo", message="64KiB").is_success()
    message = found_message(check_result(WrongSum, groups=2, backend="gloo", message="64KiB"))
    assert "group 1: ValueError: 1 of 16384 numbers of a known sum are wrong" in message


# ------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "count"),
    [("50GB", 50_000_000_000), ("512MiB", 512 << 20), ("1.5g", 1_500_000_000), ("7", 7), (9, 9), ("2 kB", 2000)],
)
def test_sizes_in_words(text: str | int, count: int) -> None:
    assert Bytes.read(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1", -1, "5 GB free", True, None, [1], "1e3", float("nan")])
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        Bytes.read(text)


def test_sizes_for_people() -> None:
    assert size_of(11.2e9, 900e9) == "11.2 of 900 GB"
    assert [size(count) for count in (0, 999, 1000, 99_950_000, 1e12, 90e15)] == [
        "0 bytes", "999 bytes", "1 kB", "100 MB", "1 TB", "90000 TB",
    ]  # fmt: skip


def test_a_temporary_directory_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from holdfast.observe.checks.check_base import temporary

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary() == str(tmp_path)
    monkeypatch.setenv("TMPDIR", "/no/such/place")
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert temporary() == tempfile.gettempdir()
