"""Finds this machine's accelerators by name, without opening any of them."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.lazy_pattern import Lazy

_NODES = {"nvidia": "gpu", "davinci": "npu"}
_FUNCTION = Lazy(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MINOR = Lazy(r"Device Minor:\s*(\d+)")


def local_devices(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the names of devices (`gpu0`, `npu3`), from the drivers' device nodes, sorted."""
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
    """Return PCI address (`0000:3b:00`) → device (`gpu3`), by the NVIDIA driver's minor numbers; empty without the
    driver."""
    found: dict[str, str] = {}
    try:
        folders = list((root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return found
    for folder in folders:
        try:
            minor = _MINOR.search((folder / "information").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # the device was unplugged meanwhile
        if minor is not None:
            found[pci_address(folder.name)] = f"gpu{minor[1]}"
    return found


def behind(function: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the PCI functions (`0000:3b:00.0`) behind a bridge, the bridge first, as far as the kernel shows them."""
    found = [function]
    try:
        top = (root / "sys/bus/pci/devices" / function).resolve(strict=True)
        for _, folders, _ in os.walk(top):
            folders[:] = sorted(name for name in folders if _FUNCTION.fullmatch(name))
            found += folders
    except OSError:
        pass  # the bridge is gone, or the machine does not show it
    return tuple(found)


def interfaces_of(function: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the network interfaces of a PCI function (`ens1f0`), else its InfiniBand devices (`mlx5_0`)."""
    for kind in ("net", "infiniband"):
        try:
            return tuple(sorted(each.name for each in (root / "sys/bus/pci/devices" / function / kind).iterdir()))
        except OSError:
            continue
    return ()


def pci_address(text: str) -> str:
    """Normalize a PCI address: domain:bus:device in lower case, four digits of domain, without the function."""
    address = text.strip().lower().partition(".")[0]
    parts = address.split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    domain, bus, device = parts[-3:]
    return f"{domain.lstrip('0').rjust(4, '0')}:{bus[-2:].rjust(2, '0')}:{device.rjust(2, '0')}"
