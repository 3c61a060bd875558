"""Returns values of a job file as they were written: `0.10` is the number 0.1 in YAML, but a command needs the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.untrusted import yaml_nodes

if TYPE_CHECKING:
    import yaml


def written(text: bytes, section: str) -> dict[str, str]:
    """Return each name of a section with its value's text. Nested values are named by their path: `a.b`, `a[0]`.

    Raises `Malformed`.
    """
    top = yaml_nodes(text)
    whole: dict[str, str] = {}
    for key, value in _pairs(top):
        if key == section:
            for name, inner in _pairs(value):
                _flat(whole, name, inner)
    return whole


def _flat(whole: dict[str, str], name: str, node: yaml.Node) -> None:
    if isinstance(node.value, str):
        whole[name] = "" if node.tag.endswith(":null") else node.value
    elif node.tag.endswith(":map"):
        for key, inner in _pairs(node):
            _flat(whole, f"{name}.{key}", inner)
    else:
        for i, inner in enumerate(node.value):
            _flat(whole, f"{name}[{i}]", inner)


def _pairs(node: Any) -> list[tuple[str, yaml.Node]]:
    """Return the pairs of a mapping; those merged by `<<` come first, so that the mapping's own override them."""
    if node is None or not node.tag.endswith(":map"):
        return []
    merged: list[tuple[str, yaml.Node]] = []
    own: list[tuple[str, yaml.Node]] = []
    for key, value in node.value:
        if key.tag.endswith(":merge"):
            for each in [value] if value.tag.endswith(":map") else value.value:
                merged += _pairs(each)
        elif isinstance(key.value, str):
            own.append((key.value, value))
    return merged + own
