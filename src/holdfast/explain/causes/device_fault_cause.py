"""Maps the fault code of a device or node to a failure class of the catalogue, and decides whether a fault explains an
exit."""

from __future__ import annotations

import re

from holdfast.catalogue.fault_codes import canonical, describe
from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import Rerun
from holdfast.model.faults import ActiveFault, Remedy
from holdfast.model.phrases import Phrase

_XIDS: dict[str, frozenset[int]] = {
    Phrase.ACCELERATOR_LOST: frozenset({79, 109_079}),
    Phrase.ACCELERATOR_MEMORY_ERROR: frozenset({48, 63, 64, 92, 94, 95, 140, 160, 161, 171, 172}),
    Phrase.INTERCONNECT_FAULT: frozenset({74, *range(144, 151), 155, 156}),
    Phrase.ACCELERATOR_APPLICATION_FAULT: frozenset({13, 31, 32, 43, 45, 68, 69}),
}
_WORDS = (
    (
        Phrase.ACCELERATOR_MEMORY_ERROR,
        Lazy(r"(?i)\bECC\b|\bHBM\b|multi[- ]?bit|uncorrect|page retire|row remap|memory error|DDR"),
    ),
    (
        Phrase.INTERCONNECT_FAULT,
        Lazy(r"(?i)nv-?link|nv-?switch|\bHCCS\b|\bUB\b|lingqu|switch chip|fabric|\bSIO\b|\bHCC[SL]\b"),
    ),
    (
        Phrase.NIC_FAULT,
        Lazy(r"(?i)\bRoCE\b|\bHCA\b|\bNIC\b|link ?down|network (?:port|interface|adapter)|optical|infiniband|\bmlx\d"),
    ),
    (Phrase.ACCELERATOR_LOST, Lazy(r"(?i)fell off|fallen off|\blost\b|card drop|off the bus|not present|PCIe link")),
)
_NODE = {
    "NODE-DISK-READONLY": Phrase.READ_ONLY_FILESYSTEM,
    "NODE-DISK-IO": Phrase.STORAGE_IO_ERROR,
    "NODE-NIC-DOWN": Phrase.NIC_FAULT,
    "NODE-NIC-PCIE": Phrase.NIC_FAULT,
    "PCIE-FATAL": Phrase.ACCELERATOR_LOST,
    "PCIE-NONFATAL": Phrase.ACCELERATOR_FAULT,
    "NODE-MEMORY-KILL": Phrase.HOST_OUT_OF_MEMORY_KILLED,
}
#: Seconds after its end for which a fault may explain an exit. An active fault may always explain it.
BEFORE_S = 600.0


def phrase_of(fault: ActiveFault) -> str:
    """Return the failure class (phrase) of the catalogue for a device fault's code."""
    code = fault.event.code.strip().upper()
    if code in _NODE:
        return _NODE[code]
    if code.startswith("NODE"):
        return Phrase.NODE_FAILED
    if match := re.fullmatch(r"(?:XID[ :_-]*)?(\d{1,3})(?:\.\w+)?", code):
        number = int(match[1])
        return next((phrase for phrase, numbers in _XIDS.items() if number in numbers), Phrase.ACCELERATOR_FAULT)
    if code == "81078603":
        return Phrase.NIC_FAULT
    text = f"{describe(canonical(fault.event.code))} {fault.event.text}"
    return next((phrase for phrase, words in _WORDS if words.search(text)), Phrase.ACCELERATOR_FAULT)


def explaining(faults: tuple[ActiveFault, ...], died_at: float | None, ranks: frozenset[int]) -> ActiveFault | None:
    """Return the device fault that explains the exits: the most severe fault, and among equally severe faults one for
    which work was stopped.

    A fault explains the exits if work was stopped for it. It also explains them if its remedy requires a stop, it began
    before the first exit (or up to 5 s later, since the kernel log is read with a delay), and it had not ended more
    than `BEFORE_S` seconds before.

    died_at: time of the first exit, in seconds; None: unknown.
    ranks: the ranks that exited by themselves; a fault of a device that none of them used is no cause.
    """

    def counts(fault: ActiveFault) -> bool:
        if fault.stopped:
            return True
        if fault.remedy < Remedy.RESTART_WORKERS or phrase_of(fault) == Phrase.ACCELERATOR_APPLICATION_FAULT:
            return False
        if ranks and fault.ranks and not ranks & set(fault.ranks):
            return False
        if died_at is None:
            return True
        if fault.event.at > died_at + 5.0:
            return False
        over = fault.ended_at if fault.ended_at is not None else None
        if fault.event.assertion == "once":
            over = fault.event.at
        return over is None or died_at - over <= BEFORE_S

    found = [fault for fault in faults if counts(fault)]
    return min(found, key=lambda fault: (-fault.remedy, not fault.stopped, fault.event.at), default=None)


def rerun_of(fault: ActiveFault) -> Rerun | None:
    """Return how the job can be run again after this fault; None: the catalogue row decides.

    If a restart or a reset repairs the fault, the job can continue with the same device, unless the policy avoids the
    device.
    """
    if fault.avoid or fault.remedy >= Remedy.ISOLATE:
        return Rerun.ELSEWHERE
    return Rerun.NOW if Remedy.RETRY_REQUEST <= fault.remedy <= Remedy.RESET_NOW else None
