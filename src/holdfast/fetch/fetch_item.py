"""Fetches a prerequisite: retries with pauses, resumes a partial file, checks, unpacks, and moves it into place."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from holdfast.fetch.archives import unpack
from holdfast.fetch.fetch_failures import FetchError, writing
from holdfast.fetch.git_source import Checkout
from holdfast.fetch.local_source import LocalSource
from holdfast.fetch.object_stores import StoreSource
from holdfast.fetch.prerequisite_uris import Uri, UriKind, uri_of
from holdfast.fetch.source_api import BLOCK, Entry, FetchSource
from holdfast.fetch.target_place import READABLE, Record, TargetPlace, key_of, size_of, sync_tree
from holdfast.fetch.tree_links import link_outside
from holdfast.fetch.web_source import WebSource
from holdfast.model.fetch_messages import (
    FetchAgain,
    FetchBegan,
    FetchDone,
    FetchFailed,
    FetchMoved,
    FetchOrder,
    FetchTrouble,
    FetchWaits,
    FetchWord,
)
from holdfast.model.phrases import Phrase
from holdfast.model.runtime_plan import Prerequisite
from holdfast.reactor import Reactor

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
TOLD_EVERY_S = 0.5
RATE_OVER_S = 5.0


class ItemFetch:
    """Fetches one prerequisite.

    `thing`: the prerequisite.
    `order`: the fetch request that contains the prerequisite.
    `tell`: called with progress messages.
    `ends`: time on the reactor's clock after which no new try begins.
    """

    def __init__(
        self, thing: Prerequisite, order: FetchOrder, tell: Callable[[FetchWord], None], reactor: Reactor, ends: float
    ) -> None:
        self._thing = thing
        self._uri = uri_of(thing)
        self._order = order
        self._tell = tell
        self._reactor = reactor
        self._ends = ends
        self._place = TargetPlace(Path(thing.into), key_of(thing, self._uri))
        self._dice = random.Random(f"{order.seed} {order.node} {thing.name}")
        self._tried = 0
        self._resumed = 0
        self._total: int | None = None
        self._doing = "fetching"
        self._base = 0
        self._told_at = float("-inf")
        self._rates: list[tuple[float, int]] = []

    def run(self) -> bool:
        """Fetch the prerequisite and report the result. Return whether it is complete."""
        began = self._reactor.now()
        name = self._thing.name
        try:
            record = self._place.whole(self._thing.sha256)
            there = record is not None
            if record is None:
                with self._place.held(self._order.who, lambda who: self._tell(FetchWaits(name=name, who=who))):
                    record = self._place.whole(self._thing.sha256)
                    there = record is not None
                    if record is None:
                        record = self._with_tries()
        except FetchError as trouble:
            return self._failed(trouble)
        except MemoryError:
            return self._failed(
                FetchError(Phrase.HOST_ALLOCATION_FAILED, f"this node has not enough memory to fetch {self._uri.shown}")
            )
        except Exception as error:  # a bug of the fetch must become a report too
            # The error is in holdfast, not in the source: a retry would download everything again in vain.
            traceback.print_exc()
            return self._failed(
                FetchError(
                    Phrase.UNEXPLAINED,
                    f"holdfast failed while it fetched {self._uri.shown}: {type(error).__name__}: {error}",
                    "Report it with these words, please; fetch the data in the command itself until then.",
                )
            )
        self._tell(
            FetchDone(
                name=name,
                into=self._thing.into,
                bytes=record.bytes,
                took_s=round(self._reactor.now() - began, 3),
                there=there,
                resumed_bytes=self._resumed,
                tries=max(1, self._tried),
                mark=record.mark,
            )
        )
        return True

    def _failed(self, trouble: FetchError) -> bool:
        self._tell(FetchFailed(trouble=self._said(trouble), tries=max(1, self._tried)))
        return False

    def _said(self, trouble: FetchError) -> FetchTrouble:
        return FetchTrouble(
            name=self._thing.name,
            phrase=trouble.phrase,
            words=trouble.words,
            solution=trouble.solution,
            here=trouble.here,
        )

    # ------------------------------------------------------------------------------------------ retries

    def _with_tries(self) -> Record:
        try:
            return self._tries()
        except FetchError:
            self._place.tidy()
            raise

    def _tries(self) -> Record:
        self._tell(FetchBegan(name=self._thing.name, uri=self._uri.shown, into=self._thing.into))
        self._place.prepare(self._thing.sha256)
        while True:
            self._tried += 1
            try:
                return self._once()
            except FetchError as trouble:
                if not trouble.passes or self._tried >= max(1, self._thing.tries):
                    raise
                pause = self._pause(trouble)
                if self._reactor.now() + pause >= self._ends:
                    raise
                self._tell(
                    FetchAgain(
                        name=self._thing.name,
                        trouble=self._said(trouble),
                        tried=self._tried,
                        tries=self._thing.tries,
                        pause_s=round(pause, 3),
                    )
                )
            ends = self._reactor.now() + pause
            while (left := ends - self._reactor.now()) > 0:
                self._reactor.wait(longest_s=left)

    def _pause(self, trouble: FetchError) -> float:
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self._tried - 1, 16)))
        drawn = longest * (0.5 + self._dice.random() / 2)
        return max(drawn, trouble.wait_s or 0.0)

    def _once(self) -> Record:
        if self._uri.kind is UriKind.GIT:
            return self._checkout()
        source = _source(self._uri, self._order.stall_s)
        try:
            entries = source.entries()
            if len(entries) == 1 and not entries[0].path:
                return self._file(source, entries[0])
            return self._tree(source, entries)
        finally:
            source.close()

    # ------------------------------------------------------------------------------------------ fetching one file

    def _file(self, source: FetchSource, entry: Entry) -> Record:
        place, thing = self._place, self._thing
        with writing(place.data):
            if place.data.is_dir():
                shutil.rmtree(place.data)
        digest = hashlib.sha256() if thing.sha256 else None
        size, mark = self._take(source, entry, place.data, digest)
        if digest is not None and digest.hexdigest() != thing.sha256.lower():
            place.forget()
            raise FetchError(
                Phrase.DOWNLOAD_CORRUPT,
                f"{self._uri.shown} has the sha256 {digest.hexdigest()}, and {thing.sha256.lower()} was expected",
                "Where the file has changed on purpose, write its new sha256 into the job file (sha256sum FILE).",
            )
        record = self._record(size, mark)
        if not thing.extract:
            with writing(place.data):
                place.data.chmod(0o755 if entry.executable else READABLE)
            place.commit(place.data, record)
            return record
        tree = place.part / "tree"
        with writing(tree):
            if tree.exists():
                shutil.rmtree(tree)
        self._doing, self._total, self._base = "unpacking", None, 0
        self._rates.clear()
        try:
            total = unpack(place.data, tree, self._uri.shown, thing.most_bytes, self._moved, place.free_bytes)
        except FetchError:
            shutil.rmtree(tree, ignore_errors=True)
            raise
        with writing(tree):
            sync_tree(tree)
        record = self._record(total, mark, is_dir=True)
        place.commit(tree, record)
        return record

    def _record(self, size: int, mark: str, *, is_dir: bool = False) -> Record:
        return Record(
            key=self._place.key,
            shown=self._uri.shown,
            bytes=size,
            mark=mark,
            is_dir=is_dir,
            fetched_at=self._reactor.now(),
        )

    def _take(self, source: FetchSource, entry: Entry, path: Path, digest: hashlib._Hash | None) -> tuple[int, str]:
        """Download one file and sync it to the disk. Return its size in bytes and its version."""
        had = _size(path)
        state = self._place.state()
        mark = (entry.mark if entry.path else state.mark) if had else ""
        if had and not mark and digest is None:
            had = 0  # without version or checksum, the server may by now have another version, so start again
        opened = source.open(entry, had, mark)
        at = opened.at
        if opened.size is not None:
            self._bounded(opened.size if not entry.path else 0)
            claimed = self._uri.kind is UriKind.HTTP
            self._place.must_fit(opened.size - at, self._uri.shown, claimed=claimed)
        if not entry.path:
            self._total = opened.size
            if at == 0 or opened.mark != state.mark:
                self._place.note(opened.mark, opened.size)
            self._resumed = max(self._resumed, at)
        with writing(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, READABLE)
        with os.fdopen(fd, "r+b") as file:
            with writing(path):
                file.truncate(at)
                if digest is not None:
                    _digest(file, digest)
                file.seek(at)
            for block in opened.blocks:
                at += len(block)
                self._bounded(self._base + at)
                with writing(path):
                    file.write(block)
                if digest is not None:
                    digest.update(block)
                self._moved(at)
            with writing(path):
                file.flush()
                os.fsync(file.fileno())
        if opened.size is not None and at != opened.size:
            raise FetchError(Phrase.DOWNLOAD_FAILED, f"{self._uri.shown}: {at} bytes came, and {opened.size} were told")
        return at, opened.mark

    def _bounded(self, size: int) -> None:
        most = self._thing.most_bytes
        if most is not None and size > most:
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE,
                f"{self._uri.shown} has {size} bytes or more, and {most} are allowed",
                "Raise max_size, if the file is what you expect.",
            )

    # ------------------------------------------------------------------------------------------ fetching a tree

    def _tree(self, source: FetchSource, entries: list[Entry]) -> Record:
        if self._thing.sha256 or self._thing.extract:
            word = "sha256" if self._thing.sha256 else "extract"
            raise FetchError(
                Phrase.DATA_NOT_FOUND, f"{self._uri.shown} is a directory, and {word} is of one file", "Name a file."
            )
        place, total = self._place, sum(entry.size or 0 for entry in entries)
        self._total = total
        self._bounded(total)
        top = place.data
        with writing(top):
            if top.is_file():
                top.unlink()
            top.mkdir(mode=0o755, exist_ok=True)
        versions = hashlib.sha256("\n".join(f"{one.path} {one.mark}" for one in entries).encode("utf-8", "replace"))
        if place.state().mark != versions.hexdigest():
            with writing(top):
                shutil.rmtree(top)
                top.mkdir(mode=0o755)
            place.note(versions.hexdigest(), total)
        place.must_fit(total - size_of(top), self._uri.shown)
        for entry in entries:
            path = top / entry.path
            if entry.is_dir or entry.link:
                with writing(path):
                    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                    if entry.is_dir:
                        path.mkdir(mode=0o755, exist_ok=True)
                    elif not path.is_symlink():
                        path.symlink_to(entry.link)
                continue
            if _size(path) == entry.size and entry.mark:
                self._resumed += entry.size or 0
            else:
                with writing(path):
                    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                coming = place.part / "coming"
                with writing(coming):
                    coming.unlink(missing_ok=True)
                self._take(source, entry, coming, None)
                with writing(path):
                    coming.chmod(0o755 if entry.executable else READABLE)
                    coming.rename(path)
            self._base += entry.size or 0
        if (name := link_outside(top)) is not None:
            raise FetchError(
                Phrase.ARCHIVE_UNSAFE, f"{self._uri.shown} was changed meanwhile: its link {name} leads out of the copy"
            )
        with writing(top):
            sync_tree(top)
        record = self._record(total, versions.hexdigest(), is_dir=True)
        place.commit(top, record)
        return record

    def _checkout(self) -> Record:
        place = self._place
        place.forget()
        with writing(place.data):
            commit = Checkout(self._uri, self._order.stall_s, self._thing.most_bytes, self._moved).fetch(place.data)
            total = sync_tree(place.data)
        self._bounded(total)
        record = self._record(total, commit, is_dir=True)
        place.commit(place.data, record)
        return record

    # ------------------------------------------------------------------------------------------ progress messages

    def _moved(self, done: int) -> None:
        now = self._reactor.now()
        if now < self._told_at + TOLD_EVERY_S:
            return
        self._told_at = now
        done += self._base
        self._rates = [(when, size) for when, size in self._rates if when >= now - RATE_OVER_S] + [(now, done)]
        (first_at, first), (last_at, last) = self._rates[0], self._rates[-1]
        per_s = (last - first) / (last_at - first_at) if last_at > first_at else 0.0
        self._tell(
            FetchMoved(
                name=self._thing.name,
                bytes=done,
                most_bytes=self._total,
                per_s=round(max(0.0, per_s), 1),
                doing=self._doing,
            )
        )


def _source(uri: Uri, stall_s: float) -> FetchSource:
    match uri.kind:
        case UriKind.LOCAL:
            return LocalSource(uri)
        case UriKind.HTTP:
            return WebSource(uri, stall_s)
        case _:
            return StoreSource(uri, stall_s)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    except OSError:
        return 0


def _digest(file: BinaryIO, digest: hashlib._Hash) -> None:
    file.seek(0)
    while block := file.read(BLOCK):
        digest.update(block)
