"""Which of the free devices a job gets: those that it names, near ones, suspect ones last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from queue_builders import machine

from holdfast.decide.queue.device_choice import choose_devices
from holdfast.decide.queue.queue_model import Device, DeviceState

DEVICES = machine(8).devices
#: Pairs are linked: 0 and 4, 1 and 5 …
PAIRED = tuple(replace(device, links=(f"gpu{(device.index + 4) % 8}",)) for device in DEVICES)


def test_devices_of_one_numa_node_belong_together() -> None:
    assert choose_devices(2, [DEVICES[i] for i in (3, 4, 6)]) == ("gpu4", "gpu6")
    assert choose_devices(4, DEVICES[2:]) == ("gpu4", "gpu5", "gpu6", "gpu7")


def test_a_small_job_leaves_whole_nodes_to_large_ones() -> None:
    assert choose_devices(1, DEVICES[3:]) == ("gpu3",)


def test_links_count_more_than_numa_nodes() -> None:
    assert choose_devices(2, PAIRED[1:]) == ("gpu1", "gpu5")


def test_suspect_devices_are_given_last() -> None:
    free = [replace(DEVICES[0], state=DeviceState.SUSPECT), *DEVICES[1:3]]
    assert choose_devices(2, free) == ("gpu1", "gpu2")
    assert choose_devices(3, free) == ("gpu0", "gpu1", "gpu2")


def test_named_devices_are_among_them_or_nothing_is_given() -> None:
    assert choose_devices(2, DEVICES, on=("gpu6",)) == ("gpu4", "gpu6")
    assert choose_devices(1, DEVICES[:3], on=("gpu6",)) is None
    assert choose_devices(3, DEVICES[:2]) is None
    assert choose_devices(0, DEVICES) == ()


@given(st.integers(0, 9), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_as_many_as_are_needed_are_given(count: int, free: set[int], on: set[int], suspect: set[int]) -> None:
    devices: list[Device] = [
        replace(DEVICES[i], state=DeviceState.SUSPECT if i in suspect else DeviceState.USABLE) for i in sorted(free)
    ]
    named = {f"gpu{i}" for i in on}
    chosen = choose_devices(max(count, len(on)), devices, named)
    if len(free) < max(count, len(on)) or not on <= free:
        assert chosen is None
        return
    assert chosen is not None
    assert len(set(chosen)) == len(chosen) == max(count, len(on))
    assert named <= set(chosen) <= {device.name for device in devices}
    needless = [i for i in free - suspect if f"gpu{i}" not in chosen]
    used = [i for i in suspect if f"gpu{i}" in set(chosen) - named]
    assert not (needless and used), "a suspect device is given while another one is free"
