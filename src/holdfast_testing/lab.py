"""`python -m holdfast_testing.lab`: provokes real failures on this machine, each under `holdfast run`.

    NAME…          only these cases; without a name, all cases
    --hangs        kinds of hang (`lab_cases/hangs/*.yaml`) instead of the failures
    --starts       kinds of start that never finishes (`lab_cases/starts/*.yaml`) instead
    --list         list the cases
    --jobs N       run N cases at a time
    --json         print one JSON object per case instead of the table

Every case is a small program that fails in a certain way (`lab_cases/*.yaml`). The lab runs it, reads the report, and
checks phrase, blame and culprit. A stub server on localhost answers like a model hub or a file server in trouble. A
case whose needs this machine does not meet is reported as skipped. Exit status 0: all answers are right; 1: one is
wrong.

A kind of hang names the rank for which the others wait. If no rank is the cause, its `rank` is null, and a report that
names a rank is wrong.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.observe.python_stacks import find_py_spy
from holdfast_testing.lab_server import Surroundings, surroundings

LIMIT_S = 90.0
#: The line that a program prints when it is ready for the lab's signal.
READY = "ready for the lab"


class Case(Noun, frozen=True, kw_only=True):
    """A failure that the lab provokes, and the right report about it."""

    name: str
    #: The right failure class first, and then other classes that count as right.
    phrases: tuple[str, ...]
    blame: str
    #: The culprit; None if no rank is the cause.
    rank: int | None = 0
    workers: int = 1
    script: str = ""
    #: A command that the case runs in place of a script.
    command: tuple[str, ...] = ()
    files: dict[str, str] = {}
    #: Permission bits of some of the case's files, by file name.
    modes: dict[str, int] = {}
    #: Further options of `holdfast run` for this case.
    options: tuple[str, ...] = ()
    #: The memory limit of each worker, in the notation of a job file.
    memory: str = ""
    #: The signal sent to holdfast after a worker has printed the `READY` line.
    interrupt: str = ""
    #: Requirements on the machine, any of: torch, root, cgroup, openssl, netns, py-spy.
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    #: Further right culprits, for a kind of hang or start.
    also: tuple[int, ...] = ()
    #: Text that the report's reason must contain, such as an address or a name.
    says: str = ""
    #: Whether a report is wrong if it names a culprit besides `rank`, or any culprit if `rank` is None.
    alone: bool = False
    #: Seconds after which an unfinished case counts as wrong.
    limit_s: float = LIMIT_S


class _Hang(Noun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of hang, as its file describes it."""

    name: str
    #: The rank for which the others wait; None if no rank is the cause.
    rank: int | None
    #: Further ranks for which the others wait.
    also: tuple[int, ...] = ()
    script: str
    workers: int = 3
    needs: tuple[str, ...] = ("torch", "py-spy")


class _Start(Noun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of start that never finishes, as its file describes it."""

    name: str
    #: The ranks that never joined, or could not reach rank 0.
    ranks: tuple[int, ...]
    script: str
    workers: int = 3
    phrases: tuple[str, ...] = (Phrase.RENDEZVOUS_TIMEOUT,)
    says: str = ""
    environment: dict[str, str] = {}
    needs: tuple[str, ...] = ("torch",)


class _Starts(Noun, frozen=True, kw_only=True):
    prelude: str
    cases: tuple[_Start, ...]


class _Hangs(Noun, frozen=True, kw_only=True):
    #: The beginning of every script that the file contains.
    prelude: str
    cases: tuple[_Hang, ...]


class Outcome(Noun, frozen=True, kw_only=True):
    """A case, and the report that `holdfast run` made about it."""

    name: str
    right: bool
    skipped: str = ""
    phrase: str = ""
    blame: str = ""
    rank: int | None = None
    reason: str = ""
    wrong: str = ""


class _First(Noun, frozen=True, kw_only=True):
    rank: int = 0


class _Report(Noun, frozen=True, kw_only=True):
    phrase: str
    blame: str
    reason: str = ""
    first: _First | None = None
    also: tuple[_First, ...] = ()


def cases() -> list[Case]:
    """Return all cases in the order of their files. Raises `msgspec.ValidationError` for an invalid file."""
    import yaml

    found: list[Case] = []
    for file in sorted((Path(__file__).parent / "lab_cases").glob("*.yaml")):
        found += msgspec.convert(yaml.safe_load(file.read_bytes())["cases"], list[Case])
    return found


HANG_TIMEOUT_S = 4
HANG_LIMIT_S = 240.0


def hangs() -> list[Case]:
    """Return the kinds of hang in the order of their files. Raises `msgspec.ValidationError` for an invalid file."""
    import yaml

    found: list[Case] = []
    for file in sorted((Path(__file__).parent / "lab_cases" / "hangs").glob("*.yaml")):
        told = msgspec.convert(yaml.safe_load(file.read_bytes()), _Hangs)
        found += [
            Case(
                name=one.name,
                phrases=(Phrase.HUNG_WORKER,),
                blame="workload",
                rank=one.rank,
                also=one.also,
                workers=one.workers,
                script=told.prelude + one.script,
                options=("--hang-timeout", str(HANG_TIMEOUT_S)),
                needs=one.needs,
                alone=True,
                limit_s=HANG_LIMIT_S,
            )
            for one in told.cases
        ]
    return found


def starts() -> list[Case]:
    """Return the kinds of start that never finishes. Raises `msgspec.ValidationError` for an invalid file."""
    import yaml

    found: list[Case] = []
    for file in sorted((Path(__file__).parent / "lab_cases" / "starts").glob("*.yaml")):
        told = msgspec.convert(yaml.safe_load(file.read_bytes()), _Starts)
        found += [
            Case(
                name=one.name,
                phrases=one.phrases,
                blame="",
                rank=one.ranks[0],
                also=one.ranks[1:],
                says=one.says,
                workers=one.workers,
                script=told.prelude + one.script,
                environment=one.environment,
                needs=one.needs,
                alone=True,
            )
            for one in told.cases
        ]
    return found


def missing(case: Case) -> str:
    """Return the requirement of the case that this machine lacks; empty if the case can run."""
    for need in case.needs:
        if need == "torch" and importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        if need == "root" and os.geteuid() != 0:
            return "needs to be root, to become nobody"
        if need == "netns" and not _network_of_its_own():
            return "needs a network namespace (unshare -n) and ip"
        if need == "py-spy" and find_py_spy() is None:
            return "py-spy is not installed"
        if need == "openssl" and shutil.which("openssl") is None:
            return "openssl is not installed"
        if need == "cgroup" and not _memory_limits():
            return "no cgroup with memory limits can be made"
    return ""


def _network_of_its_own() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


def _memory_limits() -> bool:
    from holdfast.act.cgroups import ControlGroups

    return ControlGroups.make("lab").can_limit


def run_case(case: Case, around: Surroundings) -> Outcome:
    """Run one case in a new directory and judge the report. A wrong answer raises nothing."""
    if lacking := missing(case):
        return Outcome(name=case.name, right=True, skipped=lacking)
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as name:
        place = Path(name)
        # a worker that changes its user to nobody must still be able to read its files
        place.chmod(0o755)
        for file, text in case.files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
        for file, mode in case.modes.items():
            (place / file).chmod(mode)
        (place / "worker.py").write_text(case.script)
        said, output = _run(case, place, around)
    if said is None:
        return Outcome(name=case.name, right=False, wrong=f"no report: {output[-400:]}")
    rank = said.first.rank if said.first is not None else None
    wrong = [
        *([] if said.phrase in case.phrases else [f"phrase {said.phrase}, wanted {' or '.join(case.phrases)}"]),
        *([] if said.blame == (case.blame or said.blame) else [f"blame {said.blame}, wanted {case.blame}"]),
        *([] if rank == case.rank or (case.rank is None and not case.alone) else [f"rank {rank}, wanted {case.rank}"]),
        *([] if _also_right(case, said) else [f"also {[one.rank for one in said.also]}"]),
        *([] if case.says in said.reason else [f"the reason lacks {case.says!r}"]),
    ]
    return Outcome(
        name=case.name,
        right=not wrong,
        phrase=said.phrase,
        blame=said.blame,
        rank=rank,
        reason=said.reason,
        wrong="; ".join(wrong),
    )


def _also_right(case: Case, said: _Report) -> bool:
    return not case.alone or case.rank is None or tuple(one.rank for one in said.also) == case.also


def _run(case: Case, place: Path, around: Surroundings) -> tuple[_Report | None, str]:
    report = place / "lab-report.json"
    with _environment(place, around) as env:
        process = subprocess.Popen(
            _command(case, place, report), cwd=place, env={**env, **case.environment}, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output = ""
        try:
            if case.interrupt and process.stdout is not None:
                for line in process.stdout:
                    output += line
                    if READY in line:
                        process.send_signal(signal.Signals[case.interrupt])
                        break
            output += process.communicate(timeout=case.limit_s)[0] or ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, f"not over after {case.limit_s:.0f} s"
    try:
        return msgspec.json.decode(report.read_bytes(), type=_Report), output
    except (OSError, msgspec.DecodeError):
        return None, output


def _command(case: Case, place: Path, report: Path) -> list[str]:
    start = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--max-restarts", "0", "--grace", "2", "--no-warm"]
    start += ["--report", str(report), *case.options]
    program = [sys.executable, "worker.py"] if not case.command else [_filled(part) for part in case.command]
    if case.memory:
        job = place / "lab-job.yaml"
        role = {"count": case.workers, "command": program, "resources": {"memory": case.memory}}
        job.write_bytes(msgspec.yaml.encode({"name": case.name, "roles": {"worker": role}}))
        return [*start, "--job", str(job)]
    start += ["--nproc-per-node", str(case.workers)]
    return [*start, "--no-python", *program] if case.command else [*start, "worker.py"]


def _filled(part: str) -> str:
    return part.replace("{python}", sys.executable)


@contextmanager
def _environment(place: Path, around: Surroundings) -> Iterator[dict[str, str]]:
    home = place / "state"
    home.mkdir()
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "RANK", "WORLD_SIZE")}
    yield {
        **kept,
        "HOLDFAST_HOME": str(home),
        "LAB_URL": around.url,
        "LAB_CLOSED_PORT": str(around.closed_port),
        "LAB_TAKEN_PORT": str(around.taken_port),
        "LAB_RESET_PORT": str(around.reset_port),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def run_cases(chosen: Sequence[Case], jobs: int = 1) -> Iterator[Outcome]:
    """Yield the outcomes in the order of the cases; `jobs` cases run at a time."""
    with surroundings() as around, concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(lambda case: run_case(case, around), chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_testing.lab", description="Failures provoked for real.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--hangs", action="store_true", help="the kinds of hang in place of the failures")
    parser.add_argument("--starts", action="store_true", help="the kinds of start that never finishes")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many cases at a time")
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    asked = parser.parse_args(arguments)
    everything = hangs() if asked.hangs else starts() if asked.starts else cases()
    if asked.list:
        for case in everything:
            print(f"{case.name:<28} {case.phrases[0]}")
        return 0
    unknown = sorted(set(asked.names) - {case.name for case in everything})
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; --list names them")
    chosen = [case for case in everything if not asked.names or case.name in asked.names]
    count = right = skipped = 0
    for outcome in run_cases(chosen, max(1, asked.jobs)):
        count += 1
        right += outcome.right and not outcome.skipped
        skipped += bool(outcome.skipped)
        if asked.json:
            print(msgspec.json.encode(outcome).decode(), flush=True)
            continue
        state = "skipped" if outcome.skipped else "right" if outcome.right else "WRONG"
        print(f"{state:<8}{outcome.name:<28}{outcome.skipped or outcome.wrong or outcome.reason[:100]}", flush=True)
    if not asked.json:
        print(f"{right} of {count - skipped} right, {skipped} skipped")
    return 0 if right == count - skipped else 1


if __name__ == "__main__":
    sys.exit(main())
