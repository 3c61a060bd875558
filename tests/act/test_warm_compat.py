"""What a program sees when it was forked from a nursery, against what it sees as `python program`: the same."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import textwrap
import zipapp
from typing import Any

import pytest
from warm_scripts import PROGRAMS, Program
from warm_scripts_more import MORE_PROGRAMS
from warm_scripts_torch import DRAWS, KINDS_NUMPY, KINDS_TORCH, RANDOM_KINDS, TORCH_PROGRAMS, TRAINING
from warm_scripts_tried import TRIED

from conftest import Holdfast

pytestmark = pytest.mark.real


ALL = PROGRAMS | MORE_PROGRAMS | TRIED | TORCH_PROGRAMS


def beside(holdfast: Holdfast, name: str) -> Holdfast:
    """A `holdfast` in a directory of its own below, whose processes are still looked for at the end."""
    place = holdfast.dir / name
    place.mkdir()
    other = Holdfast(place)
    del other.env[other.token]
    other.token = holdfast.token
    other.env[other.token] = "1"
    return other


def write_program(holdfast: Holdfast, program: Program) -> None:
    for name, text in program.files.items():
        path = holdfast.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    if program.words[0] == "link.py":
        (holdfast.dir / "link.py").symlink_to("real/job.py")
    if program.words[0].endswith(".pyz"):
        zipapp.create_archive(holdfast.dir / program.words[0].removesuffix(".pyz"))


def start_program(holdfast: Holdfast, how: str, program: Program, **env: str) -> subprocess.Popen[str]:
    module = ["-m"] if program.words[0] == "-m" else []
    words = program.words[len(module) :]
    return holdfast.start("run", "--no-checks", how, "--max-restarts", "0", *module, *words, **env)


def what_came(holdfast: Holdfast, process: subprocess.Popen[str]) -> dict[str, Any]:
    """All that can be seen of the one worker of a run."""
    ran = holdfast.finish(process, timeout_s=90)
    assert "warm start" not in ran.err, ran.err
    logs = ran.job_dir / "attempt-1" / "worker-0"
    report = ran.report
    texts = {name: (logs / name).read_text() if (logs / name).exists() else "" for name in ("stdout.log", "stderr.log")}
    for name, text in texts.items():
        told = text.replace(report["job"]["id"], "JOB").replace(str(holdfast.dir), "HERE")
        texts[name] = re.sub(r"(Thread )?0x[0-9a-f]{4,}|Thread \d+|in [\d.]+s", "0x…", told)
    return {"original": report["original"], "outcome": report["outcome"], **texts}


def compare(holdfast: Holdfast, program: Program, **env: str) -> dict[str, Any]:
    """Run it both ways, side by side, in directories with names of the same length; what was seen."""
    sides = [beside(holdfast, name) for name in ("cold", "warm")]
    for side in sides:
        write_program(side, program)
    own = [{name: text.format(dir=side.dir) for name, text in env.items()} for side in sides]
    processes = [
        start_program(side, how, program, **variables)
        for side, how, variables in zip(sides, ("--no-warm", "--warm"), own, strict=True)
    ]
    cold, warm = (what_came(side, process) for side, process in zip(sides, processes, strict=True))
    assert warm == cold
    return cold


@pytest.mark.parametrize("name", ALL)
def test_a_program_sees_the_same(holdfast: Holdfast, name: str) -> None:
    program = ALL[name]
    missing = [module for module in program.needs if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"without {', '.join(missing)} there is nothing to compare")
    cold = compare(holdfast, program)
    assert cold["stdout.log"] or cold["stderr.log"] or cold["outcome"] != "succeeded"


def outputs(holdfast: Holdfast, ran: Any, attempt: int = 1) -> list[str]:
    """What each worker wrote to stdout, by rank (of fewer than ten)."""
    places = sorted((ran.job_dir / f"attempt-{attempt}").glob("worker-*"))
    return [(place / "stdout.log").read_text() for place in places]


def there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def test_workers_share_no_random_state(holdfast: Holdfast) -> None:
    """Nor do those of the next attempt: all that draws, draws something else in each of the four processes."""
    kinds = RANDOM_KINDS | (KINDS_NUMPY if there("numpy") else {}) | (KINDS_TORCH if there("torch") else {})
    imports = "import numpy as np\n" * there("numpy") + "import torch\n" * there("torch")
    script = holdfast.script(DRAWS.format(imports=imports, kinds=kinds))
    ran = holdfast.run("--warm", "--nproc-per-node", "2", script, timeout_s=90)
    assert ran.status == 0 and "warm start" not in ran.err, ran.err
    workers = [text.splitlines() for attempt in (1, 2) for text in outputs(holdfast, ran, attempt)]
    assert [len(lines) for lines in workers] == [len(kinds)] * 4
    for lines in zip(*workers, strict=True):
        assert len({line.partition("\t")[2] for line in lines}) == 4, lines


@pytest.mark.torch
def test_two_ranks_train_the_same(holdfast: Holdfast) -> None:
    """The same losses and parameters to the last bit, also where a rank died and the rest came from a checkpoint."""
    cold, warm = (beside(holdfast, name) for name in ("cold", "warm"))
    words = ("--warm", "--preload", "torch._dynamo", "--nproc-per-node", "2", warm.script(TRAINING), "die")
    resumed = warm.run(*words, timeout_s=90, OMP_NUM_THREADS="1")
    assert resumed.status == 0 and "warm start" not in resumed.err, resumed.err
    assert [attempt["attempt"] for attempt in resumed.report["attempts"]] == [1, 2]
    straight = cold.run("--no-warm", "--nproc-per-node", "2", cold.script(TRAINING), timeout_s=90, OMP_NUM_THREADS="1")
    for rank, expected in enumerate(outputs(cold, straight)):
        steps = expected.splitlines()
        assert steps[-1] == "end [('__main__', 6), ('__main__', 6)] False" and len(steps) == 7
        # Rank 0 may be a step further when it is stopped.
        assert outputs(warm, resumed, 1)[rank].splitlines()[:3] == steps[:3]
        assert outputs(warm, resumed, 2)[rank].splitlines() == ["resumed __main__ 3", *steps[3:]]


def test_ps_shows_the_script(holdfast: Holdfast) -> None:
    script = holdfast.script("import json, os\nprint(open('/proc/self/cmdline').read().split('\\0'))\n")
    ran = holdfast.run("--warm", "--nproc-per-node", "2", script, "--lr", "3")
    words = [sys.executable, "-u", str(script), "--lr", "3"]
    assert outputs(holdfast, ran) == [f"{[*words, '']}\n"] * 2


def test_workers_are_the_supervisors_own_children(holdfast: Holdfast) -> None:
    """Each in a session of its own, told of the supervisor's death, and with the exact end reported."""
    script = holdfast.script(
        """
        import json, os, signal
        parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")
        print("holdfast" in " ".join(parent[:3]), os.getsid(0) == os.getpid(), flush=True)
        if os.environ["RANK"] == "0":
            open("printed", "w").close()
            signal.pause()
        while not os.path.exists("printed"):
            pass
        os.kill(os.getpid(), signal.SIGSEGV)
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
            timeout=90,
            check=False,
        )
    assert done.stdout == "[worker-0] first\n[worker-0]  rest\n[worker-0] \n", done.stderr


def test_a_job_file_may_ask_for_it(holdfast: Holdfast) -> None:
    """Two roles, two nurseries, and an environment of its own in one of them."""
    holdfast.script(
        "import json, os\nprint(os.environ['HINT'], 'HOLDFAST_NURSERY' in open('/proc/self/environ').read())\n", "a.py"
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
    text = """
        import os, subprocess, sys
        print(os.environ["PYTHONPATH"], sys.path, sys.modules["sitecustomize"].MARK)
        code = "import sys; print(sys.path, sys.modules['sitecustomize'].__file__)"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    """
    own = "import json\nMARK = 7\nprint('customized', __name__)\n"
    program = Program({"job.py": text, "one/sitecustomize.py": own, "two/x.py": ""})
    cold = compare(holdfast, program, PYTHONPATH="{dir}/one:{dir}/two")
    assert cold["stdout.log"].startswith("customized sitecustomize\n") and " 7\n" in cold["stdout.log"]


SURROUNDINGS = """
import json, locale, os, sys, warnings
print(sys.path, sys.flags, sys.warnoptions, sys._xoptions, sys.pycache_prefix, sys.orig_argv)
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s and (s.encoding, s.errors, s.line_buffering, s.write_through, s.mode, s.name))
print(locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), warnings.filters, hash("a") == hash("b"))
import faulthandler, time, tracemalloc
print(faulthandler.is_enabled(), tracemalloc.is_tracing(), time.tzname, sys.get_int_max_str_digits())
if os.environ.get("PYTHONHASHSEED"): print(hash("abc"))
warnings.warn("look"); warnings.warn("old", DeprecationWarning)
"""


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONPATH": ":lib:{dir}/x::/nowhere"},
        {"PYTHONSAFEPATH": "1"},
        {"PYTHONWARNINGS": "default,ignore::UserWarning", "PYTHONHASHSEED": "7"},
        {"PYTHONUNBUFFERED": "", "PYTHONDEVMODE": "1", "PYTHONTRACEMALLOC": "2"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "Asia/Tokyo"},
        {"PYTHONIOENCODING": "latin-1:replace", "PYTHONPYCACHEPREFIX": "pc", "PYTHONFAULTHANDLER": ""},
        {"PYTHONOPTIMIZE": "2", "PYTHONINTMAXSTRDIGITS": "1000", "PYTHONMALLOC": "debug"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_variables_of_python_hold(holdfast: Holdfast, env: dict[str, str]) -> None:
    """The job file gives them to the worker alone: holdfast itself runs without them."""
    sides = [beside(holdfast, name) for name in ("cold", "warm")]
    shown = []
    for side, warm in zip(sides, (False, True), strict=True):
        side.script(SURROUNDINGS)
        own = {name: text.format(dir=side.dir) for name, text in env.items()}
        role = {"count": 1, "command": [sys.executable, "job.py"], "env": own}
        (side.dir / "job.yaml").write_text(json.dumps({"name": "one", "warm": warm, "roles": {"worker": role}}))
        shown.append(what_came(side, side.start("run", "--no-checks", "--job", side.dir / "job.yaml")))
    assert shown[0] == shown[1]
    assert shown[0]["outcome"] == "succeeded" and shown[0]["stdout.log"]


@pytest.mark.parametrize("what", ["closed", "pipe", "tty", "limits", "ignored"])
def test_what_the_shell_gave_is_what_the_worker_has(holdfast: Holdfast, what: str) -> None:
    text = """
        import json, os, resource, signal, sys
        print(sys.stdin and (sys.stdin.isatty(), sys.stdin.name, sys.stdin.readline()), os.umask(0), os.nice(0))
        print(resource.getrlimit(resource.RLIMIT_NOFILE), [str(signal.getsignal(n)) for n in (1, 2, 10, 13, 20, 40)])
        print(signal.pthread_sigmask(0, ()), sorted(os.listdir("/proc/self/fd"), key=int))
    """

    def prepare() -> None:
        if what == "closed":
            os.close(0)
        elif what == "limits":
            os.umask(0o077)
            os.nice(3)
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
        elif what == "ignored":
            for number in (1, 2, 10, 20, 40):
                signal.signal(number, signal.SIG_IGN)

    shown = []
    for name, how in (("cold", "--no-warm"), ("warm", "--warm")):
        side = beside(holdfast, name)
        side.script(text)
        ours, theirs = pty.openpty() if what == "tty" else os.pipe()[::-1]
        os.write(ours, b"typed\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "run", "--no-checks", how, "job.py"],
            stdin=theirs,
            stdout=-1,
            stderr=-1,
            text=True,
            env=side.env,
            cwd=side.dir,
            preexec_fn=prepare,
        )
        shown.append(what_came(side, process))
        os.close(ours)
        os.close(theirs)
    assert shown[0] == shown[1]
    assert shown[0]["outcome"] == "succeeded", shown


def test_generators_that_libraries_keep_differ_too(holdfast: Holdfast) -> None:
    """Those that were given a seed give the same numbers everywhere, as they would in a fresh process."""
    numpy = importlib.util.find_spec("numpy") is not None
    holdfast.script(
        "import __main__, random\nOWN, SEEDED, LATER = random.Random(), random.Random(42), random.Random()\n"
        "LATER.seed(3)\nFILE = __main__.__file__\n"
        + ("import numpy.random as n\nNEW, GIVEN = n.default_rng(), n.default_rng(5)\n" if numpy else ""),
        "kept.py",
    )
    script = holdfast.script(
        "import kept, random\nprint(kept.OWN.random())\n"
        + ("print(kept.NEW.random())\n" if numpy else "")
        + "print(kept.SEEDED.random(), kept.LATER.random(), kept.FILE, random.Random.seed.__qualname__)\n"
        + ("print(kept.GIVEN.random())\n" if numpy else "")
    )
    ran = holdfast.run("--warm", "--preload", "kept", "--nproc-per-node", "2", script, PYTHONPATH=str(holdfast.dir))
    first, second = (text.splitlines() for text in outputs(holdfast, ran))
    assert "warm start" not in ran.err
    own = 2 if numpy else 1
    assert all(one != other for one, other in zip(first[:own], second[:own], strict=True))
    assert first[own:] == second[own:] and first[own].startswith("0.6394267984578837 ")
    assert first[own].endswith(f"{script} Random.seed")


def test_little_is_imported_that_the_script_did_not_ask_for(holdfast: Holdfast) -> None:
    script = holdfast.script("import sys\nprint(*sys.modules, sep='\\n')\n")
    [cold] = outputs(holdfast, holdfast.run("--no-warm", script))
    [warm] = outputs(holdfast, holdfast.run("--warm", script))
    more = set(warm.split()) - set(cold.split())
    known = {"__future__", "_ctypes", "_socket", "_struct", "ctypes", "ctypes._endian", "gc", "struct", "types"}
    if sys.version_info >= (3, 12):
        known.add("warnings")  # from that version on nearly each program has it
    assert more <= known
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
