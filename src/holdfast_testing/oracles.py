"""`python -m holdfast_testing.oracles write|compare`: the outputs that a change must leave equal, byte for byte.

    write   [NAME…]   compute the oracles and store them in tests/data/oracles
    compare [NAME…]   compute them again, and print the lines that differ from those stored

    reports    of each labelled log, each record and each sample of the catalogue
    help       of every verb
    schemas    the JSON Schemas of what `--json` prints and of a job file
    actions    a hash of the actions of each simulation, seeds 1 to 2000
    journals   the actions that journals of earlier versions give when they are replayed
    start      CPU time of a start until the worker's first line, beside plain Python's: printed, never a difference

Exit status 0: all are equal; 1: some differ, or a simulation broke an invariant; 2: bad usage. A commit that changes a
stored oracle says why.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click

from holdfast.cli.options.verb_group import STARTED, cli
from holdfast.cli.schema import names as schema_names
from holdfast.decide.gang import Gang
from holdfast.explain import explain
from holdfast.model.codec import encode
from holdfast.model.evidence import AttemptEvidence
from holdfast.record.database import FILE_NAME
from holdfast.record.journal import Journal
from holdfast_testing.labelled_logs import CHECKOUT, cases, records, samples
from holdfast_testing.plan_generator import draw
from holdfast_testing.simulated_world import Violation
from holdfast_testing.simulation import Simulation, warm

STORED = CHECKOUT / "tests" / "data" / "oracles"
SEEDS, NODES = range(1, 2001), 3
STARTS = 15
#: Maximum number of differing lines that are printed for each file.
SHOWN_LINES = 40
SHOWN_CHARACTERS = 400

#: File names below `STORED`, each with its lines.
Files = Iterator[tuple[str, Iterable[str]]]


def reports() -> Files:
    """Yield the whole report of each benchmark case, and a line with a hash of the report for each record and each
    sample."""
    yield "reports/cases.txt", (line for case in cases() for line in _whole(case))
    yield "reports/records.txt", map(_in_a_line, records())
    yield "reports/samples.txt", map(_in_a_line, samples())


def _whole(named: tuple[str, AttemptEvidence]) -> Iterator[str]:
    name, evidence = named
    yield f"# {name}"
    yield from json.dumps(json.loads(encode(explain(evidence))), indent=1).split("\n")


def _in_a_line(named: tuple[str, AttemptEvidence]) -> str:
    name, evidence = named
    report = explain(evidence)
    rank = report.first.rank if report.first else "-"
    hashed = hashlib.sha256(encode(report)).hexdigest()[:16]
    return f"{name}\t{hashed} {report.phrase} {report.blame} {report.rerun} rank {rank}: {json.dumps(report.reason)}"


def helps() -> Files:
    """Yield the output of each verb's `--help` and `--help-all`, 100 columns wide."""
    yield "help.txt", _helps()


def _helps() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as home:
        for words in ((), *_verbs(cli, click.Context(cli)), *((verb,) for verb in STARTED)):
            yield f"$ holdfast {' '.join([*words, '--help'])}"
            shown = _run("-m", "holdfast", *words, "--help", home=home).rstrip("\n")
            yield from shown.split("\n")
            yield ""
            if "--help-all" in shown:
                yield f"$ holdfast {' '.join([*words, '--help-all'])}"
                yield from _run("-m", "holdfast", *words, "--help-all", home=home).rstrip("\n").split("\n")
                yield ""


def _verbs(group: click.Group, context: click.Context, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(context):
        yield (*before, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _verbs(command, context, (*before, name))


def schemas() -> Files:
    """Yield the output of `holdfast schema NAME` for each name."""
    with tempfile.TemporaryDirectory() as home:
        for name in schema_names():
            yield f"schemas/{name}.json", _run("-m", "holdfast", "schema", name, home=home).rstrip("\n").split("\n")


def actions() -> Files:
    """Yield a hash of each simulation's actions, or the invariant that it broke."""
    yield "actions.txt", map(_simulated, SEEDS)


def _simulated(seed: int) -> str:
    warm()
    simulation = Simulation(draw(seed, NODES))
    try:
        simulation.run()
    except Violation as violation:
        return f"{seed} broke {violation}"
    return f"{seed} {hashlib.sha256(encode(simulation.owner.history)).hexdigest()[:16]}"


def journals() -> Files:
    """Yield each event of the stored journals, and the gang's actions for it."""
    for path in sorted((STORED / "journals").glob("*.db.gz")):
        yield f"journals/{path.name.removesuffix('.db.gz')}.actions.txt", _replayed(path)


def _replayed(path: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / FILE_NAME).write_bytes(gzip.decompress(path.read_bytes()))
        with sqlite3.connect(home / FILE_NAME) as database:
            jobs = database.execute("SELECT id, name FROM jobs ORDER BY id").fetchall()
        database.close()
        journal = Journal.open(home)
        try:
            for job_id, name in jobs:
                gang = Gang()
                for at, event in journal.events(job_id):
                    yield f"{name} {at:.6f} {type(event).__name__}"
                    yield from (f"    {encode(action).decode()}" for action in gang.handle(event, at))
        finally:
            journal.close()


def start() -> Files:
    """Yield the CPU time (ms, median of 15 starts) of holdfast until the worker's first line, and of the worker."""
    yield "start.json", [json.dumps(_start())]


_FIRST_LINE = """
import os, sys

def spent_ns(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0])

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

above, pid = 0, os.getppid()
while pid not in (1, int(sys.argv[1])):
    above, pid = above + spent_ns(pid), parent(pid)
with open(sys.argv[2], "w") as file:
    file.write(f"{above} {spent_ns(os.getpid())}")
"""


def _start() -> dict[str, float]:
    above: list[int] = []
    plain: list[int] = []
    with tempfile.TemporaryDirectory() as home:
        script, told = Path(home, "first_line.py"), Path(home, "told")
        script.write_text(_FIRST_LINE, encoding="utf-8")
        for number in range(STARTS + 1):
            _run("-m", "holdfast", "run", "--no-checks", str(script), str(os.getpid()), str(told), home=home)
            ours, own = told.read_text(encoding="utf-8").split()
            if number:  # skip the first start, which compiles the modules
                above.append(int(ours))
                plain.append(int(own))
    medians = statistics.median(above) / 1e6, statistics.median(plain) / 1e6
    ratio = medians[0] / medians[1]
    return {"holdfast_ms": round(medians[0], 1), "python_ms": round(medians[1], 1), "ratio": round(ratio, 2)}


def _run(*arguments: str, home: str) -> str:
    """Run this Python with `arguments`, without the user's settings for holdfast or Python.

    Return its standard output.
    """
    theirs = ("HOLDFAST_", "XDG_", "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
    mine = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    env = mine | {"HOLDFAST_HOME": home, "COLUMNS": "100", "HOME": home, "LC_ALL": "C.UTF-8"}
    done = subprocess.run([sys.executable, *arguments], env=env, cwd=home, capture_output=True, text=True, check=True)
    return done.stdout


ORACLES: dict[str, Callable[[], Files]] = {
    "reports": reports,
    "help": helps,
    "schemas": schemas,
    "actions": actions,
    "journals": journals,
    "start": start,
}


def write(names: Sequence[str], stored: Path) -> int:
    for name in names:
        for file, lines in ORACLES[name]():
            path = stored / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            print(f"{path}: written", flush=True)
    return 0


def compare(names: Sequence[str], stored: Path) -> int:
    differing = 0
    for name in names:
        for file, lines in ORACLES[name]():
            path = stored / file
            now = list(lines)
            if name == "start":
                print(f"{file}: stored {path.read_text(encoding='utf-8').strip() if path.exists() else 'nothing'}")
                print(f"{file}: now    {now[0]}", flush=True)
                continue
            before = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
            if now == before:
                print(f"{file}: {len(now)} lines, all equal", flush=True)
                continue
            differing += 1
            print(f"{file}: DIFFERS", flush=True)
            changed = list(difflib.unified_diff(before, now, "stored", "now", n=0, lineterm=""))
            for line in changed[:SHOWN_LINES]:
                print(f"    {line[:SHOWN_CHARACTERS]}")
            if len(changed) > SHOWN_LINES:
                print(f"    … {len(changed) - SHOWN_LINES} lines more")
    if differing:
        print(
            f"{differing} files differ; where that is meant: python -m holdfast_testing.oracles write {' '.join(names)}"
        )
    return int(differing > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast_testing.oracles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them; all where none is named")
    parser.add_argument("--stored", type=Path, default=STORED, metavar="DIR", help="another place than %(default)s")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in ORACLES]
    if unknown:
        parser.error(f"there is no oracle {', '.join(unknown)}: expected {', '.join(ORACLES)}")
    act = write if options.what == "write" else compare
    return act(options.names or list(ORACLES), options.stored)


if __name__ == "__main__":
    sys.exit(main())
