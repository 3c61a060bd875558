"""A rank whose program has ended with an exception while its process lives on is a failed rank, not a hung one."""

from __future__ import annotations

import pytest

from conftest import Holdfast
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
