"""`holdfast run --queue …`: waits for the job's turn in this machine's queue, and shows its output as it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options.run_option_table import takes_values
from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.platforms.submission import SubmitOption

QUEUE = "--queue"
#: How often new output is printed, in seconds.
LOOK_S = 0.1


def is_queued(words: Sequence[str]) -> bool:
    """Return whether `--queue` is among the options of `holdfast run`, and not among the words of its script."""
    return QUEUE in _options_of(words)


def _options_of(words: Sequence[str]) -> Sequence[str]:
    """Return the words before the script."""
    valued = takes_values() | {QUEUE: False} | {form: bool(each.metavar) for each in _own() for form in each.forms}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, equals, _ = words[at].partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        at += 2 if valued.get(name, False) and not equals else 1
    return words[:at]


def _own() -> tuple[SubmitOption, ...]:
    """Return the options of the queue that `run --queue` takes. The run's own `--output` and the like stay its own."""
    from holdfast.platforms.platform_registry import access_to

    access = access_to("local")
    assert access is not None, "it is built in"
    return tuple(each for each in access.submit_options() if each.key != "output")


def run_queued(words: Sequence[str]) -> int:
    """Submit the job, show its output as it comes, and return its status."""
    from holdfast.cli.output.printing import say
    from holdfast.cli.submit import checked_submission
    from holdfast.model.job_spec import PlatformJob
    from holdfast.platforms.submission import Submitted

    options, job, rest = _split(words)
    found: list[PlatformJob] = []

    def told(submitted: Submitted) -> None:
        found.append(submitted.job)
        say(
            f"job {submitted.job.id} ({submitted.name}) waits for its turn: holdfast queue --explain {submitted.job.id}"
        )

    checked_submission(job, "local", options, rest)[1].submit(told, say, now=time.time(), wait=False)
    return _Viewer(found[0].id).show()


def _split(words: Sequence[str]) -> tuple[dict[str, Any], str, list[str]]:
    """Return the values for the queue, by key, the job file or "", and the words for the run."""
    from holdfast.platforms.submission import TypedValue

    own = {form: each for each in _own() for form in each.forms}
    before = list(_options_of(words))
    options: dict[str, Any] = {}
    job, rest = "", list[str]()
    while before:
        word = before.pop(0)
        name, equals, value = word.partition("=")
        option = own.get(name)
        if word == QUEUE:
            continue
        if option is None and name != "--job":
            rest.append(word)
            continue
        metavar = option.metavar if option is not None else "FILE"
        if metavar and not equals:
            if not before:
                raise BadUsage(f"{name}: expected {metavar} behind it", hint=f"holdfast run --queue {name} …")
            value = before.pop(0)
        if option is None:
            job = value
        else:
            options[option.key] = TypedValue(value=value if metavar else True, option=name)
    return options, job, [*rest, *words[len(_options_of(words)) :]]


class _Viewer:
    """Shows a job's output until its end. SIGINT stops the job, a second one kills it, and so does SIGHUP."""

    def __init__(self, job_id: str) -> None:
        from holdfast.cli.options.shared_options import home
        from holdfast.queue.core_client import EndWatch

        self._home, self._job_id = home(), job_id
        self._end = EndWatch(self._home, job_id)
        self._signals = 0
        #: The command that stops the job, and records the end of one that has not begun.
        self._stop: subprocess.Popen[bytes] | None = None
        self._read = 0

    def show(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signalled)
        while not self._end.ended(LOOK_S):
            self._print_new()
        self._end.close()
        self._print_new()
        return self._final_code()

    def _final_code(self) -> int:
        from holdfast.cli.options.shared_options import survey
        from holdfast.record import report_file

        if self._stop is not None:
            self._stop.wait()
        report = report_file.read(self._home, self._job_id)
        if report is None:
            survey()  # the owner died without a report, and this records the job's end
            report = report_file.read(self._home, self._job_id)
        return report.report.code if report is not None else 1

    def _print_new(self) -> None:
        from holdfast.queue.job_start import OUTPUT_NAME
        from holdfast.record.state_directory import job_dir

        try:
            with Path(job_dir(self._home, self._job_id) / OUTPUT_NAME).open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return  # the job waits
        self._read += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.flush()

    def _signalled(self, number: int, frame: object) -> None:
        """Stop the job. A second signal kills the run, whose guard then kills its workers."""
        self._signals += 1
        name = signal.Signals(number).name
        if self._signals == 1:
            reason = f"{name} to `holdfast run --queue`"
            words = [sys.executable, "-P", "-m", "holdfast", "stop", self._job_id, "--reason", reason]
            self._stop = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
            return
        from holdfast.record.owner_lock import read_owner
        from holdfast.record.state_directory import job_dir

        owner = read_owner(job_dir(self._home, self._job_id))
        if owner is not None and not owner.queued:
            os.kill(owner.pid, signal.SIGKILL)
