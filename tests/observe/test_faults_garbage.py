"""Lines that are no events, from any writer: every one is refused with a reason, none ends the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from builders import T
from holdfast.node.devices.fault_event_lines import event_refusal, is_case, read_event, read_events
from holdfast.observe.devices import ascend_events, reported_faults
from holdfast.observe.devices.kernel_faults import faults_in
from holdfast.observe.devices.reported_faults import FaultRejected

DIGITS = "9" * 400
OWN_LINE: dict[str, Any] = {"who": "pingmesh", "at": T, "device": "gpu3", "code": "79", "assertion": "occur"}
FAULT_RECORD = {"faultCode": "220001001", "faultTime": T * 1000, "assertion": "occur"}
CLUSTER = {"resource": "pingmesh", "timestamp": T * 1000, "faults": [FAULT_RECORD]}
DRIVER = {"EventID": "80E18005", "LogicID": 0, "Assertion": 1, "Severity": 2, "AlarmRaisedTime": T * 1000}


@pytest.mark.parametrize(
    "line",
    [
        f'{{"who": "a", "at": {DIGITS}, "device": "gpu3", "code": "79"}}',
        f'{{"who": "a", "at": -{DIGITS}, "device": "gpu3", "code": "79"}}',
        '{"who": "a", "at": 1e308, "device": "gpu3", "code": "79"}',
        '{"a":' * 5000,
        "[" * 60_000,
    ],
)
def test_numbers_without_end_and_depths_are_refused(line: str) -> None:
    with pytest.raises(FaultRejected):
        reported_faults.read_line(line, T)
    assert not is_case(line.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"AlarmRaisedTime": int(DIGITS)},
        {"EventID": int(DIGITS)},
        {"EventID": 0},
        {"LogicID": int(DIGITS)},
        {"Assertion": [1]},
        {"Assertion": {}},
        {"Severity": [2]},
        {"Severity": None},
    ],
)
def test_driver_events_with_a_strange_field_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FaultRejected):
        ascend_events.read_line(json.dumps({**DRIVER, **change}), T)


@pytest.mark.parametrize("line", [f'{{"at": {DIGITS}, "device": "a", "code": "1"}}', '{"a":' * 5000])
def test_a_log_of_events_names_such_lines(line: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|too large"):
        read_event(line)


def test_a_log_of_events_may_have_any_shape_that_a_run_takes() -> None:
    many = {key: value for key, value in OWN_LINE.items() if key != "device"} | {"devices": ["gpu1", "gpu2"]}
    fault = {**FAULT_RECORD, "influence": [{"nodeName": "n7", "deviceIds": [0, 3]}]}
    old = 1_000_000_000.0
    told = [read_events(json.dumps(each)) for each in (
        OWN_LINE, {**many, "at": old},
        {**CLUSTER, "timestamp": old * 1000, "faults": [{**fault, "faultTime": old * 1000}]},
        {**DRIVER, "AlarmRaisedTime": old * 1000},
    )]  # fmt: skip
    assert [[(event.device, event.at) for event in events] for events in told] == [
        [("gpu3", T)], [("gpu1", old), ("gpu2", old)], [("npu0", old), ("npu3", old)], [("npu0", old)],
    ]  # fmt: skip


def test_a_time_that_is_no_number_is_refused() -> None:
    (event,) = read_events(json.dumps(OWN_LINE))
    assert event_refusal(structs.replace(event, at=float("nan")), T) == "its time is not a number"


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(int(DIGITS)),
    st.lists(st.none() | st.integers() | st.text(max_size=3), max_size=2),
    st.dictionaries(st.sampled_from(["nodeName", "deviceIds", "a"]), st.none() | st.lists(st.integers()), max_size=2),
)  # fmt: skip


@given(st.sampled_from([OWN_LINE, CLUSTER, DRIVER]), st.data())
@settings(max_examples=300, deadline=None)
def test_no_field_of_any_kind_ends_a_reader(good: dict[str, Any], data: st.DataObject) -> None:
    names = [*good, "devices", "node", "text", "severity"]
    odd = data.draw(st.dictionaries(st.sampled_from(names), ODD, min_size=1, max_size=3))
    line = json.dumps({**good, **odd})
    faults_in(line, T)
    readers = (
        lambda: reported_faults.read_line(line, T),
        lambda: ascend_events.read_line(line, T),
        lambda: read_event(line),
        lambda: read_events(line),
    )
    for reader in readers:
        try:
            reader()
        except (FaultRejected, ValueError) as refused:
            assert str(refused)
