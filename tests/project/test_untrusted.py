"""Bytes of others: one door, one error, and no other job or command pays for them."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.decide.faults.fault_policy import Policy
from holdfast.errors import HoldfastError
from holdfast.explain import explain
from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.launch.jobfile import job_file_reader as jobfile
from holdfast.model.decisions import JobReport
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.node.devices.fault_event_lines import play_events
from holdfast.node.explain_files import catalogue_with, explain_files
from holdfast.observe.timer_pipe import TimerPipe
from holdfast.record.job_views import reconcile
from holdfast.record.local_time import clock
from holdfast.settings.resolved_settings import resolve
from holdfast.untrusted import (
    MOST_DEPTH,
    Malformed,
    json_as,
    json_leniently,
    json_value,
    wrong_time,
    yaml_nodes,
    yaml_value,
)

STORED_JOB = "20260101-0000-abcd"
NASTY_BYTES = {
    "bad UTF-8": b'{"job":"\xff","job_id":"\xff"}',
    "deep list": b"[" * 60_000,
    "deep objects": b'{"a":' * 60_000,
    "half a character": b'{"job_id":"\\ud800","name":"x","host":"h","pid":1,"created":1.0}',
    "endless number": b'{"job_id":"' + STORED_JOB.encode() + b'","name":"x","host":"h","pid":1,"created":1e300}',
    "long number": b"1" * 100_000,
    "not a number": b'{"created":NaN}',
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "wrong type": b'{"job_id":5}',
}
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize("data", NASTY_BYTES.values(), ids=NASTY_BYTES)
def test_a_reader_answers_with_a_value_or_with_one_error(data: bytes) -> None:
    for read in (json_value, json_leniently, yaml_value, yaml_nodes):
        try:
            read(data)
        except Malformed as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 400
    with pytest.raises(Malformed):
        json_as(data, JobReport)


def test_the_place_of_a_bad_byte_is_counted_from_the_beginning() -> None:
    with pytest.raises(Malformed, match="byte 12 is 0xff"):
        json_value(b'{"reason":"\xff"}')


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_depth_is_bounded_before_a_parser_sees_it(opening: str) -> None:
    closing = "".join({"[": "]", "{": "}"}.get(char, "") for char in reversed(opening))
    levels = opening.count("[") + opening.count("{")
    fits = MOST_DEPTH // levels
    assert json_value(opening * fits + "1" + closing * fits) is not None
    for text in (opening * (fits + 1) + "1" + closing * (fits + 1), opening * (fits + 1)):
        for read in (json_value, json_leniently, yaml_value, yaml_nodes):
            with pytest.raises(Malformed, match=f"nests deeper than {MOST_DEPTH} levels"):
                read(text)


def test_brackets_in_texts_are_no_levels() -> None:
    text = {"a": '[{"\\' * 500, "b": ["]" * 500] * 200, 'c"[': "\\" * 51}
    assert json_value(json.dumps(text)) == text
    assert json_value(json.dumps([[]] * 5000)) == [[]] * 5000


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text("ab[]{}\"\\'", max_size=4), inner, max_size=4)
        ),
        max_leaves=30,
    )
)
def test_what_json_writes_the_door_reads(value: Any) -> None:
    assert json_value(json.dumps(value)) == value
    assert json_leniently(json.dumps(value)) == value


def test_aliases_multiply_only_so_far() -> None:
    assert yaml_value("a: &x [1, 2]\nb: [*x, *x]\nc: {<<: {d: 1}}") == {"a": [1, 2], "b": [[1, 2]] * 2, "c": {"d": 1}}
    with pytest.raises(Malformed, match="aliases counted"):
        yaml_value(LAUGHS)
    with pytest.raises(Malformed, match="inside of itself"):
        yaml_value("a: &a [1, *a]")


@pytest.mark.parametrize(
    "text",
    ['!!int ""', "!!bool x", "!!timestamp x", "2024-99-99", "!!float x", "1" * 5000, "{[a]: 1}", "!!x y", "a: \x00"],
)
def test_what_yaml_s_own_types_raise_is_one_error(text: str) -> None:
    with pytest.raises(Malformed):
        yaml_value(text)


def test_half_characters_become_whole_ones() -> None:
    assert json_leniently('{"\\ud800": ["a\\udc00b", "\\ud83d\\ude00"]}') == {"?": ["a?b", "\U0001f600"]}


@pytest.mark.parametrize(
    ("at", "said"),
    [(1.7e12, "milliseconds"), (1.7e15, "microseconds"), (1.7e18, "nanoseconds"), (1e300, "no time"), (-1.0, "no time"),
     (float("nan"), "no time"), (float("inf"), "no time")],
)  # fmt: skip
def test_a_time_in_another_unit_is_named(at: float, said: str) -> None:
    assert said in wrong_time(at)
    assert clock(at)  # and where one comes through all the same, a message about it is still printed
    assert wrong_time(1.7e9) == ""


# ------------------------------------------------------------------------------------------------- the files of a home


@pytest.mark.parametrize("data", NASTY_BYTES.values(), ids=NASTY_BYTES)
@pytest.mark.parametrize("name", ["report.json", "supervisor.lock"])
def test_one_job_s_bad_file_takes_no_other_job_away(tmp_path: Path, name: str, data: bytes) -> None:
    good, bad = tmp_path / "jobs" / "20260102-0000-good", tmp_path / "jobs" / STORED_JOB
    for directory in (good, bad):
        directory.mkdir(parents=True)
    (good / "supervisor.lock").write_text(
        '{"job_id":"20260102-0000-good","name":"fine","host":"elsewhere","pid":1,"created":1767225600}'
    )
    (bad / name).write_bytes(data)
    survey = reconcile(tmp_path, explain_lost_owner)
    assert "20260102-0000-good" in [view.id for view in survey.jobs]
    if STORED_JOB not in [view.id for view in survey.jobs]:
        assert str(bad) in survey.trouble, "what is left out is named"


@pytest.mark.real
def test_commands_about_other_jobs_go_on(holdfast: Holdfast) -> None:
    done = holdfast.run("--no-checks", "--name", "fine", "--no-python", "true")
    assert done.status == 0
    bad = holdfast.home / "jobs" / STORED_JOB
    bad.mkdir()
    for name, data in (("report.json", NASTY_BYTES["bad UTF-8"]), ("supervisor.lock", NASTY_BYTES["endless number"])):
        (bad / name).write_bytes(data)
        for verb in (["jobs"], ["jobs", "--json"], ["show", "fine"], ["logs", "fine"]):
            ran = holdfast(*verb)
            assert ran.status == 0, ran.err
            assert "Traceback" not in ran.err
            assert STORED_JOB in ran.err


@pytest.mark.real
def test_a_killed_supervisor_is_told_of_beside_a_bad_file(holdfast: Holdfast) -> None:
    bad = holdfast.home / "jobs" / STORED_JOB
    bad.mkdir(parents=True)
    (bad / "report.json").write_bytes(NASTY_BYTES["bad UTF-8"])
    process = holdfast.start("run", "--no-checks", "--no-python", "sleep", "60")
    lock = _lock(holdfast, besides=bad)
    os.kill(json.loads(lock.read_text())["pid"], 9)
    ran = holdfast.finish(process)
    assert ran.status == 137
    assert "Traceback" not in ran.err
    assert "lost" not in holdfast("jobs").out


def _lock(holdfast: Holdfast, besides: Path) -> Path:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = [path for path in holdfast.home.glob("jobs/*/supervisor.lock") if path.parent != besides]
        if found and (found[0].parent / "control.sock").exists():
            return found[0]
        time.sleep(0.02)
    raise AssertionError("no job began")


# -------------------------------------------------------------------------------------------------------- the socket


def _client(job_dir: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    folder = os.open(job_dir, os.O_PATH)
    try:
        client.connect(f"/proc/self/fd/{folder}/control.sock")
    finally:
        os.close(folder)
    client.settimeout(20)
    return client


@pytest.mark.real
def test_no_bytes_on_the_control_socket_end_the_job(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--no-python", "sleep", "60")
    lock = _lock(holdfast, besides=Path())
    for data in (*NASTY_BYTES.values(), b'{"type":"stop","reason":"\xff"}', b'{"type":"stop","reason":"\\ud800"}'):
        if not 0 < len(data) <= 60_000:
            continue
        with _client(lock.parent) as client:
            client.sendall(data + b"\n")
            assert b'"ok":false' in client.recv(4096)
    assert holdfast("stop", lock.parent.name, "--reason", "enough").status == 0
    ran = holdfast.finish(process)
    assert ran.report["outcome"] == "stopped"
    assert ran.report["reason"].startswith("enough")


@pytest.mark.real
def test_silent_clients_do_not_keep_stop_out(holdfast: Holdfast) -> None:
    process = holdfast.start("run", "--no-checks", "--no-python", "sleep", "60")
    lock = _lock(holdfast, besides=Path())
    silent = []
    try:
        for _ in range(40):
            silent.append(_client(lock.parent))
            silent[-1].send(b'{"type":')
        assert holdfast("stop", lock.parent.name, "--reason", "enough").status == 0
        assert holdfast.finish(process).report["outcome"] == "stopped"
        assert b"silent longest" in silent[0].recv(4096), "the client that has to go learns why"
    finally:
        for client in silent:
            client.close()


# ----------------------------------------------------------------------------------------- what a person hands over


@pytest.mark.parametrize("text", ["a: " + "[" * 3000, "{a: " * 3000, LAUGHS, "a: \udcff", "&a [*a]"])
def test_a_job_file_and_a_configuration_get_one_message(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HoldfastError, match=r"config\.yaml"):
        jobfile.load(file)
    with pytest.raises(HoldfastError, match=r"config\.yaml"):
        resolve({}, {}, tmp_path, system_file=tmp_path / "none")
    with pytest.raises(HoldfastError, match=r"config\.yaml"):
        catalogue_with([str(file)])


def test_a_replay_names_the_unit_of_a_wrong_time() -> None:
    line = '{"who":"p","at":%s,"device":"gpu3","code":"79","assertion":"occur"}'
    for at, said in (("1.7e12", "milliseconds"), ("1.7e18", "nanoseconds"), ("1e300", "no time"), ("1e999", "line 1")):
        changes, bad, _ = play_events([line % at], Policy())
        assert changes == []
        assert said in bad[0]


def test_a_deep_document_is_explained_as_a_log(tmp_path: Path) -> None:
    log = tmp_path / "k.log"
    log.write_text('{"kind": "Pod", "x": ' + "[" * 100_000)
    assert explain_files([str(log)]).phrase == "Unexplained"


@pytest.mark.parametrize(
    "error_file", ["[" * 200_000, '{"message":{"message":"half \\ud800 of it"}}', '{"message":"\ud800"}', "\0"]
)
def test_a_worker_s_error_file_costs_no_explanation_that_the_log_has(error_file: str) -> None:
    ended = WorkerExit(role="worker", rank=0, node="n", attempt=1, exit_code=1, error_file=error_file[:65536])
    log = LogExcerpt(
        source="worker-0 stderr", text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    report = explain(AttemptEvidence(workers=(WorkerEvidence(rank=0, stderr=log, exit=ended),)))
    assert report.phrase == "AcceleratorOutOfMemory"


@pytest.mark.real
def test_bytes_in_the_environment_that_are_no_utf_8_are_shown(holdfast: Holdfast) -> None:
    for name in ("HOLDFAST_NAME", "HOLDFAST_LOG_DIR"):
        holdfast.env[name] = os.fsdecode(b"a\xff")
        ran = holdfast("config", PYTHONIOENCODING="utf-8:strict")
        assert ran.status == 0, ran.err
        assert "a\ufffd" in ran.out


@pytest.mark.real
@pytest.mark.parametrize("limit", ["3000000", "1e300"])
def test_a_limit_beyond_what_epoll_can_wait_for_ends_no_run(holdfast: Holdfast, limit: str) -> None:
    ran = holdfast.run("--no-checks", "--time-limit", limit, "--grace", limit, "--no-python", "sleep", "1")
    assert ran.status == 0, ran.err


def test_a_timer_that_no_clock_can_wait_for_is_passed_over(tmp_path: Path) -> None:
    timers = TimerPipe(tmp_path / "timers")
    line = '{"pid":1,"scope_id":"s","expiration_time":%s}\n'
    (tmp_path / "timers").write_bytes(
        b"".join((line % at).encode() for at in ("1e300", "1e999", '"x"', "5")) + b"\xff\n["
    )
    timers.read()
    assert timers.first() == 5
    timers.close()
