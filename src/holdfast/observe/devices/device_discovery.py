"""Finds and counts this machine's accelerators, without opening any of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.lazy_pattern import Lazy
from holdfast.safe_files import small_text

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_NODES = {"nvidia": "gpu", "davinci": "npu"}
_FUNCTION = Lazy(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MINOR = Lazy(r"Device Minor:\s*(\d+)")


def local_devices(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the names of devices (`gpu0`, `npu3`) from the drivers' device nodes, sorted. `root`: the directory with
    /dev.
    """
    try:
        names = [entry.name for entry in (root / "dev").iterdir()]
    except OSError:
        return ()
    found = [
        (prefix, int(number))
        for name in names
        for node, prefix in _NODES.items()
        if (number := name.removeprefix(node)) != name and number.isascii() and number.isdigit()
    ]
    return tuple(f"{prefix}{number}" for prefix, number in sorted(found))


def gpu_addresses(root: Path = Path("/")) -> dict[str, str]:
    """Return PCI address (`0000:3b:00`) → device (`gpu3`) by the NVIDIA driver's minor numbers; empty without the
    driver. `root`: the directory with /proc.
    """
    found: dict[str, str] = {}
    try:
        folders = list((root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return found
    for folder in folders:
        try:
            minor = _MINOR.search((folder / "information").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # skip a device that was unplugged meanwhile
        if minor is not None:
            found[pci_address(folder.name)] = f"gpu{minor[1]}"
    return found


def behind(function: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the PCI functions (`0000:3b:00.0`) behind a bridge that the kernel shows, the bridge first."""
    found = [function]
    try:
        top = (root / "sys/bus/pci/devices" / function).resolve(strict=True)
        for _, folders, _ in os.walk(top):
            folders[:] = sorted(name for name in folders if _FUNCTION.fullmatch(name))
            found += folders
    except OSError:
        pass  # ignore a bridge that was removed, or that the machine does not show
    return tuple(found)


def interfaces_of(function: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the network interfaces of a PCI function (`ens1f0`), or its InfiniBand devices (`mlx5_0`) without any."""
    for kind in ("net", "infiniband"):
        try:
            return tuple(sorted(each.name for each in (root / "sys/bus/pci/devices" / function / kind).iterdir()))
        except OSError:
            continue
    return ()


def pci_address(text: str) -> str:
    """Normalise a PCI address: domain:bus:device in lower case, with four digits of domain and without the function."""
    address = text.strip().lower().partition(".")[0]
    parts = address.split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    domain, bus, device = parts[-3:]
    return f"{domain.lstrip('0').rjust(4, '0')}:{bus[-2:].rjust(2, '0')}:{device.rjust(2, '0')}"


def accelerators(env: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count the devices in a `*_VISIBLE_DEVICES` variable, or else the driver's device nodes below `root`."""
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
    return sum((small_text(node / "gpu_id") or "0") != "0" for node in nodes)


def xpus(env: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count Intel's accelerators: those in ZE_AFFINITY_MASK, or else the cards' tiles (in COMPOSITE mode the whole
    cards).
    """
    if mask := env.get("ZE_AFFINITY_MASK"):
        return sum(bool(part.strip()) for part in mask.split(","))
    try:
        cards = [entry for entry in (root / "sys/class/drm").iterdir() if re.fullmatch(r"renderD\d+", entry.name)]
    except OSError:
        return 0
    whole = env.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    found = 0
    for card in cards:
        if small_text(card / "device/vendor") == "0x8086":
            found += 1 if whole else max(1, sum(1 for _ in (card / "device").glob("tile[0-9]*")))
    return found
