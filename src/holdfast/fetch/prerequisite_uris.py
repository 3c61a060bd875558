"""Parses the URI of a prerequisite, and formats it without its password."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import Prerequisite


class UriKind(enum.StrEnum):
    """The kind of source from which a URI is fetched."""

    LOCAL = "local"
    HTTP = "http"
    S3 = "s3"
    HDFS = "hdfs"
    GIT = "git"


_SCHEMES = {
    "": UriKind.LOCAL,
    "file": UriKind.LOCAL,
    "http": UriKind.HTTP,
    "https": UriKind.HTTP,
    "s3": UriKind.S3,
    "s3a": UriKind.S3,
    "hdfs": UriKind.HDFS,
    "webhdfs": UriKind.HDFS,
    "swebhdfs": UriKind.HDFS,
    "git": UriKind.GIT,
    "ssh": UriKind.GIT,
}
EXPECTED = "s3://, http://, https://, hdfs://, git+https://, git+ssh://, a URL that ends with .git, or a path"
_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!//)[^@]+\.git(?:@\S+)?$")
#: Matches a repository whose user, host or path begins with `-`.
_OPTION_LIKE = re.compile(r"(?:[a-z+]+://)?(?:[^/@]*@)?-")
#: Matches text that git forbids in the names of branches and tags (git check-ref-format).
_NO_REF = re.compile(r"^[-+/]|[\s~^:?*\[\\\x7f]|\.\.|@\{|[/.]$|\.lock$")
_OPTIONS = {
    UriKind.GIT: frozenset({"depth", "submodules"}),
    UriKind.S3: frozenset({"anon", "endpoint", "region"}),
    UriKind.HDFS: frozenset({"https", "kerberos"}),
}
_YES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Uri(Noun, frozen=True, kw_only=True):
    """The parts of a URI. `url` contains no user, no password, and no part after `#`."""

    kind: UriKind
    url: str
    #: The URI in its printable form: without user, password and the values of the query.
    shown: str
    user: str = ""
    password: str = ""
    #: For git: a branch, a tag or a commit. Empty means the repository's default branch.
    ref: str = ""
    options: dict[str, str] = {}

    @property
    def path(self) -> str:
        """The path, if the URI is one of a local file or directory."""
        return unquote(urlsplit(self.url).path) if self.url.startswith("file:") else self.url

    @property
    def last(self) -> str:
        """Last part of the URI's path: the name of the file or directory."""
        parts = [part for part in unquote(urlsplit(self.url).path).split("/") if part]
        return parts[-1] if parts else ""

    def yes(self, name: str, default: bool) -> bool:
        return _YES.get(self.options.get(name, ""), default)


def uri_of(thing: Prerequisite) -> Uri:
    """Parse the prerequisite's URI. Raises BadUsage for a URI of an unknown kind, with the expected forms."""
    text = thing.uri.strip()
    where = f"prerequisite {thing.name}"
    if not text:
        raise BadUsage(f"{where} has no uri; expected {EXPECTED}")
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text) or text.startswith("-"):
        raise BadUsage(f"{where}: its uri has characters that no uri has; expected {EXPECTED}")
    found = _scp(text) or _parsed(text, where)
    known = _OPTIONS.get(found.kind, frozenset[str]())
    for name, value in found.options.items():
        if name not in known:
            takes = f"after # it takes {', '.join(sorted(known))}" if known else "after # nothing is expected"
            raise BadUsage(f"{where}: #{name}= is no option of {found.kind.value}; {takes}")
        if name == "depth" and not value.isdigit():
            raise BadUsage(f"{where}: #depth={value}: expected a number of commits, or 0 for all")
        if name in ("submodules", "anon", "https", "kerberos") and value not in _YES:
            raise BadUsage(f"{where}: #{name}={value}: expected yes or no")
    if thing.sha256 and not re.fullmatch(r"[0-9a-fA-F]{64}", thing.sha256):
        raise BadUsage(f"{where}: sha256: expected 64 hexadecimal digits", hint="sha256sum FILE")
    if found.kind is UriKind.GIT and _OPTION_LIKE.match(found.url):
        # ssh would read a host that begins with `-` as an option. git refuses most of these too.
        raise BadUsage(f"{where}: {found.shown!r}: no user, host or path of a repository begins with `-`")
    if found.kind is UriKind.GIT and _NO_REF.search(found.ref):
        # git would read such a text as an option, or as a refspec that overwrites branches.
        raise BadUsage(f"{where}: {found.ref!r} is no name of a branch, a tag or a commit", hint="git ls-remote URI")
    if found.kind is UriKind.GIT and thing.sha256:
        raise BadUsage(
            f"{where}: sha256 is of one file, and this is a git repository: name the commit instead, …@COMMIT"
        )
    if found.kind is UriKind.GIT and thing.extract:
        raise BadUsage(f"{where}: extract is for archives, and this is a git repository")
    return found


def _scp(text: str) -> Uri | None:
    """Parse git's short form `git@host:group/project.git@REF`. Return None if the text has another form."""
    bare = text.removeprefix("git+")
    if "://" in bare or not _SCP.fullmatch(bare):
        return None
    url, _, ref = _at_end(bare)
    return Uri(kind=UriKind.GIT, url=url, shown=_with(url, ref), ref=ref)


def _at_end(text: str) -> tuple[str, str, str]:
    """Split off the `@REF` at the end of a path. Return the rest, the `@` and the ref.

    An `@` before the path belongs to a user name, so it is not split off.
    """
    head, slash, tail = text.rpartition(".git")
    if slash and tail.startswith("@"):
        return head + slash, "@", tail[1:]
    if slash and not tail:
        return text, "", ""
    path, at, ref = text.rpartition("@")
    return (path, at, ref) if at and "/" in path.partition("://")[2] else (text, "", "")


def _with(url: str, ref: str) -> str:
    return f"{url}@{ref}" if ref else url


def _parsed(text: str, where: str) -> Uri:
    as_git = text.startswith("git+")
    text = text.removeprefix("git+")
    if text.startswith("/") or "://" not in text:
        if text.startswith("~"):
            text = str(Path(text).expanduser())
        if as_git or text.endswith(".git") or ".git@" in text:
            url, _, ref = _at_end(text)
            return Uri(kind=UriKind.GIT, url=url, shown=_with(url, ref), ref=ref)
        return Uri(kind=UriKind.LOCAL, url=text, shown=text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadUsage(f"{where}: its uri cannot be read: {error}; expected {EXPECTED}") from None
    kind = _SCHEMES.get(parts.scheme.lower())
    if kind is None:
        raise BadUsage(f"{where}: {parts.scheme}:// is not known; expected {EXPECTED}")
    path, ref = parts.path, ""
    if as_git or ((kind is UriKind.HTTP or kind is UriKind.GIT) and re.search(r"\.git(?:@[^/]\S*)?$", path)):
        kind = UriKind.GIT
        head, _, ref = _at_end(f"x://x{path}")
        path = head.removeprefix("x://x")
    if kind not in (UriKind.LOCAL, UriKind.GIT) and not host:
        raise BadUsage(f"{where}: its uri names no host or bucket: expected {parts.scheme}://HOST/PATH")
    place = f"[{host}]" if ":" in host else parts.netloc.rpartition("@")[2].rpartition(":")[0] or host
    place = place if ":" in host or kind is not UriKind.S3 else parts.netloc.rpartition("@")[2]
    netloc = place if kind is UriKind.S3 or port is None else f"{place}:{port}"
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if kind is UriKind.GIT and parts.scheme in ("ssh", "git+ssh") and user:
        # ssh needs the user's name in the URL. The name is not a secret.
        netloc, user = f"{user}@{netloc}", ""
    query = "" if kind in (UriKind.S3, UriKind.GIT) else parts.query
    url = urlunsplit((parts.scheme, netloc, path, query, ""))
    shown = _with(urlunsplit((parts.scheme, netloc, path, "***" if query else "", "")), ref)
    options = dict(parse_qsl(parts.fragment, keep_blank_values=True)) if kind in _OPTIONS else {}
    return Uri(kind=kind, url=url, shown=shown, user=user, password=password, ref=ref, options=options)
