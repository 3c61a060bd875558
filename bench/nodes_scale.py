"""What ten thousand agents cost the owner's connections: protocol clients with real TLS, in a few processes.

    python bench/nodes_scale.py [--nodes 10000] [--processes 2] [--rest 20] [--evidence 2000] [--profile] [--smoke]

First `holdfast run` itself is the owner (and one more node), with its gang and journal (`--whole`: only that); then the
owner's end of the connections alone, in this process: accepting, TLS, frames, one acknowledgement a beat (`--alone`:
only that). The agents need as much of the machine again; with fewer than three cores, times are those of both ends.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import pwd
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from _common import cpu_s, holdfast, machine, memory_bytes, put, running, surroundings, table, tree

from holdfast.model.events import EvidenceCollected
from holdfast.model.gang_protocol import Ack, Report, Stop
from holdfast.reactor import Reactor
from holdfast.wire.job_key import Key
from holdfast.wire.owner_listener import OwnerListener, Peer
from holdfast.wire.tls_channel import ChannelEnd

AGENTS = Path(__file__).with_name("_many_agents.py")
PATIENCE_S = 240.0
#: That a job may have.
MOST_NODES = 10_000
SILENT = 1000
AIM_SHARE, AIM_MB, AIM_TOLD_MS = 20.0, 600.0, 500.0


@dataclass
class Owner:
    """A listener that acknowledges reports, and counts."""

    reactor: Reactor = field(default_factory=lambda: Reactor(time.monotonic))
    hellos: int = 0
    reports: int = 0
    evidence: int = 0
    gone: list[str] = field(default_factory=list)

    def listen(self) -> OwnerListener:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.port: int = sock.getsockname()[1]
        self.listener = OwnerListener(self.reactor, sock, Key(bytes(32)), self._heard, self._gone, lease_s=30.0)
        return self.listener

    def _heard(self, peer: Peer, message: Any, now: float) -> None:
        match message:
            case Report():
                self.reports += 1
                peer.send(Ack(sent=message.sent, floor=0, term=1))
            case EvidenceCollected():
                self.evidence += 1
            case _:
                self.hellos += 1

    def _gone(self, peer: Peer, end: ChannelEnd, now: float) -> None:
        self.gone.append(f"{peer.address}: {end.words}")

    def until(self, what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not what():
            if time.monotonic() > deadline:
                raise SystemExit(f"it took longer than {patience_s:g} s; gone: {self.gone[:3]}")
            self.reactor.wait(longest_s=0.05)


class Crowds:
    """The processes with the agents, and what they say."""

    def __init__(self, reactor: Reactor, port: int, nodes: int, processes: int, more: Sequence[str] = ()) -> None:
        self.said: list[dict[str, Any]] = []
        #: What else is to be said where they do not get so far.
        self.why: Callable[[], str] = lambda: ""
        self._held = {}
        self._reactor = reactor
        self.processes = []
        share = -(-nodes // processes)
        for first in range(0, nodes, share):
            words = ["--port", port, "--first", first, "--count", min(share, nodes - first), *more]
            process = subprocess.Popen(
                [sys.executable, str(AGENTS), *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert process.stdout is not None
            fd = process.stdout.fileno()
            os.set_blocking(fd, False)
            self._held[fd] = b""
            reactor.watch(fd, lambda fd, now: self._read(fd))
            self.processes.append(process)

    def _read(self, fd: int) -> None:
        data = os.read(fd, 65536)
        if not data:
            raise SystemExit("a process with agents has ended")
        *lines, self._held[fd] = (self._held[fd] + data).split(b"\n")
        self.said += [json.loads(line) for line in lines]

    def tell(self, line: str) -> None:
        self.said.clear()
        for process in self.processes:
            _stdin(process).write(line.encode() + b"\n")
            _stdin(process).flush()

    def have(self, what: str) -> list[dict[str, Any]]:
        """What every process has said of it; empty until then."""
        found = [each for each in self.said if each["what"] == what]
        return found if len(found) == len(self.processes) else []

    def last(self, what: str) -> float:
        """When the last agent got so far, in seconds of the machine's clock; waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.have(what):
            if time.monotonic() > deadline:
                raise SystemExit(f"not all agents had `{what}` within {PATIENCE_S:g} s: {self.said[-3:]}{self.why()}")
            self._reactor.wait(longest_s=0.05)
        return max(float(each["at"]) for each in self.have(what))

    def close(self) -> None:
        for process in self.processes:
            _stdin(process).close()
        for process in self.processes:
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(nodes: int, processes: int, rest_s: float, evidence_bytes: int, silent: int) -> list[tuple[str, str, str]]:
    """Rows of (what, seen, aim)."""
    rows: list[tuple[str, str, str]] = []
    owner = Owner()
    with ExitStack() as stack:
        stack.callback(owner.reactor.close)
        stack.callback(owner.listen().close)
        began, used, before = time.monotonic(), time.process_time(), rss_bytes()
        crowds = Crowds(owner.reactor, owner.port, nodes, processes)
        stack.callback(crowds.close)
        owner.until(lambda: owner.hellos == nodes and crowds.have("up"))
        took, used = time.monotonic() - began, time.process_time() - used
        rows.append((f"{nodes} hellos", f"{took:.1f} s, {1e3 * used / nodes:.2f} ms of CPU each", ""))
        held = rss_bytes() - before
        rows.append(("memory of a connection", f"{held / nodes / 1024:.1f} KiB", ""))
        rows.append(("memory of the process", f"{rss_bytes() / 1e6:.0f} MB", f"{AIM_MB:g} MB"))

        every_s = min(5.0, max(1.0, nodes / 1000))
        crowds.tell(f"beats {every_s}")
        owner.until(lambda: owner.reports > nodes // 10)
        began, used, counted = time.monotonic(), time.process_time(), owner.reports
        owner.until(lambda: time.monotonic() > began + rest_s)
        took, used, counted = time.monotonic() - began, time.process_time() - used, owner.reports - counted
        share = f"{100 * used / took:.1f} % of a core, {1e6 * used / max(counted, 1):.0f} µs a beat"
        rows.append((f"at rest, a beat every {every_s:g} s", share, f"{AIM_SHARE:g} %"))

        for _ in range(3):
            crowds.said.clear()
            began = time.monotonic()
            owner.listener.tell(list(owner.listener.peers), Stop(attempt=1, reason="rank 3 died", grace_s=30.0))
            written = time.monotonic() - began
            owner.until(lambda: crowds.have("told"))
        last = max(each["at"] for each in crowds.have("told")) - began
        words = f"{1e3 * last:.0f} ms (written in {1e3 * written:.0f} ms)"
        rows.append((f"told all {nodes} of a death", words, f"{AIM_TOLD_MS:g} ms"))

        began, used = time.monotonic(), time.process_time()
        crowds.tell(f"evidence {evidence_bytes}")
        owner.until(lambda: owner.evidence == nodes)
        took, used = time.monotonic() - began, time.process_time() - used
        each = crowds.have("sent")[0]["each"] if crowds.have("sent") else evidence_bytes
        rows.append((f"evidence of {nodes}, {each} bytes each", f"{took:.2f} s, {used:.2f} s of CPU", ""))

        rows.append((f"an agent beside {silent} silent connections", _beside(owner, silent), "1 s"))
        if owner.gone:
            rows.append(("lost connections", f"{len(owner.gone)}: {owner.gone[0]}", "0"))
    return rows


def _beside(owner: Owner, silent: int) -> str:
    """How long a further agent takes from its dial to its hello."""
    hellos = owner.hellos
    knocks = [socket.create_connection(("127.0.0.1", owner.port)) for _ in range(min(silent, 64))]
    while len(knocks) < silent:
        owner.reactor.wait(longest_s=0.0)
        knocks.append(socket.create_connection(("127.0.0.1", owner.port)))
    began = time.monotonic()
    words = ["--port", owner.port, "--first", 10**6, "--count", 1]
    command = [sys.executable, str(AGENTS), *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        owner.until(lambda: owner.hellos > hellos)
        took = time.monotonic() - began
        _stdin(one).close()
        one.wait(30)
    for sock in knocks:
        sock.close()
    return f"{took:.2f} s, the start of its process included"


def whole(nodes: int, processes: int, rest_s: float) -> list[tuple[str, str, str]]:
    """The same with `holdfast run` as the owner, and as one node more: rows of (what, seen, aim)."""
    rows: list[tuple[str, str, str]] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (place / "key").write_bytes(bytes(range(32)))
        (place / "key").chmod(0o600)
        (place / "sleep.py").write_text("import time\ntime.sleep(100_000)\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            *holdfast(),
            "run",
            "--no-checks",
            "--nnodes",
            str(nodes + 1),
            "--rdzv-endpoint",
            f"127.0.0.1:{port}",
        ]
        command += [
            "--rdzv-id",
            "bench",
            "--job-key",
            str(place / "key"),
            "--grace",
            "5",
            "--same-failure",
            "0",
            str(place / "sleep.py"),
        ]
        log = stack.enter_context((place / "out").open("wb"))
        began = time.monotonic()
        run = stack.enter_context(running(command, surroundings(place), place, log))
        owner = _owner_of(run.pid, place / "out")
        reactor = Reactor(time.monotonic)
        stack.callback(reactor.close)
        user = pwd.getpwuid(os.getuid()).pw_name
        every_s = min(5.0, max(1.0, nodes / 1000))
        more = ["--nodes", str(nodes + 1), "--job=--rdzv-id bench", "--user", user, "--key", str(place / "key")]
        more += ["--beats", str(every_s)]
        crowds = Crowds(reactor, port, nodes, processes, more)
        stack.callback(crowds.close)
        crowds.why = lambda: "\n" + (place / "out").read_text(encoding="utf-8")[-3000:]
        dialled = time.monotonic()
        up = crowds.last("up")
        go = crowds.last("go")
        rows.append((f"{nodes} agents have dialled", f"{up - dialled:.1f} s", ""))
        rows.append(("from submit to GO", f"{go - began:.1f} s ({go - up:.2f} s after the last agent's handshake)", ""))

        wait(reactor, 2 * every_s)
        used, at = cpu_s([owner]), time.monotonic()
        wait(reactor, rest_s)
        share = 100 * (cpu_s([owner]) - used) / (time.monotonic() - at)
        rows.append((f"at rest, a beat every {every_s:g} s", f"{share:.1f} % of a core", f"{AIM_SHARE:g} %"))
        rows.append(("memory of the owner", f"{memory_bytes(owner)[1] / 1e6:.0f} MB", f"{AIM_MB:g} MB"))

        for words, who in (("one worker", str(nodes // 2)), ("all workers", "all")):
            used = cpu_s([owner])
            crowds.tell(f"fail {who}")
            told = crowds.last("told")
            failed = min(each["at"] for each in crowds.said if each["what"] == "failed")
            aim = f"{AIM_TOLD_MS:g} ms" if who != "all" else ""
            rows.append((f"{words} failed: the last node is told", f"{1e3 * (told - failed):.0f} ms", aim))
            go = crowds.last("go")
            words = f"{words} failed: GO of the next attempt"
            rows.append((words, f"{go - failed:.2f} s, {cpu_s([owner]) - used:.2f} s of the owner's CPU", ""))
        rows.append(("memory of the owner then", f"{memory_bytes(owner)[1] / 1e6:.0f} MB", f"{AIM_MB:g} MB"))
        crowds.said.clear()
        at = time.monotonic()
        run.terminate()
        rows.append(("stopped: the last node has the report", f"{crowds.last('finished') - at:.2f} s", ""))
        run.wait(60)
    return rows


def _owner_of(pid: int, said: Path) -> int:
    """The process that judges the job."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for each in tree(pid):
            try:
                if Path(f"/proc/{each}/comm").read_text(encoding="ascii").strip() == "holdfast-owner":
                    return each
            except OSError:
                continue  # it has just ended
        time.sleep(0.02)
    raise SystemExit(f"no owner was started: {said.read_text(encoding='utf-8')}")


def wait(reactor: Reactor, for_s: float) -> None:
    """Meanwhile the agents are listened to."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        reactor.wait(longest_s=0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rest", type=float, default=20.0)
    parser.add_argument("--evidence", type=int, default=2000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the result into docs/internals/benchmarks.md")
    options = parser.parse_args(arguments)
    parts: list[str] = []
    if options.smoke:
        options.nodes, options.processes, options.rest = 50, 2, 1.0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(most, 3 * options.nodes + 1000)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except ValueError:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # only root may have more
    silent = min(SILENT, 2 * options.nodes)
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    if not options.alone:
        # Holdfast refuses more nodes than it may have files open for.
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        rows = whole(min(options.nodes, MOST_NODES - 1, most // 2 - 100), options.processes, options.rest)
        parts.append(table(("`holdfast run`", "seen", "aim"), rows))
    if not options.whole:
        rows = measure(options.nodes, options.processes, options.rest, options.evidence, silent)
        parts.append(table(("the owner's end alone", "seen", "aim"), rows))
    profile.disable()
    text = "\n\n".join(part.strip() for part in (*parts, machine()))
    print(text)
    if options.write:
        put("nodes_scale", text)
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
