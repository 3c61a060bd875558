"""Kernel lines in the shapes that log daemons, drivers of many ages and machines of many kinds give them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernel_lines import GPU_NAMES, faults_of

from builders import T
from holdfast.observe.devices.fault_sources import KernelFaults
from holdfast.observe.devices.kernel_faults import faults_in, interface_in

XID_LINE = "NVRM: Xid (PCI:0000:3b:00): "
XID_154 = XID_LINE + "154, GPU recovery action changed from 0x0 (None) to "


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[    4.812345] ",
        "[Tue Mar  5 10:11:12 2024] ",
        "<4>[  12.345678] ",
        "kern  :warn  : [12.3] ",
        "6,1234,567890123,-;",
        "Mar  5 10:11:12 node7 kernel: [12345.678901] ",
        "2024-03-05T10:11:12.123456+01:00 node7 kernel: ",
        "2024-03-05 10:11:12,5+0000 node7 kernel: ",
    ],
)
def test_any_prefix(prefix: str) -> None:
    (event,) = faults_in(prefix + XID_LINE + "48, pid=77, name=python3, DBE (double bit error)", T, names=GPU_NAMES)
    assert (event.device, event.code, event.pid) == ("gpu3", "48", 77)


@pytest.mark.parametrize(
    ("address", "device"),
    [
        ("PCI:0000:3b:00", "gpu3"),
        ("PCI:0000:3B:00.0", "gpu3"),
        ("PCI:00000000:3b:00", "gpu3"),
        ("PCI:3b:00", "gpu3"),
        ("0000:3b:00", "gpu3"),
        ("003b:00", "gpu3"),
        ("PCI:00000008:3b:00", "gpu@0008:3b:00"),
        ("PCI:0019:01:00", "gpu@0019:01:00"),
    ],
)
def test_any_address(address: str, device: str) -> None:
    assert faults_of(f"NVRM: Xid ({address}): 79, GPU has fallen off the bus.") == [(device, "79", "occur")]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:3b:00.0 has fallen off the bus.",
        "NVRM: GPU at PCI:0000:3b:00 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1e07) installed in this system has fallen off the bus and",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in\\x0aNVRM: fallen off the bus and",
    ],
)
def test_a_gpu_that_is_gone_is_xid_79_without_its_number(line: str) -> None:
    assert faults_of(line) == [("gpu3", "79", "occur")]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("0x1 (GPU Reset Required)", "154.RESET"),
        ("0x1 (PF FLR)", "154.RESET"),
        ("0x2 (Node Reboot Required).", "154.REBOOT"),
        ("0x4 (Drain and Reset)\\x0a", "154.DRAIN_RESET"),
        ("0x3", "154.DRAIN_P2P"),
        ("GPU Reset Required", "154.RESET"),
        ("0x2(Node Reboot Required)", "154.REBOOT"),
    ],
)
def test_advice_of_xid_154(words: str, code: str) -> None:
    assert faults_of(XID_154 + words) == [("gpu3", code, "occur")]


def test_new_advice_replaces_the_old() -> None:
    changed = XID_LINE + "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x1 (GPU Reset Required)"
    assert faults_of(changed) == [("gpu3", "154.REBOOT", "recover"), ("gpu3", "154.RESET", "occur")]
    same = XID_LINE + "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x1 (PF FLR)"
    assert faults_of(same) == [("gpu3", "154.RESET", "occur")]


def test_advice_that_nobody_knows_is_only_noted() -> None:
    assert faults_of(XID_154 + "0x9") == [("gpu3", "154", "once")]
    assert faults_of(XID_154 + "0xffffffffffffffffffff (?)") == [("gpu3", "154", "once")]
    assert faults_of(XID_154) == [("gpu3", "154", "once")]
    strange = XID_LINE + "154, GPU recovery action changed from 0x1zz) to 0x2 (OS Reboot)"
    assert faults_of(strange) == [("gpu3", "154.REBOOT", "occur")]


def test_an_entry_of_the_journal_as_json_tells_its_own_time() -> None:
    entry = {"__REALTIME_TIMESTAMP": "1600000000500000", "MESSAGE": XID_154 + "0x2 (OS Reboot)", "PRIORITY": "4"}
    (event,) = faults_in(json.dumps(entry), T, names=GPU_NAMES)
    assert (event.code, event.at, event.text) == ("154.REBOOT", 1_600_000_000.5, entry["MESSAGE"])

    numbers = {"MESSAGE": list((XID_LINE + "79, x").encode())}
    assert faults_of(json.dumps(numbers)) == [("gpu3", "79", "occur")]


@pytest.mark.parametrize(
    "line",
    [
        '{"MESSAGE": null, "x": "NVRM: Xid (PCI:0000:3b:00): 79, x"}',
        '{"MESSAGE": [1, 300], "x": "NVRM: Xid (PCI:0000:3b:00): 79, x"}',
        '{"MESSAGE": "cut off, NVRM: Xid (PCI:0000:3b:00): 79, x',
        '{"__REALTIME_TIMESTAMP": "never", "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, x"}',
    ],
)
def test_what_only_looks_like_an_entry_is_read_as_it_is(line: str) -> None:
    assert faults_of(line) == [("gpu3", "79", "occur")]


@pytest.mark.parametrize(
    ("line", "code", "assertion"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be0", "NODE-MACHINE-CHECK", "occur"),
        ("{1}[Hardware Error]: event severity: fatal", "NODE-MACHINE-CHECK", "occur"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1", "NODE-MACHINE-CHECK", "occur"),
        ("EDAC skx MC1: 2 UE memory scrubbing error on any memory", "NODE-MACHINE-CHECK", "occur"),
        ("XFS (sdb): Filesystem has been shut down due to log error (0x2).", "NODE-DISK-READONLY", "occur"),
        ("XFS (nvme0n1p1): Log I/O Error Detected. Shutting down filesystem", "NODE-DISK-READONLY", "occur"),
        ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "NODE-DISK-IO", "occur"),
        ("nvme nvme0: Removing after probe failure status: -19", "NODE-DISK-IO", "occur"),
        ("nvme nvme0: Disabling device after reset failure: -19", "NODE-DISK-IO", "occur"),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", "NODE-NIC-DOWN", "occur"),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "NODE-NIC-DOWN", "recover"),
        ("bond0: (slave eth0): link status definitely down, disabling slave", "NODE-NIC-DOWN", "occur"),
        ("bonding: bond0: link status definitely down for interface eth0", "NODE-NIC-DOWN", "occur"),
        ("bond0: (slave eth0): link status definitely up, 25000 Mbps full duplex", "NODE-NIC-DOWN", "recover"),
    ],
)
def test_troubles_of_the_node(line: str, code: str, assertion: str) -> None:
    assert faults_of("[ 99.5] " + line) == [("n1", code, assertion)]


@pytest.mark.parametrize(
    ("rest", "device", "code", "severity"),
    [
        ("3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS", "nvswitch3", "SXID-28006", "minor"),
        ("0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 30 x", "nvswitch0", "SXID-24007", "critical"),
        ("1: SXid (PCI:0000:06:00.0): 10003, Host_unhandled_interrupt", "nvswitch1", "SXID-10003", "minor"),
    ],
)  # fmt: skip
def test_errors_of_switches(rest: str, device: str, code: str, severity: str) -> None:
    (event,) = faults_in("[ 1.2] nvidia-nvswitch" + rest, T, node="n1", names=GPU_NAMES)
    assert (event.device, event.code, event.assertion, event.severity) == (device, code, "once", severity)
    assert event.node == "n1"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("mlx5_core 0000:5e:00.0 ens1f0: Link down", "ens1f0"),
        ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "eno1"),
        ("tg3 0000:02:00.0 eth0: Link is up at 1000 Mbps, full duplex", "eth0"),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", "mlx5_5"),
        ("bond0: (slave eth0): link status definitely down, disabling slave", "eth0"),
        ("bond0: link status definitely up for interface eth0.5, 10000 Mbps full duplex", "eth0.5"),
        ("nothing of the kind", ""),
    ],
)
def test_whose_link(line: str, name: str) -> None:
    assert interface_in(line) == name


def test_one_link_that_is_back_does_not_speak_for_the_others(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("")
    source = KernelFaults(path, node="n1", names={})
    seen: list[list[str]] = []
    for line in (
        "eth0: Link is Down",
        "eth1: Link is Down",
        "eth1: Link is Up",
        "eth0: Link is Up",
        "eth2: Link is Up",
    ):
        with path.open("a") as out:
            out.write(f"{line}\n")
        seen.append([str(event.assertion) for event in source.take(T + len(seen) * 5)])
    source.close()
    assert seen == [["occur"], ["occur"], [], ["recover"], ["recover"]]


@pytest.mark.parametrize(
    "line",
    [
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
        "pciehp 0000:3a:00.0:pcie004: Slot(1): Link Down",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
        "I/O error, dev loop3, sector 0 op 0x0:(READ)",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1",
        "[Hardware Error]: Corrected error, no action required.",
        "[Hardware Error]: event severity: non-fatal",
        "mce: [Hardware Error]: Machine check events logged",
        "NVRM: GPU at PCI:0000:3b:00: GPU-12345678-aaaa",
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): Severity 1 Engine instance 46 Sub-engine instance 00",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): Data {0x006dea, 0x0}",
        "Memory cgroup out of memory: OOM victim 1234 (python3) is already exiting. Skip killing the task",
    ],
)
def test_noise_says_nothing(line: str) -> None:
    assert faults_of(line) == []
