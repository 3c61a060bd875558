"""Checkpoints are seen by the files that workers have open, and count once they are finished."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.observe.checkpoint_files import CheckpointWatch


class Writer:
    """A process that does what it reads, a line of Python at a time."""

    def __init__(self, directory: Path) -> None:
        code = "import os, sys\nfor line in sys.stdin:\n    exec(line, globals()); print('done', flush=True)"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory
        )
        self.pid = self.process.pid

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path)
    yield made
    made.end()


def test_a_checkpoint_that_was_open_and_is_closed_is_finished(writer: Writer, tmp_path: Path) -> None:
    watch = CheckpointWatch()
    writer.do("f = open('last.ckpt', 'wb'); f.write(b'x')")
    watch.look([writer.pid])
    assert watch.waits
    assert watch.finished == []
    writer.do("f.close()")
    watch.look([writer.pid])
    assert watch.finished == [str(tmp_path / "last.ckpt")]
    assert not watch.waits


@pytest.mark.parametrize(
    ("opened", "named"),
    [
        ("model.pt.tmp", "model.pt"),
        ("tmp-checkpoint-500/model.safetensors", "checkpoint-500/model.safetensors"),
        (".tmp_state.ckpt", "state.ckpt"),
        ("step_500/__0_0.distcp", "step_500/__0_0.distcp"),
    ],
)
def test_it_may_get_its_name_when_it_is_finished(writer: Writer, tmp_path: Path, opened: str, named: str) -> None:
    watch = CheckpointWatch()
    (tmp_path / opened).parent.mkdir(exist_ok=True)
    writer.do(f"f = open({opened!r}, 'wb'); f.write(b'x')")
    watch.look([writer.pid])
    above = "/" in opened and opened.split("/")[0] != named.split("/")[0]
    pair = (opened.split("/")[0], named.split("/")[0]) if above else (opened, named)
    writer.do(f"f.close(); os.rename{pair!r}")
    watch.look([writer.pid])
    assert watch.finished == [str(tmp_path / named)]


def test_who_dies_finishes_nothing(writer: Writer) -> None:
    watch = CheckpointWatch()
    writer.do("f = open('last.ckpt', 'wb'); f.write(b'x'); f.flush()")
    watch.look([writer.pid])
    writer.end()
    watch.look([writer.pid])
    assert watch.finished == []


@pytest.mark.parametrize("then", ["pass", "os.unlink('last.ckpt')", "os.rename('last.ckpt', 'elsewhere')"])
def test_an_empty_or_removed_file_is_no_checkpoint(writer: Writer, then: str) -> None:
    watch = CheckpointWatch()
    writer.do("f = open('last.ckpt', 'wb')" + ("" if then == "pass" else "; f.write(b'x')"))
    watch.look([writer.pid])
    writer.do(f"f.close(); {then}")
    watch.look([writer.pid])
    assert watch.finished == []


@pytest.mark.parametrize(
    "opening",
    [
        "open('train.log', 'wb')",
        "open('metrics.csv', 'wb')",
        "open('events.out.tfevents.1', 'wb')",
        "open('data.txt', 'wb')",
        "open('model.pt', 'rb')",
        "open('ours/last.ckpt', 'wb')",
        "open('/dev/null', 'wb')",
        "os.fdopen(os.pipe()[1], 'wb')",
        "__import__('socket').socket()",
        "os.fdopen(os.memfd_create('x.ckpt'), 'wb')",
    ],
)
def test_other_files_are_none(writer: Writer, tmp_path: Path, opening: str) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "model.pt").write_bytes(b"x")
    watch = CheckpointWatch([str(tmp_path / "ours")])
    writer.do(f"f = {opening}")
    watch.look([writer.pid])
    assert not watch.waits


def test_a_child_of_a_worker_writes_for_it(writer: Writer) -> None:
    watch = CheckpointWatch()
    child = "f = open('x.pt', 'wb'); print(flush=True); input()"
    writer.do("import subprocess")
    writer.do(f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=-1, stdout=-1); p.stdout.readline()")
    watch.look([writer.pid])
    assert watch.waits
    writer.do("p.kill(); p.wait()")


@pytest.mark.real
def test_a_finished_checkpoint_makes_the_same_failure_another_one(holdfast: Holdfast) -> None:
    """Nothing in its output counts; rank 0 saves slowly, and rank 1 fails in the same way each time."""
    script = holdfast.script(
        textwrap.dedent(
            """
            import os, sys, time
            if os.environ["RANK"] == "0":
                with open("last.ckpt", "wb") as file:
                    file.write(b"state")
                    print("saving", flush=True)
                    time.sleep(1)
                open("saved", "w").close()
                time.sleep(60)
            while not os.path.exists("saved"):
                time.sleep(0.01)
            os.unlink("saved")
            sys.exit(7)
            """
        )
    )
    report = holdfast.run("--nproc-per-node", "2", "--max-restarts", "2", script).report
    assert [attempt["decision"]["kind"] for attempt in report["attempts"]] == ["restart", "restart", "fail"]
    assert [[sign["kind"] for sign in attempt["signs"]] for attempt in report["attempts"]] == [["checkpoint"]] * 3
    assert "last.ckpt was finished" in report["attempts"][1]["decision"]["reason"]
    assert "both restarts are used" in report["attempts"][2]["decision"]["reason"]
