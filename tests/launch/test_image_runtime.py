"""The image of a job file runs through apptainer or singularity where `--image-runtime` names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.errors import BadUsage
from holdfast.launch.image_runtime import image_address, image_words, images_of
from holdfast.model.job_spec import JobSpec, Role

SPEC = JobSpec(
    name="x", roles=(Role(name="a", count=1, command=("a",), image="one:1"), Role(name="b", count=1, command=("b",))),
    image="two",
)  # fmt: skip
#: Prints its words, drops them up to the image, and runs the rest.
APPTAINER = """\
#!/bin/sh
for word; do case $word in docker://*|*.sif) break;; esac; echo "word $word"; done
while :; do case $1 in docker://*|*.sif) break;; esac; shift; done
export IMAGE="$1"; shift
exec "$@"
"""
JOB = """\
protocolVersion: 2
name: im
type: job
prerequisites:
  - {name: i, type: dockerimage, uri: "example/train:1"}
secrets: {token: s3cr3t}
taskRoles:
  w: {dockerImage: i, commands: ['echo "in ${IMAGE:-none}, rank $RANK, <% $secrets.token %>"']}
"""


def _program(place: Path, name: str) -> Path:
    place.mkdir(exist_ok=True)
    (place / name).write_text(APPTAINER)
    (place / name).chmod(0o755)
    return place


def test_the_program_and_what_it_binds(tmp_path: Path) -> None:
    path = {"PATH": str(_program(tmp_path / "bin", "singularity"))}
    found = image_words("auto", "--image-runtime", SPEC, path, Path("/work"), Path("/home/x"), Path("/work"))
    assert found[:2] == (f"{tmp_path}/bin/singularity", "exec")
    assert found[-4:] == ("--bind", "/work", "--bind", "/home/x")
    assert image_words("none", "", SPEC, path) == image_words("auto", "", JobSpec(name="x", roles=()), path) == ()
    assert images_of(SPEC) == ["one:1", "two"]
    with pytest.raises(BadUsage, match="image one:1: there is no apptainer on the PATH"):
        image_words("apptainer", "--image-runtime", SPEC, path)
    with pytest.raises(BadUsage, match="--image-runtime docker: expected none, auto, apptainer or singularity"):
        image_words("docker", "--image-runtime", SPEC, path)


@pytest.mark.parametrize(
    ("image", "address"),
    [("a/b:1", "docker://a/b:1"), ("/x/y.sif", "/x/y.sif"), ("./y.sif", "./y.sif"), ("oras://a/b", "oras://a/b")],
)
def test_an_address_names_a_registry_unless_it_is_a_file(image: str, address: str) -> None:
    assert image_address(image) == address


@pytest.mark.real
def test_workers_run_in_their_image(holdfast: Holdfast) -> None:
    place = _program(holdfast.dir / "bin", "apptainer")
    job = holdfast.script(JOB, "job.yaml")
    path = f"{place}:{holdfast.env['PATH']}"
    ran = holdfast.run("--image-runtime", "auto", "--job", job, PATH=path)
    assert ran.status == 0, ran.err
    assert "in docker://example/train:1, rank 0, s3cr3t" in ran.out
    assert f"word {holdfast.dir}" in ran.out and "no container is started here" not in ran.err
    assert "in none, rank 0" in holdfast.run("--job", job, PATH=path).out
    refused = holdfast.run("--image-runtime", "singularity", "--job", job, PATH=path)
    assert refused.status == 2 and "--image-runtime none" in refused.err
