"""Faults of devices and nodes: what was reported, how grave it is, and the device's state."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import At, Noun


class Remedy(enum.IntEnum):
    """What a fault asks for. The order is exact and is compared with `<`; names are what the journal stores."""

    NONE = 0
    WATCH = 1
    RETRY_REQUEST = 2
    RESTART_WORKERS = 3
    RESET_WHEN_IDLE = 4
    RESET_NOW = 5
    AVOID = 6
    ISOLATE = 7
    HOLD = 8


class Standing(enum.StrEnum):
    """HEALTHY; SUSPECT: no new work; ISOLATED: until the fault clears; HELD: until a person releases it."""

    HEALTHY = "HEALTHY"
    SUSPECT = "SUSPECT"
    ISOLATED = "ISOLATED"
    HELD = "HELD"


class Assertion(enum.StrEnum):
    """What a fault event reports about its code: it began, it ended, or it happened in one moment."""

    OCCUR = "occur"
    RECOVER = "recover"
    ONCE = "once"


class Severity(enum.StrEnum):
    """The source's own severity; it decides only for codes that no list names."""

    INFO = "info"
    MINOR = "minor"
    MAJOR = "major"
    CRITICAL = "critical"


class FaultEvent(Noun, frozen=True, kw_only=True):
    """A coded condition of a device or node, raised, cleared or momentary.

    `at` is when it happened at its source, in seconds since the epoch. `device` is `npu0`, `gpu3`, or the node's own
    name for a fault of the node.
    """

    device: str
    code: str
    assertion: Assertion
    at: At
    node: str = ""
    severity: Severity = Severity.MAJOR
    #: The line or message with the fault.
    text: str = ""
    #: kernel log, nvml, ascend, socket, command line …
    source: str = ""
    #: The process that the source names, where it names one (as an Xid line does).
    pid: int | None = None


class ActiveFault(Noun, frozen=True, kw_only=True):
    """A fault that overlaps an attempt, with its remedy."""

    event: FaultEvent
    remedy: Remedy
    ended_at: At | None = None
    #: The ranks that used the device; empty where unknown, and then the node's ranks count.
    ranks: tuple[int, ...] = ()
    #: The attempt was stopped for it: it is the cause, however mild it is.
    stopped: bool = False
    #: The job continues without the device; False: as the remedy decides.
    avoid: bool = False


class DeviceStanding(Noun, frozen=True, kw_only=True):
    """The present state of one device, and its reason: one entry of `holdfast devices --json`."""

    device: str
    node: str
    standing: Standing = Standing.HEALTHY
    codes: tuple[str, ...] = ()
    since: At | None = None
    reason: str = ""


def is_verdict_of_a_check(codes: tuple[str, ...]) -> bool:
    """Whether these codes come only from pre-checks, as release 0.1.0 kept them (`CHECK-DISK`).

    Such a code excluded the device from every later job. A check's result holds for the job that asked for it; the next
    job checks again.
    """
    return bool(codes) and all(code.upper().startswith("CHECK-") for code in codes)
