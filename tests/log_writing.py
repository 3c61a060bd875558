"""Logs of workers with the time of each line, as a run writes them."""

from __future__ import annotations

from pathlib import Path

from holdfast.observe.log_file import LogFile, Rotation

Wrote = list[tuple[float, bytes]]


def write_log(path: Path, wrote: Wrote, rotation: Rotation | None = None) -> LogFile:
    log = LogFile(path, "w", lambda text, about: None, shown=False, now=0.0, rotation=rotation)
    for at, block in wrote:
        log.write(block, at)
    log.close()
    return log
