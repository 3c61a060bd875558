"""Nodes without machines: each one a set of Linux namespaces with its own network, processes, host name and clocks.

A node is a process that waits: `unshare` gives it namespaces for network, processes, mounts, host name, IPC and time,
and it does nothing but read a pipe that the test holds. No namespace has a name, and no bridge lies in the machine's
own network: tests of several processes cannot meet, and where a test is killed the kernel closes the pipe, ends the
nodes and takes everything back. The nodes' links hang on one bridge, which lives in a further such process, the switch.

What a node does not have is a disk of its own (directories lie where the test can read them) and a kernel: the boot id
and the devices are the same on all, as in containers.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SUBNET, SUBNET_6 = "10.77.0", "fd77::"
#: Monotonic clocks of neighbours differ by so much: who compares two nodes' clocks is wrong by more than a day.
CLOCKS_APART_S = 100_000
SWITCH_ADDRESS = f"{SUBNET}.254"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
CGROUPS = Path("/sys/fs/cgroup")

# Process 1 of a node reaps what is orphaned, and ends when the test that holds the pipe does.
NODE_INIT = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.stdin.read()"
SETS_UP = """
mount -t tmpfs -o mode=755 tmpfs /run && mount --bind "$1" /etc/hosts && hostname "$2" &&
ip link set lo up && echo up && exec "$3" -IS -c "$4"
"""


@functools.cache
def missing() -> str:
    """Why no nodes can be made here, in words; empty: they can."""
    for tool in ("ip", "unshare", "nsenter", "hostname"):
        if shutil.which(tool) is None:
            return f"network namespaces need the command {tool}"
    try:
        with Net(Path("/tmp"), nodes=0) as net:
            net.on_switch("ip", "link", "add", "probe", "type", "veth")
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        return f"network namespaces cannot be made here: {said}"
    return ""


def _unshared(what: Sequence[str], script: str, *words: str) -> tuple[subprocess.Popen[str], int]:
    """A process in new namespaces that has set itself up, as `unshare` and as its own pid."""
    outside = subprocess.Popen(
        ["unshare", *what, "--fork", "--kill-child", "sh", "-c", script, "sh", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert outside.stdout is not None and outside.stderr is not None
    if outside.stdout.readline() != "up\n":
        outside.kill()
        said = outside.communicate()[1]
        raise subprocess.CalledProcessError(outside.wait(), ["unshare", *what], stderr=said)
    [inside] = psutil.Process(outside.pid).children()
    return outside, inside.pid


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _do(*words: str, input_text: str = "") -> str:
    return subprocess.run(words, input=input_text, capture_output=True, text=True, check=True).stdout


@dataclass
class Started:
    """A command that runs in a node. Its output goes to files: a node may be gone before the test reads a pipe."""

    #: `nsenter`, which ends as its command does.
    outside: subprocess.Popen[str]
    node: Node
    out_file: Path
    err_file: Path

    @property
    def pid(self) -> int:
        """Of the command itself, as the test sees it."""
        [child] = psutil.Process(self.outside.pid).children()
        return child.pid

    @property
    def out(self) -> str:
        return self.out_file.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_file.read_text(errors="replace")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = 120) -> int:
        """The exit status; of a command that a signal ended the number with a minus."""
        try:
            return self.outside.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.node.name}: still runs after {timeout_s} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
            ) from None


@dataclass
class Node:
    """One machine: what runs in it sees itself alone, and its peers over the network only."""

    net: Net
    #: From 1; its address ends with it.
    number: int
    #: What it calls itself.
    host: str
    #: A directory of its own: HOME, HOLDFAST_HOME, the working directory and what its commands print.
    place: Path
    #: What its commands find in their environment, beside what `start` is given.
    env: dict[str, str] = field(default_factory=dict)
    _outside: subprocess.Popen[str] | None = None
    _init: int = 0
    _started: int = 0

    @property
    def name(self) -> str:
        """How messages of a test call it: host names may be equal."""
        return f"node {self.number}"

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.number}"

    @property
    def address_6(self) -> str:
        return f"{SUBNET_6}{self.number}"

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def on(self) -> bool:
        return bool(self._init)

    def attach(self, init: int) -> None:
        """A node that another process has booted: process 1 of it, as this machine sees it; 0: the node is off."""
        self._init = init

    def number_output_from(self, number: int) -> None:
        """Several processes start commands in one node: files of their output have numbers of their own."""
        self._started = number

    @property
    def init(self) -> int:
        """Process 1 of the node, as this machine sees it; 0: the node is off."""
        return self._init

    @property
    def _enter(self) -> tuple[str, ...]:
        spaces = ("--net", "--uts", "--ipc", "--mount", "--pid", "--time")
        return ("nsenter", "--target", str(self._init), *spaces)

    def boot(self) -> None:
        """Power on: namespaces, its link, its addresses."""
        assert not self.on
        self.place.mkdir(parents=True, exist_ok=True)
        apart = [f"--monotonic={self._ahead_s}", f"--boottime={self._ahead_s}"] if self._ahead_s else []
        self._outside, self._init = _unshared(
            ["--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc", "--time", *apart],
            SETS_UP,
            str(self.net.hosts),
            self.host,
            sys.executable,
            NODE_INIT,
        )
        port = f"e{self.number}"
        # The same hardware address after each boot, as a machine has: its peers remember it.
        mac = f"02:00:00:00:00:{self.number:02x}"
        peer = ("peer", "name", "eth0", "address", mac, "netns", str(self._init))
        self.net.on_switch("ip", "link", "add", port, "type", "veth", *peer)
        self.net.on_switch("ip", "link", "set", port, "master", "br0", "up")
        lines = [
            f"addr add {self.address}/24 dev eth0",
            f"-6 addr add {self.address_6}/64 dev eth0 nodad",
            "link set eth0 up",
        ]
        _do(
            *("nsenter", f"--net=/proc/{self._init}/ns/net"),
            *("sh", "-ec", "\n".join(f"ip {line}" for line in lines)),
        )

    @property
    def _ahead_s(self) -> int:
        return CLOCKS_APART_S * (self.number - 1) if self.net.clocks_apart else 0

    def power_cut(self) -> None:
        """The link is down and everything is killed, in that order: no socket says goodbye. The disk stays as it is."""
        assert self._outside is not None
        self.link_down()
        _end(self._outside)
        self._outside, self._init = None, 0
        self.net.on_switch("ip", "link", "delete", f"e{self.number}", check=False)

    def link_down(self) -> None:
        self.net.on_switch("ip", "link", "set", f"e{self.number}", "down")

    def link_up(self) -> None:
        self.net.on_switch("ip", "link", "set", f"e{self.number}", "up")

    def mount(self, directory: Path, size: str) -> None:
        """A file system of this size over a directory, in this node alone: `inside` is how the test reads it."""
        directory.mkdir(parents=True, exist_ok=True)
        self("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory)

    def inside(self, path: Path) -> Path:
        """A path as this node sees it: of its own mounts too."""
        return Path(f"/proc/{self._init}/root") / path.relative_to("/")

    def start(
        self, *words: str | Path, user: int = 0, env: Mapping[str, str] | None = None, chdir: Path | None = None
    ) -> Started:
        """Run a command in this node, in the working directory `place` or in another."""
        assert self.on, f"{self.name} is off"
        self._started += 1
        out, err = (self.place / f"{self._started}.{stream}" for stream in ("out", "err"))
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        with out.open("w") as to_out, err.open("w") as to_err:
            outside = subprocess.Popen(
                [*self._enter, *as_user, "env", f"--chdir={chdir or self.place}", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                text=True,
                env={**self._surroundings, **(env or {})},
            )
        self.net.left.append(outside)
        return Started(outside, self, out, err)

    def __call__(self, *words: str | Path, timeout_s: float = 60, env: Mapping[str, str] | None = None) -> str:
        """Run a command to its end, which must be a good one; what it printed."""
        started = self.start(*words, env=env)
        status = started.wait(timeout_s)
        assert status == 0, f"{self.name}: {words} ended with {status}\n{started.err}"
        return started.out

    @property
    def _surroundings(self) -> dict[str, str]:
        return {**self.net.env, "HOME": str(self.place), "HOLDFAST_HOME": str(self.home), **self.env}

    def shell(self, chdir: Path) -> None:
        """A shell in this node, for a person."""
        subprocess.run([*self._enter, "env", f"--chdir={chdir}", "bash"], env=self._surroundings, check=False)

    def printed(self) -> Iterator[str]:
        """Each line that commands in this node wrote to stderr."""
        for file in sorted(self.place.glob("*.err")):
            yield from file.read_text(errors="replace").splitlines()

    def processes(self) -> Iterator[psutil.Process]:
        """All that live in this node, zombies left out."""
        for _, process in self.net.processes_of([self]):
            yield process

    def named(self, comm: str) -> list[int]:
        """The processes whose name in /proc/PID/comm is this one, oldest first."""
        found = []
        for process in self.processes():
            try:
                if Path(f"/proc/{process.pid}/comm").read_text().strip() == comm[:15]:
                    found.append((process.create_time(), process.pid))
            except (OSError, psutil.NoSuchProcess):
                continue  # it has just left
        return [pid for _, pid in sorted(found)]


class Net:
    """Nodes on one bridge. `with Net(directory, 3) as net: net[1].start(…)`."""

    def __init__(
        self,
        place: Path,
        nodes: int = 3,
        *,
        env: Mapping[str, str] | None = None,
        hosts: Sequence[str] | None = None,
        clocks_apart: bool = True,
    ) -> None:
        self.place = place
        self.env = dict(env if env is not None else os.environ)
        self.clocks_apart = clocks_apart
        self.hosts = place / "hosts"
        names = hosts or [f"node{number}" for number in range(1, nodes + 1)]
        self._nodes = {n: Node(self, n, name, place / f"node{n}") for n, name in enumerate(names, 1)}
        self._switch: subprocess.Popen[str] | None = None
        self._switch_pid = 0
        #: Everything that was started here: what still runs at the end is killed.
        self.left: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Net:
        try:
            self._switch, self._switch_pid = _unshared(
                ["--net"],
                'ip link add br0 type bridge && ip addr add "$1"/24 dev br0 && ip link set br0 up && ip link set lo up '
                '&& echo up && exec "$2" -IS -c "$3"',
                *(SWITCH_ADDRESS, sys.executable, NODE_INIT),
            )
            if self._nodes:
                # localhost, and each host name once: equal ones would be one name of many addresses.
                names = {node.host: node for node in self._nodes.values()}
                known = [f"{node.address} {host}\n" for host, node in names.items() if len(names) == len(self._nodes)]
                self.hosts.write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(known))
            for node in self._nodes.values():
                node.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Everything ends at once."""
        for node in self._nodes.values():
            if node._outside is not None:
                _end(node._outside)
                node._outside, node._init = None, 0
        for process in self.left:
            _end(process)
        if self._switch is not None:
            _end(self._switch)
            self._switch = None

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def add(self, host: str = "") -> Node:
        """One more node, switched on."""
        number = len(self._nodes) + 1
        node = self._nodes[number] = Node(self, number, host or f"node{number}", self.place / f"node{number}")
        node.boot()
        return node

    def processes_of(self, nodes: Sequence[Node]) -> Iterator[tuple[Node, psutil.Process]]:
        """All that live in these nodes, zombies left out. One walk through /proc: it has many processes of others."""
        mine = {Path(f"/proc/{node._init}/ns/pid").stat().st_ino: node for node in nodes if node.on}
        for pid in psutil.pids() if mine else ():
            try:
                if node := mine.get(Path(f"/proc/{pid}/ns/pid").stat().st_ino):
                    process = psutil.Process(pid)
                    if process.pid != node._init and process.status() != psutil.STATUS_ZOMBIE:
                        yield node, process
            except (OSError, psutil.NoSuchProcess):
                continue  # it has just left

    def on_switch(self, *words: str, check: bool = True) -> str:
        """A command in the switch's network."""
        done = subprocess.run(
            ["nsenter", f"--net=/proc/{self._switch_pid}/ns/net", *words], capture_output=True, text=True, check=False
        )
        if check:
            done.check_returncode()
        return done.stdout

    def proxy(self, port: int, to: Node) -> Proxy:
        """A proxy at SWITCH_ADDRESS that hands streams on to this node's port of the same number."""
        process = subprocess.Popen(
            [
                *("nsenter", f"--net=/proc/{self._switch_pid}/ns/net", sys.executable, "-I"),
                *(str(Path(__file__).with_name("proxy.py")), f"{SWITCH_ADDRESS}:{port}", f"{to.address}:{port}"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.left.append(process)
        return Proxy(process)


@dataclass
class Proxy:
    """What happens to the streams of a proxy is said with one word; it has happened when the call returns."""

    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        self._answer()

    def tell(self, word: str) -> None:
        """`pass`, `delay SECONDS`, `halve`, `stall`, `cut` (once; later streams pass), `refuse`: see proxy.py."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ok\n"


@contextmanager
def within(node: Node) -> Iterator[None]:
    """This very thread's new sockets are the node's: for a test that speaks to a port by itself."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    clone_newnet = 0x40000000
    with (
        Path("/proc/thread-self/ns/net").open("rb") as back,
        Path(f"/proc/{node._init}/ns/net").open("rb") as there,
    ):
        if libc.setns(there.fileno(), clone_newnet):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            if libc.setns(back.fileno(), clone_newnet):
                raise SystemExit("this process is lost in another network")


def dial(node: Node, address: tuple[str, int], timeout_s: float = 60) -> socket.socket:
    """A connection from this node, held by the test. Tried until something listens, for so long."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            with within(node):
                return socket.create_connection(address, timeout=timeout_s)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def kill(*pids: int) -> None:
    """SIGKILL to these processes, one straight after the other."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
