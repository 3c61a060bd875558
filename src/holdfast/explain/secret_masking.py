"""Masks secrets in text that leaves holdfast: tokens, keys, passwords, signed URLs.

Reports are sent on (mails, portals, tickets), and a log line may contain a secret of its program. Text that looks like
a secret is replaced by `***`; the name before it stays, because readers need it.
"""

from __future__ import annotations

from holdfast.lazy_pattern import Lazy

_MASK = "***"

_NAMED = Lazy(
    r"""(?ix)
    (?P<name>(?<![\w.-])["']?[\w.-]{0,64}?(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access)?[_-]?key)?|secret|passw(?:or)?d|passphrase|pwd
        |auth[_-]?token|access[_-]?token|refresh[_-]?token|session[_-]?token|security[_-]?token|id[_-]?token|private[_-]?key
        |[_-]token|client[_-]?secret|credentials?|account[_-]?key|sas[_-]?token|connection[_-]?string|\btoken)
    \\*["']?\s*(?:=|:|=>|\s(?=["'][^"']{6,}["']))\s*)
    (?P<quote>\\*["']?)(?P<value>(?!\*\*\*|None\b|null\b|True\b|False\b|<|\$\{|\{)[^\s"',;&}\])]{3,})(?P=quote)
    """
)
# ruff: noqa: E501 - one family of secrets a line
_OPTION = Lazy(
    r"(?i)(?P<name>--?(?:[\w-]*(?:token|password|passwd|secret|api[-_]?key|access[-_]?key))[ =]+)(?P<value>[^\s\"',]{3,})"
)
_HEADER = Lazy(
    r"(?i)(?P<name>(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:b[\"'])?(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?)[^\s\"',}]{3,}"
    r"(?P<rest>(?:,\s*(?:Credential|SignedHeaders|Signature)=[^\s,\"']+)*)"
)
_BEARER = Lazy(r"(?i)(?P<name>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_COOKIE = Lazy(r"(?i)(?P<name>\b(?:set-)?cookie[\"']?\s*:\s*)[^\r\n\"']+")
_URL_USER = Lazy(r"(?P<name>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/@:\"']{0,256}:)[^\s/@\"']{1,512}(?=@)")
_URL_TOKEN = Lazy(r"(?P<name>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)[^\s/@:\"']{16,512}(?=@)")
_SIGNED = Lazy(
    r"(?i)(?P<name>[?&](?:X-(?:Amz|Goog|Oss|Obs|Cos)-(?:Signature|Credential|Security-Token)|Signature|Sig|AWSAccessKeyId|OSSAccessKeyId"
    r"|AccessKeyId|GoogleAccessId|security-token|access_token|token|key|api_key|apikey|password|secret|code|sv|se|sp|st|spr|srt|ss)=)[^&\s\"'<>)]{3,}"
)
_SHAPES = Lazy(
    r"""(?x)
    \b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{16}\b
    |\bhf_[A-Za-z0-9]{10,}|\bapi_org_[A-Za-z0-9]{10,}
    |\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}
    |\bsk-(?:proj-|ant-|or-|svcacct-)?[A-Za-z0-9_-]{16,}|\br8_[A-Za-z0-9]{20,}|\bnvapi-[A-Za-z0-9_-]{20,}
    |\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{30,}|\bya29\.[0-9A-Za-z_-]{10,}|\bLTAI[0-9A-Za-z]{12,}
    |\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?|\bdckr_pat_[A-Za-z0-9_-]{16,}|\bpypi-[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{20,}
    |\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|\bdapi[0-9a-f]{32}\b|\d{8,10}:AA[A-Za-z0-9_-]{33}|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    |\bwandb_v\d_[A-Za-z0-9_]{16,}|\bkey-[0-9a-f]{32}\b|\bdop_v1_[0-9a-f]{32,}|\bhvs\.[A-Za-z0-9_-]{16,}
    |-----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:[\s\S]*?-----END\ [A-Z ]*PRIVATE\ KEY-----|[\s\S]*)
    """
)
_HEX_KEY = Lazy(r"(?i)(?P<name>(?:wandb|api|key|login|token)\b.{0,24}?\s)(?P<value>[0-9a-f]{40}|[0-9a-f]{32})\b")
_HINTS = Lazy(
    r"(?i)key|token|secret|passw|pwd|auth|bearer|cookie|://|credential|passphrase|sig|AKIA|ASIA|AROA|AIDA|AGPA|ANPA|hf_|gh[pousr]_|github_pat"
    r"|glpat|sk-|xox|AIza|ya29|LTAI|eyJ|PRIVATE|api|r8_|dckr|pypi-|npm_|dop_|hvs\.|wandb|connection.string|code=|[sr]k_(?:live|test)_|\d:AA|SG\."
)


def mask(text: str) -> str:
    """Return the text with its secrets masked, unchanged if it has none. Masking twice changes nothing more."""
    if not text or not _HINTS.search(text):
        return text
    text = _SHAPES.sub(_MASK, text)
    text = _HEADER.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _BEARER.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _COOKIE.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _URL_USER.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _URL_TOKEN.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _SIGNED.sub(lambda m: f"{m['name']}{_MASK}", text)
    text = _NAMED.sub(lambda m: f"{m['name']}{m['quote']}{_MASK}{m['quote']}", text)
    text = _OPTION.sub(lambda m: f"{m['name']}{_MASK}", text)
    return _HEX_KEY.sub(lambda m: f"{m['name']}{_MASK}", text)
