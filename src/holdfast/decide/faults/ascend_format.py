"""Reads the two files of Ascend's device plugin, `faultCode.json` and `faultCustomization.json`, in their original
format.

An entry with a value out of range is dropped, and a `PolicyProblem` names the entry; a later valid entry may use the
same
codes. A wrong data format (broken JSON, a string in place of a number, 2.5 for an integer) is fatal: the whole file is
ignored. `null` means that the value is absent. Keys and codes are case-insensitive, as in Ascend's plugin.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from holdfast.catalogue.fault_codes import LINK_DOWN, NETWORK_CODES
from holdfast.decide.faults.fault_policy import (
    FAULT_S,
    HEAL_S,
    NEVER_S,
    RECOVER_S,
    RELEASE_S,
    RESET_S,
    SAVE_S,
    TIMES,
    WINDOW_S,
    FrequencyRule,
    GraceTimes,
    Levels,
    PolicyProblem,
    Rules,
    RulesReader,
    Spelling,
    allowed_remedy,
)
from holdfast.decide.faults.fault_remedies import LEVEL_NAMES, REMEDIES, base_remedy
from holdfast.model.faults import Remedy
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, json_leniently, json_value

CODE_LISTS: dict[str, Remedy] = {
    "NotHandleFaultCodes": Remedy.NONE,
    "SubHealthFaultCodes": Remedy.WATCH,
    "RestartRequestCodes": Remedy.RETRY_REQUEST,
    "RestartBusinessCodes": Remedy.RESTART_WORKERS,
    "FreeRestartNPUCodes": Remedy.RESET_WHEN_IDLE,
    "RestartNPUCodes": Remedy.RESET_NOW,
    "PreSeparateNPUCodes": Remedy.AVOID,
    "SeparateNPUCodes": Remedy.ISOLATE,
}
NETWORK_LISTS: dict[str, Remedy] = {
    "NotHandleFaultNetworkCodes": Remedy.NONE,
    "SubHealthFaultNetworkCodes": Remedy.WATCH,
    "PreSeparateNPUNetworkCodes": Remedy.AVOID,
    "SeparateNPUNetworkCodes": Remedy.ISOLATE,
}
SECTIONS = ("GraceTolerance", "FaultFrequency", "FaultDuration")
_GRACE = (
    ("WaitProcessReadCMTime", "save_s", SAVE_S),
    ("WaitDeviceResetTime", "reset_s", RESET_S),
    ("WaitFaultSelfHealingTime", "heal_s", HEAL_S),
)
_FREQUENCY = ("EventId", "TimeWindow", "Times", "FaultHandling", "ReleaseTimeWindow")
_DURATION = ("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")
_INT64 = 2**63


class _WrongAscendFormat(Exception):
    """Raised if the file has the wrong format. This module catches it and reports a fatal problem."""


def read_codes(data: bytes) -> Levels:
    """Read the levels of `faultCode.json`. Never raise: the result's `problems` lists the ignored parts of the file."""
    try:
        return _codes(_document(data), _repeated(data))
    except _WrongAscendFormat as error:
        return Levels(problems=(PolicyProblem(where="", what=str(error), fatal=True),))


def read_rules(data: bytes) -> Rules:
    """Read the rules of `faultCustomization.json`. Never raise: the result's `problems` lists the ignored parts of the
    file.
    """
    try:
        return _rules(_document(data), _repeated(data))
    except _WrongAscendFormat as error:
        return Rules(problems=(PolicyProblem(where="", what=str(error), fatal=True),))


def encode(document: Any) -> bytes:
    """Return a parsed document as JSON text, which `read_codes` and `read_rules` accept."""
    return json.dumps(document).encode()


def _codes(document: dict[str, Any], repeated: list[PolicyProblem]) -> Levels:
    problems = repeated
    spelling = Spelling()
    found: dict[str, set[Remedy]] = {}
    known = {name.lower() for name in (*CODE_LISTS, *NETWORK_LISTS)}
    problems.extend(
        PolicyProblem(where=key, what="is not a list of fault codes that holdfast knows, and is not used")
        for key in document
        if key.lower() not in known
    )
    for name, remedy in (*CODE_LISTS.items(), *NETWORK_LISTS.items()):
        for index, text in enumerate(_strings(_field(document, name), name)):
            where = f"{name}[{index}]"
            if not _is_hex(text):
                problems.append(PolicyProblem(where=where, what=f"`{text}` is not a hexadecimal fault code"))
                continue
            code = spelling.take(text)
            if name in NETWORK_LISTS and code not in NETWORK_CODES:
                problems.append(PolicyProblem(where=where, what=f"{text} is not a code of the network plane"))
                continue
            before = found.setdefault(code, set())
            if remedy in before:
                problems.append(PolicyProblem(where=where, what=f"{text} stands twice in this list", harmless=True))
            elif before:
                highest = LEVEL_NAMES[max(*before, remedy)]
                what = f"{text} stands in two lists; the higher counts: {highest}"
                problems.append(PolicyProblem(where=where, what=what, harmless=True))
            before.add(remedy)
            if code in NETWORK_CODES and base_remedy(code, [remedy]) is not remedy:
                problems.append(
                    PolicyProblem(
                        where=where, what=f"{text} is a network fault and cannot be {LEVEL_NAMES[remedy]}: nothing"
                    )
                )
    return Levels(
        levels={code: base_remedy(code, listed) for code, listed in found.items()},
        spelled=spelling.seen,
        problems=tuple(problems),
    )


def _rules(document: dict[str, Any], repeated: list[PolicyProblem]) -> Rules:
    reader = _RuleReader(repeated)
    grace = reader.grace(_object(_field(document, "GraceTolerance"), "GraceTolerance"))
    for index, item in enumerate(_list(_field(document, "FaultFrequency"), "FaultFrequency")):
        reader.frequency_entry(_object(item, f"FaultFrequency[{index}]"), f"FaultFrequency[{index}]")
    for index, item in enumerate(_list(_field(document, "FaultDuration"), "FaultDuration")):
        reader.duration_entry(_object(item, f"FaultDuration[{index}]"), f"FaultDuration[{index}]")
    reader.unknown(document, SECTIONS, "")
    return reader.finish(grace)


class _RuleReader(RulesReader):
    def unknown(self, item: dict[str, Any], known: tuple[str, ...], where: str) -> None:
        """Report each unknown name in `item`. Otherwise a misspelt name would be ignored silently. `known`: the known
        names; `where`: the place in the file.
        """
        names = {name.lower() for name in known}
        for key in item:
            if key.lower() not in names:
                self.skip(f"{where}.{key}" if where else key, f"is none of {', '.join(known)}, and is not used")

    def grace(self, item: dict[str, Any]) -> GraceTimes:
        self.unknown(item, tuple(name for name, _, _ in _GRACE), "GraceTolerance")
        values = {}
        for name, key, (low, high) in _GRACE:
            value = _integer(_field(item, name), f"GraceTolerance.{name}")
            if value is None:
                continue
            if low <= value <= high:
                values[key] = value
            else:
                default = getattr(GraceTimes(), key)
                self.skip(f"GraceTolerance.{name}", f"{value} is not {low} to {high} seconds; {default} is used")
        return GraceTimes(**values)

    def frequency_entry(self, item: dict[str, Any], where: str) -> None:
        self.unknown(item, _FREQUENCY, where)
        codes = _strings(_field(item, "EventId"), f"{where}.EventId")
        window = _integer(_field(item, "TimeWindow"), f"{where}.TimeWindow") or 0
        times = _integer(_field(item, "Times"), f"{where}.Times") or 0
        release = _integer(_field(item, "ReleaseTimeWindow"), f"{where}.ReleaseTimeWindow") or NEVER_S
        handling = _string(_field(item, "FaultHandling"), f"{where}.FaultHandling")
        trouble = _all_of(
            _no_codes(codes),
            _out_of(window, WINDOW_S, "TimeWindow", "seconds"),
            _out_of(times, TIMES, "Times", "occurrences"),
            _out_of(release, RELEASE_S, "ReleaseTimeWindow", "seconds"),
            _no_level(handling),
        )
        if trouble:
            self.skip(where, f"{_names(codes)}{trouble}; the entry is not used")
            return
        for code in self._free(codes, self.frequency, where, "FaultFrequency"):
            remedy = self._remedy(code, handling, where, hold=True)
            self.frequency[code] = FrequencyRule(
                window_s=window, times=times, remedy=remedy, release_s=release, entry=where
            )

    def duration_entry(self, item: dict[str, Any], where: str) -> None:
        self.unknown(item, _DURATION, where)
        codes = _strings(_field(item, "EventId"), f"{where}.EventId")
        fault = _integer(_field(item, "FaultTimeout"), f"{where}.FaultTimeout")
        recover = _integer(_field(item, "RecoverTimeout"), f"{where}.RecoverTimeout")
        handling = _string(_field(item, "FaultHandling"), f"{where}.FaultHandling")
        trouble = _all_of(
            _no_codes(codes),
            _out_of(fault or 0, FAULT_S, "FaultTimeout", "seconds"),
            _out_of(recover or 0, RECOVER_S, "RecoverTimeout", "seconds"),
            _no_level(handling),
        )
        if trouble:
            self.skip(where, f"{_names(codes)}{trouble}; the entry is not used")
            return
        for code in self._free(codes, self.duration, where, "FaultDuration"):
            if REMEDIES[handling] is Remedy.HOLD and code != LINK_DOWN:
                self.skip(where, f"{self.spelling.seen[code]}: FaultDuration cannot ask for {handling}; not used")
                continue
            remedy = self._remedy(code, handling, where, hold=False)
            self.add_duration(code, remedy, fault_s=fault, recover_s=recover, entry=where)

    def _free(self, codes: list[str], taken: Any, where: str, section: str) -> list[str]:
        free = []
        for text in codes:
            if not text.strip():
                self.skip(where, "an empty EventId is not used")
                continue
            code = self.spelling.take(text)
            if code in taken or code in free:
                self.skip(where, f"{text} has a {section} entry already; the first valid one counts")
            else:
                free.append(code)
        return free

    def _remedy(self, code: str, handling: str, where: str, *, hold: bool) -> Remedy:
        wanted = REMEDIES[handling]
        remedy = allowed_remedy(code, wanted, hold=hold)
        if remedy is not wanted:
            self.skip(where, f"{code} takes NotHandleFault, PreSeparateNPU or SeparateNPU, not {handling}: nothing")
        return remedy


def _document(data: bytes) -> dict[str, Any]:
    try:
        value = json_value(data, most_bytes=MOST_CONFIG_BYTES)
    except Malformed as error:
        raise _WrongAscendFormat(f"it is not JSON: {error}") from error
    return _object(value, "the file")


def _repeated(data: bytes) -> list[PolicyProblem]:
    """Return a `PolicyProblem` for each name that occurs twice in one JSON object, where only the last value counts."""
    found: list[PolicyProblem] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for key, _ in pairs:
            if key.lower() in seen:
                what = f"stands twice in one object (as {seen[key.lower()]} before); the last one counts"
                found.append(PolicyProblem(where=key, what=what))
            seen[key.lower()] = key
        return dict(pairs)

    try:
        json_leniently(data, pairs=look)
    except Malformed:
        return []  # report nothing: `_document` reports that the file is broken JSON
    return found


def _field(item: dict[str, Any], name: str) -> Any:
    wanted = name.lower()
    value = None
    for key, each in item.items():
        if key.lower() == wanted:
            value = each
    return value


def _wrong(where: str, wanted: str, value: Any) -> NoReturn:
    shown = msgspec.json.encode(value).decode()
    raise _WrongAscendFormat(f"{where}: {wanted} was expected, not {shown if len(shown) <= 60 else shown[:57] + '...'}")


def _object(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    return value if isinstance(value, dict) else _wrong(where, "an object", value)


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else _wrong(where, "a list", value)


def _string(value: Any, where: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _wrong(where, "a text", value)


def _strings(value: Any, where: str) -> list[str]:
    return [_string(item, f"{where}[{index}]") for index, item in enumerate(_list(value, where))]


def _integer(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return value
    return _wrong(where, "a whole number", value)


def _is_hex(text: str) -> bool:
    try:
        int(text, 16)
    except ValueError:
        return False
    return text.isalnum() and text.isascii()


def _names(codes: list[str]) -> str:
    if not codes:
        return ""
    more = f" and {len(codes) - 3} more" if len(codes) > 3 else ""
    return f"{', '.join(codes[:3])}{more}: "


def _all_of(*troubles: str) -> str:
    return "; ".join(trouble for trouble in troubles if trouble)


def _no_codes(codes: list[str]) -> str:
    return "" if codes else "EventId is missing or empty"


def _no_level(handling: str) -> str:
    if handling in REMEDIES:
        return ""
    return f"FaultHandling `{handling}` is none of {', '.join(REMEDIES)}" if handling else "FaultHandling is missing"


def _out_of(value: int, limits: tuple[int, int], name: str, unit: str) -> str:
    low, high = limits
    return "" if low <= value <= high else f"{name} {value} is not {low} to {high} {unit}"
