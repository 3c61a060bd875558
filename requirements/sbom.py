"""The bill of materials that a wheel carries: holdfast and the packages of the image's lock, as CycloneDX JSON."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

_LOCKED = re.compile(r"([A-Za-z0-9._-]+)==(\S+)(?: ; ([^\\]*))?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def locked(lock: Path) -> dict[str, str]:
    """Return the packages of a lock file with their versions; none if there is no such file."""
    if not lock.is_file():
        return {}
    found = (_LOCKED.match(line) for line in lock.read_text(encoding="utf-8").splitlines())
    return {_plain(match[1]): match[2] for match in found if match and "== 'emscripten'" not in (match[3] or "")}


def bill(root: Path) -> bytes:
    """Return the bill of the sources at `root`. It is the same for the same sources."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [_plain(match[0]) for text in project["dependencies"] if (match := _NAME.match(text))]
    versions = dict.fromkeys(needed, "") | locked(root / "requirements" / "image.txt")
    own = _component(project["name"], project["version"])
    own |= {"licenses": [{"license": {"id": project["license"]}}], "description": project["description"]}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [
            _component(name, version) | {"scope": "required" if name in needed else "optional"}
            for name, version in sorted(versions.items())
        ],
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [_purl(name, versions[name]) for name in sorted(needed)]}
        ],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _component(name: str, version: str) -> dict[str, Any]:
    kind = {"type": "library", "bom-ref": _purl(name, version), "name": name, "purl": _purl(name, version)}
    return kind | ({"version": version} if version else {})


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{_plain(name)}" + (f"@{version}" if version else "")


def _plain(name: str) -> str:
    """Return the name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
