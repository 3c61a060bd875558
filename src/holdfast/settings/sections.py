"""Sections of YAML files whose keys are a platform's own: `slurm:` of a job file, and of `config.yaml` as its defaults.

What a scalar says is kept as it was written: for YAML `1:30:00` is the number 5400, and for a platform a time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.files import read_file
from holdfast.modes import distrust
from holdfast.settings.chosen import FILE_NAME, SYSTEM_FILE
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, yaml_nodes

if TYPE_CHECKING:
    import yaml

Raw = str | bool | None | tuple[str, ...]
"""A text as it was written, true or false, nothing, or a list of texts."""


def section(data: bytes | str, name: str) -> dict[str, Raw] | None:
    """The keys of one section of a document; None where it is missing or empty. Raises `Malformed`."""
    top = yaml_nodes(data)
    if top is None or not _is_mapping(top):
        return None
    found = [value for key, value in top.value if key.value == name]
    if not found or _is_nothing(found[-1]):
        return None
    if not _is_mapping(found[-1]):
        raise _wrong(found[-1], f"`{name}`: expected `key: value` lines")
    return dict(_pairs(found[-1], name))


def defaults(home: Path, name: str, *, system_file: Path = SYSTEM_FILE) -> list[tuple[Path, dict[str, Raw]]]:
    """What the files of settings say in a section, the strongest first, each with its file. Raises `Malformed`."""
    found = []
    for file in (home / FILE_NAME, system_file):
        if distrust(file.parent) or not os.access(file.parent, os.X_OK):
            continue  # another user could have written it; `holdfast config` says so
        try:
            said = section(read_file(file, MOST_CONFIG_BYTES), name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Malformed as error:
            raise Malformed(f"{file}: {error}", error.line, error.column) from None
        if said:
            found.append((file, said))
    return found


def _pairs(mapping: yaml.Node, name: str) -> list[tuple[str, Raw]]:
    pairs: list[tuple[str, Raw]] = []
    own: list[tuple[str, Raw]] = []
    for key, value in mapping.value:
        if key.tag.endswith(":merge"):
            # `<<: *defaults`: what stands in the section itself wins.
            for each in value.value if isinstance(value.value, list) and not _is_mapping(value) else [value]:
                if not _is_mapping(each):
                    raise _wrong(each, f"`{name}.<<`: expected an alias of a mapping")
                pairs += _pairs(each, name)
            continue
        if not isinstance(key.value, str):
            raise _wrong(key, f"`{name}`: expected a word as the key")
        own.append((key.value, _raw(value, f"{name}.{key.value}")))
    return [*pairs, *own]


def _raw(node: yaml.Node, where: str) -> Raw:
    if isinstance(node.value, str):
        return _scalar(node)
    words = [_scalar(item) for item in node.value if not isinstance(item, tuple) and isinstance(item.value, str)]
    if _is_mapping(node) or len(words) != len(node.value) or not all(isinstance(word, str) for word in words):
        raise _wrong(node, f"`{where}`: expected a text, a number, true, false, or a list of texts")
    return tuple(word for word in words if isinstance(word, str))


def _scalar(node: yaml.Node) -> str | bool | None:
    if node.tag.endswith(":bool"):
        return str(node.value).lower() in ("true", "yes", "on")
    return None if _is_nothing(node) else str(node.value)


def _is_nothing(node: yaml.Node) -> bool:
    return bool(node.tag.endswith(":null"))


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node.value, list) and (node.tag.endswith(":map") or _has_pairs(node))


def _has_pairs(node: yaml.Node) -> bool:
    return bool(node.value) and isinstance(node.value[0], tuple)


def _wrong(node: yaml.Node, problem: str) -> Malformed:
    mark = node.start_mark
    return Malformed(problem, mark.line + 1, mark.column + 1)
