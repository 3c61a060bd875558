"""Fetches from a git repository with the git command: a branch, a tag or a commit, with the requested depth of history.

git gets credentials through its environment, never as an argument, because every user of the machine may read
arguments. Progress and the causes of failures come from git's output. Secrets are masked in messages.
"""

from __future__ import annotations

import base64
import os
import re
import select
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.clock import Clock
from holdfast.fetch.fetch_failures import FetchError
from holdfast.fetch.prerequisite_uris import Uri
from holdfast.fetch.target_place import size_of
from holdfast.model.phrases import Phrase

_RECEIVED = re.compile(r"Receiving objects:\s+\d+% .*?, ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: Minimum time between two measurements of the files that git has written, in seconds.
LOOK_EVERY_S = 0.5
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: Patterns of git's error messages, with their failure classes. The first pattern that matches counts.
_WORDS: tuple[tuple[str, Phrase], ...] = (
    (r"couldn't find remote ref|[Rr]emote branch \S+ not found|not our ref", Phrase.GIT_REF_NOT_FOUND),
    (r"unadvertised object|unknown revision|pathspec .* did not match|bad object", Phrase.GIT_REF_NOT_FOUND),
    (r"Could not resolve host|failure in name resolution|Name or service not known", Phrase.DNS_FAILED),
    (r"unable to look up", Phrase.DNS_FAILED),
    (r"certificate|SSL|TLS|gnutls_handshake", Phrase.TLS_VERIFY_FAILED),
    (r"could not read (?:Username|Password)|terminal prompts disabled", Phrase.CREDENTIALS_MISSING),
    # A git daemon has no credentials. It prints this message both for missing and for unexported repositories.
    (r"access denied or repository not exported", Phrase.DOWNLOAD_NOT_FOUND),
    (r"Authentication failed|Permission denied \(|returned error: 40[137]", Phrase.DOWNLOAD_REFUSED),
    (r"access denied|HTTP Basic|Host key verification failed", Phrase.DOWNLOAD_REFUSED),
    (r"returned error: (?:429|503)", Phrase.OBJECT_STORE_THROTTLED),
    (r"No space left on device", Phrase.DISK_FULL),
    (r"Permission denied", Phrase.PERMISSION_DENIED),
    (r"[Rr]epository .*not found|returned error: 404|does not appear to be a git repo", Phrase.DOWNLOAD_NOT_FOUND),
    (r"does not exist|no such repository", Phrase.DOWNLOAD_NOT_FOUND),
    (r"Connection refused|Failed to connect|Couldn't connect", Phrase.DOWNLOAD_UNREACHABLE),
    (r"[Tt]imed out|[Tt]imeout|too slow", Phrase.DOWNLOAD_TIMED_OUT),
    (r"No route to host|Network is unreachable", Phrase.NETWORK_UNREACHABLE),
)

#: Minimum length, in characters, of a secret that is masked even within a word: a shorter one is part of other words by
#: chance.
_LONG_SECRET = 6


class Checkout:
    """Fetches one git repository.

    `stall_s`: how long git waits for data before it gives up, in seconds.
    `most_bytes`: the size limit; None: no limit.
    `moved`: called with the number of bytes received so far.
    `uri`: the repository, and the branch, tag or commit to fetch.
    """

    def __init__(self, uri: Uri, stall_s: float, most_bytes: int | None, moved: Callable[[int], None]) -> None:
        self._uri = uri
        self._stall_s = stall_s
        self._most = most_bytes
        self._moved = moved
        self._secrets = [text for text in (uri.password, uri.user) if text]
        if uri.user or uri.password:
            self._secrets.append(_basic(uri))

    def fetch(self, into: Path) -> str:
        """Clone the repository into the new directory `into`, and return the commit. Raises FetchError."""
        if shutil.which("git") is None:
            raise FetchError(
                Phrase.CODE_NOT_FOUND,
                f"{self._uri.shown} needs the git command, which is not installed here",
                "Install git on the node, or take the holdfast image, which has it.",
            )
        into.mkdir(mode=0o755)
        self._git(into, "init", "--quiet", ".")
        self._git(into, "remote", "add", "--", "origin", self._uri.url)
        self._take(into)
        self._git(into, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        commit = self._git(into, "rev-parse", "HEAD").strip()
        if self._uri.yes("submodules", True) and (into / ".gitmodules").is_file():
            depth = ("--depth", "1") if self._depth() else ()
            self._git(into, "submodule", "update", "--init", "--recursive", "--progress", *depth)
        return commit

    def _depth(self) -> int:
        return int(self._uri.options.get("depth", "1"))

    def _take(self, into: Path) -> None:
        ref, depth = self._uri.ref or "HEAD", self._depth()
        shallow = (f"--depth={depth}",) if depth else ()
        try:
            self._git(into, "fetch", "--progress", "--no-tags", *shallow, "--", "origin", ref)
        except FetchError as trouble:
            if trouble.phrase is not Phrase.GIT_REF_NOT_FOUND or not re.fullmatch(r"[0-9a-f]{7,64}", ref):
                raise
            # A server may refuse to send a commit by its hash. Then fetch all branches, because they contain it.
            self._git(into, "fetch", "--progress", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
            found = self._git(into, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").strip()
            if not _COMMIT.fullmatch(found):
                raise
            (into / ".git" / "FETCH_HEAD").write_text(f"{found}\t\t\n")

    # ------------------------------------------------------------------------------------------ running one git command

    def _git(self, into: Path, *words: str) -> str:
        now = Clock().now
        command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
        # Stdout and stderr share one pipe, so that git cannot block on one while only the other is read.
        with subprocess.Popen(
            command, cwd=into, env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            last: deque[str] = deque(maxlen=20)
            rest = b""
            look_at = 0.0
            while True:
                # git prints nothing while it unpacks a pack, so measure the files on disk at intervals.
                talks = bool(select.select([process.stdout], [], [], LOOK_EVERY_S)[0])
                began = now()
                if self._most is not None and began >= look_at:
                    self._over = self._over or size_of(into) > self._most
                    look_at = now() + max(LOOK_EVERY_S, 10 * (now() - began))
                block = os.read(process.stdout.fileno(), 1 << 16) if talks else b""
                if talks and not block:
                    break
                *lines, rest = re.split(rb"[\r\n]", rest + block)
                for line in lines:
                    text = line.decode("utf-8", "replace").strip()
                    if self._progress(text) or not text:
                        continue
                    last.append(text)
                if self._over:
                    process.kill()
                    raise FetchError(
                        Phrase.DOWNLOAD_TOO_LARGE,
                        f"{self._uri.shown} has sent more than the {self._most} bytes that are allowed",
                    )
            if rest.strip():
                last.append(rest.decode("utf-8", "replace").strip())
            status = process.wait()
        if status and words[0] != "rev-parse":
            raise self._trouble(list(last), status)
        return "\n".join(last)

    _over = False

    def _progress(self, text: str) -> bool:
        found = _RECEIVED.search(text)
        if found is not None:
            received = int(float(found[1]) * _UNITS[found[2]])
            self._moved(received)
            self._over = self._most is not None and received > self._most
        return found is not None or re.match(r"(?:remote: )?[A-Z][a-z]+ing [a-z]+:\s+\d+", text) is not None

    def _trouble(self, lines: list[str], status: int) -> FetchError:
        text = self._masked("\n".join(lines))
        told = next((line for line in text.split("\n") if line.startswith(("fatal:", "error:", "ERROR"))), "")
        said = (told or text.rpartition("\n")[2])[:300] or f"git ended with status {status}"
        shown = self._uri.shown
        for pattern, phrase in _WORDS:
            if not re.search(pattern, text):
                continue
            if phrase is Phrase.GIT_REF_NOT_FOUND:
                return FetchError(phrase, f"{shown}: the repository has no {self._uri.ref or 'HEAD'}: {said}")
            if phrase is Phrase.CREDENTIALS_MISSING and self._secrets:
                phrase = Phrase.DOWNLOAD_REFUSED  # the server rejected the credentials
            if phrase is Phrase.CREDENTIALS_MISSING:
                return FetchError(
                    phrase,
                    f"there are no credentials for {shown}: {said}",
                    "Give the job a secret and write it into the uri (https://USER:TOKEN@HOST/…), or a ~/.netrc or an "
                    "ssh key on the node.",
                )
            return FetchError(phrase, f"{shown}: {said}", here=phrase is Phrase.DISK_FULL)
        return FetchError(Phrase.DOWNLOAD_FAILED, f"git could not fetch {shown}: {said}")

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            # A short secret is also part of other words, so masking it there would show its characters.
            word = re.escape(secret)
            text = re.sub(word if len(secret) >= _LONG_SECRET else rf"(?<!\w){word}(?!\w)", "***", text)
        return re.sub(r"(\w+://)[^/\s@']+@", r"\1***@", text)

    def _environment(self) -> Mapping[str, str]:
        env = {
            name: value
            for name, value in os.environ.items()
            # Variables of a repository around holdfast must not affect git.
            if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
        }
        env |= {
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": env.get("GIT_ASKPASS", ""),
            "GIT_HTTP_LOW_SPEED_LIMIT": "1",
            "GIT_HTTP_LOW_SPEED_TIME": str(max(1, round(self._stall_s))),
        }
        options = "-o BatchMode=yes -o StrictHostKeyChecking=accept-new"
        env.setdefault("GIT_SSH_COMMAND", f"ssh {options} -o ConnectTimeout={max(1, round(self._stall_s))}")
        if self._uri.user or self._uri.password:
            parts = urlsplit(self._uri.url)
            count = int(env.get("GIT_CONFIG_COUNT", "0") or "0")
            env |= {
                "GIT_CONFIG_COUNT": str(count + 1),
                f"GIT_CONFIG_KEY_{count}": f"http.{parts.scheme}://{parts.netloc}/.extraHeader",
                f"GIT_CONFIG_VALUE_{count}": f"Authorization: Basic {_basic(self._uri)}",
            }
        return env


def _basic(uri: Uri) -> str:
    return base64.b64encode(f"{uri.user}:{uri.password}".encode()).decode()
