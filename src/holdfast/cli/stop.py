"""`holdfast stop JOB --reason TEXT`: sends a request to the job's owner, which then stops the job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster, of_a_cluster
from holdfast.cli.job_access.remote_owner import is_elsewhere, located
from holdfast.cli.options.completion_values import classes, jobs
from holdfast.cli.options.shared_options import survey, utc_option
from holdfast.cli.output.printing import print_line
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.report.terminal_text import harmless
from holdfast.untrusted import Malformed, json_as

if TYPE_CHECKING:
    from holdfast.model.job_spec import PlatformJob
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.record.job_views import JobView
    from holdfast.record.owner_address import OwnerAddress

ANSWER_S = 5.0
#: Maximum number of running jobs that a message names if the user typed no JOB.
_NAMED = 4
MOST_ANSWER_BYTES = 1 << 20


class NoAnswer(HoldfastError):
    """Raised if the owner is alive but does not answer. This is no mistake of the user."""


@click.command()
@click.argument("job", required=False, default="", shell_complete=jobs)
@click.option(
    "--reason",
    default="no reason given",
    show_default=True,
    metavar="TEXT",
    help="The reason, which the job's report will have.",
)
@click.option("--solution", default="", metavar="TEXT", help="Advice for the reader of the report.")
@click.option(
    "--phrase",
    default="",
    metavar="PHRASE",
    shell_complete=classes,
    help="The failure class: a known one, or your own in CamelCase.",
)
@click.option("--code", type=int, metavar="CODE", help="The final code for your own class (160-199, 220-254).")
@click.option(
    "--who", default="", metavar="NAME", help="The component that requests the stop.  [default: user, host and process]"
)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@of_a_cluster()
def command(
    job: str,
    reason: str,
    solution: str,
    phrase: str,
    code: int | None,
    who: str,
    as_json: bool,
    platform: str | None,
    namespace: str | None,
) -> None:
    """Ask a running job to stop, with a reason. JOB is an id, or a name (the newest of that name); without it, the
    only job that runs.

    The supervisor sends SIGTERM to the workers, waits for the grace time, sends SIGKILL, and reports. An ended
    job stays as it is, with exit status 0. A job that waits in a queue is removed from the queue.
    """
    if not reason.strip():
        raise BadUsage(
            "--reason: expected some words, got none", hint=f"holdfast stop {job} --reason 'why it must stop'"
        )
    if phrase or code is not None:
        from holdfast.catalogue.stop_phrases import misshapen

        if why := misshapen(phrase, code, who):
            raise BadUsage(f"--phrase, --code: {why}", hint="holdfast exits")
    if (cluster := in_cluster(platform, namespace)) is not None:
        if not job:
            raise BadUsage("expected the JOB to stop: it is in a cluster", hint="holdfast jobs --platform kubernetes")
        asks = f"{who}, {_who()}" if who else _who()
        message = cluster.stop(namespace, job, reason=reason, solution=solution, phrase=phrase, code=code, who=asks)
        StopOutput(as_json).whole(job, message)
        return
    told = StopOutput(as_json)
    job = job or _only_job()
    _stop_all(job, StopOptions(reason=reason, solution=solution, phrase=phrase, code=code, who=who), told)
    told.end(job)


def _only_job() -> str:
    """Return the id of the only job that has not ended. Raises `BadUsage` if there is none, or if there are several."""
    from holdfast.record.job_views import JobState

    live = [view for view in survey().jobs if view.state is not JobState.ENDED]
    if not live:
        raise BadUsage("expected the JOB to stop: no job runs here", hint="holdfast jobs")
    if len(live) > 1:
        named = ", ".join(f"{view.id} ({harmless(view.name)})" for view in live[:_NAMED])
        more = f" and {len(live) - _NAMED} more" if len(live) > _NAMED else ""
        raise BadUsage(
            f"expected the JOB to stop: {len(live)} jobs have not ended: {named}{more}",
            hint=f"holdfast stop {live[0].id}",
        )
    return live[0].id


def _stop_all(job: str, wish: StopOptions, told: StopOutput) -> None:
    """Stop the job, or, if the user typed the id of a job array, all queued and running tasks of the array."""
    from holdfast.cli.job_access.queued_jobs import queues, take_out
    from holdfast.record.job_views import JobState

    seen = queues()
    known = seen.survey
    queued = [row for row in seen.waiting if job in (row.platform.id, row.array)]
    if queued:
        take_out(known.home, queued, told.line)
    tasks = [view for view in known.jobs if _is_task(view, job)]
    if queued or tasks:
        for view in tasks:
            if view.state is not JobState.ENDED:
                _stop(view.id, wish, told)
        if not queued and all(view.state is JobState.ENDED for view in tasks):
            told.line(f"all {len(tasks)} jobs of the array {job} that have begun are over; there is nothing to stop")
        return
    try:
        _stop(job, wish, told)
    except BadUsage:
        if not (named := [row for row in seen.waiting if row.name == job]):
            raise
        take_out(known.home, named[:1], told.line)


def _is_task(view: JobView, array: str) -> bool:
    """Return whether the job (`view`) has run as a task of the job array `array`. Return False if `array` is the name
    of a job.
    """
    return view.platform is not None and view.platform.id.startswith(f"{array}_") and array.isdigit()


class StopOutput:
    """Prints the results of a stop: as lines for a person while they arrive, or as one JSON object at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._jobs: list[str] = []
        self._lines: list[str] = []

    def line(self, text: str, job_id: str = "") -> None:
        """Print a line, or keep it for the JSON object.

        `job_id`: the job's id in holdfast; empty if it has no id yet.
        """
        if job_id:
            self._jobs.append(job_id)
        if self._as_json:
            self._lines.append(text)
        else:
            print_line(text)

    def end(self, asked: str) -> None:
        """Print the JSON object if the user typed `--json`. `asked`: the job as the user typed it."""
        if self._as_json:
            from holdfast.report.report_json import pretty

            whole = {"asked": asked, "job_ids": self._jobs, "message": "\n".join(self._lines)}
            print_line(pretty({"schema": "holdfast.stopped/1", **whole}))

    def whole(self, asked: str, text: str) -> None:
        """Print the complete output as one line: with `--json` the JSON object, otherwise `text`."""
        self.line(text)
        self.end(asked)


class StopOptions(Noun, frozen=True, kw_only=True):
    """The options of `holdfast stop`, for the stop request."""

    reason: str
    solution: str
    phrase: str
    code: int | None
    who: str


def _stop(job: str, wish: StopOptions, told: StopOutput) -> None:
    import socket

    from holdfast.model.codec import encode
    from holdfast.record.job_lookup import find
    from holdfast.record.job_views import JobState
    from holdfast.record.state_directory import job_dir

    found, view, note = located(job)
    reason, phrase, code, who = wish.reason, wish.phrase, wish.code, wish.who
    if note is not None and is_elsewhere(view):
        try:
            answered = _stop_elsewhere(note, found.home, reason, wish.solution, phrase, code, who)
        except BadUsage:
            raise
        except HoldfastError:
            if not (answered := _ended_meanwhile(note.job_id)):
                raise
        told.line(answered, note.job_id)
        return
    if view.state is JobState.ENDED:
        told.line(_ended(view), view.id)
        return
    if view.state is JobState.QUEUED and view.platform is not None:
        told.line(_stop_queued(found.home, view, view.platform, wish), view.id)
        return
    here = socket.gethostname()
    if view.host != here:
        from holdfast.platforms.platform_registry import queue_of

        if view.platform is not None and (queue := queue_of(view.platform.platform)) is not None:
            told.line(_stop_inside(view, view.platform, queue, wish), view.id)
            return
        raise BadUsage(
            f"job {view.id} runs on {view.host}, and this is {here}: its supervisor can only be asked there",
            hint=f"ssh {view.host} holdfast stop {view.id} --reason {reason!r}",
        )
    request = {
        "type": "stop", "reason": reason, "solution": wish.solution, "who": f"{who}, {_who()}" if who else _who(),
        "phrase": phrase, "code": code,
    }  # fmt: skip
    try:
        answer = ask(job_dir(found.home, view.id), encode(request) + b"\n")
    except OSError as error:
        again = find(survey(), view.id)
        if again.state is JobState.ENDED:
            told.line(_ended(again), view.id)
            return
        raise _unanswered(view, error) from error
    if not answer.get("ok") and (phrase or code is not None):
        raise BadUsage(f"job {view.id} goes on: {answer.get('message') or 'no reason given'}", hint="holdfast exits")
    if not answer.get("ok"):
        raise NoAnswer(f"job {view.id} refused to stop: {answer.get('message') or 'without saying why'}")
    said = str(answer.get("message") or "it is being stopped")
    told.line(f"job {view.id} ({view.name}): {said}\nwatch it end: holdfast logs {view.id} --follow", view.id)


def _stop_queued(home: Path, view: JobView, platform: PlatformJob, wish: StopOptions) -> str:
    """Stop a job that has no living owner.

    The platform removes the job from its queue. Then this process records the job's end.
    """
    import time

    from holdfast.model.evidence import StopRequest
    from holdfast.platforms.job_takeover import end_queued
    from holdfast.platforms.platform_registry import queue_of
    from holdfast.record.job_views import JobState

    queue = queue_of(platform.platform)
    if queue is None:
        raise NoAnswer(f"job {view.id} stays in the queue: {platform.platform} cannot be queried here")
    answer = queue.cancel(platform.id, waiting=False)
    if not answer.ok and not answer.unknown:
        raise NoAnswer(f"job {view.id} stays in the queue: {answer.said}")
    request = StopRequest(
        reason=wish.reason,
        solution=wish.solution,
        phrase=wish.phrase or StopRequest(reason="").phrase,
        code=wish.code,
        who=f"{wish.who}, {_who()}" if wish.who else _who(),
        at=time.time(),
    )
    if end_queued(home, view.id, request):
        return f"job {view.id} ({view.name}): it was queued as {platform.id}, and is taken out of the queue"
    # The job's supervisor died before it could record that the job waits in the queue. So record the user's reason as
    # the cause of the job's end.
    known = survey({view.id: f"{wish.reason} (asked by {request.who})"})
    again = f" again as {platform.id}" if platform.id != view.id else ""
    over = next((each for each in known.jobs if each.id == view.id), view).state is JobState.ENDED
    return (
        f"job {view.id} ({view.name}): it waited to be started{again}, and is taken out of the queue"
        if over
        else f"job {view.id} ({view.name}): it has just begun again, and ends"
    )


def _stop_inside(view: JobView, platform: PlatformJob, queue: JobQueue, wish: StopOptions) -> str:
    """Stop a job whose owner is on another node of the cluster: run `holdfast stop` on that node as a step
    of the job.
    """
    from holdfast.platforms.platform_registry import title_of

    words = ["stop", view.id, "--reason", wish.reason, "--who", f"{wish.who}, {_who()}" if wish.who else _who()]
    for option, value in (("--solution", wish.solution), ("--phrase", wish.phrase), ("--code", wish.code)):
        words += [option, str(value)] if value not in ("", None) else []
    answer = queue.beside(platform.number or platform.id, view.host, words)
    if not answer.ok:
        # The end of the job also ends this step of the job, perhaps before the step has printed the owner's answer.
        if said := _ended_meanwhile(view.id):
            return said
        raise NoAnswer(
            f"job {view.id} runs on {view.host} as {title_of(platform.platform)} job {platform.id}, and could not be "
            f"asked there: {answer.err.strip().removeprefix('holdfast: ') or answer.said}",
            hint=f"{queue.end_command(platform.id)}, which ends it without your reason",
        )
    return answer.out.rstrip()


def _ended_meanwhile(job_id: str) -> str:
    """Return a message if the job has ended before its owner's answer arrived, else ""."""
    from holdfast.record.job_lookup import find
    from holdfast.record.job_views import JobState

    again = find(survey(), job_id)
    if again.state is not JobState.ENDED:
        return ""
    stopped = again.outcome is not None and again.outcome.value == "stopped"
    return f"job {again.id} ({again.name}): it has been stopped" if stopped else _ended(again)


def _stop_elsewhere(
    note: OwnerAddress, home: Path, reason: str, solution: str, phrase: str, code: int | None, who: str
) -> str:
    from holdfast.owner.nodes.operator_client import OperatorClient, StopLine

    asks = f"{who}, {_who()}" if who else _who()
    with OperatorClient(note, os.environ, home) as owner:
        answer = owner.ask(StopLine(reason=reason, solution=solution, who=asks, phrase=phrase, code=code))
    if not answer.ok:
        raise BadUsage(f"job {note.job_id} goes on: {answer.message or 'no reason given'}", hint="holdfast exits")
    return f"job {note.job_id} ({note.name}) on {note.owner}: {answer.message}"


def ask(directory: Path, line: bytes) -> dict[str, object]:
    """Send one line to the owner of this job's directory, and return its answer, which is one line.

    Raise OSError if no owner listens, or none answers within `ANSWER_S` seconds.
    """
    import socket
    import struct

    # A socket's path may have at most 108 bytes, and the job's directory may be longer. So use the short path
    # /proc/self/fd/N.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            # Use a blocking connect with a time limit: if many processes connect, a non-blocking connect would be
            # refused at once.
            bound = struct.pack("ll", int(ANSWER_S), 0)
            control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
            control.connect(f"/proc/self/fd/{fd}/control.sock")
            control.settimeout(ANSWER_S)
            control.sendall(line)
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < MOST_ANSWER_BYTES:
                part = control.recv(65536)
                if not part:
                    break
                answer += part
    finally:
        os.close(fd)
    try:
        return json_as(answer, dict[str, object])
    except Malformed as error:
        raise ConnectionError(f"the answer was cut off: {answer[:80]!r}") from error


def _unanswered(view: JobView, error: OSError) -> NoAnswer:
    if isinstance(error, TimeoutError):
        what = f"did not answer within {ANSWER_S:g} s; it may be stopped itself or wait for a disk"
        hint = f"ps -o stat,wchan,etime -p {view.pid}; kill -TERM {view.pid}"
    else:
        what = f"cannot be reached ({(error.strerror or str(error)).lower()}); it may be just starting or just ending"
        hint = f"holdfast show {view.id}; kill -TERM {view.pid}"
    return NoAnswer(f"the supervisor of job {view.id} (pid {view.pid} on {view.host}) {what}", hint=hint)


def _ended(view: JobView) -> str:
    from holdfast.record.local_time import clock

    how = view.outcome.value if view.outcome else "ended"
    what = f": {view.phrase} (exit code {view.code})" if view.phrase and view.code else ""
    when = f" at {clock(view.ended)}" if view.ended is not None else ""
    return f"job {view.id} is over already: it {_DID[how]}{when}{what}; there is nothing to stop"


_DID = {"succeeded": "succeeded", "failed": "failed", "stopped": "was stopped", "ended": "ended"}


def _who() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid {os.getuid()}"  # in a container the uid may have no name
    return f"{user}@{socket.gethostname()}, pid {os.getpid()}"
