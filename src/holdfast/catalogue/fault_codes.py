"""Catalogues of fault codes, one folder per vendor. They give each code's remedy.

A vendor has `<vendor>/codes.csv` and, optionally, its own rules in `<vendor>/rules.yaml`. The columns of a `codes.csv`
are: `code`, `remedy` (a `Remedy`'s name; empty: the severity decides), `name`, and optionally `plane` (`network` or the
default `chip`), `severity` (which a source should report for it), `assertion` (`occur`: the fault lasts until an event
clears it; `once`: it is momentary) and `advice` (the vendor's advice).
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

from holdfast.model.faults import Assertion, Remedy, Severity
from holdfast.model.noun_base import Noun

HERE = Path(__file__).parent

#: Ascend codes of faults in the network plane, in canonical form.
NETWORK_CODES = frozenset({"81078603", "81078607", "110000002", "110001024"})

#: Ascend's code of the link fault, which has its own defaults and limits.
LINK_DOWN = "81078603"

_CANONICAL: dict[str, str] = {}
_CANONICAL_MOST = 65_536
_HEX = frozenset("0123456789ABCDEF")


class FaultCode(Noun, frozen=True, kw_only=True):
    """One code in a vendor's catalogue."""

    code: str
    remedy: Remedy | None
    name: str = ""
    vendor: str = ""
    plane: str = "chip"
    severity: Severity = Severity.MAJOR
    assertion: Assertion = Assertion.OCCUR
    advice: str = ""


def canonical(code: str) -> str:
    """Normalise a code: upper case, no `0x` or `XID` in front, and no leading zeros beyond eight hex digits."""
    known = _CANONICAL.get(code)
    if known is not None:
        return known
    text = code.strip().upper()
    if text.startswith("0X"):
        text = text[2:]
    elif text.startswith("XID"):
        number = text[3:].lstrip(" -_:")
        if number[:1].isdigit():
            text = number
    # Beyond eight digits, leading zeros do not change the code. Up to eight they do: the Ascend code 00000003 is not
    # Xid 3.
    if len(text) > 8 and text[0] == "0" and _HEX.issuperset(text):
        text = text[:-8].lstrip("0") + text[-8:]
    if len(_CANONICAL) >= _CANONICAL_MOST:
        _CANONICAL.clear()
    _CANONICAL[code] = text
    return text


def vendors() -> tuple[str, ...]:
    """Return the names of the vendors that have a catalogue, sorted."""
    return tuple(sorted(path.parent.name for path in HERE.glob("*/codes.csv")))


@functools.cache
def codes_of(vendor: str) -> dict[str, FaultCode]:
    """Return a vendor's codes by canonical code. If a code is listed twice, the more severe remedy counts."""
    found: dict[str, FaultCode] = {}
    for file in (HERE / vendor / "codes.csv", HERE / vendor / "others.csv"):
        if file.exists():
            _read(file, vendor, found)
    return found


@functools.cache
def shipped_codes() -> dict[str, FaultCode]:
    """Return the codes of the main list in Ascend's default `faultCode.json`, by canonical code."""
    found: dict[str, FaultCode] = {}
    _read(HERE / "ascend" / "codes.csv", "ascend", found)
    return found


@functools.cache
def all_codes() -> dict[str, FaultCode]:
    """Return the codes of all vendors, by canonical code."""
    table: dict[str, FaultCode] = {}
    for vendor in vendors():
        table.update(codes_of(vendor))
    return table


@functools.cache
def rules_text(vendor: str) -> str:
    """Return a vendor's default rules in holdfast's format. Return "" if there are none."""
    file = HERE / vendor / "rules.yaml"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def describe(code: str) -> str:
    """Return a code with its name, such as `Xid 79 (GPU has fallen off the bus)`.

    Without a known name, return the code alone.
    """
    known = all_codes().get(canonical(code))
    if known is None or not known.name:
        return code
    label = f"Xid {known.code}" if known.vendor == "nvidia" else known.code
    return f"{label} ({known.name})"


def _read(file: Path, vendor: str, into: dict[str, FaultCode]) -> None:
    with file.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            remedy = Remedy[row["remedy"]] if row["remedy"] else None
            key = canonical(row["code"])
            before = into.get(key)
            if before is not None and (before.remedy or Remedy.NONE) >= (remedy or Remedy.NONE):
                continue
            into[key] = FaultCode(
                code=row["code"],
                remedy=remedy,
                name=row["name"],
                vendor=vendor,
                plane=row.get("plane") or "chip",
                severity=Severity(row.get("severity") or "major"),
                assertion=Assertion(row.get("assertion") or "occur"),
                advice=row.get("advice") or "",
            )
