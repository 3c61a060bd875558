"""Masks secrets in text that leaves holdfast: tokens, keys, passwords, signed URLs.

Reports are forwarded (mails, portals, tickets), and a log line may contain a secret of the program. Each text that
looks like a secret becomes `***`. The name before the secret stays, because readers need it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from holdfast.lazy_pattern import Lazy
from holdfast.model.secret_hints import may_hold

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
# ruff: noqa: E501 - one family of secrets per line, even if long
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
#: Programs that take a secret behind an option which means something else elsewhere (`docker run -p 8080:80`).
_COMMAND = Lazy(
    r"""(?x)
    (?P<name>(?<![\w.-])(?:
        (?:docker|podman|nerdctl|buildah|skopeo|crane|oras|regctl|helm|apptainer|singularity|az|oc|ibmcloud)\s(?:[^\n;|&]{0,200}?\s)?login\s(?:[^\n;|&]{0,300}?\s)?-p(?:\s*=\s*|\s+)?
        |sshpass\s+(?:-[ve]+\s+)?-p\s*
        |(?:mysql\w{0,12}|mariadb(?:-\w{1,12})?)\s(?:[^\n;|&]{0,300}?\s)?-p
        |curl\s(?:[^\n;|&]{0,600}?\s)?(?:-[a-zA-Z]{0,6}[uU]\s*|--(?:proxy-)?user[=\s]\s*)["']?[^\s:"']{1,256}:
        |https?\s(?:[^\n;|&]{0,300}?\s)?(?:-a\s+|--auth[=\s]\s*)["']?[^\s:"']{1,256}:
        |(?:redis-cli|keydb-cli)\s(?:[^\n;|&]{0,300}?\s)?-a\s+
        |(?:mongo|mongosh|mongodump|mongorestore|mongoexport|mongoimport)\s(?:[^\n;|&]{0,300}?\s)?-p\s+
        |ldap(?:search|modify|add|delete|passwd|whoami)\s(?:[^\n;|&]{0,300}?\s)?-w\s*
        |openssl\s(?:[^\n;|&]{0,300}?\s)?-pass(?:in|out)?\s+pass:
        |wandb\s+login\s+(?:--?[a-z-]+(?:=\S+)?\s+){0,6}(?=(?!https?://)\S{20})
        |aws\s+configure\s+(?:[^\n;|&]{0,200}?\s)?set\s+\S{0,64}(?:secret|token|access_key)\w{0,16}\s+
    ))(?P<quote>["']?)(?P<value>(?!=?\*\*\*|[-$<\s])(?:(?<=["'])[^"'\n]+|[^\s"';|&]+))
    """
)
#: Addresses whose path is the secret.
_HOOK = Lazy(
    r"""(?ix)
    (?P<name>\bhttps?://(?:
        hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/
        |(?:[\w-]+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/
        |(?:[\w-]+\.webhook\.office\.com|outlook\.office(?:365)?\.com)/webhook(?:b2)?/
        |open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/
        |hooks\.zapier\.com/hooks/catch/|maker\.ifttt\.com/trigger/[^\s/]{1,100}/(?:json/)?with/key/
        |hook\.(?:[\w-]+\.)?make\.com/|hc-ping\.com/|events\.pagerduty\.com/integration/
        |[^\s"'<>?\#]{1,200}/(?:hooks?|webhooks?)/(?!(?:[^\s/]{1,40}/)?(?:blob|tree|raw|commit)/)(?=(?:[\w-]{1,64}/){0,2}(?=[\w-]{0,64}?\d)(?=[\w-]{0,64}?[a-z])[\w-]{16,})
    ))(?P<value>(?!\*\*\*)[^\s"'<>?\#),]{6,})
    |(?P<scheme>\b(?:slack|discord|tgram|msteams|workflows?|gchat|mmosts?|rockets?|feishu|lark|dingtalk|wecombot|pover|pbul|ifttt|pagerduty|opsgenie|sendgrid|zulip|webexteams|wxteams)://)(?!\*\*\*)[^\s"'<>]{6,}
    """
)
_HINTS = Lazy(
    r"(?i)key|token|secret|passw|pwd|auth|bearer|cookie|://|credential|passphrase|sig|AKIA|ASIA|AROA|AIDA|AGPA|ANPA|hf_|gh[pousr]_|github_pat"
    r"|glpat|sk-|xox|AIza|ya29|LTAI|eyJ|PRIVATE|api|r8_|dckr|pypi-|npm_|dop_|hvs\.|wandb|connection.string|code=|[sr]k_(?:live|test)_|\d:AA|SG\."
    r"|login|sshpass|mysql|mariadb|curl|redis-cli|keydb-cli|mongo|ldap|pass:|aws\s+configure"
)


def mask(text: str) -> str:
    """Return the text with its secrets masked. A second masking changes nothing."""
    if not text or not _HINTS.search(text):
        return text
    text = _HOOK.sub(lambda m: f"{m['name'] or m['scheme']}{_MASK}", text)
    text = _COMMAND.sub(lambda m: f"{m['name']}{m['quote']}{_MASK}", text)
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


T = TypeVar("T")

#: Length of a text in characters from which a first search with re2 saves time.
_LONG = 600

#: A fast pattern that matches at least every line in which a pattern of `mask` matches.
_CLOSER = (
    r"(?i)(?:key(?:[_-]?id)?|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|connection[_-]?string)\\*[\"']?(?:\s*[:=]|\s+[\"'])"
    r"|--?[\w-]*(?:token|passw(?:or)?d|secret|api[-_]?key|access[-_]?key)[ =]"
    r"|authorization[\"']?\s*[:=]|\bbearer\s|cookie[\"']?\s*:|://[^\s/@]{1,600}@|[?&][\w-]{2,30}=|AccountKey"
    r"|(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{16}|hf_[a-z0-9]{10}|api_org_|gh[pousr]_[a-z0-9]{16}|github_pat_|glpat-"
    r"|\bsk-[\w-]{16}|\br8_[a-z0-9]{20}|nvapi-|xox[abeoprs]-|AIza[\w-]{30}|ya29\.|LTAI[0-9a-z]{12}|eyJ[\w-]{8}|dckr_pat_"
    r"|pypi-[\w-]{20}|npm_[a-z0-9]{20}|wandb_v\d|key-[0-9a-f]{32}|dop_v1_|hvs\.|PRIVATE KEY"
    r"|[sr]k_(?:live|test)_|dapi[0-9a-f]{32}|\d:AA[\w-]{33}|SG\.[\w-]{16}"
    r"|(?:wandb|api|key|login|token)\b.{0,24}?\s(?:[0-9a-f]{40}|[0-9a-f]{32})\b"
    r"|\b(?:login|sshpass|mysql\w*|mariadb[\w-]*|curl|https?|redis-cli|keydb-cli|mongo\w*|ldap\w+)\s(?:.*\s)?-|pass:|aws\s+configure\s"
    r"|\bwandb\s+login\s|://[^\s/]*(?:hook|discord|office|feishu|larksuite|ifttt|hc-ping|pagerduty)|://\S*/(?:web)?hooks?/"
    r"|\b(?:slack|discord|tgram|msteams|workflows?|gchat|mmosts?|rockets?|feishu|lark|dingtalk|wecombot|pover|pbul|ifttt|pagerduty|opsgenie|sendgrid|zulip|webexteams|wxteams)://"
)


def mask_text(text: str) -> str:
    """Return the text without secrets, as `mask` does, but faster for long texts."""
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
        import re2  # imported here, because it would slow down a start

        _compiled.append(re2.compile(_CLOSER))
    return _compiled[0]


def masked(value: T) -> T:
    """Return `value` (an event, a struct, a container, a text) with every text in it masked.

    If nothing had to be masked, return the same object. A value in a dict is checked together with its key, and an
    option of a command line together with its value.
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
    """Mask a value of a dict, if its key shows that the value is secret: `WANDB_API_KEY: abc`."""
    if type(value) is str and type(name) is str and mask_text(f"{name}={value}") != f"{name}={value}":
        return "***" if mask_text(value) == value else mask_text(value)
    return masked(value)


def _words(items: list[Any]) -> list[Any]:
    """Mask the value of an option if option and value are two words: `--api-key`, `abc`."""
    for at in range(1, len(items)):
        name, value = items[at - 1], items[at]
        if type(name) is str and type(value) is str and name.startswith("-") and "=" not in name:
            whole = f"{name} {value}"
            if not value.startswith("-") and len(whole) < _LONG and (hidden := mask_text(whole)) != whole:
                items[at] = hidden.removeprefix(name).lstrip()
    return _of_command(items) if 2 < len(items) <= _MOST_WORDS else items


#: Limit on the number of words of a command that is searched for secrets of certain programs.
_MOST_WORDS = 200


def _of_command(items: list[Any]) -> list[Any]:
    """Mask words that are secrets of the program before them: `docker`, `login`, `-p`, `abc`."""
    if not all(type(item) is str for item in items) or sum(map(len, items)) > 10 * _LONG:
        return items
    if not _COMMAND.search(" ".join(items)):
        return items
    line = ""
    for at, item in enumerate(items):
        # A word with blanks is one value.
        word = "_".join(item.split()) or "_"
        before, line = line, f"{line} {word}" if line else word
        if line != (hidden := _COMMAND.sub(lambda m: f"{m['name']}{m['quote']}{_MASK}", line)):
            last = hidden.removeprefix(before).lstrip() if hidden.startswith(before) else _MASK
            items[at], line = last, hidden
    return items
