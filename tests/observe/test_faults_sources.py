"""Sources of faults: kernel lines as they come in the wild, JSON lines, a real socket, real files, and NVML."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_lines import GPU_NAMES

from builders import T
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices import ascend_events, reported_faults
from holdfast.observe.devices.device_discovery import gpu_addresses, local_devices, pci_address
from holdfast.observe.devices.fault_socket import FaultSocket
from holdfast.observe.devices.fault_sources import FileFaults, KernelFaults
from holdfast.observe.devices.growing_files import GrowingFile
from holdfast.observe.devices.kernel_faults import faults_in
from holdfast.observe.devices.nvml_events import watch
from holdfast.observe.devices.reported_faults import FaultRejected
from places import DOCS


@pytest.mark.parametrize(
    ("line", "device", "code", "assertion", "pid"),
    [
        ("[ 1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "gpu3", "79", "occur", None),
        ("[ 130.456250] [ T1946] NVRM: Xid (PCI:0000:3b:00): 31, pid=79749, name=exe, Ch 0000000a",
         "gpu3", "31", "once", 79749),
        ("Oct 06 17:59:27 node7 kernel: NVRM: Xid (PCI:0004:01:00): 119, pid=430, name=q, Timeout waiting for RPC",
         "gpu@0004:01:00", "119", "occur", 430),
        ("<3>NVRM: Xid (0000:03:00): 14, Channel 00000001", "gpu@0000:03:00", "14", "once", None),
        ("NVRM: Xid (PCI:0000:3B:00.0): 63, pid=1, Row Remapper: New row marked", "gpu3", "63", "occur", 1),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 13, pid='77', name=p", "gpu3", "13", "once", 77),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         "gpu3", "154.RESET", "occur", None),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
         "gpu3", "154.REBOOT", "occur", None),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
         "gpu3", "154.DRAIN_RESET", "occur", None),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
         "gpu3", "154.DRAIN_P2P", "occur", None),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action is new", "gpu3", "154", "once", None),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 0x0 0x0)",
         "gpu3", "145.RESET", "occur", None),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x0 0x0)",
         "gpu3", "145.EVAL", "once", None),
        ("NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02", "gpu3", "145", "once", None),
        ("NVRM: Xid (PCI:0000:3b:00): 9999, of the future", "gpu3", "9999", "once", None),
        ("Memory cgroup out of memory: Killed process 1234 (python) total-vm:1kB",
         "n1", "NODE-MEMORY-KILL", "once", 1234),
        ("Out of memory: Kill process 7 (a) score 900", "n1", "NODE-MEMORY-KILL", "once", 7),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "n1", "NODE-DISK-READONLY", "occur", None),
        ("blk_update_request: I/O error, dev nvme0n1, sector 12 op 0x0:(READ)", "n1", "NODE-DISK-IO", "occur", None),
        ("Buffer I/O error on dev sda1, logical block 0, lost async page write", "n1", "NODE-DISK-IO", "occur", None),
        ("mlx5_core 0000:5e:00.0 ens1f0: Link down", "n1", "NODE-NIC-DOWN", "occur", None),
        ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "n1", "NODE-NIC-DOWN", "occur", None),
        ("e1000e: eth0 NIC Link is Up 1000 Mbps Full Duplex", "n1", "NODE-NIC-DOWN", "recover", None),
        ("mce: [Hardware Error]: CPU 3: Machine Check: uncorrected error", "n1", "NODE-MACHINE-CHECK", "occur", None),
    ],
)  # fmt: skip
def test_kernel_lines(line: str, device: str, code: str, assertion: str, pid: int | None) -> None:
    (event,) = faults_in(line, T, node="n1", names=GPU_NAMES)
    assert (event.device, event.code, event.assertion, event.pid) == (device, code, assertion, pid)
    assert (event.at, event.node, event.source, event.text) == (T, "n1", "kernel log", line.strip())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: loading NVIDIA UNIX",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "veth1: Link is down",
        "lo: link down",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert faults_in(line, T) == []


def test_xid_154_none_takes_all_earlier_advice_back() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
    events = faults_in(line, T, names=GPU_NAMES)
    assert {event.assertion for event in events} == {Assertion.RECOVER}
    assert {event.code for event in events} == {"154.RESET", "154.REBOOT", "154.DRAIN_P2P", "154.DRAIN_RESET"}


def test_a_line_with_its_own_whole_time_keeps_it() -> None:
    (event,) = faults_in("2023-11-14T22:13:20.250+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x", 5.0)
    assert event.at == 1_700_000_000.25


def test_addresses_and_devices_of_a_machine(tmp_path: Path) -> None:
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n")
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "davinci1", "davinci_manager"):
        (tmp_path / "dev" / name).touch()
    assert gpu_addresses(tmp_path) == {"0000:3b:00": "gpu3"}
    assert local_devices(tmp_path) == ("gpu0", "gpu2", "gpu10", "npu1")
    assert local_devices(tmp_path / "nowhere") == ()
    assert [pci_address(text) for text in ("3B:00.0", "00000000:3B:00.0", "0001:3b:0")] == [
        "0000:3b:00", "0000:3b:00", "0001:3b:00",
    ]  # fmt: skip


OWN_RECORD = {"who": "pingmesh", "at": T - 5, "device": "gpu3", "code": "79", "assertion": "occur", "severity": "major"}
DEVICE_FAULT: dict[str, Any] = {
    "faultId": "a", "faultCode": "220001001", "faultTime": T * 1000 - 500, "assertion": "occur",
    "influence": [{"nodeName": "n7", "deviceIds": [0, 3]}], "description": "slow",
}  # fmt: skip
PUBLIC = {
    "id": "1", "timestamp": T * 1000, "version": "1.0", "resource": "pingmesh",
    "faults": [DEVICE_FAULT],
}  # fmt: skip


def test_public_faults_in_both_shapes() -> None:
    (event,) = reported_faults.read_line(json.dumps(OWN_RECORD), T)
    assert event == FaultEvent(
        device="gpu3", code="79", assertion=Assertion.OCCUR, at=T - 5, source="socket (pingmesh)"
    )
    events = reported_faults.read_line(json.dumps(PUBLIC), T)
    assert [(each.device, each.node, each.at) for each in events] == [
        ("npu0", "n7", T - 0.5),
        ("npu3", "n7", T - 0.5),
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"who": None}, "`who`"), ({"who": ""}, "`who`"), ({"who": "x" * 65}, "`who`"), ({"at": None}, "when"),
        ({"at": "now"}, "when"), ({"at": True}, "when"), ({"at": T + 61}, "future"),
        ({"at": T - 900_000}, "days old"),
        ({"at": 1e400}, "JSON"), ({"device": "a b"}, "device's name"), ({"device": None}, "device's name"),
        ({"device": "../../x"}, "device's name"), ({"code": "4711-NOBODY"}, "in no catalogue"),
        ({"code": 79}, "`code`"),
        ({"assertion": "maybe"}, "occur, recover or once"), ({"severity": "bad"}, "severity"), ({"text": 5}, "`text`"),
        ({"devices": [f"gpu{n}" for n in range(65)]}, "65 devices"), ({"devices": []}, "`devices`"),
    ],
)  # fmt: skip
def test_a_public_fault_counts_whole_or_not_at_all(change: dict[str, Any], why: str) -> None:
    with pytest.raises(FaultRejected, match=why):
        reported_faults.read_line(json.dumps({**OWN_RECORD, **change}), T)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"resource": "stranger"}, "none of those"), ({"timestamp": (T + 999) * 1000}, "future"),
        ({"faults": []}, "faults"),
        ({"faults": ["x"]}, "object"), ({"faults": [DEVICE_FAULT] * 101}, "100"),
        ({"faults": [{**DEVICE_FAULT, "influence": []}]}, "influence"),
        ({"faults": [{**DEVICE_FAULT, "influence": [{"nodeName": "n", "deviceIds": list(range(65))}]}]}, "65"),
        ({"faults": [{**DEVICE_FAULT, "influence": [{"nodeName": "n", "deviceIds": [-1]}]}]}, "1023"),
    ],
)  # fmt: skip
def test_a_public_message_is_checked_part_by_part(change: dict[str, Any], why: str) -> None:
    with pytest.raises(FaultRejected, match=why):
        reported_faults.read_line(json.dumps({**PUBLIC, **change}), T)


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"[" * 30_000, b"null", b"42", b'"x"', b"x" * 70_000])
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(FaultRejected):
        reported_faults.read_line(garbage, T)
    with pytest.raises(FaultRejected):
        ascend_events.read_line(garbage, T)


def test_ascend_events() -> None:
    line = {"EventID": "0x80E18005", "LogicID": 3, "Assertion": 1, "Severity": 3, "AlarmRaisedTime": (T - 1) * 1000}
    event = ascend_events.read_line(json.dumps(line), T, node="n1")
    assert event == FaultEvent(
        device="npu3", code="80E18005", assertion=Assertion.OCCUR, at=T - 1, node="n1", severity=Severity.CRITICAL,
        source="ascend",
    )  # fmt: skip
    other = {**line, "EventID": 0x80E18005, "Assertion": "once", "Severity": "minor", "AlarmRaisedTime": 0}
    event = ascend_events.read_line(json.dumps(other), T)
    assert (event.code, event.assertion, event.severity, event.at) == ("80E18005", "once", "minor", T)
    for change in ({"EventID": "xyz"}, {"LogicID": -1}, {"Assertion": 9}, {"Severity": None}, {"AlarmRaisedTime": 5}):
        with pytest.raises(FaultRejected):
            ascend_events.read_line(json.dumps({**line, **change}), T)


@pytest.fixture
def fault_socket(tmp_path: Path) -> Iterator[FaultSocket]:
    box = FaultSocket(tmp_path / "faults.sock")
    yield box
    box.close()


def _exchange(box: FaultSocket, data: bytes, answers: int) -> tuple[list[FaultEvent], list[dict[str, Any]]]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(str(box.path))
        peer.sendall(data)
        events: list[FaultEvent] = []
        got = b""
        for _ in range(100):
            events += box.take(T)
            if got.count(b"\n") >= answers:
                break
            peer.setblocking(False)
            try:
                got += peer.recv(65_536)
            except BlockingIOError:
                pass
        return events, [json.loads(line) for line in got.splitlines()]


def test_the_socket_answers_each_line_and_is_the_users_own(fault_socket: FaultSocket) -> None:
    assert stat.S_IMODE(fault_socket.path.stat().st_mode) == 0o600
    data = json.dumps(OWN_RECORD).encode() + b"\nrubbish\n" + json.dumps({**OWN_RECORD, "code": "?"}).encode() + b"\n"
    events, answers = _exchange(fault_socket, data, 3)
    assert [event.device for event in events] == ["gpu3"]
    assert [answer["ok"] for answer in answers] == [True, False, False]
    assert "not JSON" in answers[1]["error"]
    assert fault_socket.refused == {"not JSON": 1, "in no catalogue": 1}


def test_a_flood_without_a_line_end_is_not_kept(fault_socket: FaultSocket) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(fault_socket.path))
        peer.setblocking(False)
        sent = 0
        for _ in range(400):
            try:
                sent += peer.send(b"x" * 100_000)
            except BlockingIOError:
                pass
            assert fault_socket.take(T) == []
        assert sent > 5_000_000
        (kept,) = (len(each._rest) for each in fault_socket._peers.values())
        assert kept <= 2 * reported_faults.LONGEST
        assert fault_socket.refused == {"too long": 1}
        for _ in range(100):
            fault_socket.take(T)  # what the kernel still holds of the flood
        peer.settimeout(10)
        peer.sendall(b"\n" + json.dumps(OWN_RECORD).encode() + b"\n")
        events: list[FaultEvent] = []
        for _ in range(100):
            events += fault_socket.take(T)
        assert [event.code for event in events] == ["79"], "the next good line counts"


def test_another_user_is_told_so(fault_socket: FaultSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    events, answers = _exchange(fault_socket, b"", 1)
    assert (events, answers[0]["ok"], fault_socket.refused) == ([], False, {"another user": 1})
    assert f"not {mine}" in answers[0]["error"]


def test_a_watched_file_that_grows_rotates_and_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    lines = GrowingFile(path)
    with path.open("a") as file:
        file.write("one\ntw")
    assert [text for text, _ in lines.take(T)] == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert [text for text, _ in lines.take(T)] == ["two"]
    path.rename(tmp_path / "log.1")
    path.write_text("three\n")
    assert [text for text, _ in lines.take(T)] == ["three"]
    path.write_text("4\n")
    assert [text for text, _ in lines.take(T)] == ["4"]
    with path.open("a") as file:
        file.write("x" * 200_000 + "\nfive\n")
    found = [text for text, _ in lines.take(T)]
    assert (found[-1], lines.too_long) == ("five", 1)
    lines.close()


def test_a_file_that_comes_later_is_seen_and_waited_for(tmp_path: Path) -> None:
    import select

    lines = GrowingFile(tmp_path / "later")
    assert (list(lines.take(T)), lines.missing) == ([], "")
    (tmp_path / "later").write_text("here\n")
    assert select.select([lines.fileno()], [], [], 10)[0]
    assert [text for text, _ in lines.take(T)] == ["here"]
    lines.close()
    assert "cannot be read" in GrowingFile(tmp_path / "no" / "such").missing


def test_one_xid_said_twice_at_once_is_one_occurrence(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.touch()
    source = KernelFaults(path, node="n1", names=GPU_NAMES)
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x\n"
    path.write_text(line + line + "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, x\n")
    assert [event.code for event in source.take(T)] == ["79", "31"]
    with path.open("a") as file:
        file.write(line)
    assert [event.code for event in source.take(T + 2)] == ["79"]
    source.close()


def test_a_watched_file_refuses_bad_lines_and_takes_the_good(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    path.touch()
    source = FileFaults(path)
    path.write_text("rubbish\n\n" + json.dumps(OWN_RECORD) + "\n")
    assert [event.source for event in source.take(T)] == ["faults.jsonl (pingmesh)"]
    assert source.refused == {"not JSON": 1}
    assert "not JSON" in source.news[0]
    source.close()


class _Library:
    """What pynvml offers, for two GPUs: the first wait times out, the second brings Xid 79, then all is over."""

    nvmlEventTypeXidCriticalError = 8  # noqa: N815  # the library's own name

    def __init__(self, last: str = "the driver is gone") -> None:
        self.waits = 0
        self.last = last

    def __getattr__(self, name: str) -> Any:
        return {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlEventSetCreate": lambda: "set",
            "nvmlDeviceGetHandleByIndex": lambda number: f"handle{number}",
            "nvmlDeviceGetMinorNumber": lambda handle: {"handle0": 3, "handle1": 1}[handle],
            "nvmlDeviceGetUUID": lambda handle: f"uuid of {handle}",
            "nvmlDeviceGetPciInfo": self._pci,
            "nvmlDeviceRegisterEvents": lambda *_: None,
            "nvmlEventSetWait_v2": self._wait,
        }[name]

    def _wait(self, *_: object) -> object:
        self.waits += 1
        if self.waits == 1:
            raise RuntimeError("Timeout")
        if self.waits == 2:
            return types.SimpleNamespace(device="handle0", eventData=31)
        raise RuntimeError(self.last)

    def _pci(self, handle: str) -> object:
        if handle == "handle1" and "lost" in self.last:
            raise RuntimeError(self.last)
        return object()


def test_nvml_tells_its_events_under_the_device_nodes_numbers() -> None:
    told: list[FaultEvent] = []
    why = watch(told.append, node="n1", library=_Library())
    assert [(event.device, event.code, event.assertion, event.node) for event in told] == [
        ("gpu3", "31", Assertion.ONCE, "n1")
    ]
    assert why == "NVML gives no more events (the driver is gone)"


def test_a_gpu_that_ends_the_wait_by_being_lost_is_told() -> None:
    told: list[FaultEvent] = []
    watch(told.append, library=_Library("GPU is lost"))
    assert [(event.device, event.code) for event in told] == [("gpu3", "31"), ("gpu1", "79")]


def test_without_nvml_it_says_so() -> None:
    told: list[FaultEvent] = []
    assert "NVML gives no events" in watch(told.append, library=types.SimpleNamespace())
    assert told == []


def test_a_new_vendor_is_found_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own example, word for word."""
    from holdfast.catalogue import fault_codes
    from holdfast.observe import devices
    from holdfast.observe.devices import fault_sources

    page = (DOCS / "reference" / "faults.md").read_text()
    blocks = page.partition("## A new vendor in three files")[2].split("```")[1::2]
    table, program = (textwrap.dedent(block.partition("\n")[2]) for block in blocks)
    log = tmp_path / "acme.log"
    log.touch()
    program = program.replace("/var/log/acme.log", str(log))
    (tmp_path / "acme.py").write_text(
        "from holdfast.model.faults import Assertion, FaultEvent\n"
        "from holdfast.observe.devices.growing_files import GrowingFile\n\n\n"
        "def read_line(line, at, node):\n"
        "    device, _, code = line.partition(' ')\n"
        "    return FaultEvent(device=device, code=code, assertion=Assertion.OCCUR, at=at, node=node)\n\n\n" + program
    )
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "codes.csv").write_text(table.lstrip())
    monkeypatch.setattr(fault_codes, "HERE", tmp_path)
    monkeypatch.setattr(devices, "__path__", [*devices.__path__, str(tmp_path)])
    fault_codes.codes_of.cache_clear()
    assert fault_codes.codes_of("acme")["ACME-7"].name == "The core has stopped answering"
    (source,) = fault_sources.vendor_sources("n1")
    with log.open("a") as file:
        file.write("acme3 ACME-7\n")
    (event,) = source.take(T)
    assert (event.device, event.code, event.node) == ("acme3", "ACME-7", "n1")
    source.close()
    fault_codes.codes_of.cache_clear()
    sys.modules.pop("holdfast.observe.devices.acme")
