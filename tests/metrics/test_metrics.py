"""Metrics: what a state directory comes to, in Prometheus' own words, and the file that a run writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from conftest import Holdfast
from holdfast.metrics.job_totals import MOST_NAMES, OTHERS, LabelNames, count
from holdfast.metrics.metric_table import METRICS, MetricKind
from holdfast.metrics.prometheus_text import metrics_text
from holdfast.metrics.samples import Samples
from holdfast.model.codec import encode
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport, Tally
from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.phrases import Phrase
from holdfast.record.device_standings import RowKind, Standings
from holdfast.record.job_directory import claim, logs_of
from holdfast.record.job_history import PastJob, job_history
from holdfast.record.job_pruning import RetentionLimits, beyond, prune
from holdfast.record.job_views import JobState, JobView, look
from holdfast.record.journal import Journal
from holdfast_testing.history_generator import make_history
from places import DOCS

REFERENCE = DOCS / "reference" / "metrics.md"
FAILS_ONCE = """
import os
from holdfast.worker import progress
progress(7)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    raise ValueError("no such shard: 17")
"""
GOES_BACK = """
import os, time
from holdfast.worker import progress
attempt, rank = int(os.environ["HOLDFAST_ATTEMPT"]), int(os.environ["RANK"])
for step in range(1, 31) if attempt == 1 else range(21, 41):
    progress(step)
if attempt == 1 and rank == 1:
    raise ValueError("no such shard: 17")
if attempt == 1:
    time.sleep(600)
"""
TELLS_AND_SLEEPS = """
import os, time
from holdfast.worker import progress
progress(40 + int(os.environ["RANK"]))
print("told", flush=True)
time.sleep(600)
"""
Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers(text: str) -> Numbers:
    """Every sample of a text, as Prometheus' own parser reads it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def one(found: Numbers, name: str, **labels: str) -> float:
    return sum(
        value for (of, has), value in found.items() if of == f"holdfast_{name}" and labels.items() <= dict(has).items()
    )


def failure(attempt: int = 1, kind: DecisionKind = DecisionKind.RESTART) -> AttemptRecord:
    report = ExitReport(
        code=1, phrase="UserException", blame=Blame.WORKLOAD, rerun=Rerun.NOW, reason="r", solution="s", fingerprint="f"
    )
    return AttemptRecord(
        attempt=attempt,
        started_at=10.0,
        ended_at=20.0,
        report=report,
        decision=Decision(kind=kind, reason="r", charged=True),
        parts={"running": 8.0, "detection": 0.5, "draining": 1.0, "decision": 0.5},
    )


def past_job(name: str, *attempts: AttemptRecord) -> PastJob:
    view = JobView(
        id=f"id-{name}",
        name=name,
        created=0.0,
        host="n1",
        pid=1,
        state=JobState.ENDED,
        ended=30.0,
        outcome=Outcome.FAILED,
        phrase="UserException",
    )
    return PastJob(view=view, attempts=attempts)


def test_prometheus_reads_every_metric_with_its_type_and_labels() -> None:
    samples = Samples()
    for metric in METRICS:
        samples.add(metric, 1.0, *(f"a {label}" for label in metric.labels))
    families = {family.name: family for family in text_string_to_metric_families(samples.text())}
    assert len(families) == len(METRICS)
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else metric.name]
        assert family.type == metric.kind.value
        assert set(family.samples[0].labels) - {"le"} == set(metric.labels)


def test_promtool_finds_no_fault_with_names_types_and_help() -> None:
    samples = Samples()
    for metric in METRICS:
        samples.add(metric, 1.0, *(f"a {label}" for label in metric.labels))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=samples.text(), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


#: Dashboards of others ask for these names, types and labels.
METRIC_CONTRACT = """
build_info gauge version python
job_state stateset job job_id state
job_start_timestamp_seconds gauge job job_id
job_attempt gauge job job_id
jobs_ended_total counter job outcome class blame
job_duration_seconds histogram outcome
attempts_ended_total counter job class blame decision
attempt_part_seconds_total counter job part
restarts_total counter job class budget mode
restart_budget_remaining gauge job job_id budget
recovery_duration_seconds histogram mode blame
failure_detection_duration_seconds histogram blame
drain_duration_seconds histogram mode
goodput_seconds_total counter job
badput_seconds_total counter job cause
lost_steps_total counter job
step gauge job job_id
last_progress_timestamp_seconds gauge job job_id
workers gauge job job_id state
worker_exits_total counter job kind class
hangs_total counter job
memory_kills_total counter scope
device_standing stateset node device standing
device_standing_since_timestamp_seconds gauge node device
device_faults_total counter node device code remedy
device_resets_total counter node device result
check_up gauge node check
check_duration_seconds gauge node check
check_last_run_timestamp_seconds gauge node check
check_runs_total counter check result
explanations_total counter class confidence
output_dropped_bytes_total counter stream
journal_unsaved_bytes gauge
"""


def all_that_happens(home: Path) -> None:
    """A state directory in which everything has happened that a metric counts."""
    largest = make_history(home, jobs=60, ranks=16, now=1_795_000_000.0)
    told = logs_of(home, largest) / "attempt-3" / "worker-0"
    told.mkdir(parents=True)
    (told / "progress").write_bytes(b"".join(number.to_bytes(8, "little") for number in (7, 10**18, 1)))
    tally = Tally(first_step=1, peers=1, stopped=1, memory_scope="host", dropped_bytes={"log": 5}, warm=True)
    killed = replace(failure(), step=9, tally=tally)
    killed = replace(killed, report=replace(killed.report, phrase=str(Phrase.HOST_OUT_OF_MEMORY_KILLED)))
    journal = Journal.open(home)
    journal.create_job("more", JobSpec(name="more", roles=()), now=1.0, host="n1", pid=1)
    for number in (1, 2):
        journal.record_attempt("more", replace(killed, attempt=number))
    journal.close()
    with closing(Standings.for_writing(home)) as store:
        fault = FaultEvent(device="gpu3", code="XID79", assertion=Assertion.OCCUR, at=1000.0, node="n1")
        store.append(1000.0, RowKind.EVENT, [encode(fault)])
        store.count_reset("n1", ("gpu3",), "failed")


def test_names_types_and_labels_are_those_that_dashboards_ask_for(tmp_path: Path) -> None:
    all_that_happens(tmp_path)
    text = metrics_text([tmp_path], 1_795_000_000.0, unsaved_bytes=0)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    stateset = {metric.name for metric in METRICS if metric.states}
    seen = {}
    for row in METRIC_CONTRACT.split("\n")[1:-1]:
        name, kind, *labels = row.split()
        full = f"holdfast_{name}"
        family = families[full.removesuffix("_total") if kind == "counter" else full]
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {frozenset(labels)}, name
        seen[name] = "stateset" if full in stateset and family.type == "gauge" else family.type
        if kind == "stateset":
            by_rest: dict[tuple[tuple[str, str], ...], float] = {}
            for sample in family.samples:
                rest = tuple((key, value) for key, value in sample.labels.items() if key != labels[-1])
                by_rest[rest] = by_rest.get(rest, 0.0) + sample.value
            assert set(by_rest.values()) == {1.0}, f"{name} has one present state"
    assert seen == {row.split()[0]: row.split()[1] for row in METRIC_CONTRACT.split("\n")[1:-1]}


def test_all_that_happens_is_what_promtool_takes_and_every_metric_is_among_it(tmp_path: Path) -> None:
    all_that_happens(tmp_path)
    text = metrics_text([tmp_path], 1_795_000_000.0, unsaved_bytes=0)
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert [metric.name for metric in METRICS if f"# TYPE {metric.name} " not in text] == []


def test_what_stands_in_a_label_is_read_as_it_was() -> None:
    name = 'a "quoted"\\name\nof two lines \N{SNOWMAN}'
    samples = Samples()
    count([past_job(name, failure())], samples, LabelNames(), LabelNames())
    assert one(numbers(samples.text()), "jobs_ended_total", job=name) == 1


def test_time_and_failures_are_counted_by_what_they_were() -> None:
    samples = Samples()
    count([past_job("train", failure(1), failure(2, DecisionKind.FAIL))], samples, LabelNames(), LabelNames())
    found = numbers(samples.text())
    assert one(found, "attempts_ended_total", decision="restart", **{"class": "UserException"}) == 1
    assert one(found, "restarts_total", job="train", budget="user", mode="cold") == 1
    assert one(found, "badput_seconds_total", cause="lost_work") == 16
    assert one(found, "goodput_seconds_total") == 0
    assert one(found, "recovery_duration_seconds_sum", blame="workload") == 2
    assert one(found, "failure_detection_duration_seconds_bucket", le="0.5") == 2
    assert one(found, "failure_detection_duration_seconds_bucket", le="0.25") == 0
    assert one(found, "job_duration_seconds_sum", outcome="failed") == 30


def test_steps_that_were_done_once_more_are_lost() -> None:
    def at(attempt: int, first: int | None, last: int | None) -> AttemptRecord:
        return replace(failure(attempt), step=last, tally=Tally(first_step=first))

    samples = Samples()
    # 81 to 100 are done once more; attempt 3 tells no step; attempt 4 repeats 91 to 95; attempt 5 goes on exactly.
    attempts = (at(1, 1, 100), at(2, 81, 95), at(3, None, None), at(4, 91, 120), at(5, 121, 130))
    count([past_job("train", *attempts)], samples, LabelNames(), LabelNames())
    assert one(numbers(samples.text()), "lost_steps_total", job="train") == 20 + 5


def test_a_restart_is_counted_by_how_the_next_workers_were_started() -> None:
    warm = replace(failure(2), tally=Tally(warm=True))
    samples = Samples()
    count([past_job("train", failure(1), warm)], samples, LabelNames(), LabelNames())
    found = numbers(samples.text())
    assert one(found, "restarts_total", mode="warm") == 1  # that of the second attempt comes with its workers
    assert one(found, "recovery_duration_seconds_count", mode="warm") == 1


def test_workers_that_ended_are_counted_by_why() -> None:
    tally = Tally(peers=2, stopped=5, listened=True, memory_scope="container", dropped_bytes={"stdout": 512})
    killed = replace(failure(), tally=tally)
    killed = replace(killed, report=replace(killed.report, phrase=str(Phrase.HOST_OUT_OF_MEMORY_KILLED)))
    samples = Samples()
    count([past_job("train", killed)], samples, LabelNames(), LabelNames())
    found = numbers(samples.text())
    assert one(found, "worker_exits_total", kind="peer") == 2
    assert one(found, "worker_exits_total", kind="stopped") == 5
    assert one(found, "memory_kills_total", scope="container") == 1
    assert one(found, "output_dropped_bytes_total", stream="stdout") == 512
    assert one(found, "drain_duration_seconds_count", mode="listened") == 1


def test_faults_and_resets_of_devices_are_counted_and_stay_when_old_entries_are_kept(tmp_path: Path) -> None:
    def event(at: float, assertion: Assertion) -> bytes:
        return encode(FaultEvent(device="gpu3", code="XID79", assertion=assertion, at=at, node="n1"))

    with closing(Standings.for_writing(tmp_path)) as store:
        store.append(1000.0, RowKind.EVENT, [event(1000.0, Assertion.OCCUR), event(1001.0, Assertion.RECOVER)])
        store.append(2000.0, RowKind.EVENT, [event(2000.0, Assertion.ONCE)])
        for result in ("failed", "failed", "succeeded"):
            store.count_reset("n1", ("gpu2", "gpu3"), result)
    for now in (2500.0, 1500.0 + 86_400.0, 9000.0 + 86_400.0):  # then the first entries are kept, then all
        found = numbers(metrics_text([tmp_path], now, keeping=True))
        assert one(found, "device_faults_total", node="n1", device="gpu3", code="79") == 2
        assert one(found, "device_resets_total", device="gpu2", result="failed") == 2
        assert one(found, "device_resets_total", device="gpu3", result="succeeded") == 1


def test_names_beyond_the_limit_are_one_series() -> None:
    samples = Samples()
    count(
        [past_job(f"job-{number}", failure()) for number in range(MOST_NAMES + 7)], samples, LabelNames(), LabelNames()
    )
    found = numbers(samples.text())
    assert len([1 for name, _ in found if name == "holdfast_jobs_ended_total"]) == MOST_NAMES + 1
    assert one(found, "jobs_ended_total", job=OTHERS) == 7


def test_totals_are_those_of_all_jobs_of_the_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    spec = JobSpec(name="train", roles=(Role(name="worker", count=1, command=("x",)),))
    for number in range(3):
        place = claim(tmp_path, name="train", now=1000.0 + number)
        journal.create_job(place.job_id, spec, now=1000.0 + number, host="n1", pid=os.getpid())
        journal.record_attempt(place.job_id, failure())
        if number < 2:
            end = failure(2, DecisionKind.FAIL)
            report = JobReport(
                job_id=place.job_id, name="train", outcome=Outcome.FAILED, report=end.report, attempts=(failure(), end)
            )
            journal.record_attempt(place.job_id, end)
            journal.finish(report, now=1100.0)
            place.lock.release()
    journal.close()
    found = numbers(metrics_text([tmp_path], 2000.0))
    assert one(found, "jobs_ended_total", job="train", outcome="failed") == 2
    assert one(found, "attempts_ended_total") == 5
    assert one(found, "job_state", state="running") == 1
    assert one(found, "restart_budget_remaining", budget="user") == 2
    assert one(found, "journal_up") == 1
    assert [len(each.attempts) for each in job_history(tmp_path).jobs] == [1, 2, 2]
    assert [each.spec for each in job_history(tmp_path, most=1).jobs] == [spec]
    assert job_history(tmp_path, most=1).left_out == 2


def totals(found: Numbers) -> dict[tuple[str, tuple[tuple[str, str], ...]], object]:
    counters = {metric.name for metric in METRICS if metric.kind is not MetricKind.GAUGE}
    return {
        key: pytest.approx(value)
        for key, value in found.items()
        if any(key[0].startswith(name) for name in counters) and value
    }


def test_jobs_that_are_thrown_away_stay_in_the_totals(tmp_path: Path) -> None:
    make_history(tmp_path, jobs=30, ranks=8, now=1_795_000_000.0)
    before = numbers(metrics_text([tmp_path], 1_795_000_000.0, keeping=True))
    assert totals(numbers(metrics_text([tmp_path], 1_795_000_000.0))) == totals(before), "reading changes nothing"
    survey = look(tmp_path)
    gone = beyond(tmp_path, survey.jobs, RetentionLimits(jobs=5), 1_795_000_000.0)
    assert len(prune(tmp_path, gone).gone) == 25
    assert len(job_history(tmp_path).jobs) == 5
    for _ in range(2):
        assert totals(numbers(metrics_text([tmp_path], 1_795_000_100.0, keeping=True))) == totals(before)


def test_totals_that_were_kept_and_are_damaged_are_counted_anew(tmp_path: Path) -> None:
    make_history(tmp_path, jobs=10, ranks=8, now=1_795_000_000.0)
    before = numbers(metrics_text([tmp_path], 1_795_000_000.0, keeping=True))
    (tmp_path / "totals.json").write_text("[not what was written")
    assert totals(numbers(metrics_text([tmp_path], 1_795_000_000.0, keeping=True))) == totals(before)


def test_a_damaged_journal_is_said_in_a_metric(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"no database at all" * 100)
    assert one(numbers(metrics_text([tmp_path], 1.0)), "journal_up") == 0
    assert job_history(tmp_path).trouble


def test_looking_at_a_job_whose_supervisor_is_gone_does_not_end_it(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    place = claim(tmp_path, name="train", now=1.0)
    spec = JobSpec(name="train", roles=(Role(name="worker", count=1, command=("x",)),))
    journal.create_job(place.job_id, spec, now=1.0, host="n1", pid=1)
    place.lock.release()
    for _ in range(2):
        assert one(numbers(metrics_text([tmp_path], 2.0)), "job_state", state="running") == 1
    assert not (place.directory / "report.json").exists()


def test_the_reference_page_names_every_metric_as_it_is() -> None:
    rows = [line.split("|") for line in REFERENCE.read_text().splitlines() if line.startswith("| `holdfast_")]
    told = [(name.strip(" `"), kind.strip(), labels.replace("`", "").strip(), said.strip()) for _, name, kind, labels, said, _ in rows]  # fmt: skip # noqa: E501 - one row a line
    kinds = {metric.name: "stateset" if metric.states else metric.kind.value for metric in METRICS}
    assert told == [(m.name, kinds[m.name], ", ".join(m.labels), m.help) for m in METRICS]


@pytest.mark.real
def test_a_run_writes_its_metrics_and_a_second_one_adds_to_them(holdfast: Holdfast, tmp_path: Path) -> None:
    place = tmp_path / "holdfast.prom"
    for number in (1, 2):
        script = holdfast.script(FAILS_ONCE)
        ran = holdfast("run", "--nproc-per-node", "2", "--metrics-file", place, "--name", "train", script)
        assert ran.status == 0, ran.err
        found = numbers(place.read_text())
        assert one(found, "jobs_ended_total", job="train", outcome="succeeded") == number
        assert one(found, "attempts_ended_total", **{"class": "UserException", "blame": "workload"}) == number
        assert one(found, "worker_exits_total", kind="own") == number
        assert one(found, "check_up", check="disk") == 1
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["holdfast.prom"]
    assert place.stat().st_mode & 0o777 == 0o644


@pytest.mark.real
def test_the_file_tells_of_a_job_while_it_runs(holdfast: Holdfast, tmp_path: Path) -> None:
    script = holdfast.script(TELLS_AND_SLEEPS)
    process = holdfast.start("run", "--nproc-per-node", "2", "--hang-warning", "0", script)
    assert process.stdout is not None
    for _ in range(2):
        assert "told" in process.stdout.readline()
    place = tmp_path / "now.prom"
    done = subprocess.run([sys.executable, "-m", "holdfast.metrics", str(holdfast.home), str(place)], check=False)
    assert done.returncode == 0
    found = numbers(place.read_text())
    assert one(found, "job_state", state="running", job="job") == 1
    assert one(found, "workers", state="up") == 2
    assert one(found, "step") == 40
    assert one(found, "job_attempt") == 1
    assert time.time() - one(found, "last_progress_timestamp_seconds") < 60
    process.send_signal(signal.SIGTERM)
    holdfast.finish(process)


@pytest.mark.real
def test_a_file_that_cannot_be_written_is_one_line_and_not_the_jobs_end(holdfast: Holdfast, tmp_path: Path) -> None:
    place = tmp_path / "textfiles"
    place.mkdir()
    script = holdfast.script("import os; os.path.isdir('textfiles') and os.rename('textfiles', 'gone')\n" + FAILS_ONCE)
    ran = holdfast("run", "--nproc-per-node", "2", "--metrics-file", place / "holdfast.prom", script)
    assert ran.status == 0
    [line] = [line for line in ran.err.splitlines() if "--metrics-file" in line]
    assert "not written: No such file or directory; the job goes on" in line


@pytest.mark.real
def test_a_directory_that_is_not_there_is_refused_before_anything_starts(holdfast: Holdfast, tmp_path: Path) -> None:
    ran = holdfast("run", "--metrics-file", tmp_path / "nowhere" / "holdfast.prom", holdfast.script("print('began')"))
    assert ran.status == 2 and "mkdir -p" in ran.err and "began" not in ran.out


@pytest.mark.real
def test_a_file_system_that_stands_still_holds_no_run_up(holdfast: Holdfast, tmp_path: Path) -> None:
    """A writer that hangs is played by one that is stopped by SIGSTOP the moment it exists."""
    script = holdfast.script(
        """
        import os, signal, sys, pathlib
        me = os.getppid()
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().split(b"\\0")
            except OSError:
                continue
            if b"holdfast.metrics" in words and os.fsencode(os.environ["HOLDFAST_HOME"]) in words:
                os.kill(int(entry.parent.name), signal.SIGSTOP)
        """
    )
    ran = holdfast("run", "--metrics-file", tmp_path / "holdfast.prom", script)
    assert ran.status == 0
    assert json.loads(holdfast("jobs", "--json").out)["jobs"][0]["outcome"] == "succeeded"


@pytest.mark.real
def test_a_restart_tells_its_mode_what_it_repeats_and_whom_it_stopped(holdfast: Holdfast, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.prom"
    ran = holdfast.run("--warm", "--nproc-per-node", "3", "--metrics-file", file, holdfast.script(GOES_BACK))
    assert ran.status == 0, ran.err
    found = numbers(file.read_text())
    assert one(found, "restarts_total", mode="warm") == 1
    assert one(found, "lost_steps_total") == 10  # 21 to 30
    assert one(found, "worker_exits_total", kind="own") == 1
    assert one(found, "worker_exits_total", kind="stopped") == 2
    assert one(found, "journal_unsaved_bytes") == 0
    assert "step 30 (10 steps lost)" in holdfast("show", "--verbose").out
    first, second = json.loads(holdfast("show", "--json").out)["attempts"]
    assert (first["lost_steps"], second["lost_steps"]) == (10, 0)
    assert (second["tally"]["first_step"], second["tally"]["warm"]) == (21, True)


@pytest.mark.real
def test_steps_after_the_last_save_of_a_failed_job_are_lost(holdfast: Holdfast, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.prom"
    script = """
        from holdfast.worker import progress
        for step in range(1, 48):
            progress(step, saved=step % 10 == 0)
        raise ValueError("no such shard: 17")
    """
    words = ("--max-restarts", "0", "--nproc-per-node", "2", "--metrics-file", file)
    ran = holdfast.run(*words, holdfast.script(script))
    assert one(numbers(file.read_text()), "lost_steps_total") == 7, ran.err  # 41 to 47
    assert "step 47 (7 steps lost)" in holdfast("show", "--verbose").out
    [only] = json.loads(holdfast("show", "--json").out)["attempts"]
    assert (only["lost_steps"], only["tally"]["first_step"], only["tally"]["saved_step"]) == (7, 1, 40)


@pytest.mark.real
def test_two_jobs_that_write_one_file_leave_one_that_counts_both(holdfast: Holdfast, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.prom"
    script = holdfast.script("from holdfast.worker import progress\nprogress(1)")
    both = [holdfast.start("run", "--name", name, "--metrics-file", file, script) for name in ("one", "two")]
    assert [holdfast.finish(process).status for process in both] == [0, 0]
    assert holdfast("run", "--name", "three", "--metrics-file", file, script).status == 0
    found = numbers(file.read_text())
    assert [one(found, "jobs_ended_total", job=name) for name in ("one", "two", "three")] == [1, 1, 1]
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["holdfast.prom"]


@pytest.mark.real
def test_a_run_that_is_killed_leaves_the_file_whole_and_the_next_one_counts_it(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    file = tmp_path / "holdfast.prom"
    process = holdfast.start("run", "--name", "killed", "--metrics-file", file, holdfast.script(TELLS_AND_SLEEPS))
    assert process.stdout is not None
    assert "told" in process.stdout.readline()
    process.kill()
    holdfast.finish(process)
    if file.exists():
        assert one(numbers(file.read_text()), "journal_up") == 1
    assert holdfast("jobs").status == 0  # closes the job
    assert holdfast("run", "--metrics-file", file, holdfast.script("pass", "next.py")).status == 0
    assert one(numbers(file.read_text()), "jobs_ended_total", job="killed", outcome="failed") == 1


def test_a_directory_in_place_of_the_file_is_answered_with_a_name_that_fits(holdfast: Holdfast, tmp_path: Path) -> None:
    ran = holdfast("run", "--metrics-file", tmp_path, holdfast.script("print('began')"))
    assert (ran.status, ran.out) == (2, "")
    assert f"--metrics-file {tmp_path}/holdfast.prom" in ran.err
