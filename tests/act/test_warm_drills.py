"""What keeps a nursery from being used, and what becomes of a job when its nursery dies, hangs or lies."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import Holdfast, wait_for
from holdfast import children
from holdfast.act.cgroups import ControlGroups
from holdfast.act.warm.nurseries import Warm
from holdfast.act.worker_starts import Ticket, WarmStart
from holdfast.model.job_spec import Placement
from holdfast.reactor import Reactor
from processes import until

pytestmark = pytest.mark.real

WARM_OR_COLD = "warm = 'HOLDFAST_NURSERY' in open('/proc/self/environ').read()\n"


def stdout(holdfast: Holdfast, job: Path, attempt: int = 1, rank: int = 0) -> str:
    return (job / f"attempt-{attempt}" / f"worker-{rank}" / "stdout.log").read_text()


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (
            "import threading as t\nt.Thread(target=t.Event().wait, daemon=True).start()",
            "1 threads run",
        ),
        ("import socket\nkept = socket.socket()", "an open socket is left"),
        ("kept = open('/etc/hostname')", "an open file is left (/etc/hostname)"),
        ("import os\nos.environ['NCCL_DEBUG'] = 'INFO'", "the environment was changed (NCCL_DEBUG)"),
        ("import os\nos.chdir('/')", "the working directory was changed"),
        ("import signal\nsignal.signal(10, lambda *a: None)", "the handler of signal 10 was changed"),
        ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 100)", "a timer is set"),
        ("import os\nos.umask(0o77)", "the umask was changed"),
        ("import subprocess\nkept = subprocess.Popen(['sleep', '60'])", "a process was started"),
        ("import sys\nsys.setprofile(lambda *a: None)", "a tracer or profiler is on"),
        ("import os\nrank = os.environ.get('LOCAL_RANK', 0)", "spoils reads LOCAL_RANK when it is imported"),
        ("import os\nif 'RANK' in os.environ: pass", "spoils reads RANK when it is imported"),
        ("raise RuntimeError('no licence')", "importing --preload spoils failed: RuntimeError: no licence"),
        ("import no_such_module", "importing --preload spoils failed: ModuleNotFoundError"),
        ("raise SystemExit(3)", "importing --preload spoils failed: SystemExit: 3"),
        ("import sys, types\nsys.modules['torch.cuda'] = types.SimpleNamespace(_initialized=True)", "was touched"),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nbytearray(1 << 30)",
            "importing --preload spoils failed: MemoryError",
        ),
    ],
)
def test_what_a_fork_would_lose_or_share_means_a_cold_start(holdfast: Holdfast, module: str, why: str) -> None:
    holdfast.script(module, "spoils.py")
    script = holdfast.script(f"import os, json\n{WARM_OR_COLD}print(warm, os.environ.get('NCCL_DEBUG'), os.getcwd())\n")
    ran = holdfast.run("--warm", "--preload", "spoils", script)
    [line] = [line for line in ran.err.splitlines() if "warm start" in line]
    assert line.startswith("holdfast: warm start is off, workers start cold: ") and why in line
    assert (ran.status, stdout(holdfast, ran.job_dir)) == (0, f"False None {holdfast.dir}\n")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import os\nos.kill(os.getpid(), 9)", "died (signal 9)"),
        ("import os\nos._exit(3)", "died (status 3)"),
        ("import threading\nthreading.Event().wait()", "importing took longer than 1 s"),
    ],
)
def test_a_nursery_that_dies_or_hangs_costs_a_cold_start(holdfast: Holdfast, module: str, why: str) -> None:
    holdfast.script(module, "spoils.py")
    script = holdfast.script(f"import json\n{WARM_OR_COLD}print(warm)\n")
    ran = holdfast.run("--warm", "--preload", "spoils", "--warm-timeout", "1", "--nproc-per-node", "2", script)
    assert why in ran.err and "cold" in ran.err
    assert (ran.status, stdout(holdfast, ran.job_dir, rank=1)) == (0, "False\n")
    assert [attempt["attempt"] for attempt in ran.report["attempts"]] == [1]


@pytest.mark.parametrize(
    ("before", "module", "why"),
    [
        (
            "import logging\nlogging.basicConfig(format='mine %(message)s')\nimport sets\nlogging.error('said')",
            "import logging\nif not logging.root.handlers: logging.root.addHandler(logging.StreamHandler())",
            "sets the handlers of logging",
        ),
        (
            "import random\nrandom.seed(1)\nimport sets\nprint(random.random())",
            "import random\nrandom.random()",
            "sets the state of a random generator",
        ),
    ],
    ids=["logging", "random"],
)
def test_who_sets_something_last_is_who_would_be_last(holdfast: Holdfast, before: str, module: str, why: str) -> None:
    """An import behind the script's own setting of the same: done beforehand, it would be the earlier of the two."""
    place = holdfast.dir / "site-packages"
    place.mkdir()
    (place / "sets.py").write_text(module)
    ran = holdfast.run("--warm", holdfast.script(before), PYTHONPATH=str(place))
    [line] = [line for line in ran.err.splitlines() if "warm: " in line]
    assert why in line and ran.status == 0
    told = stdout(holdfast, ran.job_dir) or (ran.job_dir / "attempt-1" / "worker-0" / "stderr.log").read_text()
    assert told in ("mine said\n", "0.8474337369372327\n")


DIES_WHEN_TOLD = f"""
import json, os, pathlib, time
{WARM_OR_COLD}
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
started = float(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
pathlib.Path(f"at-{{attempt}}-{{os.environ['RANK']}}").write_text(f"{{os.getppid()}} {{warm}} {{started}}")
if attempt == 1:
    while not os.path.exists("die"):
        time.sleep(0.01)
    raise SystemExit(7)
"""


def nursery_of(supervisor: int, script: Path) -> psutil.Process:
    """The child that runs the workers' command and is no worker; the oldest, where forks stand by as well."""
    return min(unclaimed(supervisor, script), key=lambda child: child.pid)


def unclaimed(supervisor: int, script: Path) -> list[psutil.Process]:
    """The nursery and its forks keep what they print in memory; a worker writes to a pipe."""
    found = []
    for child in psutil.Process(supervisor).children():
        try:
            if str(script) in child.cmdline() and not Path(f"/proc/{child.pid}/fd/1").readlink().name.startswith(
                "pipe:"
            ):
                found.append(child)
        except (psutil.Error, OSError):
            continue  # it has just died
    return found


def worker_at(holdfast: Holdfast, attempt: int, rank: int = 0) -> tuple[int, bool, float]:
    parent, warm, started = wait_for(holdfast.dir / f"at-{attempt}-{rank}").split()
    return int(parent), warm == "True", float(started)


@pytest.mark.key
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_nursery_lost_in_mid_job_costs_no_attempt(holdfast: Holdfast, number: int) -> None:
    """Killed, it is replaced while the workers run on; stopped, it gets SIGCONT when it is needed."""
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", "--nproc-per-node", "2", script)
    supervisor, warm, _ = worker_at(holdfast, 1)
    assert warm and worker_at(holdfast, 1, 1)[1]
    nursery = nursery_of(supervisor, script)
    os.kill(nursery.pid, number)
    if number == signal.SIGKILL:
        until(lambda: not nursery.is_running())
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and [attempt["attempt"] for attempt in ran.report["attempts"]] == [1, 2]
    assert ran.report["attempts"][0]["report"]["original"]["exit_code"] == 7
    if number == signal.SIGSTOP:
        assert f"the nursery (pid {nursery.pid}) was stopped; holdfast sent it SIGCONT" in ran.err
        assert "warm start" not in ran.err and worker_at(holdfast, 2)[1] and worker_at(holdfast, 2, 1)[1]


def test_a_nursery_that_is_stopped_while_it_is_waited_for_goes_on(holdfast: Holdfast) -> None:
    """At its first import and at its last; no look is needed: the kernel tells of a child's stop."""
    holdfast.script("import os\nos.kill(os.getpid(), 19)\nos.kill(os.getpid(), 19)", "stops.py")
    script = holdfast.script(f"import json\n{WARM_OR_COLD}print(warm)\n")
    ran = holdfast.run("--warm", "--preload", "stops", "--nproc-per-node", "2", script)
    assert "was stopped; holdfast sent it SIGCONT" in ran.err and "warm start" not in ran.err
    assert [stdout(holdfast, ran.job_dir, rank=rank) for rank in (0, 1)] == ["True\n"] * 2


def test_a_nursery_that_hangs_in_mid_job_has_its_time_and_no_more(holdfast: Holdfast) -> None:
    """Not stopped, but waiting for something that does not come: what a deadlock looks like, or a lost file system."""
    hook = (
        "import os, threading\nos.register_at_fork(before=lambda: os.path.exists('die') and threading.Event().wait())"
    )
    holdfast.script(hook, "hangs.py")
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", "--warm-timeout", "2", "--preload", "hangs", script)
    assert worker_at(holdfast, 1)[1]
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and [attempt["attempt"] for attempt in ran.report["attempts"]] == [1, 2]
    assert "the nursery did not answer within 2 s: attempt 2 starts cold" in ran.err and not worker_at(holdfast, 2)[1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("raise ImportError('half installed')", "failed: ImportError: half installed"),
        ("import threading\nthreading.Event().wait()", "importing took longer than 2 s"),
        ("import os\nos.kill(os.getpid(), 9)", "died (signal 9)"),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nbytearray(1 << 30)",
            "failed: MemoryError",
        ),
    ],
    ids=["error", "hang", "killed", "memory limit"],
)
def test_what_goes_wrong_when_it_imports_anew_costs_a_cold_start(holdfast: Holdfast, change: str, why: str) -> None:
    """In mid-job: a user has installed another version meanwhile."""
    holdfast.script("V = 1", "other.py")
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", "--warm-timeout", "2", "--preload", "other", script)
    assert worker_at(holdfast, 1)[1]
    holdfast.script(change, "other.py")
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and [attempt["attempt"] for attempt in ran.report["attempts"]] == [1, 2]
    assert "other.py has changed: importing anew" in ran.err and why in ran.err and not worker_at(holdfast, 2)[1]


@pytest.mark.key
def test_standby_workers_are_forked_while_the_first_attempt_runs(holdfast: Holdfast) -> None:
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", "--standby", "--nproc-per-node", "2", script)
    supervisor, _, first = worker_at(holdfast, 1)
    deadline = time.monotonic() + 60
    while len(psutil.Process(supervisor).children()) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and "warm start" not in ran.err
    died = (holdfast.dir / "die").stat().st_mtime
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for rank in (0, 1):
        _, warm, started = worker_at(holdfast, 2, rank)
        assert warm and first < started and booted + started / os.sysconf("SC_CLK_TCK") < died - 0.5


def standing_by(supervisor: int, script: Path, nursery: psutil.Process) -> list[psutil.Process]:
    """The forks that wait to be claimed."""
    return [child for child in unclaimed(supervisor, script) if child != nursery]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("who", ["forks", "nursery"])
def test_what_stands_by_may_be_lost(holdfast: Holdfast, who: str, number: int) -> None:
    """Killed forks are replaced, by a new nursery too; stopped ones are passed over; a stopped nursery goes on."""
    script = holdfast.script(DIES_WHEN_TOLD)
    words = ("--warm", "--standby", "--nproc-per-node", "2")
    process = holdfast.start("run", "--no-checks", *words, script)
    supervisor, _, _ = worker_at(holdfast, 1)
    nursery = nursery_of(supervisor, script)
    until(lambda: len(standing_by(supervisor, script, nursery)) == 2)
    old = standing_by(supervisor, script, nursery)
    for lost in old if who == "forks" else [nursery]:
        os.kill(lost.pid, number)
    if number == signal.SIGKILL:
        until(lambda: len([new for new in standing_by(supervisor, script, nursery) if new not in old]) >= 2)
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process, timeout_s=40)
    assert ran.status == 0 and len(ran.report["attempts"]) == 2
    assert "warm start" not in ran.err or number == signal.SIGKILL
    assert [worker_at(holdfast, 2, rank)[1] for rank in (0, 1)] == [True] * 2


@pytest.mark.parametrize("place", ["site-packages", "beside"])
def test_an_edited_module_is_imported_anew(holdfast: Holdfast, place: str) -> None:
    """One that the nursery has imported, and one of the user's own, which it has only read."""
    (holdfast.dir / place).mkdir()
    module = holdfast.dir / place / "edited.py"
    module.write_text("V = 1\n")
    script = holdfast.script("import edited\nprint('V', edited.V, flush=True)\n" + DIES_WHEN_TOLD)
    words = ("--warm", "--standby", script)
    process = holdfast.start("run", "--no-checks", *words, PYTHONPATH=str(module.parent))
    assert worker_at(holdfast, 1)[1]
    module.write_text("V = 22\n")
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and f"{module} has changed: importing anew" in ran.err
    assert worker_at(holdfast, 2)[1] and stdout(holdfast, ran.job_dir, 2) == "V 22\n"


def test_a_worker_over_its_memory_limit_is_named(holdfast: Holdfast) -> None:
    """The kernel's kill of a forked worker differs from any other, and the limit is the worker's own."""
    holdfast.script(
        "import json, os, time\nx = []\nwhile os.environ['RANK'] == '1': x.append(bytearray(1 << 20))\ntime.sleep(60)"
    )
    role = {"count": 2, "command": [sys.executable, "job.py"], "resources": {"memory": "64Mi"}}
    (holdfast.dir / "job.yaml").write_text(json.dumps({"name": "m", "warm": True, "roles": {"worker": role}}))
    if not ControlGroups.make("20000101-0000-aaaa").can_limit:
        pytest.skip("control groups may not be written here")
    ran = holdfast.run("--job", holdfast.dir / "job.yaml", "--max-restarts", "0")
    assert "warm start" not in ran.err
    report = ran.report
    assert (report["phrase"], report["first"]["rank"]) == ("HostOutOfMemoryKilled", 1)
    assert report["original"] == {"exit_code": None, "signal": "SIGKILL"}


def test_a_second_interrupt_ends_all_at_once(holdfast: Holdfast) -> None:
    script = holdfast.script(
        "import json, pathlib, signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
        "pathlib.Path('up').write_text('x')\ntime.sleep(60)\n"
    )
    words = ("--warm", "--standby", "--grace", "50", "--nproc-per-node", "2", script)
    process = holdfast.start("run", "--no-checks", *words)
    wait_for(holdfast.dir / "up")
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert holdfast.finish(process).status == 250
    assert holdfast.survivors() == []


def test_other_values_than_the_imports_had_mean_a_cold_start() -> None:
    """An attempt on other devices than the first, for instance: what is read at import is not the same any more."""
    said: list[str] = []
    command = (sys.executable, __file__)
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "RANK": "0", "PATH": os.defpath}
    placement = Placement(role="worker", rank=0, local_rank=0, role_rank=0, node="n")
    ticket = Ticket(
        placement=placement, attempt=2, command=command, written=command,
        env={**env, "CUDA_VISIBLE_DEVICES": "1"}, cwd=Path.cwd(), stdin_fd=0,
        out=(0, 1), err=(0, 2), directory=Path.cwd(), groups=(), check=True,
    )  # fmt: skip
    reactor = Reactor(lambda: 0.0)
    warm = Warm(reactor, said.append)
    warm.begin(command, env, Path.cwd(), 0.0)
    assert warm.ask(ticket, 0.0) == [WarmStart(ticket, None)]
    assert said == ["warm start: attempt 2 starts cold: CUDA_VISIBLE_DEVICES changed since the imports were done"]
    warm.close()
    while children.helpers():
        assert reactor.wait(longest_s=20)
    reactor.close()


def test_a_changed_script_is_imported_anew(holdfast: Holdfast) -> None:
    """Each attempt runs what is on disk when it starts, and the nursery reads it again."""
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", script)
    assert worker_at(holdfast, 1)[1]
    script.write_text(script.read_text() + "import decimal\nprint('new text', attempt)\n")
    (holdfast.dir / "die").touch()
    ran = holdfast.finish(process)
    assert ran.status == 0 and f"{script} has changed: importing anew" in ran.err
    assert worker_at(holdfast, 2)[1] and stdout(holdfast, ran.job_dir, 2) == "new text 2\n"


@pytest.mark.key
@pytest.mark.parametrize("standby", ["--standby", "--no-standby"])
def test_nothing_is_left_of_a_killed_run(holdfast: Holdfast, standby: str) -> None:
    script = holdfast.script(DIES_WHEN_TOLD)
    process = holdfast.start("run", "--no-checks", "--warm", standby, "--nproc-per-node", "2", script)
    supervisor, _, _ = worker_at(holdfast, 1)
    time.sleep(1.5)
    os.kill(supervisor, signal.SIGKILL)
    assert holdfast.finish(process).status == 128 + signal.SIGKILL
    assert holdfast.survivors() == []


def test_a_stop_while_it_imports_ends_at_once(holdfast: Holdfast) -> None:
    holdfast.script(
        "import pathlib, threading\npathlib.Path('there').write_text('x')\nthreading.Event().wait()", "hangs.py"
    )
    script = holdfast.script("import json\n")
    process = holdfast.start("run", "--no-checks", "--warm", "--preload", "hangs", script)
    wait_for(holdfast.dir / "there")
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process)
    assert (ran.status, ran.report["outcome"]) == (250, "stopped")


def test_another_program_starts_cold_and_says_so(holdfast: Holdfast) -> None:
    ran = holdfast.run("--warm", "--no-python", "echo", "hi")
    assert ran.status == 0 and "warm start is off, workers start cold: echo is not the interpreter" in ran.err
    assert sys.executable in ran.err
