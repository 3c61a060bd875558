"""Validate the values of the `kubernetes:` section, by type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.model import amounts
from holdfast.platforms.kubernetes.objects.object_names import is_label, is_subdomain

GANGS = ("auto", "none", "native", "kueue", "coscheduling", "volcano")
_QUANTITY = r"[0-9]+(\.[0-9]+)?([EPTGM]i|Ki|[EPTGMkm])?"
_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"
_LONGEST = 4000


class BadOption(Exception):
    """The value of an option is invalid. The message is one sentence."""


def _refuse(expected: str, value: Any) -> BadOption:
    shown = repr(value)
    return BadOption(f"expected {expected}, got {shown if len(shown) <= 60 else shown[:57] + '…'}")


def _plain(value: Any, expected: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refuse(expected, value)
    text = str(value).strip()
    if not text or not text.isprintable() or len(text) > _LONGEST:
        raise _refuse(expected, value)
    return text


def _matching(pattern: str) -> Callable[[Any, str], str]:
    def judge(value: Any, expected: str) -> str:
        text = _plain(value, expected)
        if not re.fullmatch(pattern, text):
            raise _refuse(expected, value)
        return text

    return judge


def _label(value: Any, expected: str) -> str:
    text = _plain(value, expected)
    if not is_label(text):
        raise _refuse(expected, value)
    return text


def _subdomain(value: Any, expected: str) -> str:
    text = _plain(value, expected)
    if not is_subdomain(text):
        raise _refuse(expected, value)
    return text


def _number(value: Any, expected: str, least: int) -> int:
    text = _plain(value, expected)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
        raise _refuse(expected, value)
    return int(text)


def _count(value: Any, expected: str) -> int:
    return _number(value, expected, 0)


def positive(value: Any, expected: str) -> int:
    return _number(value, expected, 1)


def _nodes(value: Any, expected: str) -> tuple[int, int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 59:
        # YAML 1.1 reads `1:30` as a number in base 60, which is 90.
        least, most = divmod(value, 60)
        raise BadOption(f"expected {expected}; a range stands in quotes: '{least}:{most}'; {value} pods: '{value}'")
    first, _, last = _plain(value, expected).partition(":")
    least, most = _number(first, expected, 1), _number(last or first, expected, 1)
    if most < least:
        raise _refuse(expected, value)
    return least, most


def _memory(value: Any, expected: str) -> str:
    text = _matching(_QUANTITY)(value, expected)
    if text.isdigit() and int(text) < 1 << 20:
        raise BadOption(f"expected {expected}, got {text}, which is bytes for Kubernetes: write {text}Gi")
    return text


def _texts(value: Any, expected: str) -> dict[str, str]:
    if isinstance(value, str) and "=" in value:
        value = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str | int) for key, item in value.items()
    ):
        raise _refuse(expected, value)
    return {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}


def _names(value: Any, expected: str) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise _refuse(expected, value)
    return tuple(_subdomain(item, expected) for item in items)


def _tolerations(value: Any, expected: str) -> tuple[dict[str, Any], ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise _refuse(expected, value)
    return tuple(_toleration(item, expected) for item in items)


def _toleration(item: Any, expected: str) -> dict[str, Any]:
    """Parse a toleration from a mapping or from `KEY[=VALUE][:EFFECT]`."""
    if isinstance(item, Mapping):
        return dict(item)
    said = re.fullmatch(
        r"(?P<key>[A-Za-z0-9][A-Za-z0-9./_-]*)(=(?P<value>[^:]*))?"
        r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?",
        str(item).strip(),
    )
    if said is None:
        raise _refuse(expected, item)
    found: dict[str, Any] = {"key": said["key"]}
    found |= {"operator": "Exists"} if said["value"] is None else {"operator": "Equal", "value": said["value"]}
    return found | ({"effect": said["effect"]} if said["effect"] else {})


def _mapping(value: Any, expected: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refuse(expected, value)
    return dict(value)


def _yes(value: Any, expected: str) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "on", "off"):
        return value.lower() in ("true", "yes", "on")
    if not isinstance(value, bool):
        raise _refuse(expected, value)
    return value


def _seconds(value: Any, expected: str) -> int:
    found = amounts.seconds(value)
    if found is None or found < 0:
        raise _refuse(f"{expected}, 0 or more", value)
    return int(found)


def _gang(value: Any, expected: str) -> str:
    if value is False:  # YAML 1.1 reads `no` and `off` as false
        return "none"
    return _matching("|".join(GANGS))(value, expected)


JUDGES: Mapping[str, Callable[[Any, str], Any]] = {
    "label": _label,
    "subdomain": _subdomain,
    "nodes": _nodes,
    "count": _count,
    "positive": positive,
    "seconds": _seconds,
    "image": _matching(_IMAGE),
    "pull": _matching("Always|IfNotPresent|Never"),
    "security": _matching("restricted|baseline"),
    "names": _names,
    "resource": _matching(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*"),
    "quantity": _matching(_QUANTITY),
    "memory": _memory,
    "gang": _gang,
    "yes": _yes,
    "texts": _texts,
    "tolerations": _tolerations,
    "template": _mapping,
    "roles": _mapping,
    "path": _matching(r"/[A-Za-z0-9._/-]*[A-Za-z0-9._-]"),
}
