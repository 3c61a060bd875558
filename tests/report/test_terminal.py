"""A job at a real terminal: who reads it, what is shown on it, and in which state it is left."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from conftest import Holdfast

pytestmark = pytest.mark.real

ASKS = """
import os, sys
answer = 40
print("here", os.environ["RANK"], sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
if os.environ["RANK"] == READER:
    breakpoint()
    print("name is", input("name? "))
print("done", answer)
"""


class TerminalDesk:
    """A terminal of 97 columns with `holdfast run` in its foreground."""

    def __init__(self, holdfast: Holdfast, *args: object, background: bool = False) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(97)
        self.before = termios.tcgetattr(self.ours)

        words = [holdfast.python, "-m", "holdfast", "run", "--no-checks", *map(str, args)]
        if background:
            # A shell with job control: what it starts with `&` is a group that the terminal does not belong to.
            words = ["bash", "-mc", f"{shlex.join(words)} & wait $!"]
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**holdfast.env, "TERM": "xterm"},
            cwd=holdfast.dir,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.text = ""
        self._seen = 0

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("4H", 30, columns, 0, 0))

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.ours], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.ours, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def until(self, word: str, timeout_s: float = 90) -> None:
        """Wait for a word that was not waited for before."""
        deadline = time.monotonic() + timeout_s
        while (at := self.text.find(word, self._seen)) < 0:
            assert self._read(0.2) or self.text.find(word, self._seen) >= 0, f"{word!r} never came:\n{self.text}"
            assert time.monotonic() < deadline, f"{word!r} did not come:\n{self.text}"
        self._seen = at + len(word)

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self, timeout_s: float = 90) -> int:
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        while self._read(0.0) and select.select([self.ours], [], [], 0)[0]:
            pass
        self.after = termios.tcgetattr(self.ours)
        os.close(self.ours)
        return self.process.wait(timeout=1)


@pytest.fixture
def asking_script(holdfast: Holdfast) -> str:
    return str(holdfast.script(ASKS.replace("READER", "'0'")))


@pytest.mark.parametrize("start", [["--no-warm"], ["--warm"]], ids=["cold", "warm"])
def test_one_worker_has_the_debugger_the_terminal_and_its_width(
    holdfast: Holdfast, asking_script: str, start: list[str]
) -> None:
    desk = TerminalDesk(holdfast, *start, asking_script)
    desk.until("here 0 True True")
    desk.until("(Pdb) ")
    desk.type("p answer + 2\n")
    desk.until("\n42\n")
    desk.until("(Pdb) ")
    desk.type("import shutil; shutil.get_terminal_size().columns\n")
    desk.until("\n97\n")
    desk.until("(Pdb) ")
    desk.type("c\n")
    desk.until("name? ")
    desk.type("Ada\n")
    desk.until("name is Ada\n")
    assert desk.end() == 0
    assert desk.after == desk.before
    assert "[worker-0]" not in desk.text, "it is alone: nothing stands before its lines"
    log = next(holdfast.home.glob("jobs/*/attempt-1/worker-0/stdout.log")).read_text()
    assert log.endswith("done 40\n")


@pytest.mark.key
def test_of_several_workers_rank_0_reads(holdfast: Holdfast, asking_script: str) -> None:
    desk = TerminalDesk(holdfast, "--nproc-per-node", "2", asking_script)
    desk.until("(Pdb) ")
    desk.type("p answer + 2\n")
    desk.until("42\n")
    desk.until("(Pdb) ")
    desk.type("c\n")
    desk.until("name? ")
    desk.type("Ada\n")
    assert desk.end() == 0
    assert "[worker-1] here 1 False False" in desk.text
    assert "[worker-0] here 0 True False" in desk.text
    assert "name is Ada" in desk.text


def test_another_rank_may_read(holdfast: Holdfast) -> None:
    desk = TerminalDesk(
        holdfast, "--nproc-per-node", "2", "--stdin", "1", holdfast.script(ASKS.replace("READER", "'1'"))
    )
    desk.until("(Pdb) ")
    desk.type("c\n")
    desk.until("name? ")
    desk.type("Ada\n")
    assert desk.end() == 0
    assert "here 0 False False" in desk.text
    assert "name is Ada" in desk.text


@pytest.mark.key
def test_ctrl_c_at_a_prompt_stops_the_job_and_leaves_the_terminal_as_it_was(
    holdfast: Holdfast, asking_script: str
) -> None:
    desk = TerminalDesk(holdfast, "--grace", "2", asking_script)
    desk.until("(Pdb) ")
    desk.type("\x03")
    desk.until("Ctrl-C")
    assert desk.end() == 250
    assert desk.after == desk.before


def test_a_worker_that_dies_without_echo_leaves_the_next_attempt_a_sane_terminal(holdfast: Holdfast) -> None:
    desk = TerminalDesk(
        holdfast,
        holdfast.script(
            """
            import os, signal, sys, termios
            modes = termios.tcgetattr(0)
            print("echo", bool(modes[3] & termios.ECHO), flush=True)
            if os.environ["HOLDFAST_ATTEMPT"] == "1":
                modes[3] &= ~(termios.ECHO | termios.ICANON)
                termios.tcsetattr(0, termios.TCSANOW, modes)
                os.kill(os.getpid(), signal.SIGKILL)
            print("said", input())
            """
        ),
    )
    desk.until("echo True")
    desk.until("echo True")
    desk.type("again\n")
    desk.until("said again")
    assert desk.end() == 0
    assert desk.after == desk.before


def test_a_killed_supervisor_leaves_the_terminal_as_it_was(holdfast: Holdfast) -> None:
    desk = TerminalDesk(
        holdfast,
        holdfast.script(
            """
            import os, signal, termios, time
            modes = termios.tcgetattr(0)
            modes[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(0, termios.TCSANOW, modes)
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
            """
        ),
    )
    assert desk.end() == 137
    assert desk.after == desk.before


def test_a_new_size_of_the_terminal_reaches_the_worker(holdfast: Holdfast) -> None:
    desk = TerminalDesk(
        holdfast,
        holdfast.script(
            """
            import shutil, signal
            signal.signal(signal.SIGWINCH, lambda *_: None)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
            print("ready", flush=True)
            signal.sigwait([signal.SIGWINCH])
            print("columns", shutil.get_terminal_size().columns)
            """
        ),
    )
    desk.until("ready")
    desk.resize(61)
    desk.until("columns 61")
    assert desk.end() == 0


def test_what_is_redirected_is_no_terminal(holdfast: Holdfast) -> None:
    script = holdfast.script("import sys; print(sys.stdout.isatty(), sys.stderr.isatty(), file=open('seen', 'w'))")
    assert TerminalDesk(holdfast, "--redirects", "1", script).end() == 0
    assert (holdfast.dir / "seen").read_text() == "False True\n"


def test_colours_and_progress_bars_arrive_as_they_were_written(holdfast: Holdfast) -> None:
    desk = TerminalDesk(
        holdfast,
        holdfast.script(
            r"""
            import sys
            for step in range(3):
                sys.stdout.write(f"\r\x1b[32mstep {step}\x1b[0m\x1b[K")
            sys.stdout.write("\n\x1b[1A\x1b[2Kdone\n")
            """
        ),
    )
    assert desk.end() == 0
    assert "\r\x1b[32mstep 2\x1b[0m\x1b[K\n\x1b[1A\x1b[2Kdone\n" in desk.text


def test_a_job_in_the_background_takes_no_key_from_the_shell(holdfast: Holdfast) -> None:
    desk = TerminalDesk(holdfast, holdfast.script("import sys; print('read', repr(sys.stdin.read()))"), background=True)
    desk.type("ls\n")
    desk.until("read ''")
    assert desk.process.wait(timeout=90) == 0
    os.close(desk.ours)


# ---------------------------------------------------------------------------------------------- without a terminal


@pytest.fixture
def piped(holdfast: Holdfast) -> Iterator[list[str]]:
    yield [holdfast.python, "-m", "holdfast", "run", "--no-checks"]


READS = "import os, sys; print(os.environ['RANK'], repr(sys.stdin.read()))"


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (["--nproc-per-node", "2"], ["0 'a\\nb\\n'", "1 ''"]),
        (["--nproc-per-node", "2", "--warm"], ["0 'a\\nb\\n'", "1 ''"]),
        (["--nproc-per-node", "2", "--stdin", "1"], ["0 ''", "1 'a\\nb\\n'"]),
        (["--stdin", "none"], ["0 ''"]),
    ],
)
def test_a_pipe_is_read_by_one_rank(holdfast: Holdfast, piped: list[str], args: list[str], lines: list[str]) -> None:
    ran = subprocess.run(
        [*piped, *args, str(holdfast.script(READS))],
        input="a\nb\n",
        capture_output=True,
        text=True,
        env=holdfast.env,
        cwd=holdfast.dir,
        timeout=60,
        check=True,
    )
    assert sorted(line.partition("] ")[2] for line in ran.stdout.splitlines()) == lines


def test_the_next_attempt_reads_on(holdfast: Holdfast, piped: list[str]) -> None:
    script = holdfast.script(
        """
        import os, signal
        line = b""
        while not line.endswith(b"\\n"):
            line += os.read(0, 1)
        print("read", line)
        if os.environ["HOLDFAST_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = subprocess.run(
        [*piped, str(script)],
        input="a\nb\n",
        capture_output=True,
        text=True,
        env=holdfast.env,
        cwd=holdfast.dir,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines() == ["[worker-0] read b'a\\n'", "[worker-0] read b'b\\n'"]


@pytest.mark.parametrize("text", ["2", "all", "-1"])
def test_a_rank_that_is_not_there_cannot_read(holdfast: Holdfast, text: str) -> None:
    ran = holdfast("run", "--nproc-per-node", "2", f"--stdin={text}", holdfast.script("pass"))
    assert ran.status == 2
    assert f"--stdin {text}: expected a rank from 0 to 1, or none" in ran.err


@pytest.mark.parametrize("start", ["--no-warm", "--warm"])
def test_no_descriptor_of_holdfast_or_its_caller_reaches_a_worker(
    holdfast: Holdfast, piped: list[str], start: str
) -> None:
    script = holdfast.script("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    open_here = os.open(os.devnull, os.O_RDONLY)
    high = fcntl.fcntl(open_here, fcntl.F_DUPFD, 200)
    try:
        ran = subprocess.run(
            [*piped, start, str(script)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=holdfast.env,
            cwd=holdfast.dir,
            pass_fds=(open_here, high),
            timeout=60,
            check=True,
        )
    finally:
        os.close(open_here)
        os.close(high)
    assert ran.stdout == "[worker-0] [0, 1, 2, 3]\n", "3 is the listing's own"
