"""A rank whose program has ended with an exception while its process lives on is a failed rank, not a hung one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.node.unended_ranks import ends_with_uncaught
from holdfast.observe.python_stacks import find_py_spy

pytestmark = pytest.mark.real

#: torch's handler of uncaught exceptions puts the rank before each line of the traceback.
AS_TORCH = """
import atexit, os, signal, sys, threading, time, traceback

def tagged(*exception):
    for line in "".join(traceback.format_exception(*exception)).splitlines():
        print(f"[rank{os.environ['RANK']}]: {line}", file=sys.stderr, flush=True)

sys.excepthook = tagged
print("step 1", flush=True)
if os.environ["RANK"] == "0" and os.environ["WORLD_SIZE"] == "2":
    time.sleep(10**6)
"""
FAILS = "raise IndexError('label 17 is out of range for 10 classes')\n"
KEEPERS = {
    "a thread": "threading.Thread(target=time.sleep, args=(10**6,)).start()\n",
    "a thread that prints": (
        "def told():\n    while True:\n        print('alive', flush=True)\n        time.sleep(0.1)\n"
        "threading.Thread(target=told).start()\n"
    ),
    "atexit": "atexit.register(time.sleep, 10**6)\n",
    "a handler for SIGTERM": "signal.signal(signal.SIGTERM, lambda *_: None)\natexit.register(time.sleep, 10**6)\n",
    "SIGTERM ignored": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\natexit.register(time.sleep, 10**6)\n",
}
#: As a program without torch: Python itself prints the traceback.
PLAIN = """
import atexit, os, signal, sys, threading, time, traceback

print("step 1", flush=True)
if os.environ["RANK"] == "0" and os.environ["WORLD_SIZE"] == "2":
    time.sleep(10**6)
"""
PLAIN_KEEPERS = {
    **{name: keeper for name, keeper in KEEPERS.items() if name != "a thread that prints"},
    "a destructor": "class Group:\n    def __del__(self):\n        time.sleep(10**6)\nkept = Group()\n",
    "a pool": ("import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor().submit(time.sleep, 10**6)\n"),
}
AS_RECORD = """
import json, os, threading, time
threading.Thread(target=time.sleep, args=(10**6,)).start()
try:
    raise IndexError("label 17 is out of range for 10 classes")
except IndexError as error:
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": f"IndexError: {error}", "extraInfo": {"timestamp": "1"}}}, file)
    raise
"""


@pytest.mark.key
@pytest.mark.parametrize("keeper", KEEPERS.values(), ids=KEEPERS)
def test_a_rank_that_does_not_end_after_its_exception_is_failed(holdfast: Holdfast, keeper: str) -> None:
    script = holdfast.script(AS_TORCH + keeper + FAILS)
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", "--leftover-wait", "0.5", script)
    assert ran.report["exception"] == "IndexError"
    assert ran.report["first"]["rank"] == 1
    assert ran.report["original"] == {"exit_code": 1, "signal": None}
    assert "its process did not end by itself for" in ran.report["reason"]
    assert "rank 1 has printed its exception, and its process has not ended for" in ran.err


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not here, and stacks show that the program is over")
@pytest.mark.parametrize(
    ("keeper", "words"),
    [*((keeper, ()) for keeper in PLAIN_KEEPERS.values()), (KEEPERS["a thread"], ("--warm",))],
    ids=[*PLAIN_KEEPERS, "a thread of a warm worker"],
)
def test_a_plain_rank_that_does_not_end_after_its_exception_is_failed(
    holdfast: Holdfast, keeper: str, words: tuple[str, ...]
) -> None:
    script = holdfast.script(PLAIN + keeper + FAILS)
    options = ("--nproc-per-node", "2", "--max-restarts", "0", "--leftover-wait", "0.5", *words)
    ran = holdfast.run(*options, script, timeout_s=90)
    report = ran.report
    assert (report["exception"], report["first"]["rank"]) == ("IndexError", 1), ran.err
    assert report["original"] == {"exit_code": 1, "signal": None}
    assert "its process did not end by itself for" in report["reason"]


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not here, and stacks show that the program is over")
def test_a_plain_rank_with_a_hopeless_exception_is_not_tried_again(holdfast: Holdfast) -> None:
    script = holdfast.script(PLAIN + KEEPERS["a thread"] + "import no_such_module\n")
    ran = holdfast.run("--max-restarts", "3", "--leftover-wait", "0.5", script, timeout_s=90)
    assert (ran.report["exception"], len(ran.report["attempts"])) == ("ModuleNotFoundError", 1), ran.err


HANDLED = "try:\n    " + FAILS + "except IndexError:\n    traceback.print_exc()\n"
GOES_ON = "print('step 2', flush=True)\nos._exit(0)\n"
COMPUTES = "until = time.monotonic() + 45\nwhile time.monotonic() < until:\n    sum(range(10**5)); time.sleep(0.05)\n"


@pytest.mark.parametrize(
    ("program", "shell", "exception"),
    [
        (KEEPERS["a thread"] + FAILS, False, "IndexError"),
        (KEEPERS["a thread"] + FAILS, True, "IndexError"),
        (HANDLED + COMPUTES + GOES_ON, True, ""),
        (HANDLED + "time.sleep(45)\n" + GOES_ON, False, ""),
    ],
    ids=["silent", "silent below a shell", "works below a shell", "tries again later"],
)
def test_without_a_stack_silence_shows_that_the_program_is_over(
    holdfast: Holdfast, tmp_path: Path, program: str, shell: bool, exception: str
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)  # no py-spy lies beside it
    holdfast.python = str(python)
    plain = PLAIN.replace("10**6", "50").replace("time.sleep(50)", "time.sleep(50), os._exit(0)")
    script = holdfast.script(plain + program)
    command = ("--no-python", "sh", "-c", f"{python} {script}; exit $?") if shell else (script,)
    ran = holdfast.run(
        *("--nproc-per-node", "2", "--max-restarts", "0", "--leftover-wait", "0", *command),
        timeout_s=150,
        PATH="/usr/bin:/bin",
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
    )
    assert ran.report["exception"] == exception, ran.err
    assert ran.report["outcome"] == ("failed" if exception else "succeeded")
    if exception:
        assert ran.report["first"]["rank"] == 1


UNCAUGHT = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    f()\nIndexError: 17\n'


@pytest.mark.parametrize(
    ("text", "over"),
    [
        (UNCAUGHT, True),
        (f"step 1\n{UNCAUGHT}", True),
        (UNCAUGHT.replace('"t.py", line 3, in <module>', '"<frozen runpy>", line 198, in _run_module_as_main'), True),
        (UNCAUGHT.replace("<module>", "train"), False),
        (f"{UNCAUGHT}trying again in 60 s\n", False),
        (f"ERROR: {UNCAUGHT}", False),
        ("Traceback (most recent call last):\n", False),
        ("", False),
    ],
)
def test_only_a_traceback_that_left_the_module_and_is_the_last_word_is_a_doubt(text: str, over: bool) -> None:
    assert ends_with_uncaught(text) is over


def test_the_error_file_of_record_is_a_sign_too(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", "--leftover-wait", "0.5", holdfast.script(AS_RECORD))
    assert ran.report["exception"] == "IndexError"
    assert "its process did not end by itself for" in ran.report["reason"]


def test_an_exception_that_is_only_printed_ends_nothing(holdfast: Holdfast) -> None:
    """It works on for longer than two looks at its output."""
    script = holdfast.script(
        """
        import time, traceback
        try:
            raise IndexError("this is handled")
        except IndexError:
            traceback.print_exc()
        time.sleep(11)
        """
    )
    ran = holdfast.run("--leftover-wait", "0", script)
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)


HANGS = {
    "over": ("threading.Thread(target=time.sleep, args=(10**6,)).start()\n" + FAILS, "IndexError"),
    "printed only": ("try:\n    " + FAILS + "except IndexError:\n    traceback.print_exc()\ntime.sleep(10**6)\n", ""),
}


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not here, and stacks tell whether the program is over")
@pytest.mark.parametrize(("code", "exception"), HANGS.values(), ids=HANGS)
def test_a_hang_after_the_end_of_a_program_is_explained_by_its_exception(
    holdfast: Holdfast, code: str, exception: str
) -> None:
    script = holdfast.script("import threading, time, traceback\nprint('step 1', flush=True)\n" + code)
    ran = holdfast.run("--max-restarts", "0", "--hang-timeout", "3", script)
    assert ran.report["exception"] == exception
    assert (ran.report["phrase"] == "HungWorker") == (not exception)
    assert ("its process did not end: it waits in _shutdown" in ran.report["reason"]) == bool(exception)
