"""Whether a text could hold a secret at all: plain words, so that a start and a quiet run load no pattern for it."""

from __future__ import annotations

from typing import Any

import msgspec

WORDS = (
    "key", "token", "secret", "passw", "pwd", "auth", "bearer", "cookie", "://", "credential", "passphrase", "sig",
    "akia", "asia", "aroa", "aida", "agpa", "anpa", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat", "glpat", "sk-", "xox", "aiza", "ya29", "ltai", "eyj", "api", "r8_", "dckr", "pypi-", "npm_", "dop_",
    "hvs.", "wandb", "connection", "code=",
)  # fmt: skip
"""A text without any of these holds no secret that `holdfast.explain.secrets.mask` knows."""


def may_hold(text: str) -> bool:
    """False where the text is certainly without a secret."""
    low = text.lower()
    return any(word in low for word in WORDS)


def may_hold_anywhere(value: Any) -> bool:
    """The same for every text in an event, a struct or a container."""
    if type(value) is str:
        return may_hold(value)
    if isinstance(value, tuple | list):
        return any(may_hold_anywhere(item) for item in value)
    if isinstance(value, dict):
        return any(may_hold_anywhere(item) for pair in value.items() for item in pair)
    if isinstance(value, msgspec.Struct):
        return any(may_hold_anywhere(getattr(value, name)) for name in value.__struct_fields__)
    return False
