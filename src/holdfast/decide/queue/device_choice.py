"""Chooses devices for a job: the devices that the user named, then devices near to each other, suspect ones last."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.decide.queue.queue_model import Device, DeviceState

#: On larger machines only so many devices are tried as the first of a set.
_MOST_SEEDS = 64


def choose_devices(
    count: int, free: Sequence[Device], on: Collection[str] = (), first: Collection[str] = ()
) -> tuple[str, ...] | None:
    """Return the names of `count` of the free devices in the order of their index; None if they are too few.

    `on`: these are among them, or None is returned. `first`: these are taken before others.
    """
    chosen = [device for device in free if device.name in on]
    if len(chosen) < len(on) or len(free) < count:
        return None
    for part in _by_preference(free, first):
        more = [device for device in part if device not in chosen]
        missing = max(count, len(on)) - len(chosen)
        chosen = chosen + (more if len(more) <= missing else _nearest(missing, more, chosen))
    return tuple(device.name for device in sorted(chosen, key=lambda device: device.index))


def _by_preference(free: Sequence[Device], first: Collection[str]) -> tuple[list[Device], ...]:
    """Return the free devices in parts: one is used up before the next is touched."""
    parts: tuple[list[Device], ...] = ([], [], [], [])
    for device in free:
        parts[2 * (device.state is DeviceState.SUSPECT) + (device.name not in first)].append(device)
    return parts


def _nearest(count: int, free: Sequence[Device], chosen: Sequence[Device]) -> list[Device]:
    """Return the `count` free devices that are nearest to each other and to the chosen ones.

    Of sets that are equally near, the one is taken that leaves the fewest of its NUMA node, so that whole nodes stay
    free for larger jobs.
    """
    if not count:
        return []
    best: tuple[tuple[int, int, int], list[Device]] | None = None
    for seed in free[:_MOST_SEEDS]:
        around = sorted(free, key=lambda device: (device is not seed, _distance(seed, device), device.index))
        taken = around[:count]
        everyone = [*chosen, *taken]
        apart = sum(_distance(one, other) for one in everyone for other in everyone)
        left = sum(device.numa == seed.numa for device in free) - count
        score = (apart, left, seed.index)
        if best is None or score < best[0]:
            best = score, taken
    assert best is not None, "there are more free devices than needed"
    return best[1]


def _distance(one: Device, other: Device) -> int:
    """Return how far two devices are apart: the place in the list of links, or the distance of their NUMA nodes."""
    if one.name == other.name:
        return 0
    if other.name in one.links:
        return 1 + one.links.index(other.name)
    return len(one.links) + 1 + (one.numa != other.numa)
