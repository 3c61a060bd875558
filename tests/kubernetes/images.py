"""Images of containers without a registry: an archive that containerd imports, of layers that Python writes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

#: Static programs, from Debian's busybox-static and catatonit.
BUSYBOX, CATATONIT = Path("/usr/bin/busybox"), Path("/usr/bin/catatonit")
DIRECTORIES = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "run", "sys", "usr", "var")
#: Each file's time: the same content makes the same image.
ONE_DAY = 86_400


@dataclass(frozen=True)
class Image:
    """An image of one layer. `files`: content or a file of this machine, by path; `trees`: directories, by path."""

    #: With its tag: `localhost/busybox:1`.
    name: str
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, Path] = field(default_factory=dict)
    directories: Sequence[str] = DIRECTORIES
    entry: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/bin:/usr/bin"})
    user: str = ""


def pause() -> Image:
    """What holds a pod's namespaces."""
    return Image("localhost/pause:1", files={"pause": CATATONIT}, directories=(), entry=("/pause", "-P"))


def busybox(name: str = "localhost/busybox:1") -> Image:
    """A shell and its tools, and no libc."""
    tools = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return Image(
        name,
        files={"bin/busybox": BUSYBOX, "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n"},
        links={f"bin/{tool}": "busybox" for tool in tools if tool != "busybox"},
        directories=(*DIRECTORIES, "tmp"),
        command=("/bin/sh",),
    )


def empty(name: str = "localhost/host:1") -> Image:
    """Nothing but places to mount this machine's own directories at."""
    return Image(name, directories=(*DIRECTORIES, "tmp"), command=("/bin/sh",))


def of_root(name: str, root: Path) -> Image:
    """A file system that lies in a directory."""
    return Image(name, trees={".": root}, directories=(), env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def python(name: str, scratch: Path, files: Mapping[str, bytes]) -> Image:
    """The Python that runs this, whole, with a shell: its standard library and the libraries that those need."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = scratch / version
    unwanted = shutil.ignore_patterns("test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__")
    shutil.copytree(Path(os.__file__).parent, library, ignore=unwanted)
    program = Path(sys.executable).resolve()
    elves = [program, *library.rglob("*.so")]
    said = subprocess.run(["ldd", *elves], capture_output=True, text=True, check=False).stdout
    needed = {path.lstrip("/"): Path(path) for path in re.findall(r"(/\S+) \(0x", said)}
    shell = busybox(name)
    own = {f"usr/local/bin/{alias}": program for alias in ("python3", version)}
    return replace(
        shell,
        files={**shell.files, **needed, **own, **files},
        trees={f"usr/local/lib/{version}": library},
        env={"PATH": "/usr/local/bin:/bin:/usr/bin"},
    )


def archive(out: Path, images: Iterable[Image]) -> Path:
    """These images in one file, as `docker save` writes it: `ctr images import` reads it."""
    manifest = []
    with tarfile.open(out, "w") as file:
        for image in images:
            layer = out.with_name(f"{out.name}.layer")
            _layer(image, layer)
            digest = _sha256(layer)
            config = json.dumps(
                {
                    "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
                    "os": "linux",
                    "config": {
                        "Env": [f"{name}={value}" for name, value in image.env.items()],
                        "Entrypoint": list(image.entry),
                        "Cmd": list(image.command),
                        "User": image.user,
                    },
                    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                    "history": [{"created_by": "holdfast's tests"}],
                }
            ).encode()
            name = hashlib.sha256(config).hexdigest()
            _add(file, f"{name}.json", config)
            file.add(layer, f"{digest}/layer.tar")
            layer.unlink()
            manifest.append({"Config": f"{name}.json", "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]})
        _add(file, "manifest.json", json.dumps(manifest).encode())
    return out


def _layer(image: Image, out: Path) -> None:
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as file:
        for name in image.directories:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755, ONE_DAY
            file.addfile(entry)
        for name, content in image.files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            _add(file, name, data, 0o755 if isinstance(content, Path) or data.startswith(b"#!") else 0o644)
        for name, target in image.links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mtime = tarfile.SYMTYPE, target, ONE_DAY
            file.addfile(entry)
        for name, tree in image.trees.items():
            file.add(tree, name, filter=_roots)


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.isdev():
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _add(file: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, ONE_DAY
    file.addfile(entry, io.BytesIO(data))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
