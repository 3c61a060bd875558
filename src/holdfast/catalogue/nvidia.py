"""NVIDIA's Xids with their meanings, and the table that decodes the NVLink 5 Xids 144 to 150."""

from __future__ import annotations

import csv
import functools

from holdfast.catalogue.fault_codes import HERE, FaultCode, codes_of
from holdfast.model.noun_base import Noun

NVLINK5 = frozenset(range(144, 151))
RECOVERY_ACTION = 154


class Nvlink5Rule(Noun, frozen=True, kw_only=True):
    """One row of the table that decodes NVLink 5 errors.

    old, new: the mask and the value of `intrinfo`, for drivers before and since r575.
    """

    xid: int
    units: tuple[str, ...]
    #: The rule applies if `intrinfo & mask == value`; the fields are (mask, value).
    old: tuple[int, int]
    new: tuple[int, int]
    error_status: int
    resolution: str


def xid(number: int) -> FaultCode | None:
    """Return the catalogue's entry for an Xid. Return None if NVIDIA's list does not have it."""
    return codes_of("nvidia").get(str(number))


@functools.cache
def nvlink5_rules() -> dict[int, tuple[Nvlink5Rule, ...]]:
    """Return the table that decodes NVLink 5 errors, as Xid → its rules."""
    table: dict[int, list[Nvlink5Rule]] = {}
    with (HERE / "nvidia" / "nvlink5.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            rule = Nvlink5Rule(
                xid=int(row["xid"]),
                units=tuple(row["unit"].split("/")),
                old=_mask(row["pattern_old"]),
                new=_mask(row["pattern_new"]),
                error_status=int(row["error_status"], 16),
                resolution=row["resolution"],
            )
            table.setdefault(rule.xid, []).append(rule)
    return {number: tuple(rules) for number, rules in table.items()}


def nvlink5_code(number: int, unit: str, intrinfo: int, error_status: int, fatal: bool | None) -> str:
    """Return the catalogue's code for one NVLink 5 error: `145.RESET`, `145.IGNORE`, `145.EVAL`, or `145` if undecoded.

    number: the Xid.
    unit, intrinfo, error_status: these fields of the log line.
    fatal: whether the log line calls the error fatal; None if unknown. It decides only if no rule of the table matches.
    """
    rules = nvlink5_rules().get(number, ())
    fitting = [rule for rule in rules if _fits(rule.new, intrinfo) or _fits(rule.old, intrinfo)]
    named = [rule for rule in fitting if unit in rule.units]
    if not any(unit in rule.units for rule in rules):
        named = fitting  # no rule matches the unit: the log line has no unit, or one that is not in the table
    # A status is a set of bits. Prefer rules for exactly this status, then rules whose bits are all set, then rules
    # without a status.
    exact = [rule for rule in named if rule.error_status == error_status]
    by_bits = [rule for rule in named if rule.error_status and rule.error_status & error_status == rule.error_status]
    without = [rule for rule in named if not rule.error_status]
    for chosen in (exact, by_bits, without):
        for resolution, suffix in (("RESET_GPU", "RESET"), ("XID_154_EVAL", "EVAL"), ("IGNORE", "IGNORE")):
            if any(rule.resolution == resolution for rule in chosen):
                return f"{number}.{suffix}"
    if fatal is None:
        return str(number)
    return f"{number}.RESET" if fatal else f"{number}.EVAL"


def _mask(pattern: str) -> tuple[int, int]:
    mask = value = 0
    for bit in pattern.strip():
        mask, value = mask << 1 | (bit != "-"), value << 1 | (bit == "1")
    return mask, value


def _fits(mask: tuple[int, int], word: int) -> bool:
    return word & mask[0] == mask[1]
