"""Stores which import of a script makes forks unsafe (a *lesson*). The script's next prewarmed process leaves that
import out.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from holdfast.act.warm.warm_command import Blueprint
from holdfast.untrusted import Malformed, convert, json_as

#: Unsafe imports are stored for at most this many scripts.
MOST = 64
_MOST_BYTES = 1 << 18


class Lesson(msgspec.Struct, frozen=True):
    """An import of a script that the workers must do themselves, because forks are unsafe after it."""

    #: The index of this import, from 0, among the script's top-level statements that a prewarmed process may run.
    step: int
    name: str
    why: str
    #: The package's file, with its modification time in ns, size and inode. If the package has changed, the lesson is
    #: ignored, because the import may be safe now.
    stamp: tuple[str, int, int, int] | None = None
    #: The modules of torch that the import loads.
    modules: tuple[str, ...] = ()


class Lessons:
    """Stores unsafe imports in files below `place`: one file for each command, directory and script content.

    An unreadable file counts as missing. If a file cannot be written, the lesson is lost.
    """

    def __init__(self, place: Path | None) -> None:
        self._place = place

    def of(self, plan: Blueprint, cwd: Path) -> Lesson | None:
        """Return the stored unsafe import of a script in its present version, or None if there is none."""
        if self._place is None:
            return None
        try:
            with self._file(self._place, plan, cwd).open("rb") as file:
                return json_as(file.read(_MOST_BYTES), Lesson)
        except (OSError, Malformed):
            return None

    def learn(self, plan: Blueprint, cwd: Path, told: object) -> None:
        """Store the unsafe import that a prewarmed process has reported. `told`: the reported step and package, not
        validated yet.
        """
        if self._place is None or told is None:
            return
        try:
            lesson = convert(told, Lesson)
            file = self._file(self._place, plan, cwd)
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = file.with_name(f".{file.name}.{os.getpid()}")
            fresh.touch(0o600)
            fresh.write_bytes(msgspec.json.encode(lesson))
            fresh.replace(file)
            kept = sorted(self._place.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for old in kept[MOST:]:
                old.unlink()
        except (OSError, Malformed):
            pass  # the lesson is lost; the script's next prewarmed process finds it again

    def _file(self, place: Path, plan: Blueprint, cwd: Path) -> Path:
        """Return the path of the file for a script's unsafe import. It depends on the command, the directory and the
        script's content.
        """
        who = [*plan.command, str(plan.script), str(cwd)]
        content = Path(plan.script).read_bytes() if plan.script and Path(plan.script).is_file() else b""
        named, held = zlib.crc32("\0".join(who).encode(errors="replace")), zlib.crc32(content)
        return place / f"{named:08x}{held:08x}{len(content):x}.json"
