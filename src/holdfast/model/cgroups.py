"""Control groups as data: their mounts, the groups of a process, and the groups that holdfast watches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun

_OCTAL = Lazy(r"\\([0-7]{3})")
_SLURM = Lazy(r"/(?:uid_\d+|(?:[^/]+_)?slurmstepd\.scope)/job_(?P<job>\d+)(?:/step_(?P<step>[^/]+))?")
_POD = Lazy(r"/kubepods[^/]*/(?:.*?[-/])?pod(?P<pod>[0-9a-fA-F_-]{8,})(?:\.slice)?(?P<inside>/[^/]+)?")
_CONTAINER = Lazy(r"/(?P<engine>docker|libpod)[-/](?P<id>[0-9a-f]{12})[0-9a-f]*(?:\.scope)?(?:/|$)")
_UNIT = Lazy(r".*/(?P<unit>[^/]+\.(?:service|scope|slice))(?:/|$)")


class Mount(Noun, frozen=True, kw_only=True):
    """One mounted cgroup hierarchy (a line of /proc/self/mountinfo)."""

    #: The cgroup version of the hierarchy, 1 or 2.
    version: int
    #: The control group that is mounted at `point`: `/`, or the container's group for a bind mount.
    root: str
    point: str
    #: The controllers of a v1 hierarchy; empty for v2, where each directory lists its controllers in
    #: `cgroup.controllers`.
    controllers: tuple[str, ...] = ()


class MemoryGroup(Noun, frozen=True, kw_only=True):
    """A control group whose OOM kills count as evidence."""

    directory: str
    #: The cgroup version: 1 has the files `memory.oom_control` and `memory.limit_in_bytes`, 2 has `memory.events` and
    #: `memory.max`.
    version: int
    #: The rank of the worker in this control group; None: the group is holdfast's, or above it.
    rank: int | None = None
    #: Whether this is the highest control group that the process can see: the container's group, or the machine's root
    #: group.
    is_top: bool = False


def limit_in_words(directory: str) -> str:
    """Return who set the memory limit of a control group, and by which option: `Slurm's step 12.0 (sbatch --mem)`.

    It recognises the group names of Slurm, Kubernetes, container engines and systemd, in v1 and v2. `directory`: the
    group's directory.
    """
    if found := _SLURM.search(directory):
        if found["step"]:
            return f"Slurm's step {found['job']}.{found['step']} (sbatch --mem, srun --mem)"
        return f"Slurm's job {found['job']} (sbatch --mem)"
    if found := _POD.search(directory):
        what = "a container of the pod" if found["inside"] else "the pod"
        return f"{what} {found['pod'].replace('_', '-')} (resources.limits.memory)"
    if found := _CONTAINER.search(directory):
        engine = "docker" if found["engine"] == "docker" else "podman"
        return f"the container {found['id']} ({engine} run --memory)"
    if found := _UNIT.search(directory):
        return f"systemd's {found['unit']} (MemoryMax=)"
    return f"the control group {directory}"


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Return the cgroup mounts in the text of /proc/PID/mountinfo (proc(5)), in the order of its lines. Skip mounts of
    other kinds.
    """
    found = []
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        where, kind = left.split(" "), right.split(" ")
        if not separator or len(where) < 6 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        found.append(
            Mount(
                version=2 if kind[0] == "cgroup2" else 1,
                root=_plain(where[3]),
                point=_plain(where[4]),
                controllers=tuple(kind[2].split(",")) if kind[0] == "cgroup" else (),
            )
        )
    return tuple(found)


def _plain(word: str) -> str:
    """Decode a path in mountinfo, where blanks and similar characters are octal numbers."""
    return word if "\\" not in word else _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), word)


def parse_membership(cgroup: str) -> dict[str, str]:
    """Return controller → the process's group, from the text of /proc/PID/cgroup. The key of the v2 hierarchy is the
    empty string.
    """
    paths = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator:
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def own_directory(mounts: Sequence[Mount], membership: dict[str, str], controller: str) -> tuple[Mount, str] | None:
    """Return the mount and the directory of the process's control group. `controller`: a v1 controller's name; empty
    for v2.

    Return None if the hierarchy is not mounted, or if the group is outside the mounted part.
    """
    path = membership.get(controller)
    if path is None:
        return None
    for mount in mounts:
        if (mount.version == 2) != (controller == "") or (controller and controller not in mount.controllers):
            continue
        try:
            inside = PurePosixPath(path).relative_to(mount.root)
        except ValueError:
            # In a container with a cgroup namespace, the group's path `/` is the mounted directory, although the
            # mount's root is another path.
            if path != "/":
                continue
            inside = PurePosixPath()
        if ".." not in inside.parts:
            return mount, str(PurePosixPath(mount.point) / inside)
    return None
