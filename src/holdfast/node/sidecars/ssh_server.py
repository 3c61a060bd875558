"""The ssh server for debugging: OpenSSH's sshd beside the workers of a node, and the files that a user needs to log in.

All files are in one directory of the job on this node, which only its user can read: the job's key, the host key that
every sshd of the job shares, the public keys that may log in, sshd's configuration, and `config` with a `Host` for each
worker of the gang. A login gets the environment and directory of the worker that it names (`ssh_session.py`). Passwords
are off, and every host key is checked.

The job has two key pairs: one for the users who log in, one for the servers. Both derive from the job's key and its id,
as the TLS identities of the nodes' connections do (`wire/peer_identity.py`). So every node of a job computes the same
keys and receives none, and a restarted owner can compute them again.
"""

from __future__ import annotations

import enum
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.gang_protocol import Peers
from holdfast.model.peer_addresses import tasks_of
from holdfast.model.runtime_plan import Ssh
from holdfast.node.sidecars import ssh_session
from holdfast.node.sidecars.sidecar_process import NoSshServer
from holdfast.safe_files import replace_file
from holdfast.wire.ed25519 import Ed25519, derived, openssh_private, openssh_public

#: The name of the configuration file for `ssh -F`.
CONFIG = "config"
WORKERS = "workers"
#: The environment variable with the path of sshd.
SSHD = "HOLDFAST_SSHD"
_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


class SshServer:
    """The ssh server of one job on one node.

    `ssh`: the job's options. `directory`: for its files. `secret`: the source of the job's keys. `environment`:
    variables, which may name the sshd. `many`: whether the job has several nodes.
    """

    def __init__(
        self, ssh: Ssh, directory: Path, job_id: str, secret: bytes, environment: Mapping[str, str], *, many: bool
    ) -> None:
        self._ssh = ssh
        self.directory = directory
        self._job_id = job_id
        self._secret = secret
        self._environment = environment
        self._many = many
        self._pids: dict[str, int] = {}

    def prepare(self, peers: Peers, port: int) -> tuple[str, ...]:
        """Write the server's files, with an entry for each worker in `peers`. Return the command that runs sshd on
        `port`. Raises NoSshServer.
        """
        sshd, user = self._sshd(), _user()
        self._pids = {}
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            public = self._write_keys()
            self._write("authorized_keys", "".join(f"{key}\n" for key in (public, *self._ssh.keys)))
            self._write(WORKERS, "")
            self._write("sshd_config", self._sshd_config(port, user))
            self._write(CONFIG, self._ssh_config(peers, user))
            if os.getuid() == 0:
                # sshd needs this folder if it runs as root
                Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            raise NoSshServer(f"{error.filename or self.directory}: {error.strerror}") from error
        return (sshd, "-D", "-e", "-f", str(self.directory / "sshd_config"))

    def note(self, worker: str, pid: int) -> None:
        """Store the pid of a worker's process, for logins to this worker."""
        self._pids[worker] = pid
        try:
            self._write(WORKERS, "".join(f"{name} {number}\n" for name, number in self._pids.items()))
        except OSError:
            pass  # ignore a full disk: a login will report the missing worker

    def close(self) -> None:
        """Remove the keys and all other files, because the job is over on this node."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --------------------------------------------------------------------- methods that write the files of sshd and ssh

    def _sshd(self) -> str:
        named = self._environment.get(SSHD, "")
        path = self._environment.get("PATH", os.defpath)
        found = shutil.which(named or "sshd", path=f"{path}:{_PLACES}")
        if found is None:
            missing = f"{SSHD}={named} cannot be run" if named else "there is no sshd on PATH or in /usr/sbin"
            raise NoSshServer(f"{missing} (Debian's package: openssh-server)")
        return str(Path(found).absolute())  # sshd needs an absolute path, because it executes itself again

    def _write_keys(self) -> str:
        """Write the key files. Return the public half of the job's own key."""
        private, public = key_pair(self._secret, self._job_id, KeySide.USER)
        replace_file(self.directory / "id_ed25519", private)
        own, host = key_pair(self._secret, self._job_id, KeySide.HOST)
        replace_file(self.directory / "host_ed25519", own)
        self._write("known_hosts", f"{self._alias} {host}\n")
        return f"{public} {self._alias}"

    @property
    def _alias(self) -> str:
        """Return the host name by which ssh clients know every sshd of the job, whatever its address."""
        return f"holdfast-{self._job_id}"

    def _sshd_config(self, port: int, user: str) -> str:
        enters = [sys.executable, "-I", "-S", ssh_session.__file__, str(self.directory / WORKERS)]
        sftp = next((path for path in _SFTP if os.access(path, os.X_OK)), "")
        lines = [
            f"Port {port}",
            *([] if self._many else ["ListenAddress 127.0.0.1"]),
            f"HostKey {_quoted(self.directory / 'host_ed25519')}",
            f"AuthorizedKeysFile {_quoted(self.directory / 'authorized_keys')}",
            f"AllowUsers {user}",
            f"PermitRootLogin {'prohibit-password' if os.getuid() == 0 else 'no'}",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitEmptyPasswords no",
            # PAM asks for no password. With PAM, sshd need not read /etc/shadow. Without PAM, sshd treats an account as
            # locked if it cannot read its entry there.
            f"UsePAM {'no' if os.getuid() == 0 else 'yes'}",
            # StrictModes checks every directory above the keys, and a state directory may be below the world-writable
            # /tmp. The directory of the keys is private.
            "StrictModes no",
            "PidFile none",
            "PermitUserEnvironment no",
            "AcceptEnv HOLDFAST_ENTER",
            "AllowAgentForwarding no",
            "X11Forwarding no",
            "PermitTunnel no",
            "GatewayPorts no",
            "PrintMotd no",
            "LoginGraceTime 30",
            f"ForceCommand {shlex.join(enters)}",
            *([f"Subsystem sftp {sftp}"] if sftp else []),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _ssh_config(self, peers: Peers, user: str) -> str:
        lines = []
        for task in tasks_of(peers):
            name = f"{task.role}-{task.index}"
            port = peers.ssh[task.node]
            lines += [f"Host {name}", f"  HostName {task.host}", f"  Port {port}", f"  SetEnv HOLDFAST_ENTER={name}"]
        lines += [
            "Host *",
            f"  User {user}",
            f"  IdentityFile {_quoted(self.directory / 'id_ed25519')}",
            "  IdentitiesOnly yes",
            f"  HostKeyAlias {self._alias}",
            f"  UserKnownHostsFile {_quoted(self.directory / 'known_hosts')}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  PasswordAuthentication no",
            # sshd listens only some milliseconds after its start, so clients retry.
            "  ConnectionAttempts 5",
            "  ConnectTimeout 10",
        ]
        return "".join(f"{line}\n" for line in lines)

    def _write(self, name: str, text: str) -> None:
        replace_file(self.directory / name, text.encode())


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise NoSshServer(f"user {os.getuid()} has no name in /etc/passwd, and sshd lets no such user in") from None


def _quoted(path: Path) -> str:
    return f'"{path}"'


_FOR = "holdfast door 1: "


class KeySide(enum.StrEnum):
    """The owner of a key pair in a login."""

    #: The users who log in.
    USER = "user"
    #: Every sshd of the job; all share one key pair.
    HOST = "host"


def key_pair(secret: bytes, job_id: str, side: KeySide) -> tuple[bytes, str]:
    """Return a private key in OpenSSH's file format, and its public key as a line without a comment."""
    key = Ed25519(derived(secret, f"{_FOR}{side} {job_id}".encode()))
    return openssh_private(key), openssh_public(key)
