"""Kernel lines as machines in the wild have them: drivers of fifteen years, log daemons, buses, disks and adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_lines import GPU_NAMES, faults_of

from builders import T
from holdfast.catalogue.fault_codes import all_codes, canonical
from holdfast.explain.causes.device_fault_cause import phrase_of
from holdfast.model.faults import ActiveFault, Remedy
from holdfast.observe.devices.fault_sources import KernelFaults
from holdfast.observe.devices.kernel_faults import faults_in

PCIE_ERROR = "PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"


@pytest.mark.parametrize(
    ("line", "code", "assertion", "pid"),
    [
        ("Xid (0000:3b:00): 13, 0003 00000000 00008297 00001098 00000000 00000044", "13", "once", None),
        ("Xid (0000:3b:00): 16, ", "16", "occur", None),
        ("Xid (0000:3b:00): 8, Channel 00000020", "8", "once", None),
        ("Xid (PCI:0000:3b:00): 32, Channel ID 00000000 intr 00004000", "32", "once", None),
        ("Xid (PCI:0000:3b:00): 31, Ch 00000003, engmask 00000101, intr 10000000", "31", "once", None),
        ("Xid (PCI:0000:3b:00): 31, pid=7512, name=python3.11, Ch 00000008, intr 00000000. MMU Fault: ENGINE",
         "31", "once", 7512),
        ("Xid (PCI:0000:3b:00): 13, pid='<unknown>', Graphics SM Warp Exception on (GPC 1)", "13", "once", None),
        ("Xid (PCI:0000:3b:00): 13, pid='<unknown>', Graphics Exception: ESR 0x50c730=0xc04000b", "13", "once", None),
        ("Xid (PCI:0000:3b:00): 43, pid=4571, name=pt_main_thread, Ch 00000008", "43", "once", 4571),
        ("Xid (PCI:0000:3b:00): 43, pid=4571, name=train, channel 0x0b00000a", "43", "once", 4571),
        ("Xid (PCI:0000:3b:00): 45, pid=1818, name=python3, Ch 0001 caused by previous Xid 149", "45", "once", 1818),
        ("Xid (PCI:0000:3b:00): 62, 323f0f30 0000c3d8 00000000 206dae68 206da022 206da190", "62", "occur", None),
        ("Xid (PCI:0000:3b:00): 64, pid=5753, Row Remapper Error: All reserved rows", "64", "occur", 5753),
        ("Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3(0x0, 0x0)",
         "74", "occur", None),
        ("Xid (PCI:0000:3b:00): 79, pid=1122, GPU has fallen off the bus.", "79", "occur", 1122),
        ("Xid (PCI:0000:3b:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No",
         "94", "once", None),
        ("Xid (PCI:0000:3b:00): 95, pid=12, name=x y, Uncontained: FBHUB. RST: Yes, D-RST: No", "95", "occur", 12),
        ("Xid (PCI:0000:3b:00): 109, pid=17, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT",
         "109", "occur", 17),
        ("Xid (PCI:0000:3b:00): 119, pid=9, name=nvidia-smi, Timeout after 45s of waiting for RPC response from GSP!",
         "119", "occur", 9),
        ("Xid (PCI:0000:3b:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000 0x00000000)",
         "144.", "", None),
        ("Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000)",
         "145.", "", None),
        ("Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x0)",
         "149.", "", None),
        ("Xid (PCI:0000:3b:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)",
         "149.", "", None),
        ("Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         "154.RESET", "occur", None),
        ("GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x72:1568)", "143", "occur", None),
        ("GPU at PCI:0000:3b:00: RmInitAdapter failed!", "143", "occur", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "prefix", ["[68183.615790] ", "Okt 06 17:59:27 node7 kernel: ", "<4>1 2024-03-05T10:11:12.1+01:00 n7 kernel - - - "]
)
def test_what_the_driver_says(prefix: str, line: str, code: str, assertion: str, pid: int | None) -> None:
    (event,) = faults_in(f"{prefix}NVRM: {line}", T, node="n1", names=GPU_NAMES)
    assert event.device == "gpu3"
    assert event.code.startswith(code)
    assert code.endswith(".") or event.code == code
    assert canonical(event.code) in all_codes()
    assert not assertion or event.assertion == assertion
    assert event.pid == pid


def test_a_syslog_entry_of_the_newer_kind_tells_its_own_time() -> None:
    (event,) = faults_in("<3>1 2023-11-14T22:13:20.250Z n1 kernel - - - NVRM: Xid (PCI:0000:3b:00): 79, x", 5.0)
    assert event.at == 1_700_000_000.25


def test_a_domain_of_more_than_four_digits_is_another_bus() -> None:
    assert faults_of("NVRM: Xid (PCI:10003:01:00): 48, x") == [("gpu7", "48", "occur")]
    assert faults_of("NVRM: Xid (PCI:0003:01:00): 48, x") == [("gpu@0003:01:00", "48", "occur")]


def kernel_says(tmp_path: Path, *rows: str, root: Path | None = None) -> list[tuple[str, str, str]]:
    log = tmp_path / "kern.log"
    log.touch()
    source = KernelFaults(log, node="n1", names=GPU_NAMES, root=root or tmp_path)
    found = []
    for number, row in enumerate(rows):
        with log.open("a") as out:
            out.write(f"{row}\n")
        found += source.take(T + 2 * number)
    source.close()
    return [(event.device, event.code, str(event.assertion)) for event in found]


def test_a_sentence_that_a_log_daemon_broke_is_read_whole(tmp_path: Path) -> None:
    gone = (
        "[ 1843.3] NVRM: The NVIDIA GPU 0000:3b:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 1843.4] NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    assert kernel_says(tmp_path, *gone) == [("gpu3", "79", "occur")]
    (tmp_path / "kern.log").unlink()
    others = (gone[0], "NVRM: GPU at PCI:0000:cb:00: GPU-1234", gone[2])
    assert kernel_says(tmp_path, *others) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"nvidia 0000:3b:00.0: {PCIE_ERROR}", ("gpu3", "PCIE-FATAL", "occur")),
        (f"nvidia 0000:3b:00.0: AER: {PCIE_ERROR}", ("gpu3", "PCIE-FATAL", "occur")),
        ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered)",
         ("gpu3", "PCIE-FATAL", "occur")),
        ("snd_hda_intel 0000:3b:00.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, id=3b01",
         ("gpu3", "PCIE-FATAL", "occur")),
        (f"vfio-pci 0000:cb:00.0: {PCIE_ERROR}", ("gpu6", "PCIE-FATAL", "occur")),
        (f"nvidia 0000:07:00.0: {PCIE_ERROR}", ("gpu@0000:07:00", "PCIE-FATAL", "occur")),
        ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Receiver ID)",
         ("gpu3", "PCIE-NONFATAL", "once")),
        (f"pcieport 0000:3a:00.0: {PCIE_ERROR}", ("n1", "NODE-PCIE-FATAL", "occur")),
        (f"nvme 0000:34:00.0: {PCIE_ERROR}", ("n1", "NODE-PCIE-FATAL", "occur")),
        ("pcieport 0000:3a:00.0: AER: device recovery successful", ("n1", "NODE-PCIE-FATAL", "recover")),
        ("pcieport 0000:3a:00.0: AER: Device recovery successful", ("n1", "NODE-PCIE-FATAL", "recover")),
    ],
)  # fmt: skip
def test_errors_of_the_bus(line: str, expected: tuple[str, str, str]) -> None:
    assert faults_of(f"Dec  1 02:16:37 n1 kernel: {line}") == [expected]
    assert expected[1] in all_codes()


@pytest.mark.parametrize(
    "line",
    [
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)",
        "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5",
        "pcieport 0000:00:1b.2: AER: Multiple Corrected error received: 0000:3b:00.0",
        "pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
        "pcieport 0000:80:1b.4: AER: device recovery failed",
        "pcieport 0000:00:01.0:    [14] Completion Timeout     (First)",
        "NVRM: rm_init_adapter failed",
        "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 5",
        "NVRM: GPU Board Serial Number: 1650423013443",
        "nvme nvme0: I/O 900 (I/O Cmd) QID 2 timeout, aborting",
        "nvme nvme0: Abort status: 0x0",
        "EXT4-fs (md127p3): re-mounted 0f3cd65a-338b-4574-bba3-ecef214e1917 r/w. Quota mode: none.",
        "EXT4-fs (nvme0n1p2): mounted filesystem fc7a1f9e-4967-4f41-a1f5-1b5927e6c5f9 ro with ordered data mode.",
        "internet: link status down for interface eno4, disabling it in 200 ms",
        "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR",
        "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2031c14)",
        "MCE 0x318: recovery action for dirty LRU page: Recovered",
        "mlx5_core 0000:13:00.0: mlx5_pcie_event:297:(pid 11): PCIe slot power capability was not advertised.",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,task=python,pid=12,uid=0",
    ],
)
def test_what_is_no_fault(line: str) -> None:
    assert faults_of(f"Dec  1 02:16:37 n1 kernel: {line}") == []


@pytest.mark.parametrize(
    ("line", "code", "assertion"),
    [
        ("ixgbe 0000:08:00.0 eth11: NIC Link is Down", "NODE-NIC-DOWN", "occur"),
        ("ixgbe 0000:08:00.0 eth11: NIC Link is Up 10 Gbps, Flow Control: RX", "NODE-NIC-DOWN", "recover"),
        ("bnxt_en 0000:65:00.0 ens1f0np0: NIC Link is Down", "NODE-NIC-DOWN", "occur"),
        ("ice 0000:51:00.0 ens2f0: NIC Link is Down", "NODE-NIC-DOWN", "occur"),
        ("internet: link status definitely down for interface eno4, disabling it", "NODE-NIC-DOWN", "occur"),
        ("team-x: (slave eno4): link status definitely up, 10000 Mbps full duplex", "NODE-NIC-DOWN", "recover"),
        ("nvme nvme1: I/O 263 QID 2 timeout, reset controller", "NODE-DISK-IO", "occur"),
        ("nvme nvme1: I/O tag 0 (1000) opcode 0x2 (I/O Cmd) QID 1 timeout, reset controller", "NODE-DISK-IO", "occur"),
        ("nvme nvme1: I/O 22 QID 0 timeout, disable controller", "NODE-DISK-IO", "occur"),
        ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "NODE-DISK-IO", "occur"),
        ("I/O error, dev nvme0n1, sector 1316 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2", "NODE-DISK-IO",
         "occur"),
        ("Buffer I/O error on device nvme0n1p1, logical block 1066386", "NODE-DISK-IO", "occur"),
        ("{7}[Hardware Error]: event severity: recoverable", "NODE-MACHINE-CHECK", "occur"),
        ("mce: Uncorrected hardware memory error in user-access at 3f1c3e1000", "NODE-MACHINE-CHECK", "occur"),
        ("Memory failure: 0x3f1c3e1: Sending SIGBUS to python3:4711 due to hardware memory corruption",
         "NODE-MACHINE-CHECK", "occur"),
        ("MCE 0x3f1c3e1: Killing python3:4711 due to hardware memory corruption", "NODE-MACHINE-CHECK", "occur"),
        ("EDAC MC0: UE row 0, channel-a= 0 channel-b= 1 labels \"-\": Hub", "NODE-MACHINE-CHECK", "occur"),
        ("Out of memory (oom_kill_allocating_task): Killed process 12 (python) total-vm:1kB", "NODE-MEMORY-KILL",
         "once"),
        ("Memory cgroup out of memory: Kill process 12 (python) score 1000 or sacrifice child", "NODE-MEMORY-KILL",
         "once"),
    ],
)  # fmt: skip
def test_troubles_of_the_node(line: str, code: str, assertion: str) -> None:
    assert faults_of(f"[ 4711.5] {line}") == [("n1", code, assertion)]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A bridge with two accelerators behind a switch, one with an adapter, and one with nothing that anybody knows."""
    devices = tmp_path / "sys/devices/pci0000:3a"
    switch = devices / "0000:3a:00.0/0000:3b:01.0"
    for function in ("0000:3b:00.0", "0000:cb:00.0"):
        (switch / function).mkdir(parents=True)
    (devices / "0000:5d:00.0/0000:5e:00.0/net/ens1f0").mkdir(parents=True)
    (devices / "0000:70:00.0/0000:71:00.0").mkdir(parents=True)
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for path in devices.rglob("0000:*"):
        (bus / path.name).symlink_to(path)
    return tmp_path


def test_an_error_of_a_bridge_is_that_of_everything_behind_it(machine: Path) -> None:
    rows = (
        f"pcieport 0000:3a:00.0: {PCIE_ERROR}",
        f"mlx5_core 0000:5e:00.0: {PCIE_ERROR}",
        f"pcieport 0000:70:00.0: {PCIE_ERROR}",
        "pcieport 0000:70:00.0: AER: device recovery successful",
        "pcieport 0000:5d:00.0: AER: device recovery successful",
        "pcieport 0000:5d:00.0: AER: device recovery successful",
        "pcieport 0000:3a:00.0: AER: device recovery successful",
    )
    assert kernel_says(machine, *rows, root=machine) == [
        ("gpu3", "PCIE-FATAL", "occur"),
        ("gpu6", "PCIE-FATAL", "occur"),
        ("n1", "NODE-NIC-PCIE", "occur"),
        ("n1", "NODE-PCIE-FATAL", "occur"),
        ("n1", "NODE-PCIE-FATAL", "recover"),
        ("n1", "NODE-NIC-PCIE", "recover"),
        ("gpu3", "PCIE-FATAL", "recover"),
        ("gpu6", "PCIE-FATAL", "recover"),
    ]


def test_the_adapter_is_named(machine: Path) -> None:
    log = machine / "kern.log"
    log.touch()
    source = KernelFaults(log, node="n1", names={}, root=machine)
    log.write_text(f"pcieport 0000:5d:00.0: {PCIE_ERROR}\n")
    (event,) = source.take(T)
    source.close()
    assert event.text.endswith("(Requester ID) (ens1f0)")


def test_an_endpoint_is_well_again_when_the_bridge_above_it_says_so(machine: Path) -> None:
    rows = (
        f"nvidia 0000:3b:00.0: {PCIE_ERROR}",
        "pcieport 0000:70:00.0: AER: device recovery successful",
        "pcieport 0000:3b:01.0: AER: device recovery successful",
    )
    assert kernel_says(machine, *rows, root=machine) == [
        ("gpu3", "PCIE-FATAL", "occur"),
        ("gpu3", "PCIE-FATAL", "recover"),
    ]


@pytest.mark.parametrize(
    ("line", "phrase"),
    [(f"nvidia 0000:3b:00.0: {PCIE_ERROR}", "AcceleratorLost"), (f"nvme 0000:34:00.0: {PCIE_ERROR}", "NodeFailed")],
)
def test_what_a_death_by_it_is_called(line: str, phrase: str) -> None:
    (event,) = faults_in(line, T, node="n1", names=GPU_NAMES)
    assert phrase_of(ActiveFault(event=event, remedy=Remedy.ISOLATE)) == phrase
