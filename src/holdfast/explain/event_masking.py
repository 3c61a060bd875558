"""Masks the secrets in whole events before they are written to the journal or another file.

A log excerpt has up to a megabyte, and `mask` takes one millisecond per kilobyte. So this module first searches long
texts with re2, and gives only the lines that may hold a secret to `mask`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from holdfast.explain.secret_masking import mask
from holdfast.model.secret_hints import may_hold

T = TypeVar("T")

#: Length in characters from which a first search with re2 saves time.
_LONG = 600

#: A cheap pattern that matches in every line in which a pattern of `mask` matches, and in some more.
_CLOSER = (
    r"(?i)(?:key(?:[_-]?id)?|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|connection[_-]?string)\\*[\"']?(?:\s*[:=]|\s+[\"'])"
    r"|--?[\w-]*(?:token|passw(?:or)?d|secret|api[-_]?key|access[-_]?key)[ =]"
    r"|authorization[\"']?\s*[:=]|\bbearer\s|cookie[\"']?\s*:|://[^\s/@]{1,600}@|[?&][\w-]{2,30}=|AccountKey"
    r"|(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{16}|hf_[a-z0-9]{10}|api_org_|gh[pousr]_[a-z0-9]{16}|github_pat_|glpat-"
    r"|\bsk-[\w-]{16}|\br8_[a-z0-9]{20}|nvapi-|xox[abeoprs]-|AIza[\w-]{30}|ya29\.|LTAI[0-9a-z]{12}|eyJ[\w-]{8}|dckr_pat_"
    r"|pypi-[\w-]{20}|npm_[a-z0-9]{20}|wandb_v\d|key-[0-9a-f]{32}|dop_v1_|hvs\.|PRIVATE KEY"
    r"|[sr]k_(?:live|test)_|dapi[0-9a-f]{32}|\d:AA[\w-]{33}|SG\.[\w-]{16}"
    r"|(?:wandb|api|key|login|token)\b.{0,24}?\s(?:[0-9a-f]{40}|[0-9a-f]{32})\b"
)


def mask_text(text: str) -> str:
    """Return the text without secrets, like `mask`, but faster for long texts."""
    if len(text) < _LONG:
        return mask(text) if may_hold(text) else text
    if "PRIVATE KEY" in text:
        return mask(text)  # a private key is the only secret that spans several lines
    try:
        hits = list(_searcher().finditer(text))
    except UnicodeEncodeError:
        return mask(text)  # re2 cannot search a text with a lone surrogate
    pieces: list[str] = []
    done = 0
    for hit in hits:
        if hit.start() < done:
            continue
        begin = text.rfind("\n", 0, hit.start()) + 1
        end = text.find("\n", hit.end())
        end = len(text) if end < 0 else end
        pieces += [text[done:begin], mask(text[begin:end])]
        done = end
    return "".join([*pieces, text[done:]]) if pieces else text


_compiled: list[Any] = []


def _searcher() -> Any:
    if not _compiled:
        import re2  # imported late: it would slow down a start

        _compiled.append(re2.compile(_CLOSER))
    return _compiled[0]


def masked(value: T) -> T:
    """Return `value` (an event, a struct, a container, a text) with every text in it masked; the same object if nothing
    had to be masked.

    A value in a dict is checked together with its key, an option of a command line together with its value.
    """
    result: Any = value
    if type(value) is str:
        result = mask_text(str(value))
    elif isinstance(value, tuple | list):
        result = _words([masked(item) for item in value])
        result = value if _same(result, value) else type(value)(result)
    elif isinstance(value, dict):
        result = {key: _variable(key, item) for key, item in value.items()}
        result = value if _same(result.values(), value.values()) else result
    elif isinstance(value, msgspec.Struct):
        changed = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = masked(before)
            if after is not before:
                changed[name] = after
        result = msgspec.structs.replace(value, **changed) if changed else value
    return result  # type: ignore[no-any-return]  # each branch keeps the type of `value`


def _same(one: Any, other: Any) -> bool:
    return all(new is old for new, old in zip(one, other, strict=True))


def _variable(name: object, value: Any) -> Any:
    """Mask a value of a dict, whose key may show that it is secret: `WANDB_API_KEY: abc`."""
    if type(value) is str and type(name) is str and mask_text(f"{name}={value}") != f"{name}={value}":
        return "***" if mask_text(value) == value else mask_text(value)
    return masked(value)


def _words(items: list[Any]) -> list[Any]:
    """Mask the value of an option that is split into two words: `--api-key`, `abc`."""
    for at in range(1, len(items)):
        name, value = items[at - 1], items[at]
        if type(name) is str and type(value) is str and name.startswith("-") and "=" not in name:
            whole = f"{name} {value}"
            if not value.startswith("-") and len(whole) < _LONG and (hidden := mask_text(whole)) != whole:
                items[at] = hidden.removeprefix(name).lstrip()
    return items
