"""The image of a job file runs through apptainer, singularity or enroot where `--image-runtime` names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.errors import BadUsage
from holdfast.launch.image_runtime import image_words, images_of
from holdfast.model.job_spec import JobSpec, Role
from holdfast.node.worker_context import image_address

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
#: As enroot does, by its sources: an image is imported to a file and a container is created, once; `start` takes the
#: variables and the command script from --conf, and the container has no others.
ENROOT = r"""#!/bin/bash
set -euo pipefail
data=${ENROOT_DATA_PATH:?}
verb=$1; shift
echo "$verb $*" >>"$data/calls"
case $verb in
import) [ "$1" = -o ]; echo "$3" >"$2" ;;
create) [ "$1" = -n ] && [ ! -e "$data/$2" ]; mkdir "$data/$2"; cp "$3" "$data/$2/image" ;;
remove) [ -e "$data/$2" ] && rm -r "${data:?}/$2" ;;
start)
    mounts=
    while :; do case $1 in
        --conf) source "$2"; shift 2 ;;
        --mount) mounts="$mounts $2"; shift 2 ;;
        *) break ;;
    esac; done
    name=$1; shift
    [ -d "$data/$name" ]
    of_image="PATH=/image/bin:/usr/bin:/bin"
    readarray -t variables < <(environ; echo "$of_image"; echo "IMAGE=$(<"$data/$name/image")"; echo "MOUNTS=$mounts")
    body=$(declare -f rc | sed '1,2d;$d')
    cd /
    exec env -i "${variables[@]}" bash -c "$body" rc "$@" ;;
esac
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


def _program(place: Path, name: str, text: str = APPTAINER) -> Path:
    place.mkdir(exist_ok=True)
    (place / name).write_text(text)
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
    with pytest.raises(
        BadUsage, match="--image-runtime docker: expected none, auto, apptainer, singularity, enroot or"
    ):
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


WITH_ENROOT = """\
protocolVersion: 2
name: im
type: job
prerequisites:
  - {name: i, type: dockerimage, uri: "%s"}
taskRoles:
  w:
    instances: 3
    dockerImage: i
    commands:
      - 'echo "in $IMAGE, rank $RANK, $PATH, at $PWD, $SPACED, of $HOLDFAST_JOB"'
      - 'echo "mounts $MOUNTS"'
      - 'exit $STATUS'
"""


@pytest.mark.real
@pytest.mark.parametrize("name", ["enroot", "pyxis", "auto"])
@pytest.mark.parametrize(
    ("image", "imported"),
    [
        ("example/train:1", "docker://example/train:1"),
        ("nvcr.io/nvidia/pytorch:23.01", "docker://nvcr.io#nvidia/pytorch:23.01"),
        ("localhost/a", "docker://localhost#a"),
    ],
)
def test_with_enroot_a_node_imports_the_image_once(holdfast: Holdfast, name: str, image: str, imported: str) -> None:
    place = _program(holdfast.dir / "bin", "enroot", ENROOT)
    job = holdfast.script(WITH_ENROOT % image, "job.yaml")
    data = holdfast.dir / "data"
    data.mkdir()
    env = {
        "PATH": f"{place}:{holdfast.env['PATH']}",
        "ENROOT_DATA_PATH": str(data),
        "SPACED": "a 'b' $c",
        "STATUS": "0",
    }
    holdfast.env.update(env)
    ran = holdfast.run("--image-runtime", name, "--job", job)
    assert ran.status == 0, ran.err
    for rank in range(3):
        assert f"in {imported}, rank {rank}, /image/bin:/usr/bin:/bin, at {holdfast.dir}" in ran.out
    assert ran.out.count("a 'b' $c, of 2") == 3
    assert f"mounts  {holdfast.dir}:{holdfast.dir} {holdfast.home}:{holdfast.home}" in ran.out
    verbs = [line.split()[0] for line in (data / "calls").read_text().splitlines()]
    assert (verbs.count("import"), verbs.count("create"), verbs.count("start")) == (1, 1, 3)
    again = holdfast.run("--image-runtime", name, "--max-restarts", "0", "--job", job, STATUS="7")
    assert again.report["original"]["exit_code"] == 7
    assert (data / "calls").read_text().count("import ") == 1


@pytest.mark.real
def test_an_image_that_enroot_cannot_import_fails_the_workers_with_its_words(holdfast: Holdfast) -> None:
    refused = ENROOT.replace("import) ", 'import) echo "[ERROR] URL https://x returned error code: 404" >&2; exit 1; ')
    place = _program(holdfast.dir / "bin", "enroot", refused)
    (holdfast.dir / "data").mkdir()
    env = {"PATH": f"{place}:{holdfast.env['PATH']}", "ENROOT_DATA_PATH": str(holdfast.dir / "data"), "STATUS": "0"}
    job = holdfast.script(WITH_ENROOT % "example/none:1", "job.yaml")
    holdfast.env.update(env)
    ran = holdfast.run("--image-runtime", "enroot", "--max-restarts", "0", "--job", job)
    assert ran.status != 0 and "returned error code: 404" in ran.err
    assert "start" not in (holdfast.dir / "data" / "calls").read_text()
