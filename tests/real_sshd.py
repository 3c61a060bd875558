"""A real sshd on a high port, with keys and configuration of its own, and several names for this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import free_port

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def write_config(place: Path, port: int, listen: str = "127.0.0.1") -> None:
    """Keys and configuration of a server and its clients. They know it under any name that begins with `node`."""
    place.mkdir(mode=0o700)
    for name in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True, timeout=90)
    (place / "authorized").write_text((place / "user.pub").read_text())
    (place / "authorized").chmod(0o600)
    (place / "known").write_text(f"* {(place / 'host.pub').read_text()}")
    (place / "sshd_config").write_text(
        f"Port {port}\nListenAddress {listen}\nHostKey {place}/host\nPidFile {place}/pid\n"
        f"AuthorizedKeysFile {place}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nMaxStartups 100\nPermitRootLogin yes\n"
    )
    where = f"  HostName {listen}\n" if listen != "0.0.0.0" else ""
    known = f"  UserKnownHostsFile {place}/known\n  GlobalKnownHostsFile /dev/null\n  IdentitiesOnly yes\n"
    (place / "ssh_config").write_text(
        f"Host node*\n{where}  Port {port}\n  IdentityFile {place}/user\n{known}"
        f"Host gone\n  HostName 127.0.0.1\n  Port {free_port()}\n"
        f"Host asks\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {place}/stranger\n{known}"
        f"Host unknown\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {place}/user\n"
        "  UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )


class Sshd:
    """`command` is what `--ssh` is given."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = free_port()
        write_config(place, self.port)
        self.command = f"ssh -F {place}/ssh_config"
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        assert SSHD is not None, "asked before"
        self._log = (place / "log").open("wb")
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(place / "sshd_config")], stdin=subprocess.DEVNULL, stderr=self._log
        )
        self._answers()

    def _answers(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.02)
        pytest.skip(f"sshd does not start here: {(self.place / 'log').read_text()[-500:]}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("there is no OpenSSH here (apt-get install openssh-server)")
    server = Sshd(tmp_path_factory.mktemp("sshd") / "server")
    yield server
    server.close()
