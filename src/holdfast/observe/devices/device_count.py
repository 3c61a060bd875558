"""Counts the accelerators that this process can see, without opening any of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def accelerators(env: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count the devices in a `*_VISIBLE_DEVICES` variable, else the driver's device nodes below `root`."""
    for name in VISIBLE:
        if name in env:
            return sum(bool(part.strip()) and part.strip() != "-1" for part in env[name].split(","))
    dev = root / "dev"
    patterns = (r"nvidia\d+", r"davinci\d+")
    try:
        names = [entry.name for entry in dev.iterdir()]
    except OSError:
        return 0
    found = max(sum(bool(re.fullmatch(pattern, name)) for name in names) for pattern in patterns)
    if found:
        return found
    try:
        nodes = list((root / "sys/class/kfd/kfd/topology/nodes").iterdir())
    except OSError:
        return 0
    return sum((_read(node / "gpu_id") or "0") != "0" for node in nodes)


def xpus(env: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count Intel's accelerators: those in ZE_AFFINITY_MASK, else the cards' tiles (or whole cards in
    COMPOSITE mode)."""
    if mask := env.get("ZE_AFFINITY_MASK"):
        return sum(bool(part.strip()) for part in mask.split(","))
    try:
        cards = [entry for entry in (root / "sys/class/drm").iterdir() if re.fullmatch(r"renderD\d+", entry.name)]
    except OSError:
        return 0
    whole = env.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    found = 0
    for card in cards:
        if _read(card / "device/vendor") == "0x8086":
            found += 1 if whole else max(1, sum(1 for _ in (card / "device").glob("tile[0-9]*")))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
