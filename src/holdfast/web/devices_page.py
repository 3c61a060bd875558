"""The page of devices: the standing of each device, its reason and counts, what would end it, and actions of people."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Iterable

from holdfast.errors import HoldfastError
from holdfast.model.faults import FaultEvent, Standing, is_verdict_of_a_check
from holdfast.model.noun_base import Noun
from holdfast.node.devices.fault_commands import list_devices, load_policy
from holdfast.node.devices.fault_log import FaultLog, Release
from holdfast.record.device_standings import RowKind, StandingRow, Standings
from holdfast.record.state_directory import unreadable
from holdfast.untrusted import Malformed, json_as
from holdfast.web.page_parts import Home, Page, PageRequest

#: Maximum number of history entries that the page shows: the last ones.
MOST_PAST = 60
MOST_DEVICES = 2000


class DeviceEntry(Noun, frozen=True, kw_only=True):
    """One device or node."""

    name: str
    node: str
    standing: Standing
    codes: tuple[str, ...] = ()
    since: float | None = None
    reason: str = ""
    #: Lines about faults that a rule counts, such as `79: 2 of 3 within 24 h before HOLD`.
    counted: tuple[str, ...] = ()
    #: The event that would make the device usable again.
    ends: str = ""
    #: The key of the device's state directory; see `Home.key`.
    home: str
    #: Whether the user of this server owns the device's state directory, and so may release the device.
    mine: bool


class DeviceHistoryEntry(Noun, frozen=True, kw_only=True):
    """One entry of a device's history: a reported fault, or a person's action."""

    at: float
    device: str
    what: str
    who: str = ""


class Devices(Noun, frozen=True, kw_only=True):
    """The content of the page of devices."""

    title: str = "Devices"
    devices: tuple[DeviceEntry, ...] = ()
    past: tuple[DeviceHistoryEntry, ...] = ()
    #: Reason → number of fault events that were refused for this reason.
    refused: dict[str, int] = {}
    trouble: tuple[str, ...] = ()


def read(ask: PageRequest) -> Devices:
    """Collect the devices of all state directories, those in the worst state first."""
    found: list[DeviceEntry] = []
    past: list[DeviceHistoryEntry] = []
    refused: dict[str, int] = {}
    trouble = []
    for home in ask.homes:
        if gone := unreadable(home.path):
            trouble.append(gone)
            continue
        try:
            found += devices_of(home, ask.now)
            happened, counts = _past(home)
        except (HoldfastError, OSError) as error:
            trouble.append(str(error))
            continue
        past += happened
        refused |= counts
    order = (Standing.HELD, Standing.ISOLATED, Standing.SUSPECT, Standing.HEALTHY)
    found.sort(key=lambda device: (order.index(device.standing), device.node, device.name))
    past.sort(key=lambda one: -one.at)
    return Devices(
        devices=tuple(found[:MOST_DEVICES]), past=tuple(past[:MOST_PAST]), refused=refused, trouble=tuple(trouble)
    )


PAGE = Page("/devices", "devices.html", read, "Devices")


def devices_of(home: Home, now: float) -> Iterable[DeviceEntry]:
    """Yield each device of this machine, or of the state directory's fault log. Raise `HoldfastError` or OSError."""
    here = socket.gethostname()
    with FaultLog(home.path, load_policy(None, None).policy, now, writable=False, keep=True) as log:
        rows = list_devices(log)
    for row in rows:
        codes = tuple(map(str, row["codes"]))
        if is_verdict_of_a_check(codes):
            continue
        standing = Standing(row["standing"])
        yield DeviceEntry(
            name=row["device"],
            node=row["node"] or here,
            standing=standing,
            codes=codes,
            since=row["since"],
            reason=row["reason"],
            counted=tuple(row["counted"]),
            ends=_ends(standing, codes),
            home=home.key,
            mine=home.mine,
        )


def _ends(standing: Standing, codes: tuple[str, ...]) -> str:
    match standing:
        case Standing.HEALTHY:
            return ""
        case Standing.HELD:
            return "a person releases it, once it is repaired"
        case _:
            named = f" {', '.join(codes)}" if codes else ""
            return f"its fault{named} is over: the source of the fault tells it, or a person reports it"


def _past(home: Home) -> tuple[list[DeviceHistoryEntry], dict[str, int]]:
    store = Standings.for_reading(home.path)
    try:
        rows = deque(store.after(0), maxlen=MOST_PAST)
        refused = store.refused()
    finally:
        store.close()
    found = []
    for row in rows:
        with contextlib.suppress(Malformed):  # skip an entry that another version of holdfast wrote
            found += _happened(row)
    return found, refused


def _happened(row: StandingRow) -> list[DeviceHistoryEntry]:
    match row.kind:
        case RowKind.RELEASE:
            release = json_as(row.body, Release)
            was = f", held for: {release.was}" if release.was else ""
            return [
                DeviceHistoryEntry(
                    at=row.now, device=release.device, what=f"released: {release.reason}{was}", who=release.who
                )
            ]
        case RowKind.EVENT:
            event = json_as(row.body, FaultEvent)
            text = f": {event.text}" if event.text else ""
            source = f" ({event.source})" if event.source else ""
            what = f"{event.code} {event.assertion.value}{source}{text}"
            return [DeviceHistoryEntry(at=row.now, device=event.device, what=what)]
        case _:
            return []
