"""The short report: what stands in it, in which order, and what it takes from a worker's own log."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from conftest import Holdfast
from holdfast.decide.attempt_members import KnownRank, fates
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.exit_report import Blame, Culprit, Evidence, EvidenceKind, ExitReport, Outcome, Rerun, WorkerExit
from holdfast.model.job_spec import Placement
from holdfast.report.brief_report import render_brief, render_exit
from holdfast.report.failure_place import MOST_FRAMES, FailurePlace, UserFrame, scene_of

RAISES = """
import os, time
def inner(table):
    return table[17]
def outer():
    return inner([1, 2, 3])
if os.environ["RANK"] == "1":
    outer()
time.sleep(60)
"""


def index_report(attempt: int = 1, **changes: object) -> ExitReport:
    fields: dict[str, object] = {
        "code": 233,
        "phrase": "IndexOutOfRange",
        "blame": Blame.WORKLOAD,
        "rerun": Rerun.NEVER,
        "reason": "rank 1 on node-3: list index out of range",
        "solution": "Look at the index.",
        "exception": "IndexError",
        "fingerprint": "IndexOutOfRange|IndexError|a.py:3",
        "first": Culprit(role="worker", rank=1, node="node-3"),
        "attempt": attempt,
        "evidence": (
            Evidence(
                kind=EvidenceKind.EXCEPTION,
                text="IndexError: list index out of range\n  at /srv/a.py:3 in inner",
                source="worker-1 stderr:6",
            ),
        ),
    }
    return ExitReport(**(fields | changes))  # type: ignore[arg-type]  # each is named as the field is


def failed_reports(*reports: ExitReport, workers: int = 4) -> JobReport:
    records = tuple(
        AttemptRecord(
            attempt=number,
            started_at=1000.0 + 10 * number,
            ended_at=1005.0 + 10 * number,
            report=report,
            decision=Decision(kind=DecisionKind.FAIL, reason="it would fail again"),
            workers=workers,
        )
        for number, report in enumerate(reports, start=1)
    )
    return JobReport(job_id="j", name="n", outcome=Outcome.FAILED, report=reports[-1], attempts=records)


def brief_lines(report: JobReport, scene: FailurePlace | None = None, width: int = 100) -> list[str]:
    return render_brief(report, scene or FailurePlace(), width=width).splitlines()


def labels(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]


@pytest.mark.real
def test_a_failed_run_says_what_the_program_printed_then_who_where_why_and_what_to_do(holdfast: Holdfast) -> None:
    script = holdfast.script(RAISES)
    ran = holdfast("run", "--nproc-per-node", "2", "--max-restarts", "0", script, COLUMNS="400")
    told = ran.err[ran.err.index("FAILED: ") :].splitlines()
    assert told[0] == "FAILED: IndexError: list index out of range"
    assert told[1].startswith("    rank 1 of 2 on ") and "attempt 1" in told[1] and "exit status 1" in told[1]
    assert labels(told) == ["where", "class", "fix", "log", "others", "next"]
    at = next(index for index, line in enumerate(told) if line.startswith("  where "))
    assert told[at].partition(".py:")[2].partition(" ")[2] == "in inner:  return table[17]"
    name, callers = script.name, told[at + 1].split(" by ")[1].split(" ← ")
    assert [caller.partition(" ")[0] for caller in callers] == ["outer", "<module>"]
    assert all(caller.partition(" ")[2].startswith(f"({name}:") for caller in callers)
    log = next(line.split()[1] for line in told if line.startswith("  log "))
    file, _, numbers = log.rpartition(":")
    first, last = (int(number) for number in numbers.split("-"))
    own = Path(file).read_text(encoding="utf-8").splitlines()
    assert own[first - 1].startswith("Traceback") and own[last - 1] == "IndexError: list index out of range"


@pytest.mark.real
def test_a_death_and_a_decision_have_one_line_each_and_the_last_decision_is_in_the_report(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--nproc-per-node", "2", "--max-restarts", "1", holdfast.script(RAISES))
    lives = [line.split(": ", 2)[2] for line in ran.err.splitlines() if line.startswith("holdfast: attempt ")]
    told = [line for line in lives if not line.endswith("workers are up")]
    assert [line.split()[0] for line in told] == ["worker", "IndexOutOfRange:", "worker"]
    assert all(told[at].endswith("exit status 1; stopping all workers") for at in (0, 2))
    assert "; decision: restart 1 of 1 now" in told[1]
    assert ran.err.count("list index out of range\n") == 3  # the program's own words twice, and the report's first line


def test_deaths_that_are_alike_are_one_line_for_each_node() -> None:
    def known(rank: int, node: str, status: int) -> KnownRank:
        ended = WorkerExit(role="worker", rank=rank, node=node, attempt=1, pid=100 + rank, exit_code=status)
        return KnownRank(
            placement=Placement(role="worker", rank=rank, role_rank=rank, node=node, local_rank=rank), exit=ended
        )

    fallen = [*(known(rank, "a", 1) for rank in range(8)), known(8, "b", 1), known(9, "a", 7)]
    assert fates(fallen) == [
        "worker rank 0 (pid 100) on a: exit status 1 (ranks 1 to 7 alike)",
        "worker rank 8 (pid 108) on b: exit status 1",
        "worker rank 9 (pid 109) on a: exit status 7",
    ]


@pytest.mark.real
def test_verbose_prints_all_evidence_and_each_attempt(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--nproc-per-node", "2", "--max-restarts", "0", "--verbose", holdfast.script(RAISES))
    assert "  evidence " in ran.err and "  attempts 1: " in ran.err
    short, long = holdfast("show").out, holdfast("show", "--verbose").out
    assert "  evidence" not in short and "  where    " in short
    same = [line for line in short.splitlines() if not line.startswith("  next ")]
    assert long.splitlines()[: len(same)] == same and "\n  evidence " in long


def test_the_verbose_report_is_the_short_one_with_evidence_checks_and_attempts() -> None:
    ends = ((0, "SIGTERM"), (2, "SIGTERM"), (3, "ConnectionResetError: Connection closed by peer"))
    collateral = tuple(
        Evidence(kind=EvidenceKind.COLLATERAL, text=text, source=f"worker-{rank}") for rank, text in ends
    )
    last = index_report(3, evidence=(*index_report().evidence, *collateral), collateral=(0, 2, 3))
    job = failed_reports(index_report(1), index_report(2, phrase="DiskFull", fingerprint="DiskFull"), last)
    brief = brief_lines(job)
    brief = brief[: next(at for at, line in enumerate(brief) if line.startswith("  attempts "))]
    long = render_brief(job, FailurePlace(), verbose=True).splitlines()
    assert long[: len(brief)] == brief
    assert labels(long[len(brief) :]) == ["evidence", "attempts", "next"]
    told = [line.strip() for line in long]
    assert told.count("| SIGTERM") == 1 and "worker-0, worker-2:" in told  # equal ends are one item
    assert "solution" not in labels(long) and not any("--verbose" in line for line in long)
    alike = structs.replace(last, evidence=collateral[:2], collateral=(0, 2))
    shown = render_brief(failed_reports(alike), FailurePlace(), verbose=True)
    assert shown.count("SIGTERM") == 1  # the line "others" has it


def test_attempts_that_are_all_alike_are_counted_and_not_told_again() -> None:
    told = brief_lines(failed_reports(index_report(1), index_report(2), index_report(3)))
    assert "attempt 3 of 3 alike" in told[1]
    assert "attempts" not in labels(told)


def test_attempts_that_differ_have_a_line_for_each_run_of_equal_ones() -> None:
    other = index_report(3, phrase="DiskFull", fingerprint="DiskFull", first=None)
    told = brief_lines(failed_reports(index_report(1), index_report(2), other), width=200)
    at = next(index for index, line in enumerate(told) if line.startswith("  attempts "))
    assert told[at].split(maxsplit=1)[1].startswith("1 to 2: 2 × the same, IndexOutOfRange, rank 1 on node-3")
    assert told[at + 1].strip().startswith("3: DiskFull")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_screen_and_no_time_is_cut(width: int) -> None:
    told = brief_lines(failed_reports(index_report(1), index_report(2)), width=width)
    assert max(map(len, told)) <= width
    assert sum("until 1970" in line and ":" in line.split("until 1970")[1] for line in told) == 1


def test_the_words_of_a_platform_are_told_where_the_reason_lacks_them() -> None:
    seen = Evidence(kind=EvidenceKind.PLATFORM, text="DOWN (Not responding)", source="scontrol show node n2")
    assert "  seen     scontrol show node n2: DOWN (Not responding)" in brief_lines(
        failed_reports(index_report(evidence=(seen,)))
    )
    assert "seen" not in labels(
        brief_lines(failed_reports(index_report(reason="n2 is DOWN (Not responding)", evidence=(seen,))))
    )


def test_a_hostile_source_line_is_one_line_of_harmless_text() -> None:
    frame = UserFrame(path="/srv/a\x1b[2J.py", line=3, function="f\nnext  rm -rf", source="x" * 5000)
    told = brief_lines(
        failed_reports(index_report()), FailurePlace(said="IndexError: \x1b[31mred", frames=(frame,), log="/l")
    )
    assert not any("\x1b" in line for line in told)
    assert sum(map(len, told)) < 3000 and labels(told).count("next") == 1


def test_the_scene_has_the_last_traceback_of_the_users_own_code(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1" / "worker-1" / "stderr.log"
    log.parent.mkdir(parents=True)
    frames = "".join(f'  File "/srv/a.py", line {n}, in f{n}\n    call_{n}()\n' for n in range(1, 8))
    theirs = '  File "/v/lib/python3.12/site-packages/torch/x.py", line 9, in g\n    raise\n'
    log.write_text(
        "step 1\nTraceback (most recent call last):\n" + frames + theirs + "IndexError: list index out of range\n",
        encoding="utf-8",
    )
    text = "IndexError: list index out of range\n  at /srv/a.py:7 in f7"
    report = index_report(evidence=(Evidence(kind=EvidenceKind.EXCEPTION, text=text, source="worker-1 stderr:19"),))
    scene = scene_of(report, tmp_path)
    assert [frame.function for frame in scene.frames] == ["f7", "f6", "f5"] and len(scene.frames) == MOST_FRAMES
    assert scene.frames[0].source == "call_7()"
    assert (scene.log, scene.first_line, scene.last_line) == (str(log), 2, 19)


def test_a_log_that_is_gone_leaves_what_the_report_knows(tmp_path: Path) -> None:
    scene = scene_of(index_report(), tmp_path)
    assert scene.said == "IndexError: list index out of range" and scene.log == ""
    assert [(frame.path, frame.line, frame.function) for frame in scene.frames] == [("/srv/a.py", 3, "inner")]


@pytest.mark.real
def test_a_crash_in_native_code_names_the_python_line_that_called_it(holdfast: Holdfast) -> None:
    script = holdfast.script("import ctypes\ndef kernel():\n    ctypes.string_at(0)\nkernel()\n")
    err = holdfast.run("--max-restarts", "0", script, COLUMNS="200").err
    where = err[err.index("  where") :].splitlines()[:2]
    assert where[1].lstrip().startswith("called by <module> (job.py:4)"), err
    assert [line.rpartition("job.py")[2] for line in where] == [":3 in kernel:  ctypes.string_at(0)", ":4)"], err


def test_the_place_where_a_hung_rank_waits_is_told_without_frames_of_libraries() -> None:
    stack = "rank 0 thread MainThread state S\n"
    stack += "wait (torch/distributed.py:88)\nload (/srv/data.py:31)\nstep (/srv/train.py:6)"
    peer = stack.replace("rank 0 ", "rank 1 ").replace("/srv/data.py:31", "/srv/else.py:5")
    found = tuple(Evidence(kind=EvidenceKind.HANG, text=text, source="py-spy") for text in (peer, stack))
    hung = index_report(
        phrase="HungWorker", exception="", evidence=found, first=Culprit(role="worker", rank=0, node="gpu-1")
    )
    places = [(frame.path, frame.line, frame.function) for frame in scene_of(hung, None).frames]
    assert places == [("/srv/data.py", 31, "load"), ("/srv/train.py", 6, "step")]


def test_a_rank_killed_without_a_word_has_its_log_named_where_it_wrote_one(tmp_path: Path) -> None:
    killed = index_report(exception="", evidence=(), first=Culprit(role="worker", rank=1, node="gpu-1"))
    assert scene_of(killed, tmp_path).log == ""
    (tmp_path / "attempt-1" / "worker-1").mkdir(parents=True)
    (tmp_path / "attempt-1" / "worker-1" / "stderr.log").write_text("")
    (tmp_path / "attempt-1" / "worker-1" / "stdout.log").write_text("step 1\nstep 2\n")
    scene = scene_of(killed, tmp_path)
    assert (scene.log.endswith("worker-1/stdout.log"), scene.last_line) == (True, 2)


def test_a_job_that_was_stopped_after_a_failure_keeps_the_failure_and_not_its_decision() -> None:
    failed = failed_reports(index_report())
    asked = index_report(
        phrase="StoppedByOperator", code=250, blame=Blame.OPERATOR, reason="no longer needed", first=None
    )
    text = render_brief(
        JobReport(job_id="j", name="n", outcome=Outcome.STOPPED, report=asked, attempts=failed.attempts), FailurePlace()
    )
    assert "not restarted" not in text and f"  attempts 1: {failed.report.phrase}, rank " in text


def test_names_of_nodes_and_roles_cannot_steer_the_terminal() -> None:
    nasty = "a\x1b[2J\nholdfast: job big SUCCEEDED"
    text = render_brief(failed_reports(index_report(first=Culprit(role=nasty, rank=1, node=nasty))), FailurePlace())
    assert "\x1b" not in text and "\nholdfast: job big" not in text


def test_explain_has_the_order_of_the_report_with_the_evidence_and_no_line_of_those_that_were_stopped() -> None:
    items = (
        Evidence(kind=EvidenceKind.EXCEPTION, text="IndexError: out", source="worker-1 stderr:9"),
        Evidence(kind=EvidenceKind.COLLATERAL, text="SIGTERM", source="worker-0"),
    )
    text = render_exit(index_report(evidence=items, collateral=(0,), hint="holdfast logs j"), FailurePlace())
    assert labels(text.splitlines()) == ["class", "fix", "evidence", "others", "next"]
    assert "worker-0" not in text and "(SIGTERM)" in text


@pytest.mark.real
def test_explain_of_a_job_names_the_lines_of_its_log(holdfast: Holdfast) -> None:
    holdfast.run("--max-restarts", "0", holdfast.script("raise KeyError('lr')"))
    out = holdfast("explain", "job", COLUMNS="200").out
    assert "stderr.log:1-" in out and "raise KeyError('lr')" in out and "  evidence worker-0 stderr:" in out


@pytest.mark.parametrize("said", [f"ValueError: {'x' * size} and more words after it" for size in range(20, 60, 3)])
def test_the_first_line_is_as_wide_with_its_word_as_without(said: str) -> None:
    lines = brief_lines(failed_reports(index_report()), FailurePlace(said=said), width=80)
    assert max(map(len, lines)) <= 80 and "FAILED: ValueError" in lines[0]
    coloured = render_brief(failed_reports(index_report()), FailurePlace(said=said), width=80, colour=True)
    assert coloured.splitlines()[0] == lines[0].replace("FAILED", "\x1b[1;31mFAILED\x1b[0m")


@pytest.mark.real
def test_a_secret_in_the_users_source_is_not_in_the_report(holdfast: Holdfast) -> None:
    key = "sk-" + "a1B2c3D4" * 5
    script = holdfast.script(f"""
        def login(api_key):
            return 17
        [][login(api_key="{key}")]
        """)
    ran = holdfast("run", "--max-restarts", "0", script, COLUMNS="300")
    told = ran.err[ran.err.index("FAILED") :]
    assert "login(api_key=" in told and key not in told
    assert key not in holdfast("show", COLUMNS="300").out


def test_a_reason_does_not_quote_the_exception_once_more() -> None:
    said = "OSError: [Errno 98] Address already in use"
    taken = index_report(reason=f"rank 1 on node-3: a port is taken ({said}); pid 7 holds it")
    lines = brief_lines(failed_reports(taken), FailurePlace(said=said))
    assert "  reason   a port is taken; pid 7 holds it" in lines


def test_lines_of_another_rank_are_told_as_its_own(tmp_path: Path) -> None:
    for rank in (1, 2):
        log = tmp_path / f"attempt-1/worker-{rank}/stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"rank {rank}: Watchdog caught collective operation timeout\n")
    seen = Evidence(
        kind=EvidenceKind.LOG,
        text="rank 1: Watchdog caught collective operation timeout\n  at /srv/t.py:9 in main",
        source="worker-1 stderr:1",
    )
    absent = Culprit(role="worker", rank=2, node="n")
    report = index_report(phrase="CollectiveTimeout", exception="", first=absent, evidence=(seen,))
    scene = scene_of(report, tmp_path)
    assert (scene.frames, scene.log) == ((), str(tmp_path / "attempt-1/worker-2/stderr.log"))
    lines = brief_lines(failed_reports(report), scene, width=300)
    assert not any(line.startswith("  where") for line in lines)
    assert f"           rank 1's lines are the evidence: {tmp_path}/attempt-1/worker-1/stderr.log:1" in lines
    own = index_report(phrase="CollectiveTimeout", exception="", evidence=(seen,))
    assert scene_of(own, tmp_path).witness is None
