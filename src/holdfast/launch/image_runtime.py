"""Runs the workers of a job file in their image with apptainer, singularity or enroot, where no platform starts a
container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model.job_spec import JobSpec

PROGRAMS = ("apptainer", "singularity", "enroot")
#: Other names of the programs in `PROGRAMS`. pyxis, Slurm's plug-in for containers, starts containers through enroot,
#: which each of its nodes has.
_ALIASES = {"pyxis": "enroot"}
#: Maps a driver's device file to the option that gives a container the devices of this driver.
_DEVICE_OPTIONS = {"/dev/nvidiactl": "--nv", "/dev/kfd": "--rocm"}
#: Shell script that starts a command in an image with enroot. Its arguments: enroot, a private directory, `--mount`
#: options up to `--`, the image, the command. The first worker of a node makes the container from the image, and the
#: others wait. PATH and LD_LIBRARY_PATH come from the image, all other variables from the worker. The command starts in
#: the worker's directory.
_WITH_ENROOT = r"""
enroot=$1 place=$2; shift 2
mounts=
while [ "$1" != -- ]; do mounts="$mounts $1"; shift; done
image=$2; shift 2
name=holdfast-$(printf %s "$image" | cksum | tr " " -)
made=$place/enroot/$(hostname)-$name
mkdir -p "$place/enroot" || exit
(
    flock 9 || exit
    [ ! -e "$made" ] || exit 0
    "$enroot" remove -f "$name" >/dev/null 2>&1
    file=$image
    case $image in docker://*)
        file=${ENROOT_TEMP_PATH:-${TMPDIR:-/tmp}}/$name-$$.sqsh
        registry=${image#docker://}
        case $registry in *"#"*) ;; */*) case ${registry%%/*} in
            *.*|*:*|localhost) image=docker://${registry%%/*}#${registry#*/} ;;
        esac ;; esac
        "$enroot" import -o "$file" "$image" || exit
    esac
    "$enroot" create -n "$name" "$file"
    status=$?
    [ "$file" = "$image" ] || rm -f "$file"
    [ "$status" -eq 0 ] && : >"$made"
    exit "$status"
) 9>"$made.lock" >&2 || exit
cat >"$made.conf.$$" <<'END' && mv "$made.conf.$$" "$made.conf" || exit
environ() {
    env -0 | while IFS= read -r -d "" each; do
        case $each in *$'\n'*|PATH=*|LD_LIBRARY_PATH=*|BASH_*|ENROOT_*|PWD=*|OLDPWD=*|SHLVL=*|_=*) ;;
        *) printf "%s\n" "$each" ;; esac
    done
}
rc() {
    exec "$@"
}
END
exec "$enroot" start --conf "$made.conf" $mounts "$name" /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$PWD" "$@"
"""


def images_of(spec: JobSpec) -> list[str]:
    """Return the images of a job, each once."""
    return list(dict.fromkeys(image for role in spec.roles if (image := role.image or spec.image)))


def image_words(
    name: str, origin: str, spec: JobSpec, environment: Mapping[str, str], *places: Path
) -> tuple[str, ...]:
    """Return the container command that runs a worker in an image. The image's address follows these words. Return ()
    if the job has no image or `name` is `none`.

    `name`: the program, or `auto`. `origin`: the option that sets it, for messages. `places`: directories that the
    workers see; the last one is private to the user.
    Raises `BadUsage` if the program is not on the PATH.
    """
    name = _ALIASES.get(name, name)
    if name not in ("none", "auto", *PROGRAMS):
        expected = f"none, auto, {', '.join(PROGRAMS)} or pyxis"
        raise BadUsage(f"{origin} {name}: expected {expected}", hint="holdfast run --help-all")
    images = images_of(spec)
    if name == "none" or not images:
        return ()
    if bad := next((image for image in images if image.startswith("-")), None):
        raise BadUsage(f"image {bad}: expected an image's address or file, and none begins with `-`")
    import shutil  # imported here, because few jobs have an image

    names = PROGRAMS if name == "auto" else (name,)
    found = next(filter(None, (shutil.which(each, path=environment.get("PATH")) for each in names)), None)
    if found is None:
        raise BadUsage(
            f"image {images[0]}: there is no {' and no '.join(names)} on the PATH of this machine, which would run it",
            hint="holdfast run --image-runtime none …  (holdfast submit --no-image …)",
        )
    if Path(found).name == "enroot":
        mounts = [word for place in dict.fromkeys(places) for word in ("--mount", f"{place}:{place}")]
        return "/bin/sh", "-c", _WITH_ENROOT, "enroot", found, str(places[-1]), *mounts, "--"
    binds = [word for place in dict.fromkeys(places) for word in ("--bind", str(place))]
    return found, "exec", *(option for file, option in _DEVICE_OPTIONS.items() if Path(file).exists()), *binds
