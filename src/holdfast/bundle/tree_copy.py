"""Copies a runtime tree into the exchange directory, from which the container of a task runs it.

    DIR/run                    the launcher; it is written last, by a rename
    DIR/holdfast/now           a link to the runtime tree that `run` uses
    DIR/holdfast/tree-DIGEST/  the runtime tree, and the previous tree for tasks that still use it

Nothing else in DIR is changed. A repeated call with the same tree changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.bundle.tree_manifest import NAME, Tree, differs, read_tree
from holdfast.errors import HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.untrusted import Malformed

#: The folder in the exchange directory for everything except `run`.
OWN = "holdfast"
NOW, RUN = "now", "run"
_DRAFT = ".laying-"
_DIGITS = 16
#: Free bytes that are needed besides the runtime tree, for directories and the first files of a job.
_ROOM_BYTES = 4 << 20


class TreeNotInstalled(HoldfastError):
    """The runtime could not be copied into the exchange directory.

    `message`: the sentence for the user. `phrase`: the failure class. `hint`: a command for the user to try.
    """

    def __init__(self, message: str, *, phrase: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.phrase = phrase


class InstalledTree(Noun, frozen=True, kw_only=True):
    """The result of copying a runtime tree."""

    run: Path
    tree: Tree
    #: Directory of the copied tree.
    place: Path
    #: Whether this call wrote a file. False if everything existed already.
    fresh: bool
    #: Version of the runtime tree that `run` used before this call; empty if this call replaced no tree.
    before: str = ""


def lay_down(source: Path, into: Path) -> InstalledTree:
    """Copy the tree at `source` into the exchange directory `into`, which is created if missing.

    Raises `TreeNotInstalled`.

    `run` is never incomplete: it starts either the earlier tree or the new one.
    """
    tree = _whole(source)
    own = into / OWN
    place = own / f"tree-{tree.digest[:_DIGITS]}"
    before = _version_before(own, place)
    try:
        if into.is_dir():
            _may_execute(into)
        if _stands(tree, place, into):
            return InstalledTree(run=into / RUN, tree=tree, place=place, fresh=False)
        _make(own)
        _may_execute(into)
        _open_to_readers(into, own)
        with _alone(own):
            for left in own.glob(f"{_DRAFT}*"):  # a killed `prepare` has left these drafts
                _remove(left)
            if _damage(place, tree):
                _has_room(into, tree)
                _copy(source, tree, place)
            previous = _point(own / NOW, place.name)
            _put_run(place / RUN, into / RUN)
            for old in own.glob("tree-*"):
                if previous and old.name not in (place.name, previous):
                    _remove(old)
    except OSError as error:
        raise _said(error, into) from error
    return InstalledTree(run=into / RUN, tree=tree, place=place, fresh=True, before=before)


def _whole(source: Path) -> Tree:
    hint = "python -m holdfast.bundle NEW_DIRECTORY"
    try:
        tree = read_tree(source)
    except OSError as error:
        why = f"{NAME} in it cannot be read: {(error.strerror or str(error)).lower()}"
        raise TreeNotInstalled(f"{source} holds no runtime ({why})", phrase=Phrase.CONFIG_INVALID, hint=hint) from error
    except Malformed as error:
        raise TreeNotInstalled(
            f"{source} holds no runtime ({NAME}: {error})", phrase=Phrase.CONFIG_INVALID, hint=hint
        ) from error
    if (machine := os.uname().machine) != tree.machine:
        raise TreeNotInstalled(
            f"the runtime at {source} is for {tree.machine}, and this machine is a {machine}",
            phrase=Phrase.EXEC_FORMAT_ERROR,
            hint=hint,
        )
    if at := differs(source, tree):
        raise TreeNotInstalled(
            f"the runtime at {source} is damaged: {at} is not as it was built", phrase=Phrase.DATA_CORRUPT, hint=hint
        )
    return tree


def _damage(place: Path, tree: Tree) -> str:
    """Return why the tree at `place` must be replaced. Return "" if it can stay."""
    try:
        there = read_tree(place)
    except (OSError, Malformed) as error:
        return str(error) or "it cannot be read"
    return differs(place, tree) if there.digest == tree.digest else "it is another one"


def _may_execute(into: Path) -> None:
    if os.statvfs(into).f_flag & os.ST_NOEXEC:
        raise TreeNotInstalled(
            f"{into} lies on a file system that is mounted noexec: no program in it can be started",
            phrase=Phrase.PERMISSION_DENIED,
            hint=f"mount -o remount,exec {into}, or another directory with --into",
        )


def _make(folder: Path) -> None:
    """Create a folder and its missing parents. All users may enter them, whatever the umask is."""
    if folder.is_dir():
        return
    if folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    _make(folder.parent)
    folder.mkdir(exist_ok=True)  # another `prepare` may create the folder at the same time
    folder.chmod(0o755)


def _open_to_readers(*places: Path) -> None:
    """Let all users read and enter these directories, because a task may run as another user than `prepare`."""
    for place in places:
        found = place.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o555 != 0o555:
            place.chmod(stat.S_IMODE(found.st_mode) | 0o555)


def _has_room(into: Path, tree: Tree) -> None:
    found = os.statvfs(into)
    free, wanted = found.f_bavail * found.f_frsize, tree.size_bytes + _ROOM_BYTES
    if free < wanted:
        raise TreeNotInstalled(
            f"{into} has {free / 1e6:.0f} MB left, and the runtime takes {wanted / 1e6:.0f} MB",
            phrase=Phrase.DISK_FULL,
            hint=f"df -h {into}",
        )


@contextmanager
def _alone(own: Path) -> Iterator[None]:
    """Hold the lock, so that only one `prepare` at a time writes to this directory. The others wait."""
    lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _copy(source: Path, tree: Tree, place: Path) -> None:
    """Copy the runtime tree into a directory beside `place`, then rename this directory to `place`."""
    draft = place.with_name(_draft())
    try:
        made: set[Path] = {draft.parent}
        for at, file in tree.files.items():
            _folder((draft / at).parent, made)
            shutil.copyfile(source / at, draft / at)
            (draft / at).chmod(file.mode)
        for at, target in tree.links.items():
            _folder((draft / at).parent, made)
            (draft / at).symlink_to(target)
        shutil.copyfile(source / NAME, draft / NAME)
        (draft / NAME).chmod(0o644)
        if at := differs(draft, tree):
            raise TreeNotInstalled(f"{at} of {source} changed while it was copied", phrase=Phrase.DATA_CORRUPT)
        if place.exists():  # the old tree at `place` is damaged
            aside = place.with_name(_draft())
            place.rename(aside)
            draft.rename(place)
            _remove(aside)
        else:
            draft.rename(place)
    finally:
        _remove(draft)


def _draft() -> str:
    return f"{_DRAFT}{os.urandom(4).hex()}"


def _remove(path: Path) -> None:
    """Remove a draft or an old runtime tree. If this fails, the next `prepare` tries again."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _folder(folder: Path, made: set[Path]) -> None:
    if folder in made:
        return
    _folder(folder.parent, made)
    folder.mkdir()
    folder.chmod(0o755)  # the umask has reduced the mode
    made.add(folder)


def _stands(tree: Tree, place: Path, into: Path) -> bool:
    """Whether the exchange directory has this complete runtime tree, `now` points to it, and `run` is its launcher."""
    try:
        leads = str((place.parent / NOW).readlink()) == place.name
    except OSError:
        return False
    return leads and not _damage(place, tree) and _is_run(place / RUN, into / RUN)


def _point(link: Path, name: str) -> str:
    """Point the link to `name`. Return its earlier target, or "" if the link was missing or already correct."""
    try:
        before = str(link.readlink())
    except FileNotFoundError:
        before = ""
    if before == name:
        return ""
    draft = link.with_name(_draft())
    draft.symlink_to(name)
    draft.replace(link)
    return before


def _is_run(launcher: Path, run: Path) -> bool:
    """Whether `run` is an executable copy of this launcher. A site may have put another `run` there."""
    try:
        found = run.lstat()
        whole = stat.S_ISREG(found.st_mode) and found.st_mode & 0o555 == 0o555
        return whole and found.st_size == launcher.stat().st_size and run.read_bytes() == launcher.read_bytes()
    except OSError:
        return False


def _put_run(launcher: Path, run: Path) -> None:
    if _is_run(launcher, run):
        return
    draft = run.with_name(_draft())
    try:
        shutil.copyfile(launcher, draft)
        draft.chmod(0o755)
        draft.replace(run)
    finally:
        draft.unlink(missing_ok=True)


def _version_before(own: Path, place: Path) -> str:
    """Return the version of the runtime tree that `run` uses. Return "" if this is the tree at `place`."""
    try:
        now = own / str((own / NOW).readlink())
        return read_tree(now).version if now != place else ""
    except (OSError, Malformed):
        return ""


_SAID = {
    errno.EROFS: ("it is mounted read-only", Phrase.READ_ONLY_FILESYSTEM),
    errno.ENOSPC: ("its file system is full", Phrase.DISK_FULL),
    errno.EDQUOT: ("the quota there is used up", Phrase.QUOTA_EXCEEDED),
    errno.EACCES: ("this user may not write there", Phrase.PERMISSION_DENIED),
    errno.EPERM: ("this user may not write there", Phrase.PERMISSION_DENIED),
    errno.EIO: ("its file system reports an error of input or output", Phrase.STORAGE_IO_ERROR),
}


def _said(error: OSError, into: Path) -> TreeNotInstalled:
    why, phrase = _SAID.get(error.errno or 0, ((error.strerror or str(error)).lower(), Phrase.STORAGE_IO_ERROR))
    at = f" ({error.filename})" if error.filename not in (None, str(into)) else ""
    user = f", uid {os.geteuid()}" if phrase == Phrase.PERMISSION_DENIED else ""
    return TreeNotInstalled(
        f"the runtime cannot be laid down in {into}: {why}{user}{at}",
        phrase=phrase,
        hint=f"df -h {into}; ls -ld {into}",
    )
