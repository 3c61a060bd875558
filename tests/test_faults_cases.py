"""Fault cases played end to end: our own for every edge of the rules, and a file of others where one is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.decide.faults.replay import play
from holdfast.errors import BadUsage

FOLDER = Path(__file__).parent / "data" / "faults"
OWN = FOLDER / "cases.json"
MORE = FOLDER / "more_cases.json"
"""Every field of every rule with each kind of value, and each combination of rules, levels and planes."""
OTHERS = Path(os.environ.get("HOLDFAST_FAULT_CASES", "no such file"))
"""More cases in the same form, for whoever has them."""
KEYS = {
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


@pytest.mark.parametrize("case", _cases(OWN) + _cases(MORE) + _cases(OTHERS), ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    results = play(case)
    assert len(results) == len(case["checks"])
    for check, got in zip(case["checks"], results, strict=True):
        assert set(got) == KEYS
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


@pytest.mark.parametrize("bad", [{"timeline": [{}], "checks": [{"t": 1, "device": 0}]}, {"checks": [{}]}])
def test_a_malformed_case_is_bad_usage(bad: dict[str, Any]) -> None:
    with pytest.raises(BadUsage, match="timeline"):
        play(bad)
