"""Faults of devices and nodes: reported events, remedies, and the states of devices."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import At, Noun


class Remedy(enum.IntEnum):
    """The remedies (actions) for a fault, the mildest first; code compares them with `<`.

    The journal stores their names.
    """

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
    """Whether a device may be used. HEALTHY: yes. SUSPECT: not for new work. ISOLATED: not until the fault ends. HELD:
    not until a person releases it.
    """

    HEALTHY = "HEALTHY"
    SUSPECT = "SUSPECT"
    ISOLATED = "ISOLATED"
    HELD = "HELD"


class Assertion(enum.StrEnum):
    """The statement of a fault event: the fault began, it ended, or it was momentary."""

    OCCUR = "occur"
    RECOVER = "recover"
    ONCE = "once"


class Severity(enum.StrEnum):
    """The severity that the source of a fault event reported.

    It decides the remedy only if no code list names the fault's code.
    """

    INFO = "info"
    MINOR = "minor"
    MAJOR = "major"
    CRITICAL = "critical"


class FaultEvent(Noun, frozen=True, kw_only=True):
    """A fault of a device or node, with a code. The event says whether the fault began, ended, or was momentary.

    `at`: when that happened, by its source's clock, in seconds since the epoch. `device`: `npu0`, `gpu3`, or the node's
    name for a fault of the node.
    """

    device: str
    code: str
    assertion: Assertion
    at: At
    node: str = ""
    severity: Severity = Severity.MAJOR
    #: The log line or message that reports the fault.
    text: str = ""
    #: The origin of the event: kernel log, nvml, ascend, socket, command line …
    source: str = ""
    #: The process id in the source's message, as in Xid lines; None: there is none.
    pid: int | None = None


class ActiveFault(Noun, frozen=True, kw_only=True):
    """A fault that overlaps an attempt, with its remedy."""

    event: FaultEvent
    remedy: Remedy
    ended_at: At | None = None
    #: The ranks that used the faulty device. Empty: unknown, so every rank of the node counts as affected.
    ranks: tuple[int, ...] = ()
    #: Whether the attempt was stopped because of this fault. The fault is then the cause of the attempt's end, however
    #: mild it is.
    stopped: bool = False
    #: Whether the job goes on without the faulty device; False: the remedy decides that.
    avoid: bool = False


class DeviceStanding(Noun, frozen=True, kw_only=True):
    """The present state of one device with its reason: one entry of `holdfast devices --json`."""

    device: str
    node: str
    standing: Standing = Standing.HEALTHY
    codes: tuple[str, ...] = ()
    since: At | None = None
    reason: str = ""


def is_verdict_of_a_check(codes: tuple[str, ...]) -> bool:
    """Return whether all these codes come from pre-checks, such as `CHECK-DISK`.

    Release 0.1.0 stored such codes and so excluded the device from every later job. A check's result is only valid for
    one job, because the next job checks again.
    """
    return bool(codes) and all(code.upper().startswith("CHECK-") for code in codes)
