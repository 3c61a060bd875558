"""Decides quickly whether a text may contain a secret, by a search for fixed words.

In most runs no text contains one of them, so the slow patterns for secrets are never loaded.
"""

from __future__ import annotations

import msgspec

#: Every text with a secret contains at least one of these words. In a text without them,
#: `holdfast.explain.text.secret_masking.mask` finds no secret.
WORDS = (
    "key", "token", "secret", "passw", "pwd", "auth", "bearer", "cookie", "://", "credential", "passphrase", "sig",
    "akia", "asia", "aroa", "aida", "agpa", "anpa", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat", "glpat", "sk-", "xox", "aiza", "ya29", "ltai", "eyj", "api", "r8_", "dckr", "pypi-", "npm_", "dop_",
    "login", "sshpass", "mysql", "mariadb", "curl", "redis-cli", "keydb-cli", "mongo", "ldap", "pass:", "configure",
    "hvs.", "wandb", "connection", "code=", "sk_live_", "sk_test_", "rk_live_", "rk_test_", ":aa", "sg.",
)  # fmt: skip


def may_hold(text: str) -> bool:
    """Return False if the text certainly contains no secret."""
    low = text.lower()
    return any(word in low for word in WORDS)


def may_hold_anywhere(value: object) -> bool:
    """Return False if no text in this event, struct or container contains a secret."""
    texts: list[str] = []
    rest: list[object] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, msgspec.Struct):
            rest.extend(msgspec.structs.astuple(item))
        elif isinstance(item, tuple | list):
            rest.extend(item)
        elif isinstance(item, dict):
            rest.extend(item)
            rest.extend(item.values())
    return may_hold("\n".join(texts))
