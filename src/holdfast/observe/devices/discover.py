"""Which accelerators this machine has, by name, told without touching any of them."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.lazy import Lazy

_NODES = {"nvidia": "gpu", "davinci": "npu"}
_MINOR = Lazy(r"Device Minor:\s*(\d+)")


def local_devices(root: Path = Path("/")) -> tuple[str, ...]:
    """`gpu0`, `npu3` …, from the drivers' device nodes, in order."""
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
    """PCI address (`0000:3b:00`) → `gpu3`, as the NVIDIA driver numbers them; empty without the driver."""
    found: dict[str, str] = {}
    try:
        folders = list((root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return found
    for folder in folders:
        try:
            minor = _MINOR.search((folder / "information").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # unplugged meanwhile
        if minor is not None:
            found[pci_address(folder.name)] = f"gpu{minor[1]}"
    return found


def pci_address(text: str) -> str:
    """One spelling of a PCI address: domain:bus:device in lower case, four digits of domain, without the function."""
    address = text.strip().lower().partition(".")[0]
    parts = address.split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    domain, bus, device = parts[-3:]
    return f"{domain[-4:].rjust(4, '0')}:{bus[-2:].rjust(2, '0')}:{device.rjust(2, '0')}"
