"""Other users of the machine: their jobs count before a reset, and they may neither report nor release here."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import Holdfast, Ran, wait_for
from holdfast import children
from holdfast.decide.faults.fault_policy import GraceTimes
from holdfast.decide.faults.graceful_tolerance import ClearFaults, Isolate, ToleranceAction
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Remedy
from holdfast.node.devices.buffered_log import BufferedFaultLog
from holdfast.node.devices.device_locks import DeviceLocks
from holdfast.node.devices.device_resets import ResetCommand, Resets
from holdfast.node.devices.vendor_query import ASK_S, DeviceUsers, sight
from holdfast.observe.devices.device_users import answered, question, unseen
from holdfast.reactor import Reactor
from processes import idle
from typed_here import typed

__all__ = ["idle"]  # fixtures

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


# ------------------------------------------------------------------------------------- one lock for the whole machine


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A folder in which every user may make files, as /run/lock is."""
    folder = tmp_path / "lock"
    folder.mkdir()
    folder.chmod(0o1777)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    return folder


HOLDS = """
import os, signal, sys
from pathlib import Path
from holdfast.node.devices.device_locks import DeviceLocks
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
locks = DeviceLocks(Path(sys.argv[1]), "n1", lambda text: None, machine=Path(sys.argv[2]))
print(locks.share(["gpu0"]), flush=True)
signal.pause()
"""


def test_a_reset_waits_for_another_users_job(everybodys: Path, tmp_path: Path) -> None:
    said: list[str] = []
    mine = DeviceLocks(tmp_path, "n1", said.append, machine=everybodys)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, "/nowhere", everybodys], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "True\n"
        assert mine.share(["gpu0"]), "two may use it"
        mine.let_go(["gpu0"])
        assert not mine.claim(["gpu0"]), "but no job may reset it meanwhile"
        assert mine.holders(["gpu0"]) == (other.pid,)
        assert mine.claim(["gpu1"])
        waiting = mine.wait(["gpu0"], alone=True)
        assert not select.select([waiting.pidfd], [], [], 0.1)[0]
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert select.select([waiting.pidfd], [], [], 20)[0]
    assert waiting.ended()
    mine.close()
    assert said == []


def test_a_lock_file_can_be_read_by_all_and_written_by_nobody(everybodys: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        locks = DeviceLocks(tmp_path, "n1", print, machine=everybodys)
        assert locks.share(["gpu0"])
    finally:
        os.umask(before)
    (file,) = everybodys.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("holdfast-gpu0.lock", 0o444)
    locks.close()


def test_what_somebody_put_in_its_place_is_not_followed(everybodys: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (everybodys / "holdfast-gpu0.lock").symlink_to(tmp_path / "precious")
    os.mkfifo(everybodys / "holdfast-gpu1.lock")
    locks = DeviceLocks(tmp_path, "n1", print, machine=everybodys)
    assert locks.claim(["gpu0", "gpu1"])
    assert len(locks.fds(["gpu0", "gpu1"])) == 2, "the state directory's own"
    locks.close()
    assert (tmp_path / "precious").read_text() == "as it was"


# ---------------------------------------------------------------------------------------- who has the device open


def test_how_many_cannot_be_looked_into(tmp_path: Path) -> None:
    assert unseen(tmp_path) == -1, "where not even the first process is shown, others are hidden"
    for pid, words in (("1", "init"), ("2", ""), ("30", "train"), ("self", "x")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "cmdline").write_text(words)
    assert unseen(tmp_path) == 0
    assert sight(["gpu0"], 0) == ""
    assert "gpu0: 1 process of other users cannot be looked into" in sight(["gpu0"], 1)
    assert "are hidden here" in sight(["gpu0"], -1)


@needs_root
def test_an_ordinary_user_cannot_look_into_others() -> None:
    program = "from holdfast.observe.devices.device_users import unseen; import os; os.setuid(65534); print(unseen())"
    ran = subprocess.run([sys.executable, "-c", program], text=True, timeout=60, capture_output=True, check=False)
    assert int(ran.stdout) > 0, ran.stderr


def test_what_the_vendors_tool_is_asked_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert question(["gpu0"]) == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Device Minor: \t 3\n")
    assert question(["gpu3", "gpu4"], tmp_path)[:3] == [str(tool), "-i", "0000:3b:00.0,4"]
    assert question(["npu0"]) == question(["n1"]) == []
    assert answered("1234, python3\n 77 , [Not Found]\n[N/A], x\nNo running processes found\n\n0, x\n") == {
        1234: "python3",
        77: "[Not Found]",
    }


class VendorResets:
    """Resets of one GPU beside a tool that answers what stands in a file, and everything they say."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.folder = folder
        self.reactor = Reactor(lambda: self.now)
        self.actions: list[ToleranceAction] = []
        self.said: list[str] = []
        self.now = 1000.0
        (folder / "users").touch()
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{tool}\n")
        (folder / "nvidia-smi").chmod(0o755)
        self.resets = Resets(
            ResetCommand(f"touch {folder}/done", group=1, logs=folder),
            GraceTimes(reset_s=60),
            self.reactor,
            self.heard,
            DeviceUsers(
                DeviceLocks(folder, "n1", self.said.append),
                visible=lambda devices: {},
                hidden=lambda: 7,
                question=lambda devices: [str(folder / "nvidia-smi")],
            ),
            self.said.append,
            BufferedFaultLog(None, default_policy()),
        )

    def begins(self) -> None:
        assert self.resets.level("gpu0", Remedy.RESET_NOW, self.now) == []

    def step(self) -> list[ToleranceAction]:
        self.reactor.wait(longest_s=20)
        taken, self.actions = self.actions, []
        return taken

    def heard(self, fd: int, now: float) -> None:
        self.actions += self.resets.ready(fd, now)

    def until(self, kind: type[ToleranceAction]) -> ToleranceAction:
        for _ in range(100):
            for action in self.step():
                if isinstance(action, kind):
                    self.resets.close()
                    return action
        raise AssertionError(f"no {kind.__name__}: {self.said}")

    @property
    def asked(self) -> int:
        return len((self.folder / "asked").read_text().split())

    @property
    def done(self) -> bool:
        return (self.folder / "done").exists()


def test_a_reset_waits_for_a_process_that_only_the_vendors_tool_shows(
    tmp_path: Path, idle: subprocess.Popen[bytes]
) -> None:
    alone = VendorResets(tmp_path, f"cat {tmp_path}/users")
    (tmp_path / "users").write_text(f"{idle.pid}, python3\n")
    alone.begins()
    assert children.helpers(), "the tool is a child of ours"
    assert alone.step() == []
    assert f"gpu0: used by pid {idle.pid} (python3); the reset waits for its end" in alone.said[-1]
    assert not alone.done
    (tmp_path / "users").write_text("")
    idle.kill()
    assert alone.until(ClearFaults) == ClearFaults(devices=("gpu0",))
    assert alone.asked == 2, "another user may have come meanwhile"
    assert not any("looked into" in text for text in alone.said), "the tool knows them all"
    assert [path.suffix for path in tmp_path.glob("reset-*")] == [".log"]


@pytest.mark.parametrize(("tool", "words"), [("exit 9", "ended with status 9"), ("kill -9 $$", "ended with status -9")])
def test_a_tool_that_fails_is_told_with_what_is_not_known(tmp_path: Path, tool: str, words: str) -> None:
    alone = VendorResets(tmp_path, tool)
    alone.begins()
    assert alone.until(ClearFaults) == ClearFaults(devices=("gpu0",))
    said = "\n".join(alone.said)
    assert words in said
    assert "7 processes of other users cannot be looked into" in said


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    alone = VendorResets(tmp_path, "exec sleep 600")
    alone.begins()
    assert alone.resets.next_wake() == alone.now + ASK_S
    alone.now += ASK_S
    alone.resets.tick(alone.now)
    assert f"did not answer within {ASK_S:.0f} s" in "\n".join(alone.said)
    assert alone.until(ClearFaults) == ClearFaults(devices=("gpu0",))


def test_a_user_that_is_out_of_sight_cannot_be_waited_for(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    alone = VendorResets(tmp_path, f"echo {gone.pid}, python3")
    alone.begins()
    isolate = alone.until(Isolate)
    assert isinstance(isolate, Isolate)
    assert f"used by pid {gone.pid}, which cannot be seen from here" in isolate.reason
    assert not alone.done


def test_a_try_that_is_given_up_ends_the_question_too(tmp_path: Path) -> None:
    alone = VendorResets(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    alone.begins()
    pid = int(wait_for(tmp_path / "pid"))
    alone.resets.close()
    assert not Path(f"/proc/{pid}").exists()


# ----------------------------------------------------------------------------- another user at the command line

ANOTHER = """
import contextlib, io, json, os, sys
from holdfast.cli import main

def run(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            return end.code, out.getvalue(), err.getvalue()

# All that a command imports is imported while it can be found: the interpreter may lie in root's own directory.
target, os.environ["HOLDFAST_HOME"] = os.environ["HOLDFAST_HOME"], sys.argv[1]
for words in (["faults", "report", "--device", "a", "--code", "79"], ["release", "a", "--reason", "b"], ["devices"],
              ["devices", "--json"], ["jobs"], ["show", "x"], ["faults", "nonsense"]):
    run(words)
os.environ["HOLDFAST_HOME"] = target
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(json.dumps([run(words) for words in json.loads(sys.argv[2])]))
"""


class Another:
    """Commands of another user in the state directory of this one."""

    def __init__(self, holdfast: Holdfast) -> None:
        self.holdfast = holdfast
        (holdfast.dir / "another.py").write_text(ANOTHER)

    def __call__(self, *each: Sequence[str]) -> list[Ran]:
        scratch = self.holdfast.dir / "scratch"
        command = [sys.executable, str(self.holdfast.dir / "another.py"), str(scratch), json.dumps(each)]
        ran = subprocess.run(
            command, env=self.holdfast.env, text=True, timeout=60, capture_output=True, cwd="/", check=False
        )
        assert ran.returncode == 0, ran.stderr
        return [Ran(status, out, err, self.holdfast.home) for status, out, err in json.loads(ran.stdout)]


@pytest.fixture
def stranger_after_fault(holdfast: Holdfast) -> Another:
    ran = typed_by_owner(holdfast, "faults", "report", "--device", "gpu3", "--code", "79")
    assert ran.returncode == 0, ran.stderr
    return Another(holdfast)


def typed_by_owner(holdfast: Holdfast, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of this user."""
    return typed(*words, cwd=holdfast.dir, env=holdfast.env)


def let_others_in(holdfast: Holdfast) -> None:
    """As far as the file system goes, everybody may do everything there."""
    for path in (holdfast.home, *holdfast.home.rglob("*")):
        path.chmod(0o777)
    for parent in (holdfast.dir, *holdfast.dir.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


@needs_root
def test_another_user_is_refused_whatever_the_modes_say(holdfast: Holdfast, stranger_after_fault: Another) -> None:
    before = json.loads(typed_by_owner(holdfast, "devices", "--json").stdout)
    let_others_in(holdfast)
    each = [
        ("faults", "report", "--device", "gpu0", "--code", "79"),
        ("release", "gpu3", "--reason", "I say so"),
        ("devices",),
    ]
    for words, ran in zip(each, stranger_after_fault(*each), strict=True):
        assert ran.status == 2, (words, ran.err)
        assert "belong to another user (uid 0)" in ran.err, words
        assert "sudo -u" in ran.err, words
    holdfast.home.chmod(0o700)  # its owner would be refused, too, while others can write there
    assert json.loads(typed_by_owner(holdfast, "devices", "--json").stdout) == before


@needs_root
def test_root_is_another_user_too(holdfast: Holdfast, stranger_after_fault: Another) -> None:
    assert stranger_after_fault.holdfast is holdfast
    for path in (holdfast.home, *holdfast.home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    for words in (("faults", "report", "--device", "gpu0", "--code", "79"), ("release", "gpu3", "--reason", "x")):
        ran = typed_by_owner(holdfast, *words)
        assert (ran.returncode, "belong to another user (uid 65534)" in ran.stderr) == (2, True), ran.stderr


@needs_root
@pytest.mark.parametrize("closed", [".", "holdfast.db"])
def test_a_reader_of_what_is_closed_is_told_that_it_cannot_be_read(
    holdfast: Holdfast, stranger_after_fault: Another, closed: str
) -> None:
    let_others_in(holdfast)
    for path in holdfast.home.glob("holdfast.db*"):
        os.chown(path, NOBODY, NOBODY)  # the modes alone keep the reader out
        if closed != ".":
            path.chmod(0)
    if closed == ".":
        holdfast.home.chmod(0)
    each = [("devices",), ("devices", "--json"), ("jobs",), ("show", "x")]
    for words, ran in zip(each, stranger_after_fault(*each), strict=True):
        assert "cannot be read" in ran.err, words
        assert "written" not in ran.err, words
        assert "Traceback" not in ran.err, words
        assert "ls -ld" in ran.err, words
        assert ran.status == 2 or words == ("jobs",)


@needs_root
def test_a_writer_into_what_is_closed_is_told_so(holdfast: Holdfast, stranger_after_fault: Another) -> None:
    each = [("faults", "report", "--device", "a", "--code", "79"), ("release", "gpu3", "--reason", "b")]
    let_others_in(holdfast)
    for path in holdfast.home.glob("holdfast.db*"):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o400)
    for ran in stranger_after_fault(*each):
        assert (ran.status, "cannot be written" in ran.err) == (2, True), ran.err
    holdfast.home.chmod(0)
    for ran in stranger_after_fault(*each):
        assert (ran.status, "ls -ld" in ran.err, "Traceback" in ran.err) == (2, True, False), ran.err


@needs_root
@pytest.mark.real
def test_another_user_is_told_so_at_the_socket(holdfast: Holdfast) -> None:
    process = holdfast.start(
        "run",
        "--no-checks",
        holdfast.script(UP_FOR_A_MINUTE),
        CUDA_VISIBLE_DEVICES="0",
        HOLDFAST_KERNEL_LOG="/dev/null",
    )
    wait_for(holdfast.dir / "up")
    (job,) = (holdfast.home / "jobs").iterdir()
    limit = time.monotonic() + 60
    while not (job / "faults.sock").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    let_others_in(holdfast)
    program = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); os.chdir(sys.argv[1]); os.setuid(65534)\n"
    program += "s.connect('faults.sock'); s.settimeout(20); print(s.recv(4096).decode())"
    told = subprocess.run(
        [sys.executable, "-c", program, job], text=True, capture_output=True, timeout=60, check=False
    )  # fmt: skip
    assert "by uid 0 only, not 65534" in told.stdout, told.stderr
    with socket.socket(socket.AF_UNIX) as mine:
        mine.settimeout(20)
        folder = os.open(job, os.O_PATH)
        mine.connect(f"/proc/self/fd/{folder}/faults.sock")
        os.close(folder)
        mine.sendall(b"nonsense\n")
        assert b"not JSON" in mine.recv(4096)
    process.send_signal(signal.SIGINT)
    ran = holdfast.finish(process)
    assert "1 another user" in ran.err


UP_FOR_A_MINUTE = """
import pathlib, time
pathlib.Path("up").write_text("1")
time.sleep(60)
"""
