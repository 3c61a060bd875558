"""`holdfast check` and `holdfast run` with checks, as commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import Any

import pytest

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real
THIS_NODE = socket.gethostname()

FAN_CHECK = """
from holdfast.checks import AvoidNode, PreCheckOperator, PreCheckResult

class Fans(PreCheckOperator):
    def check(self, *args, **kwargs):
        return PreCheckResult(1, "2 of 8 fans turn", kwargs["nodes"])
    def failed_actions(self, *args, **kwargs):
        return [AvoidNode()]
"""

FLAKY = """
from pathlib import Path
from holdfast.checks import PreCheckOperator, PreCheckResult

class Flaky(PreCheckOperator):
    @classmethod
    def get_retry_interval_secs(cls):
        return 0.05
    def check(self, *args, **kwargs):
        seen = Path(__file__).with_name("seen")
        if seen.exists():
            return PreCheckResult()
        seen.touch()
        return PreCheckResult(1, "not yet", kwargs["nodes"])
    def failed_actions(self, *args, **kwargs):
        return []
"""

HANGS = """
import os, subprocess, sys, time
from pathlib import Path
from holdfast.checks import PreCheckOperator, PreCheckResult

class Hangs(PreCheckOperator):
    def check(self, *args, **kwargs):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path(__file__).with_name("hanging").write_text("yes")
        time.sleep(600)
    def failed_actions(self, *args, **kwargs):
        return []
"""


def check_answer(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)
    assert found["schema"] == "holdfast.checks/1"
    return found


def test_the_default_set_passes_here(holdfast: Holdfast) -> None:
    ran = holdfast("check", "--json")
    found = check_answer(ran.out)
    assert (ran.status, found["state"], found["code"], found["failure"]) == (0, "PASS", 0, None), ran
    assert {check["state"] for check in found["checks"]} <= {"PASS", "WARN"}
    assert found["node"] == THIS_NODE
    table = holdfast("check", "disk", "memory")
    assert table.status == 0
    assert table.out.splitlines()[-1].startswith(f"PASS: {THIS_NODE}: 2 of 2 checks passed in ")


def test_a_typed_port_that_is_taken_is_told_before_the_start(holdfast: Holdfast) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        ran = holdfast("run", "--checks", "ports", "--master-port", port, holdfast.script("print('ran')"), timeout_s=60)
    assert ran.status == 252
    assert f"port {port} is taken" in ran.report["reason"]


@pytest.mark.key
def test_a_failure_is_252_with_reason_and_solution(holdfast: Holdfast) -> None:
    ran = holdfast("check", "disk:min_free=900PB", "shm", "--json")
    found = check_answer(ran.out)
    assert (ran.status, found["code"], found["state"]) == (252, 252, "FAIL")
    assert found["failure"]["check"] == "disk"
    assert found["failure"]["message"].startswith(f"{THIS_NODE}: ")
    assert found["failure"]["message"].endswith("900000 TB asked")
    assert found["failure"]["blame"] == "storage"
    assert found["avoid"] == [THIS_NODE]
    assert [check["state"] for check in found["checks"]] == ["FAIL", "PASS"]
    table = holdfast("check", "disk:min_free=900PB", "shm")
    assert table.status == 252
    assert "→ Remove what is not needed" in table.out
    assert f"FAIL: {THIS_NODE}: 1 of 2 checks failed in " in table.out


def test_the_list(holdfast: Holdfast) -> None:
    found = json.loads(holdfast("check", "--list", "--json").out)["checks"]
    by_name = {check["name"]: check for check in found}
    assert {"disk", "memory", "ports", "matmul", "pairs", "collective"} <= set(by_name)
    assert by_name["disk"]["during_job"] and not by_name["matmul"]["during_job"]
    assert {param["name"] for param in by_name["disk"]["params"]} >= {"paths", "min_free", "min_inodes"}
    text = holdfast("check", "--list", "disk")
    assert text.out.startswith("disk: Is there room left")
    assert "may run during a job, every 60 s" in text.out
    assert "min_free (size (50GB, 512MiB)) = 100 MB" in text.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("check", "dsk"), "there is no check `dsk`; did you mean `disk`?"),
        (("check", "--list", "dsk"), "there is no check `dsk`; did you mean `disk`?"),
        (("check", "disk:fre=1"), "check `disk` has no parameter `fre`; did you mean `min_free`?"),
        (("check", "--plugin", "gone.py"), "--plugin gone.py: no such file"),
        (("check", "--check-timeout", "soon"), "check-timeout"),
        (("check", "--job", "gone.yaml"), "gone.yaml"),
        (("run", "--checks", "dsk,memory", "job.py"), "there is no check `dsk`; did you mean `disk`?"),
    ],
)
def test_bad_input_is_status_2(holdfast: Holdfast, args: tuple[str, ...], words: str) -> None:
    holdfast.script("print('ran')")
    ran = holdfast(*args)
    assert ran.status == 2
    assert words in ran.err
    assert ran.out == ""


def test_a_crash_and_a_time_out_are_inconclusive(holdfast: Holdfast) -> None:
    path = holdfast.script(HANGS + "\nclass Dies(Hangs):\n    def check(self):\n        os.abort()\n", "both.py")
    ran = holdfast("check", "hangs", "dies:retries=0", "--plugin", path, "--check-timeout", "1", "--json")
    found = check_answer(ran.out)
    assert (ran.status, found["state"]) == (0, "PASS")
    assert [check["state"] for check in found["checks"]] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    assert len(found["warnings"]) == 2
    strict = holdfast("check", "dies:retries=0", "--plugin", path, "--inconclusive", "fail")
    assert strict.status == 252
    assert "died of SIGABRT" in strict.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_by_signal_leaves_nothing(holdfast: Holdfast, number: signal.Signals) -> None:
    process = holdfast.start("check", "hangs", "--plugin", holdfast.script(HANGS, "h.py"))
    wait_for(holdfast.dir / "hanging")
    process.send_signal(number)
    ran = holdfast.finish(process)
    assert ran.status in (128 + number, 130)


def test_the_checks_of_a_job_file(holdfast: Holdfast) -> None:
    holdfast.script("import no_such_module_9\n", "train.py")
    job = holdfast.dir / "job.yaml"
    job.write_text(
        "name: x\nroles: {worker: {count: 1, command: [python, train.py]}}\n"
        "checks: [{disk: {min_free: 1MB, paths: [/tmp]}}, files]\n"
    )
    ran = holdfast("check", "--job", job, "--json")
    found = check_answer(ran.out)
    assert ran.status == 252
    assert [check["name"] for check in found["checks"]] == ["disk", "files"]
    assert "train.py line 1 imports `no_such_module_9`, which is not installed" in found["failure"]["message"]
    assert found["failure"]["blame"] == "workload"


@pytest.mark.key
def test_a_run_waits_for_its_checks_and_starts_on_pass(holdfast: Holdfast) -> None:
    plugin = holdfast.script(FLAKY, "flaky.py")
    script = holdfast.script("from pathlib import Path\nprint('started', Path('seen').exists())\n")
    ran = holdfast("run", "--checks", "flaky", "--plugin", plugin, script)
    assert ran.status == 0, ran.err
    assert "started True" in ran.out
    assert "flaky passed at try 2; before: " in ran.err


@pytest.mark.key
def test_a_run_whose_check_fails_starts_nothing_and_says_why(holdfast: Holdfast) -> None:
    plugin = holdfast.script(FAN_CHECK, "fans.py")
    script = holdfast.script("print('started')\n")
    ran = holdfast("run", "--checks", "disk,fans", "--plugin", plugin, "--check-timeout", "2", script)
    assert ran.status == 252, ran.err
    assert "started" not in ran.out
    report = ran.report
    assert (report["phrase"], report["code"], report["blame"]) == ("CheckFailed", 252, "unknown")
    assert f"{THIS_NODE}: 2 of 8 fans turn" in report["reason"]


def test_a_run_with_a_hanging_check_goes_on_with_a_warning(holdfast: Holdfast) -> None:
    plugin = holdfast.script(HANGS, "h.py")
    script = holdfast.script("print('started')\n")
    ran = holdfast("run", "--checks", "hangs", "--plugin", plugin, "--check-timeout", "1", script)
    assert ran.status == 0, ran.err
    assert "hangs is inconclusive" in ran.err
    assert "started" in ran.out


def test_no_checks_is_disabled(holdfast: Holdfast) -> None:
    script = holdfast.script("print('started')\n")
    ran = holdfast("run", "--no-checks", script)
    assert ran.status == 0


@pytest.mark.key
def test_a_supervisor_that_is_killed_takes_its_checks_with_it(holdfast: Holdfast) -> None:
    plugin = holdfast.script(HANGS, "h.py")
    process = holdfast.start("run", "--checks", "hangs", "--plugin", plugin, holdfast.script("print('started')\n"))
    wait_for(holdfast.dir / "hanging")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=90)
    deadline = time.monotonic() + 60
    while holdfast.survivors() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holdfast.survivors() == []


@pytest.mark.parametrize(
    ("text", "phrase", "words", "fix"),
    [
        ("import os\ndef f(:\n", "SyntaxError", "line 2 does not parse: ", "Correct "),
        ("import no_such_module_9\n", "ModuleNotFound", "imports `no_such_module_9`", "pip install no_such_module_9"),
    ],
)
def test_a_program_that_must_fail_is_not_started(
    holdfast: Holdfast, text: str, phrase: str, words: str, fix: str
) -> None:
    ran = holdfast("run", "--nproc-per-node", "2", holdfast.script(text))
    report = ran.report
    assert report["phrase"] == phrase
    assert ran.status == report["code"]
    assert words in report["reason"]
    assert report["reason"].endswith("no worker was started")
    assert fix in report["solution"]
    assert "Traceback" not in ran.err
    assert not [*holdfast.home.glob("jobs/*/attempt-1/worker-*/stderr.log")]


def test_a_program_that_may_fail_is_started(holdfast: Holdfast) -> None:
    script = holdfast.script("print('started')\nimport no_such_module_9\n")
    ran = holdfast("run", "--max-restarts", "0", script)
    assert "started" in ran.out
    assert "imports `no_such_module_9`, which is not installed" in ran.err
    assert ran.report["phrase"] == "ModuleNotFound"
