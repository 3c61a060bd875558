"""walk.md tells the way of one death through the source: a real death takes that way, and a reader can follow it.

When the files of the walk have changed, the page's tables are made anew by

    HOLDFAST_WALK=write python -m pytest -q tests/project/test_walk.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from walking import Call, Figures, Notes

from conftest import Holdfast
from places import DOCS, TESTS

PAGE = DOCS / "internals" / "walk.md"
#: The link of one machine, what looks at a standstill on that link, what joins the two sides, and the one place that
#: waits. They call what they were given, and choose nothing.
PASSED_THROUGH = frozenset(
    {"wire/in_process_link.py", "reactor.py", "owner/idle_reporter.py", "main/single_machine_run.py"}
)

Station = tuple[str, str]

JOB = """
    import os, pathlib, signal, time
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while not pathlib.Path(os.environ["REHEARSED"]).exists():
            time.sleep(0.01)
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
"""


def stations(text: str) -> list[Station]:
    """`3. `decide/agent.py` `Agent._exited`: …`, in the order of their numbers."""
    found = re.findall(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`: \w", text, re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(file, name) for _, file, name in found]


def follow(notes: Notes, walk: Sequence[Station]) -> list[Call]:
    """The calls by which the stations are entered, each after the one before. Raises AssertionError."""
    found: list[Call] = []
    for station in walk:
        after = found[-1].number + 1 if found else 0
        call = next((call for call in notes.calls[after:] if call.place == station), None)
        before = f" after {found[-1].name}" if found else ""
        assert call is not None, f"{' '.join(station)} is not entered{before}"
        found.append(call)
    return found


def detours(notes: Notes, walk: Sequence[Station]) -> list[str]:
    """Callers on the way from one station to the next that a reader finds in no file of the walk."""
    known = {file for file, _ in walk} | PASSED_THROUGH
    return [
        f"{call.name} is reached through {above.file} {above.name}"
        for call in follow(notes, walk)
        for above in notes.callers(call)
        if above.file not in known
    ]


def table(walk: Sequence[Station]) -> str:
    rows = [
        f"| `{file}` | {', '.join(str(at) for at, (other, _) in enumerate(walk, 1) if other == file)} |"
        for file in dict.fromkeys(file for file, _ in walk)
    ]
    return "\n".join(["| file | stations |", "|---|---|", *rows])


def part(text: str, name: str) -> re.Match[str]:
    found = re.search(
        rf"(?<=<!-- {name}: made by tests/project/test_walk.py -->\n).*?(?=<!-- end -->)", text, re.DOTALL
    )
    assert found is not None
    return found


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Notes:
    """One death, in a run that has had the time to rehearse."""
    holdfast = Holdfast(tmp_path_factory.mktemp("walk"))
    file = holdfast.dir / "notes.json"
    tracer = TESTS / "project" / "walking.py"
    quiet = holdfast.dir / "quiet"  # neither this machine's kernel nor a busy folder has news between the two attempts
    quiet.mkdir()
    (quiet / "kernel.log").touch()
    options: list[str | Path] = ["--no-checks", "--nproc-per-node", "2", "--max-restarts", "1"]
    options += ["--kernel-log", quiet / "kernel.log", "--fault-file", quiet / "faults.jsonl"]
    done = subprocess.run(
        [sys.executable, tracer, file, "run", *options, holdfast.script(JOB)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**holdfast.env, "REHEARSED": str(file.with_suffix(".rehearsed"))},
        cwd=holdfast.dir,
    )
    assert (done.returncode, holdfast.survivors()) == (0, []), done.stderr
    return Notes.read(file)


@pytest.fixture
def walk(notes: Notes) -> list[Station]:
    text = PAGE.read_text(encoding="utf-8")
    found = stations(text)
    if os.environ.get("HOLDFAST_WALK") == "write":
        ran = notes.figures()
        counts = f"From the death to the first release: {ran.files} files, {ran.functions} functions, "
        counts += f"{ran.switches} times from one file to another."
        for name, made in (("files", table(found)), ("counts", counts)):
            text = text.replace(
                f"made by tests/project/test_walk.py -->\n{part(text, name)[0]}<!-- end", f"@{name}@", 1
            )
            text = text.replace(f"@{name}@", f"made by tests/project/test_walk.py -->\n\n{made}\n\n<!-- end", 1)
        PAGE.write_text(text, encoding="utf-8")
    return found


@pytest.mark.real
def test_a_death_enters_the_stations_of_the_page_in_their_order(notes: Notes, walk: list[Station]) -> None:
    assert len(follow(notes, walk)) == len(walk) > 20


@pytest.mark.real
def test_who_calls_whom_between_two_stations_stands_in_the_files_of_the_walk(notes: Notes, walk: list[Station]) -> None:
    assert detours(notes, walk) == []


@pytest.mark.real
def test_the_page_lists_the_files_as_they_are(walk: list[Station]) -> None:
    printed = part(PAGE.read_text(encoding="utf-8"), "files")[0].strip()
    assert printed == table(walk), "HOLDFAST_WALK=write python -m pytest -q tests/project/test_walk.py"


A, B, C = Call(0, -1, "a.py", "a"), Call(1, 0, "b.py", "b"), Call(2, 1, "c.py", "c")


def test_a_station_that_was_renamed_is_named() -> None:
    with pytest.raises(AssertionError, match=r"a\.py gone is not entered after a"):
        follow(Notes([A, B]), [("a.py", "a"), ("a.py", "gone")])


def test_stations_in_another_order_are_no_walk() -> None:
    with pytest.raises(AssertionError, match=r"a\.py a is not entered after b"):
        follow(Notes([A, B]), [("b.py", "b"), ("a.py", "a")])


def test_a_caller_in_another_file_is_a_detour() -> None:
    assert detours(Notes([A, B, C]), [("a.py", "a"), ("c.py", "c")]) == ["c is reached through b.py b"]
    assert detours(Notes([A, B, C]), [("a.py", "a"), ("b.py", "b"), ("c.py", "c")]) == []


def test_switches_are_counted_from_one_call_to_the_next() -> None:
    notes = Notes([A, B, C, Call(3, 2, "c.py", "d")])
    polled = [Call(4, 3, "e.py", "E.next_wake"), Call(5, 4, "f.py", "f"), Call(6, 3, "clock.py", "now")]
    assert Notes([*notes.calls, *polled]).figures() == notes.figures() == Figures(files=3, functions=4, switches=2)
