"""Creates the parts that a run's workers share: environment, streams and warm starts. It also collects facts about the
machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.act.standard_streams import Streams
from holdfast.act.worker_config import WorkerConfig
from holdfast.errors import HoldfastError
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.launch.worker_output_options import shown
from holdfast.model.codec import encode
from holdfast.model.evidence import AttemptEvidence, HostFacts
from holdfast.node import rare_parts
from holdfast.node.devices.visible_devices import devices_here, kept_out_here
from holdfast.node.torch_timers import FILE, timer_file
from holdfast.record.job_directory import SSH_FOLDER

if TYPE_CHECKING:
    from holdfast.act.warm.nurseries import Warm
    from holdfast.model.faults import DeviceStanding
    from holdfast.model.job_spec import NodeInfo
    from holdfast.node.devices.device_faults import DeviceFaults
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace


def nurseries(launch: LaunchSpec, reactor: Reactor, say: Callable[[str], None], home: Path) -> Warm | None:
    """Create the prewarmed processes from which workers are forked; None if all workers start cold."""
    wanted = launch.warm
    if wanted is None:
        return None
    if launch.no_warmth:
        say(f"warm start is off, workers start cold: {launch.no_warmth}")
        return None
    return rare_parts.nurseries.Warm(
        reactor,
        say,
        preload=wanted.preload,
        standby=wanted.standby,
        import_s=wanted.import_s,
        python=launch.python,
        lessons=home / "warm",
    )


def setting_of(launch: LaunchSpec, place: JobPlace, streams: Streams) -> WorkerConfig:
    """Return the settings that all workers of a run share."""
    return WorkerConfig(
        spec=launch.spec,
        job_id=place.job_id,
        run_id=launch.run_id or place.job_id,
        home=place.home,
        logs=place.logs,
        cwd=launch.cwd,
        environment=_with_ssh_config(launch, place, _with_data(launch, with_timers(launch, place.directory))),
        master_addr=launch.master_addr,
        master_port=launch.master_port,
        port_range=launch.nodes.port_range if launch.nodes is not None else None,
        far=launch.nodes is not None,
        virtual_local_rank=launch.virtual_local_rank,
        devices=devices_here(launch.environment),
        image_words=launch.image_words,
        images=_images(launch) if launch.image_words else {},
        streams=streams,
        config=lambda: _config(launch),
    )


def _images(launch: LaunchSpec) -> dict[str, str]:
    spec = launch.spec
    return {role.name: image_address(image) for role in spec.roles if (image := role.image or spec.image)}


def image_address(image: str) -> str:
    """Return an image's address for enroot and apptainer: with `docker://` before it, unless it is a file or has a
    scheme.
    """
    return image if "://" in image or image.startswith(("/", ".")) else f"docker://{image}"


def _config(launch: LaunchSpec) -> bytes:
    return encode(without_secrets(launch.spec))


def _with_data(launch: LaunchSpec, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Add the paths of the job's downloaded prerequisites to the environment."""
    if not launch.spec.runtime.prerequisites:
        return environment
    return {**environment, **rare_parts.fetch_request.variables_of(launch.spec, launch.environment)}


def kept_out(
    faults: DeviceFaults, home: Path, node: NodeInfo, now: float, say: Callable[[str], None]
) -> tuple[DeviceStanding, ...]:
    """Return the devices of this node that the job may not use, without those that are reset before the start. If the
    whole node is excluded, the result contains the node. `say`: prints a message.
    """
    try:
        found = kept_out_here(home, node, now)
    except HoldfastError as error:
        say(f"what is known of this machine's devices cannot be read: {error.message}")
        return ()
    reset_first = faults.awaiting_reset([stands.device for stands in found], now)
    for stands in found:
        if stands.device in reset_first:
            say(f"{stands.device} is {stands.standing} and is reset before the start: {stands.reason}")
    return tuple(stands for stands in found if stands.device not in reset_first)


def surroundings_of(evidence: AttemptEvidence, launch: LaunchSpec, held: tuple[int, str] | None) -> HostFacts | None:
    """Return facts about this machine and about the resources that the workers lacked.

    `held`: the port that a rank needed and that was in use, and a description of the process that held it.
    """
    first = next((w.role for w in evidence.workers if w.exit is not None and not w.exit.ok), launch.spec.roles[0].name)
    command = next(role.command for role in launch.spec.roles if role.name == first)
    places = (launch.cwd, launch.home, Path(launch.environment.get("HOME") or "/"))
    env = launch.environment
    look_around = rare_parts.missing_resources.look_around
    # Only the rank that reads holdfast's standard input can have a terminal; the others read /dev/null.
    terminal = launch.stdin if os.isatty(0) else None
    asked = launch.master_port
    return look_around(evidence, command, launch.python, asked, env, places=places, held=held, terminal_rank=terminal)


def with_timers(launch: LaunchSpec, job_dir: Path) -> Mapping[str, str]:
    """Return the environment that all workers start from: holdfast's environment, with the path of torch's timers if
    they are on.
    """
    path = timer_file(launch.environment, job_dir, launch.cwd)
    return launch.environment if path is None else {**launch.environment, FILE: str(path)}


def _with_ssh_config(launch: LaunchSpec, place: JobPlace, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Add the path of the configuration for `ssh -F` to the environment, if the job has an ssh server for debugging."""
    if launch.spec.runtime.ssh is None:
        return environment
    return {**environment, "HOLDFAST_SSH_CONFIG": str(place.directory / SSH_FOLDER / "config")}


def screens(launch: LaunchSpec) -> tuple[int | None, int | None]:
    """Return the terminal's descriptors for stdout and stderr of a single worker; None: a pipe carries the stream.

    With several workers each line needs a prefix, so no worker gets the terminal.
    """
    if launch.spec.world_size != 1:
        return None, None
    out, err = shown(launch.redirects, launch.tee, 0)
    if launch.shown_ranks is not None and 0 not in launch.shown_ranks:
        return None, None
    place = 2 if launch.prints_json else 1
    return (place if out and os.isatty(place) else None), (2 if err and os.isatty(2) else None)


def streams(launch: LaunchSpec) -> Streams:
    """Describe the workers' standard streams. The user's shell started the guard, which is this process's parent."""
    given = launch.stdin is not None and sys.stdin is not None
    return Streams(0 if given else None, launch.stdin, screens(launch), os.getppid())
