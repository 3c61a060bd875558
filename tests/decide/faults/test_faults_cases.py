"""Fault cases played end to end: our own for every edge of the rules, and a file of others where one is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.decide.faults.fault_replay import play, warnings
from holdfast.errors import BadUsage
from places import DATA
from tables import rows

FOLDER = DATA / "faults"
OWN_CASES = FOLDER / "cases.json"
#: Every field of every rule with each kind of value, and each combination of rules, levels and planes.
MORE_CASES = FOLDER / "more_cases.json"
#: More cases in the same form, for users who have them.
OTHERS = Path(os.environ.get("HOLDFAST_FAULT_CASES", "no such file"))
CASE_KEYS = {
    "t", "device", "level", "chip_level", "network_level", "health", "network_health", "codes", "network_codes",
    "manually_separated", "upgrade_reasons", "frequency_count", "config",
}  # fmt: skip


def _cases(path: Path) -> list[Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def _agrees(key: str, want: Any, got: Any) -> bool:
    if key == "frequency_count":
        return all(got.get(code, 0) == count for code, count in want.items()) and bool(want or not got)
    if key == "config":
        return all(
            not any(at == path or at.startswith(f"{path}.") for at in got) if value is None else got.get(path) == value
            for path, value in want.items()
        )
    return bool(want == got)


@rows("case", _cases(OWN_CASES) + _cases(MORE_CASES) + _cases(OTHERS), lambda case: case["id"])
def test_every_case_ends_as_it_says(case: dict[str, Any]) -> None:
    results = play(case)
    assert len(results) == len(case["checks"])
    for check, got in zip(case["checks"], results, strict=True):
        assert set(got) == CASE_KEYS
        assert (got["t"], got["device"]) == (check["t"], check["device"])
        wrong = {key: (want, got[key]) for key, want in check["expect"].items() if not _agrees(key, want, got[key])}
        assert not wrong, f"{case['id']} at t={check['t']}: (wanted, got) {wrong}"


def test_a_case_needs_no_expectations() -> None:
    case = {"timeline": [{"t": 1, "op": "event", "device": 0, "code": "80E18005", "assertion": "occur"}]}
    (got,) = play({**case, "checks": [{"t": 2, "device": 0}]})
    assert (got["level"], got["config"]["FaultFrequency.80E18005.Times"]) == ("RestartNPU", 3)


def test_checks_out_of_order_see_their_own_time() -> None:
    timeline = [{"t": 5, "op": "event", "device": 0, "code": "80E3A201", "assertion": "occur"}]
    late, early = play({"timeline": timeline, "checks": [{"t": 6, "device": 0}, {"t": 4, "device": 0}]})
    assert (late["level"], early["level"]) == ("SeparateNPU", "NormalNPU")


NPU_CHECKS = [{"t": 1, "device": 0}]


@pytest.mark.parametrize(
    "bad",
    [
        {"timeline": [{}], "checks": NPU_CHECKS},
        {"checks": [{}]},
        {"checks": [5]},
        {"checks": 5},
        {"timeline": 5, "checks": NPU_CHECKS},
        {"config": 5, "checks": NPU_CHECKS},
        {"tick_seconds": "slow", "checks": NPU_CHECKS},
        {"initial_state": {"UpgradeFaultReason": "{"}, "checks": NPU_CHECKS},
        {"checks": [{"t": float("inf"), "device": 0}]},
        {"timeline": [{"t": 0, "op": "explode"}], "checks": NPU_CHECKS},
        {"timeline": [{"t": 0, "op": "event", "device": 0, "code": "A1", "assertion": "maybe"}], "checks": NPU_CHECKS},
    ],
)
def test_a_malformed_case_is_bad_usage(bad: dict[str, Any]) -> None:
    with pytest.raises(BadUsage, match="timeline"):
        play(bad)


@pytest.mark.parametrize("bad", [{"timeline": 5}, {"timeline": [5]}, {"config": 5}])
def test_files_of_a_malformed_case_are_bad_usage_too(bad: dict[str, Any]) -> None:
    with pytest.raises(BadUsage, match="timeline"):
        warnings(bad)


@pytest.mark.parametrize(
    "initial",
    [
        {
            "ManuallySeparateNPU": "Ascend910-0,Ascend910-3",
            "UpgradeFaultReason": '{"Ascend910-0":[{"upgrade_time":1699999000000,"fault_code":"80e18005",'
            '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultFrequency"}],"Ascend910-1":[{"upgrade_time":1,'
            '"fault_code":"80e18005","fault_level":"ManuallySeparateNPU","upgrade_type":"FaultFrequency"}]}',
        },
        {
            "manually_separated": [0, "3"],
            "upgrade_reasons": {"0": ["FaultFrequency:80E18005:ManuallySeparateNPU"]},
        },
    ],
)
def test_standings_of_another_record_are_taken_over(initial: dict[str, Any]) -> None:
    timeline = [{"t": 5, "op": "manual_release", "device": 3}]
    checks = [{"t": t, "device": device} for t in (1, 7) for device in (0, 1, 3)]
    results = play({"timeline": timeline, "checks": checks, "initial_state": initial})
    assert [got["manually_separated"] for got in results] == [True, False, True, True, False, False]
    assert results[0]["upgrade_reasons"] == ["FaultFrequency:80E18005:ManuallySeparateNPU"]
    assert results[2]["upgrade_reasons"] == ["FaultAutofill:AUTOFILLFAULTCODE:ManuallySeparateNPU"]


def test_a_code_with_its_prefix_is_shown_without_it() -> None:
    rules = {"EventId": ["0x80e18005"], "TimeWindow": 60, "Times": 2, "FaultHandling": "ManuallySeparateNPU"}
    config = {"faultCode": {"SubHealthFaultCodes": ["0x80E18005"]}, "faultCustomization": {"FaultFrequency": [rules]}}
    timeline = [{"t": 0, "op": "event", "device": 0, "code": "0X80E18005", "assertion": "occur"}]
    (got,) = play({"config": config, "timeline": timeline, "checks": NPU_CHECKS})
    assert (got["codes"], got["level"], got["frequency_count"]) == (["80E18005"], "SubHealthFault", {"80E18005": 1})
    assert got["config"]["FaultFrequency.80E18005.Times"] == 2
