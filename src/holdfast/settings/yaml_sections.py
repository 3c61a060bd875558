"""Reads the sections `slurm:` and `kubernetes:` of a job file or `config.yaml`. The platforms define their keys.

A scalar keeps its written form: `1:30:00` is the number 5400 in YAML, but a time for Slurm. Nested values, such as a
pod's template, are converted to YAML's types.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.file_modes import distrust
from holdfast.safe_files import read_file
from holdfast.settings.resolved_settings import FILE_NAME, SYSTEM_FILE
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, yaml_nodes, yaml_value

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
#: A value in a section: a text as written, a boolean, None, or a list of texts.
Raw = str | bool | None | tuple[str, ...]


def section(data: bytes | str, name: str) -> dict[str, Raw] | None:
    """Return the keys and values of a document's section. Return None if it is missing or empty. Raises `Malformed`."""
    found = _section(data, name)
    return None if found is None else dict(_pairs(found, name, _raw))


def deep_section(data: bytes | str, name: str) -> dict[str, Any] | None:
    """Return the keys and values of a section that may contain nested mappings and lists.

    Return None if the section is missing or empty. Raises `Malformed`.
    """
    found = _section(data, name)
    if found is None:
        return None
    whole = yaml_value(data)[name]
    return {key: whole[key] if isinstance(value, _Deep) else value for key, value in _pairs(found, name, _raw_or_deep)}


def has_section(data: bytes | str, name: str) -> bool:
    """Whether a document has this section and the section is not empty. Raises `Malformed`."""
    return _section(data, name) is not None


class _Deep:
    """A placeholder for a nested value, which the caller reads with YAML's own types instead."""


def _raw_or_deep(node: yaml.Node, where: str) -> Raw | _Deep:
    return _scalar(node) if isinstance(node.value, str) else _Deep()


def _section(data: bytes | str, name: str) -> yaml.Node | None:
    top = yaml_nodes(data)
    if top is None or not _is_mapping(top):
        return None
    found = [value for key, value in top.value if key.value == name]
    if not found or _is_nothing(found[-1]):
        return None
    if not _is_mapping(found[-1]):
        raise _wrong(found[-1], f"`{name}`: expected `key: value` lines")
    node: yaml.Node = found[-1]
    return node


def defaults(home: Path, name: str, *, system_file: Path = SYSTEM_FILE) -> list[tuple[Path, dict[str, Raw]]]:
    """Return a section's values from each configuration file, the strongest file first.

    Raises `Malformed`.
    """
    return _defaults(home, name, system_file, section)


def deep_defaults(home: Path, name: str, *, system_file: Path = SYSTEM_FILE) -> list[tuple[Path, dict[str, Any]]]:
    """Return the nested values of a section from each configuration file, the strongest file first.

    Raises `Malformed`.
    """
    return _defaults(home, name, system_file, deep_section)


def _defaults(
    home: Path, name: str, system_file: Path, read: Callable[[bytes, str], dict[str, T] | None]
) -> list[tuple[Path, dict[str, T]]]:
    found = []
    for file in (home / FILE_NAME, system_file):
        if distrust(file.parent) or not os.access(file.parent, os.X_OK):
            continue  # another user could have written this file; `holdfast config` reports that
        try:
            said = read(read_file(file, MOST_CONFIG_BYTES), name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Malformed as error:
            raise Malformed(f"{file}: {error}", error.line, error.column) from None
        if said:
            found.append((file, said))
    return found


def _pairs(mapping: yaml.Node, name: str, value_of: Callable[[yaml.Node, str], T]) -> list[tuple[str, T]]:
    pairs: list[tuple[str, T]] = []
    own: list[tuple[str, T]] = []
    for key, value in mapping.value:
        if key.tag.endswith(":merge"):
            # The section's own keys override keys that are merged by `<<: *defaults`.
            for each in value.value if isinstance(value.value, list) and not _is_mapping(value) else [value]:
                if not _is_mapping(each):
                    raise _wrong(each, f"`{name}.<<`: expected an alias of a mapping")
                pairs += _pairs(each, name, value_of)
            continue
        if not isinstance(key.value, str):
            raise _wrong(key, f"`{name}`: expected a word as the key")
        own.append((key.value, value_of(value, f"{name}.{key.value}")))
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
