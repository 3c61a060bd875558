"""Asked to leave, a rank that saves keeps its helpers until it has saved; everything else is asked at once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import Holdfast, wait_for
from holdfast.act.linux import dispositions

pytestmark = pytest.mark.real

SAVES_WITH_A_HELPER = """
import os, pathlib, signal, subprocess, sys, time

rank = os.environ.get("RANK", "0")
own_session = {"start_new_session": True} if "--session" in sys.argv else {}
helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **own_session)
left = subprocess.Popen(["sleep", "600"])  # holds our output, and is left behind


def save(*_):
    time.sleep(0.5)
    helper.stdin.write(b"weights")
    helper.stdin.close()
    pathlib.Path(f"saved{rank}").write_bytes(helper.stdout.read())
    pathlib.Path(f"helper{rank}").write_text(str(helper.wait()))
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
pathlib.Path(f"up{rank}").write_text("1")
while True:
    time.sleep(60)
"""

LOADS_DATA = """
import os, pathlib, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.tensor(i)


if __name__ == "__main__":
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    batches = iter(DataLoader(Slow(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]))
    rank = os.environ["RANK"]
    next(batches)
    pathlib.Path(f"up{rank}").write_text("1")
    while not asked:
        next(batches)
    for _ in range(20):
        next(batches)
    torch.save({}, f"saved{rank}")
"""


@pytest.mark.key
@pytest.mark.parametrize("own_session", [False, True])
def test_a_rank_that_catches_sigterm_saves_with_its_helpers(holdfast: Holdfast, own_session: bool) -> None:
    script = holdfast.script(SAVES_WITH_A_HELPER)
    more = ["--session"] if own_session else []
    process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", script, *more)
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}")
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process)
    assert (ran.status, ran.report["phrase"]) == (250, "StoppedByOperator")
    for rank in (0, 1):
        assert (holdfast.dir / f"saved{rank}").read_bytes() == b"weights"
        assert (holdfast.dir / f"helper{rank}").read_text() == "0", "no signal ended the helper"


@pytest.mark.torch
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_data_loader_workers_live_until_the_checkpoint_is_saved(holdfast: Holdfast, start: str) -> None:
    process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", holdfast.script(LOADS_DATA), start)
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}", timeout_s=120)
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process, timeout_s=60)
    assert ran.status == 250
    assert [(holdfast.dir / f"saved{rank}").exists() for rank in (0, 1)] == [True, True]


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param("{python} {script}; exit $?", id="no trap"),
        pytest.param("trap 'echo trapped >trap' TERM; {python} {script}", id="trap, trainer in the foreground"),
        pytest.param(
            "trap 'echo trapped >trap; kill -TERM $trainer' TERM; {python} {script} & trainer=$!; wait; wait",
            id="trap that passes it on",
        ),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_a_trainer_below_a_shell_saves(holdfast: Holdfast, shell: str) -> None:
    script = holdfast.script(SAVES_WITH_A_HELPER)
    command = shell.format(python=sys.executable, script=script)
    process = holdfast.start("run", "--no-checks", "--no-python", "bash", "-c", command)
    wait_for(holdfast.dir / "up0")
    process.send_signal(signal.SIGTERM)
    assert holdfast.finish(process).status == 250
    assert (holdfast.dir / "saved0").read_bytes() == b"weights"
    assert (holdfast.dir / "trap").exists() == ("trap" in shell)


def test_the_tree_of_a_rank_that_does_not_catch_sigterm_is_asked_at_once(holdfast: Holdfast) -> None:
    """The rank ignores it: the trainer below would otherwise hear nothing before SIGKILL."""
    trainer = holdfast.script(SAVES_WITH_A_HELPER, "trainer.py")
    script = holdfast.script(
        f"""
        import signal, subprocess, sys
        trainer = subprocess.Popen([sys.executable, {str(trainer)!r}])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        trainer.wait()
        """
    )
    process = holdfast.start("run", "--no-checks", script)
    wait_for(holdfast.dir / "up0")
    process.send_signal(signal.SIGTERM)
    assert holdfast.finish(process).status == 250
    assert (holdfast.dir / "saved0").read_bytes() == b"weights"


WAITS_FOR_A_TRAINER = """
import subprocess, sys

trainer = subprocess.Popen([sys.executable, {trainer!r}])
trainer.wait()
"""

SAVES_AT_CTRL_C = """
import multiprocessing, pathlib, time

if __name__ == "__main__":
    with multiprocessing.get_context("{start}").Pool(1) as pool:
        pool.apply(int)
        pathlib.Path("up").write_text("1")
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            pathlib.Path("saved").write_text(str(pool.apply_async(int, ("7",)).get(20)))
"""


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_ctrl_c_reaches_a_trainer_below_a_python_launcher_and_not_its_helpers(holdfast: Holdfast, start: str) -> None:
    """Every Python catches SIGINT: that a launcher does says nothing of who has something to save."""
    trainer = holdfast.script(SAVES_AT_CTRL_C.format(start=start), "trainer.py")
    script = holdfast.script(WAITS_FOR_A_TRAINER.format(trainer=str(trainer)))
    process = holdfast.start("run", "--no-checks", script)
    wait_for(holdfast.dir / "up")
    process.send_signal(signal.SIGINT)
    assert holdfast.finish(process).status == 250
    assert (holdfast.dir / "saved").read_text() == "7"


def test_what_a_process_does_with_signals() -> None:
    code = (
        "import json, signal; signal.signal(signal.SIGTERM, print); signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "print(json.dumps(1), flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == 1
        found = dispositions(child.pid)
        assert signal.SIGTERM in found.caught
        assert signal.SIGHUP in found.ignored
        assert signal.SIGUSR1 not in found.caught | found.ignored
        child.communicate(b"\n")
    gone = dispositions(child.pid)
    assert (gone.caught, gone.ignored, gone.state) == (frozenset(), frozenset(), "")
