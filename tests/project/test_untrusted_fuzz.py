"""A seeded fuzzer over every door: bytes of any kind come to a value or to a message, and to nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decide.faults.fault_policy import Policy
from holdfast.errors import HoldfastError
from holdfast.explain import explain
from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.launch.jobfile import job_file_reader as jobfile
from holdfast.launch.jobfile.secret_values import hidden
from holdfast.model.codec import decode_event
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.node.devices.fault_event_lines import is_case, play_cases, play_events
from holdfast.node.devices.policy_files import lint, load_policy
from holdfast.node.explain_files import catalogue_with, explain_files
from holdfast.node.stop_files import request_of
from holdfast.observe.checks.executable import _object as plugin_answer
from holdfast.observe.devices import ascend_events, reported_faults
from holdfast.observe.devices.kernel_faults import faults_in
from holdfast.observe.devices.reported_faults import FaultRejected
from holdfast.observe.python_stacks import parse_py_spy
from holdfast.observe.timer_pipe import TimerPipe
from holdfast.record import report_file
from holdfast.record.job_views import reconcile
from holdfast.record.local_time import clock
from holdfast.record.owner_lock import OwnerInfo, read_owner
from holdfast.report.brief_report import render_brief
from holdfast.report.failure_place import FailurePlace
from holdfast.settings.resolved_settings import resolve
from holdfast.untrusted import Malformed, json_as
from holdfast.wire.control_socket import Line, StopLine

DAMAGED_JOB = "20260101-0000-abcd"

WHOLE_DOCUMENTS: dict[str, bytes] = {
    "report": b'{"schema":"holdfast.report/1","job":{"id":"%s","name":"x"},"outcome":"failed","code":1,"phrase":"X",'
    b'"blame":"workload","rerun":"never","reason":"r","solution":"s","first":{"role":"w","rank":0,"node":"n","pid":7,'
    b'"at":1767225600.5},"evidence":[{"kind":"log","text":"t","source":"s","at":1767225600.5}],"collateral":[1,2],'
    b'"attempts":[{"attempt":1,"started_at":1767225600,"ended_at":1767225660,"report":{"code":1,"phrase":"X","blame":'
    b'"workload","rerun":"never","reason":"r","solution":"s"},"decision":{"kind":"restart","reason":"r","delay_s":2.5},'
    b'"parts":{"running":40.5,"draining":3}}]}' % DAMAGED_JOB.encode(),
    "lock": b'{"job_id":"j","name":"n","host":"h","pid":1,"created":1767225600.0}',
    "stop": b'{"type":"stop","reason":"r","who":"w","phrase":"DataMissing","code":241}',
    "event": b'{"who":"p","at":1767225600,"device":"gpu3","code":"79","assertion":"occur"}\n',
    "case": b'{"config":{},"timeline":[{"t":1,"op":"event","device":"npu-0","code":"80E18005","assertion":"occur"}],'
    b'"checks":[{"t":2,"device":"npu-0"}]}',
    "codes": b'{"NotHandleFaultCodes":["80E18005"],"RestartBusinessCodes":[]}',
    "rules": b'{"FaultFrequency":[{"EventId":["80E18005"],"TimeWindow":86400,"Times":2,'
    b'"FaultHandling":"ManuallySeparateNPU"}]}',
    "own": b"levels: {RESTART: ['79']}\nfrequency: [{codes: ['79'], window_s: 60, times: 2, remedy: ISOLATE}]\n",
    "openpai job": b"protocolVersion: 2\nname: x\ntype: job\nprerequisites: [{name: i, type: data, uri: [a]}]\n"
    b"secrets: {a: b}\ntaskRoles: {w: {instances: 2, data: i, commands: ['a <% $data.uri[0] %>'],\n"
    b"resourcePerInstance: {cpu: 1, ports: {p: 1}}}}\n"
    b"extras: {com.microsoft.pai.runtimeplugin: [{plugin: ssh, parameters: {jobssh: true}}]}\n",
    "job": b"name: x\ngrace: 3\nroles: {w: {count: 2, command: [a, b], env: {A: 1}}}\nchecks: [disk: {min_free: 5G}]\n",
    "config": b"grace: 5\nplugin: [a.py]\nmax-restarts: 3\ndisk-limit: 90%\n",
    "rows": b"- {phrase: X, code: 230, blame: workload, rerun: never, what: w, reason: r, solution: s}\n",
    "pai": b"spec:\n- {code: 230, phrase: X, issuer: U, causer: U, type: T, stage: S, behavior: B, reaction: R,"
    b" reason: r, repro: [], solution: [s], pattern: {runtimeContainerPatterns: [{userLogRegex: 'a+'}]}}\n",
}
WHOLE_DOCUMENTS |= {
    "pod": b'{"kind":"Pod","status":{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":9}}}]}}',
    "error file": b'{"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"Traceback","timestamp":"1"}}}',
    "journald": b'{"MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus",'
    b'"__REALTIME_TIMESTAMP":"1767225600000000"}',
    "ascend": b'{"EventID":"80E18005","LogicID":0,"AlarmRaisedTime":1767225600000,"Assertion":1,"Severity":2}',
    "public": b'{"resource":"fd-tracker","timestamp":1767225600000,"faults":[{'
    b'"faultCode":"010001001","faultTime":1767225600000,"assertion":"occur","influence":[{"nodeName":"n","deviceIds":[0,1]}]}]}',
    "stacks": b'[{"pid":1,"thread_name":"Main","os_thread_id":1,"frames":[{"name":"f","filename":"a.py","line":1}]}]',
    "answer": b'{"ok":false,"message":"m","solution":"s","blame":"hardware"}',
    "event of the journal": b'{"type":"tick"}',
    "timer": b'{"pid":1,"scope_id":"s","expiration_time":1767225600.5,"signal":9}\n',
}
BITS = (
    b"\xff", b"\x00", b"[" * 300, b"{" * 300, b'{"a":' * 300, b"1e300", b"1e999", b"-1", b"9" * 400, b"NaN", b"null",
    b'"\\ud800"', b"\xed\xa0\x80", b"&a *a", b"!!int ''", b"<<: *a", b"''", b"[]", b"{}", b"true", b"2024-99-99",
    b"- " * 200, b": ", b"\n", b"'", b'"', b"1.7e17", b"17000000000000000000", b"0x", b"~", b".inf", b".nan", b"\t",
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A document of one of the kinds, with a few places cut out, doubled, or replaced by something nasty."""
    kind = draw(st.sampled_from(sorted(WHOLE_DOCUMENTS)))
    data = WHOLE_DOCUMENTS[kind]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from(BITS) | st.binary(max_size=6) | st.just(data[at:to] * 2))
        data = data[:at] + piece + data[to:]
    return kind, data


NEW_YEAR = 1767225600.0


def swallow(kind: str, data: bytes, place: Path) -> None:
    """Have every reader of this kind of document read it. What they may raise is a message for a person."""
    place.write_bytes(data)
    try:
        match kind:
            case "report" | "lock":
                directory = place.parent / "jobs" / DAMAGED_JOB
                directory.mkdir(parents=True, exist_ok=True)
                (directory / ("report.json" if kind == "report" else "supervisor.lock")).write_bytes(data)
                for view in reconcile(place.parent, explain_lost_owner).jobs:
                    assert clock(view.created)
                report = report_file.read_in_place(place.parent, DAMAGED_JOB)
                if report is not None:
                    render_brief(report, FailurePlace(), verbose=True)
                    report_file.write(place.parent, report)
                found = read_owner(directory)
                assert found is None or isinstance(found, OwnerInfo)
            case "stop":
                line = json_as(data, Line)
                if isinstance(line, StopLine):
                    try:
                        request_of(line, None, NEW_YEAR)
                    except ValueError as error:
                        assert str(error), "the client learns why"
            case "event":
                play_events(data.decode("utf-8", "replace").splitlines(), Policy())
            case "case":
                if is_case(data):
                    play_cases(data)
            case "codes" | "rules" | "own":
                named = place.with_suffix(".yaml" if kind == "own" else ".json")
                named.write_bytes(data)
                lint([str(named)])
                load_policy(str(named), str(named))
            case "job" | "openpai job":
                jobfile.load(place)
                hidden(data)
            case "config":
                resolve({}, {}, place.parent, system_file=place)
            case "pod":
                explain_files([str(place)])
            case "error file":
                ended = WorkerExit(
                    role="w", rank=0, node="", attempt=1, exit_code=1, error_file=data.decode(errors="replace")
                )
                assert explain(AttemptEvidence(workers=(WorkerEvidence(rank=0, exit=ended),))).phrase
            case "journald" | "ascend" | "public":
                lines = data.decode("utf-8", "replace").splitlines()
                for line in lines:
                    faults_in(line, NEW_YEAR)
                    for read in (ascend_events.read_line, reported_faults.read_line):
                        try:
                            read(line, NEW_YEAR)
                        except FaultRejected:
                            pass
                play_events(lines, Policy())
            case "stacks":
                parse_py_spy(data)
            case "answer":
                plugin_answer(data.decode("utf-8", "replace"))
            case "event of the journal":
                decode_event(data)
            case "timer":
                timers = TimerPipe(place.parent / "timers")
                try:
                    (place.parent / "timers").write_bytes(data[:4096])
                    timers.read()
                    assert (timers.first() or 0) < 1e12
                finally:
                    timers.close()
            case _:
                catalogue_with([str(place)])
    except (HoldfastError, Malformed):
        pass


@settings(max_examples=int(os.environ.get("HOLDFAST_FUZZ", "400")), deadline=None)
@given(mutated())
def test_no_bytes_of_any_kind_raise_anything_but_a_message(case: tuple[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        swallow(*case, Path(folder) / "document")
