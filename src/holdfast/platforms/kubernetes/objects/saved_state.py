"""The state that an owner's pod leaves for its successor in the ConfigMap NAME-state: a header and the job's events.

The header names the owner that writes the state, so that a second owner is detected. The events come from the journal
and are compressed. Header and events are written together, with compare-and-swap on the resource version: if two owners
write, the later write fails.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.model.codec import decode_event, encode
from holdfast.model.events import Event
from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

FORMAT = 1
#: Keys in the ConfigMap. The header is text, and the events are bytes.
HEADER, EVENTS = "state.json", "events"
#: Maximum size of the compressed events, in bytes. A ConfigMap holds 1 MiB, and Base64 makes the bytes a third longer.
MOST_BYTES = 700 << 10
MOST_EXPANDED = 256 << 20


class Header(Noun, frozen=True, kw_only=True):
    """The header of the saved state: the owner that wrote the state, and facts that can be read without the events."""

    format: int = FORMAT
    #: Uid of the Kubernetes Job. After a deletion, a new Job of the same name has another uid.
    of: str
    #: The owner that writes: the uid of its pod, and a random token.
    owner: str
    pod: str = ""
    job_id: str
    name: str
    #: Creation time of the job, in seconds since the epoch.
    created: float = 0.0
    events: int = 0
    attempt: int = 0
    #: The job's final code; None if the job has not ended.
    code: int | None = None
    phrase: str = ""
    #: Whether the last events are missing, because they did not fit into the ConfigMap.
    cut: bool = False
    #: Why a pod cannot be created, as a clause with the pod's name; empty: all pods were created.
    waits: str = ""


class Events:
    """A compressed stream of the job's events. New events are appended one by one."""

    def __init__(self) -> None:
        self._squeeze = zlib.compressobj(6)
        self._data = bytearray()
        self.count = 0
        self.cut = False

    def add(self, now: float, event: Event) -> None:
        """Append an event with its time `now`. If the event does not fit, omit it and all later events."""
        if self.cut:
            return
        line = b"%r " % now + encode(event) + b"\n"
        more = self._squeeze.compress(line) + self._squeeze.flush(zlib.Z_SYNC_FLUSH)
        if len(self._data) + len(more) > MOST_BYTES:
            self.cut = True
            return
        self._data += more
        self.count += 1

    @property
    def data(self) -> bytes:
        return bytes(self._data)


def patch(header: Header, events: Events, version: str) -> dict[str, Any]:
    """Return the patch that saves the state.

    `version`: the ConfigMap's resource version when it was read. The server rejects the patch if the version has
        changed.
    """
    return {
        "metadata": {"resourceVersion": version},
        "data": {HEADER: msgspec.json.format(msgspec.json.encode(header), indent=1).decode() + "\n"},
        "binaryData": {EVENTS: base64.b64encode(events.data).decode()},
    }


def version_of(config: Any) -> str:
    """Return a ConfigMap's resource version."""
    meta = config.get("metadata") if isinstance(config, dict) else None
    return str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""


def header_of(config: Any) -> Header | None:
    """Parse the header in a ConfigMap. Return None if it is missing or has another format."""
    data = config.get("data") if isinstance(config, dict) else None
    text = data.get(HEADER) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return None
    try:
        found = json_as(text, Header)
    except Malformed:
        return None
    return found if found.format == FORMAT else None


def events_of(config: Any) -> Iterator[tuple[float, Event]]:
    """Yield the events in a ConfigMap with their times.

    Stops at the first event that cannot be read, because the events before it are still useful.
    """
    data = config.get("binaryData") if isinstance(config, dict) else None
    text = data.get(EVENTS) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return
    try:
        whole = zlib.decompressobj().decompress(base64.b64decode(text), MOST_EXPANDED)
    except (ValueError, zlib.error):
        return
    for line in whole.split(b"\n")[:-1]:
        moment, _, event = line.partition(b" ")
        try:
            yield float(moment), decode_event(event)
        except ValueError:  # this also catches Malformed, a subclass of ValueError
            return
