"""Runs the workers of a job file in their image with apptainer or singularity, if no platform starts a container."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model.job_spec import JobSpec

PROGRAMS = ("apptainer", "singularity")
#: A device file → the option that makes the machine's devices usable in the image. The file exists if the devices'
#: driver is loaded.
_DEVICES = {"/dev/nvidiactl": "--nv", "/dev/kfd": "--rocm"}


def images_of(spec: JobSpec) -> list[str]:
    """Return the images of a job, each once."""
    return list(dict.fromkeys(image for role in spec.roles if (image := role.image or spec.image)))


def image_words(
    name: str, origin: str, spec: JobSpec, environment: Mapping[str, str], *places: Path
) -> tuple[str, ...]:
    """Return the words that precede an image's address in a worker's command; () if the job has no image or `name` is
    `none`.

    `name`: the program, or `auto`. `origin`: its option, for messages. `places`: directories that the workers see.
    Raises `BadUsage` if the program is not on the PATH.
    """
    if name not in ("none", "auto", *PROGRAMS):
        raise BadUsage(f"{origin} {name}: expected none, auto, {' or '.join(PROGRAMS)}", hint="holdfast run --help")
    images = images_of(spec)
    if name == "none" or not images:
        return ()
    names = PROGRAMS if name == "auto" else (name,)
    found = next(filter(None, (shutil.which(each, path=environment.get("PATH")) for each in names)), None)
    if found is None:
        raise BadUsage(
            f"image {images[0]}: there is no {' and no '.join(names)} on the PATH of this machine, which would run it",
            hint="holdfast run --image-runtime none …  (holdfast submit --no-image …)",
        )
    binds = [word for place in dict.fromkeys(places) for word in ("--bind", str(place))]
    return found, "exec", *(option for file, option in _DEVICES.items() if Path(file).exists()), *binds


def image_address(image: str) -> str:
    """Return an image's address for apptainer. An address without a scheme is in a registry, unless it is a file's
    path."""
    return image if "://" in image or image.startswith(("/", ".")) else f"docker://{image}"
