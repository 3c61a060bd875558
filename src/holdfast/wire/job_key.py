"""The key of a job: 32 secret bytes by which its owner, agents and operators authenticate each other.

Only the user can read the key's file. `--job-key` or HOLDFAST_JOB_KEY names it. Otherwise it is `key` in the state
directory, where it is created if missing. The secret bytes never appear in an argument, a log or the environment.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import BadUsage
from holdfast.safe_files import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES = 32
VARIABLE = "HOLDFAST_JOB_KEY"
NAME = "key"

_AS_HEX = 2 * KEY_BYTES
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class Key:
    """A job's key. Its `repr` shows only the file's path, and the object cannot be pickled."""

    __slots__ = ("_secret", "path")

    def __init__(self, secret: bytes, path: Path | None = None) -> None:
        """secret: 32 bytes. path: the key's file on this node; None if the key came on standard input."""
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._secret = secret
        self.path = path

    def secret(self) -> bytes:
        """Return the 32 secret bytes. Other keys are derived from them."""
        return self._secret

    def __repr__(self) -> str:
        return f"<key of {self.path or 'standard input'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not to be written down")


def job_key(option: str | None, env: Mapping[str, str], home: Path) -> Key:
    """Read the key file that `--job-key` or HOLDFAST_JOB_KEY names, or else the one in the state directory.

    option: value of `--job-key`.
    env: environment variables.
    home: path of the state directory. The key in the state directory is created at its first use.
    Raises BadUsage if the key is missing, unreadable or open to other users.
    """
    named = option or env.get(VARIABLE)
    if named:
        return _read(Path(named).expanduser().absolute(), "--job-key" if option else VARIABLE)
    path = home / NAME
    if not os.path.lexists(path):
        _make(path)
    return _read(path, "the state directory's key")


def parse_key(data: bytes) -> bytes | None:
    """Parse the content of a key file, raw or hexadecimal, to 32 bytes. Return None if the content is no key."""
    if len(data) == KEY_BYTES:
        return data
    digits = data.rstrip(b"\r\n")
    if len(digits) == _AS_HEX and len(data) <= _AS_HEX + 2 and _HEX_DIGITS.issuperset(digits):
        return bytes.fromhex(digits.decode("ascii"))
    return None


def copy_command(host: str, path: Path | None) -> str:
    """Return a command that copies the owner's key from `host` to the node where the user types it.

    Without scp, as in most containers, the command sets HOLDFAST_JOB_KEY to a file that is the same on all nodes.
    """
    import shutil  # imported late: the import loads three compression modules

    if shutil.which("scp") is None:
        return "export HOLDFAST_JOB_KEY=/path/of/one/key  (a mounted secret or a shared file, the same on every node)"
    there = f"[{host}]" if ":" in host else host
    # A key from standard input has no file, so copy the key from the default path.
    where = quote(str(path)) if path is not None and path.is_absolute() else f"~/.local/state/holdfast/{NAME}"
    return f"scp -p {there}:{where} {where}"


def _read(path: Path, what: str) -> Key:
    try:
        link = os.lstat(path)
        fd = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        hint = f"(umask 077; head -c {KEY_BYTES} /dev/urandom > {quote(str(path))}), then copy it to the other nodes"
        raise BadUsage(f"{what}: there is no key file {path}", hint=hint) from None
    except OSError as error:
        hint = f"ls -l {quote(str(path))}"
        raise BadUsage(f"{what}: the key file {path} cannot be read: {error.strerror}", hint=hint) from None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        data = file.read(_AS_HEX + 3)
    _must_be_private(path, what, link, found)
    secret = parse_key(data)
    if secret is None:
        held = f"{found.st_size} byte{'s' if found.st_size != 1 else ''}"
        raise BadUsage(
            f"{what}: {path} holds {held}, and a key file has {KEY_BYTES} raw bytes, or {_AS_HEX} hex digits and a "
            f"newline",
            hint=f"(umask 077; head -c {KEY_BYTES} /dev/urandom > {quote(str(path))}), then copy it to the other nodes",
        )
    return Key(secret, path)


def _must_be_private(path: Path, what: str, link: os.stat_result, found: os.stat_result) -> None:
    """Raise BadUsage if other users (except root) can read the key file or could have replaced it.

    `what`: the option or variable that names the file. `link`, `found`: the status of the path, and of the file that it
    leads to.
    """
    ours = (os.geteuid(), 0)
    named = quote(str(path))
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in ours:
        raise BadUsage(
            f"{what}: the key file {path} is a symbolic link of another user (uid {link.st_uid})",
            hint=f"cp $(readlink -f {named}) ~/job.key; chmod 600 ~/job.key, and --job-key ~/job.key",
        )
    if found.st_uid not in ours:
        raise BadUsage(
            f"{what}: the key file {path} belongs to another user (uid {found.st_uid}), who can read and change it",
            hint="(umask 077; head -c 32 /dev/urandom > ~/job.key), and --job-key ~/job.key on every node",
        )
    if found.st_mode & 0o077:
        who = "everyone" if found.st_mode & 0o007 else "its group"
        raise BadUsage(
            f"{what}: the key file {path} is open to {who} (mode {stat.S_IMODE(found.st_mode):04o}); only its owner "
            f"may read a key",
            hint=f"chmod 600 {named}",
        )


def _make(path: Path) -> None:
    """Create a random key at `path` atomically. If another process has created one meanwhile, use that key."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(os.urandom(KEY_BYTES).hex().encode("ascii") + b"\n")
                file.flush()
                os.fsync(file.fileno())
            # A hard link fails if the file exists. A rename would replace a key that another run has just created.
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                pass  # use the key that another run has created meanwhile
        finally:
            temporary.unlink()
    except OSError as error:
        why = "its file system knows no hard links" if error.errno in (errno.EPERM, errno.ENOTSUP) else error.strerror
        raise BadUsage(
            f"no key can be made at {path}: {why}",
            hint=f"(umask 077; head -c {KEY_BYTES} /dev/urandom > ~/job.key), and --job-key ~/job.key on every node",
        ) from None
