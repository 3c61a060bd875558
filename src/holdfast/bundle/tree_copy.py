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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.bundle.tree_manifest import NAME, Tree, differs, read_tree
from holdfast.errors import HoldfastError
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.safe_directories import Exposed, enter, enter_own, is_trusted, writers
from holdfast.untrusted import Malformed

#: The folder in the exchange directory for everything except `run`.
OWN = "holdfast"
NOW, RUN = "now", "run"
_TEMPORARY = ".laying-"
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


def lay_down(source: Path, into: Path, warn: Callable[[str], None] | None = None) -> InstalledTree:
    """Copy the tree at `source` into the exchange directory `into`, which is created if missing.

    Raises `TreeNotInstalled`.

    `run` is never incomplete: it starts either the earlier tree or the new one. A directory or file that another user
    owns or could exchange is refused. All files are written through the descriptors of the directories that were
    checked.
    `warn`: prints a message for a volume to which everyone may write.
    """
    tree = _whole(source)
    fds: list[int] = []
    try:
        fds.append(enter(into, make=0o755))
        volume = writers(found := _by_descriptor(fds[0]).stat())
        if volume and warn is not None:
            mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
            warn(f"{volume} may write to {into} ({mode}): whoever else mounts it can exchange what its tasks start")
        return _laid(source, tree, into, fds, bool(volume))
    except OSError as error:
        raise _said(error, into, fds) from error
    finally:
        for fd in fds:
            os.close(fd)


def _laid(source: Path, tree: Tree, into: Path, fds: list[int], volume: bool) -> InstalledTree:
    here = _by_descriptor(fds[0])
    _may_execute(here, into)
    fds.append(enter_own(OWN, fds[0], shown=str(into / OWN), volume=volume))
    own = _by_descriptor(fds[1])
    name = f"tree-{tree.digest[:_DIGITS]}"
    place = own / name
    laid = InstalledTree(run=into / RUN, tree=tree, place=into / OWN / name, fresh=False)
    before = _version_before(own, place)
    if _stands(tree, place, here):
        return laid
    _open_to_readers(here, own)
    with _alone(own):
        for left in own.glob(f"{_TEMPORARY}*"):  # files that a killed `prepare` has left
            _remove(left)
        if _damage(place, tree):
            _has_room(here, into, tree)
            _copy(source, tree, place)
        previous = _point(own / NOW, place.name)
        _put_run(place / RUN, here / RUN)
        for old in own.glob("tree-*"):
            if previous and old.name not in (place.name, previous):
                _remove(old)
    return InstalledTree(run=laid.run, tree=tree, place=laid.place, fresh=True, before=before)


def _by_descriptor(fd: int) -> Path:
    """Return a path of the open directory that no other user can redirect."""
    return Path(f"/proc/self/fd/{fd}")


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
        if there.digest == tree.digest:
            return differs(place, tree) or _of_another_user(place)
    except (OSError, Malformed) as error:
        return str(error) or "it cannot be read"
    return "it is another one"


def _of_another_user(place: Path) -> str:
    """Return a file of the tree that another user owns and could change; "" if there is none. Raises OSError."""
    if not is_trusted(place.lstat().st_uid):
        return place.name
    for folder, folders, names in os.walk(place):
        for name in (*folders, *names):
            if not is_trusted((path := Path(folder, name)).lstat().st_uid):
                return str(path.relative_to(place))
    return ""


def _may_execute(here: Path, into: Path) -> None:
    if os.statvfs(here).f_flag & os.ST_NOEXEC:
        raise TreeNotInstalled(
            f"{into} lies on a file system that is mounted noexec: no program in it can be started",
            phrase=Phrase.PERMISSION_DENIED,
            hint=f"mount -o remount,exec {into}, or another directory with --into",
        )


def _open_to_readers(*places: Path) -> None:
    """Let all users read and enter these directories, because a task may run as another user than `prepare`."""
    for place in places:
        found = place.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o555 != 0o555:
            place.chmod(stat.S_IMODE(found.st_mode) | 0o555)


def _has_room(here: Path, into: Path, tree: Tree) -> None:
    found = os.statvfs(here)
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
    # A user who may read a lock file could hold the lock for ever, so only this user may read it.
    lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _copy(source: Path, tree: Tree, place: Path) -> None:
    """Copy the runtime tree into a directory beside `place`, then rename this directory to `place`."""
    temporary = place.with_name(_temporary_name())
    try:
        made: set[Path] = {temporary.parent}
        for at, file in tree.files.items():
            _folder((temporary / at).parent, made)
            shutil.copyfile(source / at, temporary / at)
            (temporary / at).chmod(file.mode)
        for at, target in tree.links.items():
            _folder((temporary / at).parent, made)
            (temporary / at).symlink_to(target)
        shutil.copyfile(source / NAME, temporary / NAME)
        (temporary / NAME).chmod(0o644)
        if at := differs(temporary, tree):
            raise TreeNotInstalled(f"{at} of {source} changed while it was copied", phrase=Phrase.DATA_CORRUPT)
        if place.exists():  # the old tree at `place` is damaged
            aside = place.with_name(_temporary_name())
            place.rename(aside)
            temporary.rename(place)
            _remove(aside)
        else:
            temporary.rename(place)
    finally:
        _remove(temporary)


def _temporary_name() -> str:
    return f"{_TEMPORARY}{os.urandom(4).hex()}"


def _remove(path: Path) -> None:
    """Remove a temporary tree or an old runtime tree. If this fails, the next `prepare` tries again."""
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
    """Return whether the exchange directory has this complete runtime tree, `now` points to it, and `run` is its
    launcher.
    """
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
    temporary = link.with_name(_temporary_name())
    temporary.symlink_to(name)
    temporary.replace(link)
    return before


def _is_run(launcher: Path, run: Path) -> bool:
    """Whether `run` is an executable copy of this launcher. A site may have put another `run` there."""
    try:
        found = run.lstat()
        whole = stat.S_ISREG(found.st_mode) and found.st_mode & 0o555 == 0o555
        whole = whole and not found.st_mode & 0o022 and is_trusted(found.st_uid)
        return whole and found.st_size == launcher.stat().st_size and run.read_bytes() == launcher.read_bytes()
    except OSError:
        return False


def _put_run(launcher: Path, run: Path) -> None:
    if _is_run(launcher, run):
        return
    temporary = run.with_name(_temporary_name())
    try:
        shutil.copyfile(launcher, temporary)
        temporary.chmod(0o755)
        temporary.replace(run)
    finally:
        temporary.unlink(missing_ok=True)


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


def _said(error: OSError, into: Path, fds: list[int]) -> TreeNotInstalled:
    if isinstance(error, Exposed):
        return TreeNotInstalled(
            f"the runtime is not laid down in {into}, since another user could exchange it: {error.filename}: "
            f"{error.strerror}; a directory was expected that only this user and root may write to",
            phrase=Phrase.PERMISSION_DENIED,
            hint=f"{error.remedy}; or another directory with --into",
        )
    why, phrase = _SAID.get(error.errno or 0, ((error.strerror or str(error)).lower(), Phrase.STORAGE_IO_ERROR))
    named = str(error.filename or into)
    for fd, place in zip(fds, (into, into / OWN), strict=False):
        if f"{named}/".startswith(f"{(opened := _by_descriptor(fd))}/"):
            named = f"{place}{named.removeprefix(str(opened))}"
    at = f" ({named})" if named != str(into) else ""
    user = f", uid {os.geteuid()}" if phrase == Phrase.PERMISSION_DENIED else ""
    return TreeNotInstalled(
        f"the runtime cannot be laid down in {into}: {why}{user}{at}",
        phrase=phrase,
        hint=f"df -h {into}; ls -ld {into}",
    )
