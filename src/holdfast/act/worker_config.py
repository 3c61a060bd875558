"""The configuration that all workers of a job share on this machine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.act.standard_streams import Streams
from holdfast.act.worker_environment import worker_environment
from holdfast.model.gang_protocol import Meeting
from holdfast.model.job_spec import JobSpec, Placement, Role
from holdfast.model.process_messages import StartWorker

if TYPE_CHECKING:
    from holdfast.act.command_expansion import RoleExpansion

#: The name of an OpenPAI worker's working directory, inside the directory of the worker's logs.
WORK = "work"
#: A task's directory gets links to at most this many entries of the job's directory.
MOST_LINKS = 10_000


def lay_out(work: Path, job: Path) -> None:
    """Create a task's directory, with links to the entries of the job's directory. Raises OSError."""
    work.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path in itertools.islice(job.iterdir(), MOST_LINKS):
        with contextlib.suppress(FileExistsError):
            (work / path.name).symlink_to(path)


class WorkerConfig(msgspec.Struct, frozen=True):
    """The values that are equal for all workers of a job on this machine."""

    spec: JobSpec
    job_id: str
    run_id: str
    home: Path
    #: The directory that contains `attempt-N/ROLE-RANK/`.
    logs: Path
    cwd: Path
    environment: Mapping[str, str]
    master_addr: str = "127.0.0.1"
    #: The rendezvous port of the first attempt; None: any port. Later attempts always get a new port.
    master_port: int | None = None
    #: The first and the last port that may be chosen; None: any port.
    port_range: tuple[int, int] | None = None
    #: Whether other nodes may have workers. The agent then keeps the rendezvous port bound until rank 0 opens it.
    far: bool = False
    virtual_local_rank: bool = False
    #: The names of this machine's devices, in their order.
    devices: tuple[str, ...] = ()
    #: The container command that runs a worker in its image, without the image's address; empty: workers run without an
    #: image.
    image_words: tuple[str, ...] = ()
    #: Role → the address of its image.
    images: Mapping[str, str] = {}
    streams: Streams = msgspec.field(default_factory=Streams)
    #: Returns the job as JSON for its workers, without secrets.
    config: Callable[[], bytes] = bytes

    def directory(self, attempt: int, placement: Placement) -> Path:
        """Return the directory of a worker."""
        return self.logs / f"attempt-{attempt}" / f"{placement.role}-{placement.rank}"

    def directory_for(self, attempt: int, placement: Placement) -> Path:
        """Create and return the directory of a worker."""
        directory = self.directory(attempt, placement)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            pass  # ignore a full or read-only disk: the output pump reports it, and the worker runs without its files
        return directory

    def cwd_of(self, attempt: int, placement: Placement, env: Mapping[str, str]) -> Path:
        """Return the directory in which a worker starts. `env`: the worker's environment."""
        if self.spec.task_directories and env["LOCAL_WORLD_SIZE"] != "1":
            return self.directory(attempt, placement) / WORK
        return self.cwd

    def environment_of(self, order: StartWorker, directory: Path, meeting: Meeting) -> dict[str, str]:
        """Return a worker's environment. `meeting`: the rendezvous address of its attempt. `order`: its start command.
        `directory`: its directory.
        """
        env = worker_environment(
            self.environment,
            self.spec,
            order.placement,
            order.shape,
            job_id=self.job_id,
            run_id=self.run_id,
            attempt=order.attempt,
            home=self.home,
            directory=directory,
            master_addr=meeting.address,
            master_port=meeting.port,
            virtual=self.virtual_local_rank,
            devices=self.devices,
            agent_store=meeting.served,
        )
        role = self.role_of(order.placement)
        if any("<%" in value for value in role.env.values()):
            env |= self._expansion(role, env).variables()
        return env

    def command_for(self, placement: Placement, env: Mapping[str, str], directory: Path) -> tuple[str, ...]:
        """Return the command of a worker with this environment, and write its script. Raises `BadUsage` for an unknown
        name, and OSError if the script cannot be written."""
        role = self.role_of(placement)
        if not role.script and not any("$" in word or "<%" in word for word in role.command):
            return role.command
        return self._expansion(role, env).command(directory)

    def role_of(self, placement: Placement) -> Role:
        """Return the role of a worker."""
        return next(role for role in self.spec.roles if role.name == placement.role)

    def _expansion(self, role: Role, env: Mapping[str, str]) -> RoleExpansion:
        # imported late, because few roles contain names to expand
        from holdfast.act.command_expansion import RoleExpansion

        return RoleExpansion(role, env, self.spec.parameters)
