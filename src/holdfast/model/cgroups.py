"""Control groups as data: where they are mounted, where a process is in them, and which ones holdfast watches."""

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
    """One mounted hierarchy (a line of /proc/self/mountinfo)."""

    #: 1 or 2.
    version: int
    #: The group that is mounted at `point`: `/`, or a container's own where the mount was bound.
    root: str
    point: str
    #: The controllers of a v1 hierarchy. A v2 directory lists them in `cgroup.controllers`.
    controllers: tuple[str, ...] = ()


class MemoryGroup(Noun, frozen=True, kw_only=True):
    """A group whose memory kills count as evidence."""

    directory: str
    #: 1: `memory.oom_control` and `memory.limit_in_bytes`; 2: `memory.events` and `memory.max`.
    version: int
    #: The worker that it contains; None: the group that holdfast itself runs in, or one above it.
    rank: int | None = None
    #: Whether it is the highest visible group: a container's own, or the machine's root.
    is_top: bool = False


def limit_in_words(directory: str) -> str:
    """Who set a group's memory limit, and where: `Slurm's step 12.0 (sbatch --mem)`.

    The name comes from the names that Slurm, Kubernetes, container engines and systemd give their groups, under v1 and
    v2.
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
    """The cgroup mounts in the text of /proc/PID/mountinfo (proc(5)), in its order; other lines are skipped."""
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
    """Mountinfo writes blanks and similar characters as octal numbers."""
    return word if "\\" not in word else _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), word)


def parse_membership(cgroup: str) -> dict[str, str]:
    """Controller → path, from the text of /proc/PID/cgroup; the v2 hierarchy's key is the empty string."""
    paths = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator:
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def own_directory(mounts: Sequence[Mount], membership: dict[str, str], controller: str) -> tuple[Mount, str] | None:
    """The mounted directory of the group a process is in; `controller` is empty for v2.

    None where the hierarchy is not mounted, or where the process's group is outside the mounted part.
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
            # With a cgroup namespace of the container's own, mount and membership are told from different roots.
            if path != "/":
                continue
            inside = PurePosixPath()
        if ".." not in inside.parts:
            return mount, str(PurePosixPath(mount.point) / inside)
    return None
