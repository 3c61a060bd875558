"""What the next owner's pod needs of the one before: a header and the job's events, in the ConfigMap NAME-state. Pure.

The header says whose the state is, so that a second owner is told apart; the events are the journal's, compressed as
they come. Both are written together, against the version that was read (compare and swap): who comes second loses.
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
#: The keys in the ConfigMap: the first is text, the second bytes.
HEADER, EVENTS = "state.json", "events"
#: Of compressed events. A ConfigMap holds 1 MiB; on its way to etcd each byte here takes one and a third.
MOST_BYTES = 700 << 10
MOST_EXPANDED = 256 << 20


class Header(Noun, frozen=True, kw_only=True):
    """Whose state it is, and what can be told without the events."""

    format: int = FORMAT
    #: The uid of the Kubernetes job: a job of the same name that was deleted is another one.
    of: str
    #: The owner that writes: its pod's uid, and a number of its own.
    owner: str
    pod: str = ""
    job_id: str
    name: str
    #: Seconds since the epoch.
    created: float = 0.0
    events: int = 0
    attempt: int = 0
    #: The job's final code; None: it is not over.
    code: int | None = None
    phrase: str = ""
    #: There were more events than the ConfigMap holds: the last ones are missing.
    cut: bool = False


class Events:
    """The job's events, compressed one after the other."""

    def __init__(self) -> None:
        self._squeeze = zlib.compressobj(6)
        self._data = bytearray()
        self.count = 0
        self.cut = False

    def add(self, now: float, event: Event) -> None:
        """`now`: its moment. What has no room any more is left out, and all that follows with it."""
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
    """What is sent. `version`: of the ConfigMap as it was read; another one there is a conflict."""
    return {
        "metadata": {"resourceVersion": version},
        "data": {HEADER: msgspec.json.format(msgspec.json.encode(header), indent=1).decode() + "\n"},
        "binaryData": {EVENTS: base64.b64encode(events.data).decode()},
    }


def version_of(config: Any) -> str:
    """Of a ConfigMap as the API server sends it."""
    meta = config.get("metadata") if isinstance(config, dict) else None
    return str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""


def header_of(config: Any) -> Header | None:
    """The header in a ConfigMap; None: it has none, or one of another version of holdfast."""
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
    """The events in a ConfigMap, each with its moment. Ends where one cannot be read: a beginning is a history too."""
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
        except ValueError:  # Malformed too
            return
