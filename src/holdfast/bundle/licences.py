"""Collects the licences of all parts of a runtime tree, and the addresses of their sources.

`LICENSES/manifest.json` has one row for each part: name, version, licence, source, and the files with the licence's
texts. The build fails if a part has no licence text.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.bundle.build_tools import NotBuilt, tool_output
from holdfast.bundle.python_files import distributions, standard_library
from holdfast.model.noun_base import Noun

FOLDER = "LICENSES"
MANIFEST = "manifest.json"
_SYSTEM = Path("/usr")
_COMMON = Path("/usr/share/common-licenses")
_REFERS = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])")
_DECLARES = re.compile(r"^License: *([^\n]+)$", re.MULTILINE)
_TEXT = re.compile(r"(^|/)(licen[cs]e|copying|notice|authors)[^/]*$", re.IGNORECASE)
_MOST_NAMED = 12


class LicensedPart(Noun, frozen=True, kw_only=True):
    """One software package that is part of the runtime tree."""

    name: str
    version: str
    #: The licence as the package's author names it. Only the first twelve names are listed.
    licence: str
    #: Address of the source code of this version.
    source: str
    #: Paths of the files with the licence's texts, relative to the manifest.
    files: tuple[str, ...]


def write_licences(to: Path, libraries: Iterable[Path], launcher: str) -> list[LicensedPart]:
    """Write the licence texts and the manifest into the new directory `to`.

    `libraries`: the system's libraries in the runtime tree.
    `launcher`: name of the compiler of the launcher.
    Raises `NotBuilt` for a file that belongs to no package, and for a package without a licence text.
    """
    to.mkdir()
    parts = [_of_python(to)]
    parts += [_of_distribution(each, to) for each in (_own(), *distributions())]
    static = tool_output(launcher, "-static", "-print-file-name=libc.a").strip() if launcher != "musl-gcc" else ""
    # The launcher contains the C library, so its licence is needed too.
    linked = Path(static) if static else next(Path("/usr/lib").glob("*-linux-musl/libc.a"))
    own = Path(sys.base_prefix).resolve()
    system = [path for path in (*libraries, linked) if own == _SYSTEM or not path.resolve().is_relative_to(own)]
    parts += [_of_package(package, to) for package in sorted(_owners(system))]
    for path in list(to.rglob("*")):
        if path.is_file():
            _bring_common(path, to)
    parts.sort(key=lambda part: part.name.lower())
    (to / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(parts), indent=1) + b"\n")
    return parts


def _of_python(to: Path) -> LicensedPart:
    version = platform.python_version()
    text = standard_library() / "LICENSE.txt"
    if Path(sys.base_prefix).resolve() == _SYSTEM:  # this Python is Debian's, which differs from the original
        [package] = _owners([Path(sys.executable).resolve()])
        return _of_package(package, to)
    files = _copy([text], to / "python")
    source = f"https://www.python.org/downloads/release/python-{version.replace('.', '')}/"
    return LicensedPart(name="python", version=version, licence="PSF-2.0", source=source, files=files)


def _own() -> importlib.metadata.Distribution:
    """Return holdfast's distribution.

    It may have an earlier name, because a runtime tree can be built from an older installation.
    """
    commands = importlib.metadata.entry_points(group="console_scripts", name="holdfast")
    found = [each.dist for each in commands if each.value.startswith("holdfast.") and each.dist is not None]
    if not found:
        raise NotBuilt("holdfast itself is not installed here", hint="pip install holdfast-run")
    return found[0]


def _of_distribution(distribution: importlib.metadata.Distribution, to: Path) -> LicensedPart:
    about = distribution.metadata
    name, version = about["Name"], distribution.version
    texts = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if ".dist-info/" in str(file) and _TEXT.search(str(file))
    ]
    named = next((about[key] for key in ("License-Expression", "License") if key in about), "")
    if not named or "\n" in named:
        classes = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if "License ::" in line]
        named = ", ".join(classes) or named.partition("\n")[0]
    if not texts:
        # Some packages name their licence without its text. Debian has the texts of common licences.
        texts = [_COMMON / "BSD"] if "BSD" in named and (_COMMON / "BSD").is_file() else []
    if not texts:
        raise NotBuilt(f"the package {name} {version} brings no text of its licence ({named or 'none is named'})")
    files = _copy(texts, to / name)
    return LicensedPart(
        name=name, version=version, licence=named, source=f"https://pypi.org/project/{name}/{version}/", files=files
    )


def _of_package(package: str, to: Path) -> LicensedPart:
    asked = tool_output("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package)
    source, _, version = asked.partition(" ")
    name = package.partition(":")[0]
    text = Path("/usr/share/doc", name, "copyright")
    if not text.is_file():
        raise NotBuilt(f"the package {name} has no {text}", hint=f"apt-get install --reinstall {name}")
    declared = list(dict.fromkeys(_DECLARES.findall(text.read_text(errors="replace"))))
    place = f"https://snapshot.debian.org/package/{source}/{version}/"
    if "ID=debian" not in Path("/etc/os-release").read_text().split():
        place = f"apt-get source {source}={version}"
    return LicensedPart(
        name=name,
        version=version,
        licence=", ".join(declared[:_MOST_NAMED]) or "as its text says",
        source=place,
        files=_copy([text.resolve()], to / name),
    )


def _owners(paths: Iterable[Path]) -> set[str]:
    """Return the names of the Debian packages that contain these files."""
    if shutil.which("dpkg-query") is None:
        raise NotBuilt("the licences of shared libraries cannot be found: expected Debian, or a system made of it")
    found = set()
    for path in paths:
        # /lib may be a link to /usr/lib, and a package may list the file under either path.
        real = str(path.resolve())
        names = {str(path), real, real.removeprefix("/usr"), f"/usr{real}" if not real.startswith("/usr/") else real}
        said = tool_output("dpkg-query", "-S", *sorted(names), ok=(0, 1)).splitlines()
        owners = {line.rpartition(": ")[0].split(",")[0] for line in said if not line.startswith("diversion ")}
        if not owners:
            raise NotBuilt(f"no package has {path}: under which licence it may be passed on is not known")
        found |= owners
    return found


def _copy(texts: Iterable[Path], to: Path) -> tuple[str, ...]:
    to.mkdir(exist_ok=True)
    for text in texts:
        shutil.copyfile(text, to / text.name)
    return tuple(sorted(f"{to.name}/{text.name}" for text in texts))


def _bring_common(text: Path, to: Path) -> None:
    """Copy the common licences to which Debian's text refers by path."""
    for name in sorted(set(_REFERS.findall(text.read_text(errors="replace")))):
        if (source := _COMMON / name).is_file() and not (to / "common" / name).exists():
            _copy([source.resolve()], to / "common")
            if source.resolve().name != name:
                shutil.copyfile(source, to / "common" / name)
