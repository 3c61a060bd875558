"""Reads dumps of PyTorch's flight recorder. When a collective times out, torch's watchdog writes such a dump with the
rank's last collectives.

torch writes a pickle of plain containers (lists, dictionaries) to a file with the path PREFIX plus the rank's number;
its debug server returns the same data as JSON. PREFIX is the value of `TORCH_FR_DUMP_TEMP_FILE`, formerly
`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`. Ascend's torch_npu and torchcomms write the same entries to files of other names.
torch before 2.3 wrote only the entries, with `seq_id`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.model.flight_records import CollectiveRecord, FlightDump, GroupFlight
from holdfast.observe.plain_pickle import MOST_BYTES, plain_pickle
from holdfast.safe_files import read_file
from holdfast.untrusted import Malformed, json_value

#: For each library with dumps: the variables that set PREFIX, the newest first, and the default prefixes.
NAMES = {
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"): (
        "{cache}/torch/comm_lib_trace_rank_",
        "/tmp/nccl_trace_rank_",
    ),
    ("TORCH_HCCL_DEBUG_INFO_TEMP_FILE",): ("/tmp/hccl_trace_rank_",),
    ("TORCHCOMM_FR_DUMP_TEMP_FILE",): ("{cache}/torchcomm_fr_trace_",),
}
MOST_GROUPS = 32
MOST_RANKS = 16_384
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen ")


def prefixes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the possible paths of the workers' dumps, without the rank's number, from the variables or else the
    defaults.
    """
    cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or '/tmp'}/.cache"
    found: list[str] = []
    for names, defaults in NAMES.items():
        given = next((environment[name] for name in names if environment.get(name)), "")
        found += [given] if given else [default.format(cache=cache) for default in defaults]
    return tuple(found)


def read_flights(
    environment: Mapping[str, str], cwd: Path, ranks: Sequence[int], since: float
) -> tuple[FlightDump, ...]:
    """Return these ranks' dumps from `since` (seconds since the epoch) on, without unreadable ones."""
    found = []
    for rank in ranks:
        for prefix in prefixes(environment):
            path = cwd / f"{prefix}{rank}"
            try:
                if path.stat().st_mtime >= since:
                    found.append(flight(read_file(path, MOST_BYTES), rank, str(path)))
                    break
            except (OSError, Malformed):
                continue
    return tuple(found)


def flight(data: bytes, rank: int, source: str = "") -> FlightDump:
    """Parse one dump. Raises `Malformed`. `source`: the dump's file name."""
    told = json_value(data, most_bytes=MOST_BYTES) if data[:1] in (b"{", b"[") else plain_pickle(data)
    if isinstance(told, list):
        told = {"entries": told}
    if not isinstance(told, dict) or not isinstance(told.get("entries"), list):
        raise Malformed("no dump of the flight recorder: it has no entries")
    entries: dict[str, list[dict[str, Any]]] = {}
    for entry in told["entries"]:
        if isinstance(entry, dict) and not entry.get("is_p2p"):
            entries.setdefault(_group(entry), []).append(entry)
    known = _members(told.get("pg_config"))
    groups = [_flown(name, of_group, known) for name, of_group in list(entries.items())[:MOST_GROUPS]]
    return FlightDump(rank=rank, groups=tuple(groups), source=source)


def _flown(name: str, entries: Sequence[dict[str, Any]], known: Mapping[str, tuple[int, ...]]) -> GroupFlight:
    numbered = sorted(entries, key=_number)
    waits = next((entry for entry in numbered if not _done(entry)), None)
    process_group = entries[0].get("process_group")
    short = str(process_group[0]) if isinstance(process_group, list | tuple) and process_group else name
    ranks = known.get(short) or known.get(name) or (known.get("") if len(known) == 1 else None) or ()
    return GroupFlight(
        group=name[:80], ranks=ranks, last=_one(numbered[-1]), waits=_one(waits) if waits is not None else None
    )


def _one(entry: dict[str, Any]) -> CollectiveRecord:
    sizes, kinds = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
    said = f"{sizes} {', '.join(str(kind) for kind in kinds[:4])}" if sizes and isinstance(kinds, list | tuple) else ""
    return CollectiveRecord(
        number=_number(entry),
        name=str(entry.get("profiling_name") or "a collective")[:80],
        sizes=said[:120],
        place=_place(entry.get("frames")),
        state=str(entry.get("state") or "")[:16],
        done=_done(entry),
    )


def _done(entry: dict[str, Any]) -> bool:
    # gloo leaves the state at `scheduled` but sets `retired`, so read both.
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _number(entry: dict[str, Any]) -> int:
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    return number if isinstance(number, int) else 0


def _group(entry: dict[str, Any]) -> str:
    told = entry.get("process_group")
    if isinstance(told, list | tuple) and len(told) == 2:
        name, description = str(told[0]), str(told[1])
        return description if description and description != "undefined" else name
    return str(told if told is not None else entry.get("pg_name", entry.get("pg_id", "")))


def _members(told: Any) -> dict[str, tuple[int, ...]]:
    """Return group name → its ranks. `told`: group name → a list of ranks, a text with them, or an object with the key
    `ranks`.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, group in list(told.items())[:MOST_GROUPS] if isinstance(told, dict) else ():
        ranks = group.get("ranks", ()) if isinstance(group, dict) else group
        numbers = re.findall(r"\d{1,7}", str(ranks)[: MOST_RANKS * 8])
        found[str(name)] = tuple(int(number) for number in numbers[:MOST_RANKS])
    return found


def _place(frames: Any) -> str:
    """Return file and line of the innermost frame of the user's code, or "" if there is none."""
    for frame in frames if isinstance(frames, list | tuple) else ():
        if isinstance(frame, dict) and (file := str(frame.get("filename") or "")) and not _LIBRARY.search(file):
            return f"{file.rpartition('/')[2][:80]}:{frame.get('line', 0)}"
    return ""
