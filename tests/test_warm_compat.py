"""What a program sees when it was forked from a nursery, against what it sees as `python program`: the same."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from conftest import Holdfast
from warm_scripts import PROGRAMS, Program

pytestmark = pytest.mark.real


def write(holdfast: Holdfast, program: Program) -> None:
    for name, text in program.files.items():
        path = holdfast.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def seen(holdfast: Holdfast, how: str, program: Program, **env: str) -> dict[str, Any]:
    """All that can be seen of the one worker of a run."""
    words = list(program.words)
    module = ["-m"] if words[0] == "-m" else []
    ran = holdfast.run(how, "--max-restarts", "0", *module, *words[len(module) :], timeout_s=60, **env)
    assert "warm start" not in ran.err, ran.err
    logs = ran.job_dir / "attempt-1" / "worker-0"
    report = ran.report
    texts = {name: (logs / name).read_text() if (logs / name).exists() else "" for name in ("stdout.log", "stderr.log")}
    job = report["job"]["id"]
    return {
        "original": report["original"],
        "outcome": report["outcome"],
        **{name: re.sub(r"0x[0-9a-f]{4,}|Thread \d+", "0x…", text.replace(job, "JOB")) for name, text in texts.items()},
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_the_same(holdfast: Holdfast, name: str) -> None:
    program = PROGRAMS[name]
    missing = [module for module in program.needs if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"without {', '.join(missing)} there is nothing to compare")
    write(holdfast, program)
    cold = seen(holdfast, "--no-warm", program)
    assert seen(holdfast, "--warm", program) == cold
    assert cold["stdout.log"] or cold["stderr.log"] or cold["outcome"] != "succeeded"


def outputs(holdfast: Holdfast, ran: Any, attempt: int = 1) -> list[str]:
    """What each worker wrote to stdout, by rank (of fewer than ten)."""
    places = sorted((ran.job_dir / f"attempt-{attempt}").glob("worker-*"))
    return [(place / "stdout.log").read_text() for place in places]


def test_workers_share_no_random_state(holdfast: Holdfast) -> None:
    """Nor do those of the next attempt: every line of every worker is another one."""
    extra = ", np.random.rand()" if importlib.util.find_spec("numpy") else ""
    extra += ", torch.rand(1).item(), torch.initial_seed()" if importlib.util.find_spec("torch") else ""
    names = "random, uuid, os, multiprocessing, secrets, tempfile"
    imports = f"import {names}\n" + "import numpy as np\n" * ("np." in extra) + "import torch\n" * ("torch" in extra)
    script = holdfast.script(
        f"{imports}values = [random.random(), uuid.uuid4(), uuid.uuid1(), os.urandom(4), secrets.token_hex(4), "
        f"bytes(multiprocessing.current_process().authkey), next(tempfile._get_candidate_names()){extra}]\n"
        "for value in values: print(value)\n"
        "raise SystemExit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n"
    )
    ran = holdfast.run("--warm", "--nproc-per-node", "2", script, timeout_s=60)
    assert ran.status == 0 and "warm start" not in ran.err
    workers = [text.splitlines() for attempt in (1, 2) for text in outputs(holdfast, ran, attempt)]
    assert len(workers) == 4 and len({len(lines) for lines in workers}) == 1
    for lines in zip(*workers, strict=True):
        assert len(set(lines)) == 4, lines


def test_ps_shows_rank_and_script(holdfast: Holdfast) -> None:
    script = holdfast.script("import json, os\nprint(open('/proc/self/cmdline').read().split('\\0'))\n")
    ran = holdfast.run("--warm", "--nproc-per-node", "2", script, "--lr", "3")
    words = [sys.executable, "-u", str(script), "--lr", "3"]
    assert outputs(holdfast, ran) == [f"{[*words, f'[worker {rank}, attempt 1]', '']}\n" for rank in (0, 1)]


def test_workers_are_the_supervisors_own_children(holdfast: Holdfast) -> None:
    """Each in a session of its own, told of the supervisor's death, and with the exact end reported."""
    script = holdfast.script(
        """
        import json, os, signal
        parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")
        print("holdfast" in " ".join(parent[:3]), os.getsid(0) == os.getpid())
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGSEGV)
        import time; time.sleep(60)
        """
    )
    ran = holdfast.run("--warm", "--nproc-per-node", "2", "--max-restarts", "0", script)
    assert outputs(holdfast, ran) == ["True True\n"] * 2
    assert (ran.report["original"], ran.report["first"]["rank"]) == ({"exit_code": None, "signal": "SIGSEGV"}, 1)


def test_stdin_of_a_file_is_read_from_where_it_stands(holdfast: Holdfast) -> None:
    script = holdfast.script("import json, sys\nprint(sys.stdin.readline(), sys.stdin.read())\n")
    data = holdfast.dir / "data"
    data.write_text("skipped\nfirst\nrest\n")
    with data.open("rb", buffering=0) as stdin:
        stdin.seek(8)
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "run", "--no-checks", "--warm", script],
            stdin=stdin,
            capture_output=True,
            text=True,
            env=holdfast.env,
            cwd=holdfast.dir,
            timeout=30,
            check=False,
        )
    assert done.stdout == "[worker-0] first\n[worker-0]  rest\n[worker-0] \n", done.stderr


def test_a_job_file_may_ask_for_it(holdfast: Holdfast) -> None:
    """Two roles, two nurseries, and an environment of its own in one of them."""
    holdfast.script(
        "import json, os\nprint(os.environ['HINT'], 'attempt' in open('/proc/self/cmdline').read())\n", "a.py"
    )
    (holdfast.dir / "job.yaml").write_text(
        json.dumps(
            {
                "name": "two",
                "warm": True,
                "preload": ["decimal"],
                "roles": {
                    "left": {"count": 1, "command": [sys.executable, "-u", "a.py"], "env": {"HINT": "l"}},
                    "right": {"count": 2, "command": [sys.executable, "a.py", "x"], "env": {"HINT": "r"}},
                },
            }
        )
    )
    ran = holdfast.run("--job", holdfast.dir / "job.yaml")
    assert ran.status == 0 and "warm start" not in ran.err, ran.err
    logs = ran.job_dir / "attempt-1"
    assert [(logs / name / "stdout.log").read_text() for name in ("left-0", "right-1", "right-2")] == [
        "l True\n",
        "r True\n",
        "r True\n",
    ]


def test_a_sitecustomize_and_a_path_of_the_users_own_are_kept(holdfast: Holdfast) -> None:
    for name in ("one", "two"):
        (holdfast.dir / name).mkdir()
    (holdfast.dir / "one" / "sitecustomize.py").write_text("import json\nMARK = 7\nprint('customized', __name__)\n")
    path = f"{holdfast.dir / 'one'}:{holdfast.dir / 'two'}"
    text = """
        import os, subprocess, sys
        print(os.environ["PYTHONPATH"], sys.path, sys.modules["sitecustomize"].MARK)
        code = "import sys; print(sys.path, sys.modules['sitecustomize'].__file__)"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    """
    program = Program({"job.py": text})
    write(holdfast, program)
    cold = seen(holdfast, "--no-warm", program, PYTHONPATH=path)
    assert cold["stdout.log"].startswith("customized sitecustomize\n") and " 7\n" in cold["stdout.log"]
    assert seen(holdfast, "--warm", program, PYTHONPATH=path) == cold


def test_little_is_imported_that_the_script_did_not_ask_for(holdfast: Holdfast) -> None:
    script = holdfast.script("import sys\nprint(*sys.modules, sep='\\n')\n")
    [cold] = outputs(holdfast, holdfast.run("--no-warm", script))
    [warm] = outputs(holdfast, holdfast.run("--warm", script))
    more = set(warm.split()) - set(cold.split())
    assert more <= {"__future__", "_ctypes", "_socket", "_struct", "ctypes", "ctypes._endian", "gc", "struct", "types"}
    assert set(warm.split()) >= set(cold.split())


def test_the_interpreters_options_hold_in_the_workers_too(holdfast: Holdfast) -> None:
    text = "import sys, warnings\nprint(sys.flags, sys._xoptions, sys.warnoptions, __debug__)\nassert False\n"
    holdfast.script(text, "a.py")
    words = [sys.executable, "-u", "-O", "-B", "-W", "error::UserWarning", "-X", "dev", "a.py"]
    file = holdfast.dir / "job.yaml"
    shown = []
    for warm in (False, True):
        job = {"name": "options", "warm": warm, "roles": {"worker": {"count": 1, "command": words}}}
        file.write_text(json.dumps(job))
        ran = holdfast.run("--job", file)
        assert ran.status == 0 and "warm start" not in ran.err, ran.err
        shown += outputs(holdfast, ran)
    assert shown[0] == shown[1] != ""
