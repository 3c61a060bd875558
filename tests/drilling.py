"""What the drills share: a job over nodes in network namespaces (netns.py), steered and watched by the test."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from leftovers import living
from netns import Net, Node, Started

TRAINER = Path(__file__).with_name("drill_trainer.py")
PORT = 29500
#: The trainer opens MASTER_PORT by itself.
OWN_PORT = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
DRILL_WAIT_S = 60.0
Event = dict[str, Any]
BUGS = ("Traceback", "holdfast: a bug of holdfast")


class Workers:
    """The ranks of a job: what they wrote down in the directory `out`, and what they shall do (drill_trainer.py)."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.out.mkdir()
        self.out.chmod(0o777)

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = DRILL_WAIT_S) -> None:
        """Until this holds; an AssertionError with all that was printed if it does not."""
        raise NotImplementedError

    def order(self, rank: int, word: str) -> None:
        """What this rank shall do at its next step: see drill_trainer.py."""
        new = self.out / f"order-{rank}.new"
        new.write_text(word)
        new.rename(self.out / f"order-{rank}")

    def finish(self) -> None:
        (self.out / "finish").touch()

    def events(self, what: str = "", rank: int | None = None) -> list[Event]:
        """What the workers wrote down, by time."""
        found: list[Event] = []
        for file in self.out.glob("rank-*.jsonl"):
            of = int(file.stem.removeprefix("rank-"))
            if rank in (None, of):
                lines = file.read_text().splitlines()
                found += [{**json.loads(line), "rank": of} for line in lines if line.endswith("}")]
        return sorted((e for e in found if what in ("", e["what"])), key=lambda event: float(event["at"]))

    def common_step(self, attempt: int, more: int = 2, ranks: int = 0) -> None:
        """Until all ranks of this attempt have finished so many further steps together."""
        before = [len(self._steps(attempt, rank)) for rank in range(64)]

        def stepped() -> bool:
            starts = {e["rank"]: e["ranks"] for e in self.events("start") if e["attempt"] == attempt}
            size = ranks or next(iter(starts.values()), 0)
            return bool(size) and all(len(self._steps(attempt, rank)) >= before[rank] + more for rank in range(size))

        self.wait(stepped, f"{more} common steps in attempt {attempt}")

    def _steps(self, attempt: int, rank: int) -> list[int]:
        return [e["step"] for e in self.events("step", rank) if e["attempt"] == attempt]

    def attempts(self) -> list[int]:
        """The attempts in which a worker's script has begun."""
        return sorted({int(event["attempt"]) for event in self.events("start")})

    def hosts(self, attempt: int) -> dict[int, str]:
        """Rank → the host name of its node."""
        return {e["rank"]: e["host"] for e in self.events("start") if e["attempt"] == attempt}


class Cluster(Workers):
    """One job over the nodes of a net."""

    def __init__(self, net: Net, place: Path, token: str) -> None:
        self.net = net
        self.token = token
        self.python = sys.executable
        super().__init__(place / "out")
        #: The last `holdfast run` of each node, by its number.
        self.runs: dict[int, Started] = {}
        self.endpoint = f"{net[1].address}:{PORT}"
        for node in net:
            self.give_key(node)

    def give_key(self, node: Node, byte: int = 7) -> Path:
        """The job's key as a user copies it: in the state directory of each node."""
        node.home.mkdir(parents=True, exist_ok=True)
        node.home.chmod(0o700)
        key = node.home / "key"
        key.write_bytes(bytes([byte]) * 32)
        key.chmod(0o600)
        return key

    def holdfast(self, node: Node, *words: str | Path, user: int = 0, env: Mapping[str, str] | None = None) -> Started:
        """Any command of holdfast on this node."""
        return node.start(self.python, "-m", "holdfast", *words, user=user, env={**OWN_PORT, **(env or {})})

    def run(
        self,
        number: int,
        *options: str | Path,
        script: Sequence[str | Path] = (),
        endpoint: str = "",
        user: int = 0,
        checks: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Started:
        """`holdfast run … drill_trainer.py` typed on this node."""
        node = self.net[number]
        started = self.runs[number] = self.holdfast(
            node,
            *("run", *(() if checks else ("--no-checks",)), "--rdzv-endpoint", endpoint or self.endpoint),
            *("--report", node.place / "report.json", *options),
            *(script or (TRAINER, self.out)),
            user=user,
            env=env,
        )
        return started

    def run_all(
        self, *options: str | Path, script: Sequence[str | Path] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """The same typed on every node that is on."""
        for node in self.net:
            if node.on:
                self.run(node.number, *options, script=script, env=env)

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = DRILL_WAIT_S) -> None:
        """Until this holds; an AssertionError with all that was printed if it never does, or every run has ended."""
        until = time.monotonic() + timeout_s
        while not what():
            gone = all(run.outside.poll() is not None for run in self.runs.values())
            if gone and not what():
                raise AssertionError(f"every run has ended before {why}\n{self.told()}")
            if time.monotonic() > until:
                raise AssertionError(f"not within {timeout_s} s: {why}\n{self.told()}")
            time.sleep(0.02)

    def rank_on(self, number: int, attempt: int = 1) -> int:
        """The lowest rank of this node."""
        [first, *_] = sorted(
            e["rank"] for e in self.events("start") if e["host"] == self.net[number].host and e["attempt"] == attempt
        )
        return int(first)

    def journal(self) -> list[tuple[float, Event]]:
        """The owner's events, each with its time (seconds since the epoch, on the owner's clock)."""
        path = self.net[1].home / "holdfast.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
            rows = journal.execute("SELECT now, event FROM events ORDER BY seq").fetchall()
        return [(now, json.loads(event)) for now, event in rows]

    def adopted(self, times: int) -> float | None:
        """When every agent had confirmed the attempt to the owner that came back so often; None: not yet."""
        events = self.journal()
        back = [index for index, (_, event) in enumerate(events) if event["type"] == "owner_recovered"]
        if len(back) < times:
            return None
        confirmed: dict[str, float] = {}
        for now, event in events[back[-1] :]:
            if event["type"] == "agent_reported":
                confirmed.setdefault(event["report"]["node"], now)
        with_ranks = len(set(self.hosts(self.attempts()[-1]).values()))
        return max(confirmed.values()) if len(confirmed) >= with_ranks else None

    # ---------------------------------------------------------------------------------------------------- the end

    def end(self, *, but: Sequence[int] = (), timeout_s: float = DRILL_WAIT_S) -> dict[int, int]:
        """Wait for each node's run (but of these); their exit statuses by node."""
        return {number: run.wait(timeout_s) for number, run in self.runs.items() if number not in but}

    def report(self, number: int = 1) -> dict[str, Any]:
        """What the run on this node wrote to its `--report`."""
        path = self.net[number].place / "report.json"
        assert path.exists(), f"{self.net[number].name} wrote no report\n{self.told()}"
        report: dict[str, Any] = json.loads(path.read_text())
        return report

    def told(self) -> str:
        """What each run printed: for the message of a failed test."""
        parts = []
        for number, run in sorted(self.runs.items()):
            out = "\n".join(run.out.splitlines()[-5:])
            err = "\n".join(run.err.splitlines()[-40:])
            parts.append(f"--- node {number} (status {run.outside.poll()})\n{out}\n--- its stderr\n{err}")
        last = [str({k: v for k, v in e.items() if k != "pid"}) for e in self.events()[-6:]]
        return "\n".join([*parts, "--- workers", *last])

    def survivors(self) -> list[str]:
        """Processes of this test that live, zombies left out."""
        return living(self.token)


ClusterOf = Callable[..., Cluster]


def phrases(report: dict[str, Any]) -> list[str]:
    """Of each attempt, how it ended."""
    return [attempt["report"]["phrase"] for attempt in report["attempts"]]


def culprits(report: dict[str, Any]) -> list[tuple[int, str] | None]:
    """Of each attempt, the rank and the node that the report blames."""
    firsts = [attempt["report"]["first"] for attempt in report["attempts"]]
    return [first and (first["rank"], first["node"]) for first in firsts]


@contextmanager
def nodes(place: Path, count: int, token: str, **how: Any) -> Iterator[Cluster]:
    """A net of so many nodes and a job for it; at the end nothing may live once its runs have ended."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "PET_", "TORCHELASTIC_", "XDG_"))
        and name not in ("PYTHONDONTWRITEBYTECODE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    }
    with Net(place, count, env={**env, token: "1"}, **how) as net:
        cluster = Cluster(net, place, token)
        yield cluster
        print(cluster.told())  # pytest shows it where the test failed
        ended = bool(cluster.runs) and all(run.outside.poll() is not None for run in cluster.runs.values())
        left = cluster.survivors() if ended else []
    assert not left, f"left behind: {left}"
    # Workers' own tracebacks have their rank before them.
    bugs = [f"{node.name}: {line}" for node in net for line in node.printed() if line.startswith(BUGS)]
    assert not bugs, bugs
