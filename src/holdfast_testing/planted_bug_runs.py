"""`python -m holdfast_testing.planted_bug_runs [NAME…]`: plants each bug in the source and runs its nearest tests.

First all tests run without a bug, and must pass. Then each bug is planted in a copy of the source, where each of its
tests must fail. The tests come from this checkout; only the package comes from the copy. Exit status 0: all bugs were
caught; 1: not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_testing.planted_bug import NotPlanted, PlantedBug, SourceChange
from holdfast_testing.planted_bugs import EQUIVALENT_BUGS, PLANTED_BUGS

SOURCE = Path(__file__).parents[1]
ROOT = SOURCE.parent
#: Time limit for the tests of one bug, in seconds.
LIMIT_S = 300.0
#: Options of pytest. The nearest tests need no fixture of `tests/conftest.py`, whose imports take a second.
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--noconftest", "--tb=no", "-rfE", "--color=no")


class SourceCopy:
    """A copy of the source, in which one bug at a time is planted."""

    def __init__(self, directory: Path) -> None:
        self._source = directory / "src"
        # The copy includes compiled files; they stay valid, because the files' times are copied too.
        shutil.copytree(SOURCE, self._source)

    @contextmanager
    def planted(self, change: SourceChange) -> Iterator[None]:
        """Plant a bug in the copy until the block ends. Raises `NotPlanted`."""
        original, copy = SOURCE / "holdfast" / change.file, self._source / "holdfast" / change.file
        copy.write_text(change.planted(original.read_text(encoding="utf-8")), encoding="utf-8")
        try:
            yield
        finally:
            shutil.copy2(original, copy)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run these tests with the package of this copy; return pytest's exit status and output."""
        env = {
            **os.environ,
            "PYTHONPATH": str(self._source),
            # Python accepts a compiled file if the source has the same size and time (in seconds). Two planted bugs may
            # share both.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        }
        words = [sys.executable, "-m", "pytest", *_OPTIONS, *(f"tests/{test}" for test in tests)]
        try:
            done = subprocess.run(
                words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return -1, f"the tests did not end within {LIMIT_S:g} s"
        return done.returncode, done.stdout + done.stderr


def failed_tests(output: str) -> set[str]:
    """Return the failed tests in pytest's output, without parameters and without `tests/`."""
    lines = (line.removeprefix("FAILED tests/") for line in output.splitlines() if line.startswith("FAILED tests/"))
    return {line.partition(" - ")[0].partition("[")[0] for line in lines}


def missed(bug: PlantedBug, copy: SourceCopy) -> str:
    """Return the reason if a bug is not caught; empty if each of its tests fails."""
    try:
        with copy.planted(bug):
            status, output = copy.run(bug.tests)
    except NotPlanted as error:
        return str(error)
    if status != 1:
        return f"its tests pass (status {status})" if status == 0 else f"its tests could not run: {output[-400:]}"
    passed = [test for test in bug.tests if test not in failed_tests(output)]
    return f"these did not fail: {', '.join(passed)}" if passed else ""


def run_planted(bugs: Sequence[PlantedBug] = PLANTED_BUGS) -> int:
    """Run the tests of each bug, print the results, and return the number of bugs that were not caught."""
    if not (ROOT / "tests").is_dir():
        print(f"no tests beside {SOURCE}: planted bugs need a checkout")
        return len(bugs)
    workers = min(len(bugs), os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="holdfast-planted-") as directory:
        copies: queue.SimpleQueue[SourceCopy] = queue.SimpleQueue()
        for number in range(workers):
            copies.put(SourceCopy(Path(directory, str(number))))
        first = copies.get()
        status, output = first.run(sorted({test for bug in bugs for test in bug.tests}))
        copies.put(first)
        if status:
            print(f"without a bug the tests must pass:\n{output}")
            return len(bugs)

        def caught(bug: PlantedBug) -> str:
            copy = copies.get()
            try:
                return missed(bug, copy)
            finally:
                copies.put(copy)

        count = 0
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for bug, why in zip(bugs, pool.map(caught, bugs), strict=True):
                count += bool(why)
                print(f"{bug.name:22} {bug.wrong:68} {f'NOT CAUGHT: {why}' if why else _by(bug)}", flush=True)
    return count


def _by(bug: PlantedBug) -> str:
    more = f" and {len(bug.tests) - 1} more" if len(bug.tests) > 1 else ""
    return f"by {bug.tests[0]}{more}"


def tell_equivalent() -> None:
    """Print the bugs that change nothing, each with its proof."""
    for bug in EQUIVALENT_BUGS:
        print(f"{bug.name:22} {bug.wrong:68} equivalent: {bug.proof}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_testing.planted_bug_runs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these bugs")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {bug.name for bug in PLANTED_BUGS}:
        parser.error(f"no such planted bug: {', '.join(sorted(unknown))}")
    bugs = [bug for bug in PLANTED_BUGS if not options.names or bug.name in options.names]
    count = run_planted(bugs)
    print(f"{len(bugs) - count} of {len(bugs)} planted bugs caught")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
