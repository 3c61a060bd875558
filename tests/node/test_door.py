"""The door for debugging: a real sshd beside the workers of a job on one machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast
from holdfast.node.sidecars.ssh_server import KeySide, key_pair
from processes import until
from real_sshd import SSHD

needs_openssh = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="there is no OpenSSH here (apt-get install openssh-server)"
)
UNTIL_OVER = "while [ ! -e over ]; do sleep 0.1; done"


def door_job(holdfast: Holdfast, worker: str, ssh: Any = True, count: int = 2) -> Path:
    role = {"count": count, "command": ["bash", "-c", worker], "env": {"COLOUR": "dark blue"}}
    path = holdfast.dir / "job.yaml"
    path.write_text(json.dumps({"name": "door", "roles": {"worker": role}, "plugins": {"ssh": ssh}}))
    return path


class Entered:
    """A job that runs, and its door."""

    def __init__(self, holdfast: Holdfast, ssh: Any = True) -> None:
        self.holdfast = holdfast
        path = door_job(holdfast, f"touch up-$RANK; {UNTIL_OVER}", ssh)
        self.process = holdfast.start("run", "--no-checks", "--max-restarts", "0", "--job", path)
        until(lambda: len(list(holdfast.dir.glob("up-*"))) == 2)
        [self.config] = holdfast.home.glob("jobs/*/ssh/config")

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ssh", "-F", str(self.config), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def close(self) -> None:
        (self.holdfast.dir / "over").touch()
        self.holdfast.finish(self.process, 60)


@pytest.fixture
def entered(holdfast: Holdfast) -> Iterator[Entered]:
    job = Entered(holdfast)
    yield job
    job.close()


@needs_openssh
@pytest.mark.real
def test_a_worker_enters_another_by_the_config_that_it_finds_in_its_environment(holdfast: Holdfast) -> None:
    says = 'echo "rank $RANK, $COLOUR, $PWD, port $PAI_CONTAINER_SSH_PORT"'
    worker = f"touch up-$RANK; if [ $RANK = 0 ]; then ssh -F $HOLDFAST_SSH_CONFIG worker-1 '{says}'; touch over; fi; "
    worker += UNTIL_OVER
    ran = holdfast.run("--max-restarts", "0", "--job", door_job(holdfast, worker))
    assert ran.status == 0
    assert f"[worker-0] rank 1, dark blue, {holdfast.dir}, port " in ran.out
    assert ran.out.strip()[-1].isdigit()


@needs_openssh
@pytest.mark.real
def test_a_login_lands_in_the_worker_that_it_names_and_gives_back_its_status(entered: Entered) -> None:
    for rank in "01":
        done = entered.ssh(f"worker-{rank}", 'echo "$RANK|$COLOUR|$PWD"; exit 7')
        assert (done.stdout.strip(), done.returncode) == (f"{rank}|dark blue|{entered.holdfast.dir}", 7)


@needs_openssh
@pytest.mark.real
def test_no_password_no_other_key_and_no_other_host_key_opens_the_door(entered: Entered, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True, timeout=90)
    tried = entered.ssh(
        "-o", "IdentityAgent=none", "-i", str(other), "-F", "/dev/null", "-p", ssh_port(entered), *blind()
    )
    assert "Permission denied (publickey)" in tried.stderr
    strange = tmp_path / "known"
    strange.write_text(
        entered.config.parent.joinpath("known_hosts").read_text()[:40] + f" {other.with_suffix('.pub')}\n"
    )
    refused = entered.ssh("-o", f"UserKnownHostsFile={strange}", "worker-0", "true")
    assert "Host key verification failed" in refused.stderr


def ssh_port(entered: Entered) -> str:
    return next(line.split()[1] for line in entered.config.read_text().splitlines() if line.startswith("  Port"))


def blind() -> tuple[str, ...]:
    return (
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "IdentitiesOnly=yes",
        # workers do not wait for the server
        "-o",
        "ConnectionAttempts=60",
        "127.0.0.1",
    )


@needs_openssh
@pytest.mark.real
def test_show_says_how_to_enter_and_what_opens_the_door_is_private_and_gone_with_the_job(entered: Entered) -> None:
    directory = entered.config.parent
    said = entered.holdfast("show", "door").out
    assert f"to enter ssh -F {entered.config} worker-0  (also worker-1)" in said
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    private = (directory / "id_ed25519").read_text().splitlines()[2]
    held = [path for path in directory.parent.rglob("*") if path.is_file() and path.parent != directory]
    assert [path for path in held if private.encode() in path.read_bytes()] == []
    entered.close()
    assert not directory.exists()


@needs_openssh
@pytest.mark.real
def test_a_session_does_not_hold_a_finished_job(entered: Entered) -> None:
    held = subprocess.Popen(
        ["ssh", "-F", str(entered.config), "worker-0", "touch in; sleep 600"], stdin=subprocess.DEVNULL
    )
    until((entered.holdfast.dir / "in").exists)
    entered.close()
    assert held.wait(30) == 255
    assert entered.holdfast.survivors() == []


@needs_openssh
@pytest.mark.real
def test_a_key_of_the_user_s_own_enters(holdfast: Holdfast, tmp_path: Path) -> None:
    own = tmp_path / "own"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own)], check=True, timeout=90)
    job = Entered(holdfast, {"keys": [own.with_suffix(".pub").read_text().strip()]})
    try:
        entered = job.ssh("-i", str(own), "-F", "/dev/null", "-p", ssh_port(job), *blind(), "echo in")
        assert entered.stdout == "in\n", entered.stderr
    finally:
        job.close()


@pytest.mark.real
def test_a_machine_without_sshd_costs_one_line(holdfast: Holdfast) -> None:
    ran = holdfast.run("--job", door_job(holdfast, "echo ran"), HOLDFAST_SSHD="/no/such/sshd")
    assert ran.status == 0
    assert ran.err.count("sshd could not be started: HOLDFAST_SSHD=/no/such/sshd cannot be run") == 1


@pytest.mark.real
def test_a_required_door_that_cannot_be_had_fails_the_attempt(holdfast: Holdfast) -> None:
    path = door_job(holdfast, "echo ran", {"required": True})
    ran = holdfast.run("--max-restarts", "0", "--job", path, HOLDFAST_SSHD="/no/such/sshd")
    assert (ran.status, ran.report["phrase"]) == (222, "DaemonFailed")
    assert "ran" not in ran.out


@pytest.mark.real
def test_no_door_is_open_unless_it_is_asked_for(holdfast: Holdfast) -> None:
    ran = holdfast.run("--job", door_job(holdfast, "env | grep -c SSH_CONFIG || true", False, count=1))
    assert ran.out.strip().endswith(" 0")
    assert not list(holdfast.home.glob("jobs/*/ssh"))


def test_all_nodes_of_a_job_have_the_same_keys_and_no_other_job_has_them() -> None:
    secret = bytes(range(32))
    assert key_pair(secret, "j1", KeySide.USER)[1] == key_pair(secret, "j1", KeySide.USER)[1]
    made = [
        key_pair(secret, "j1", KeySide.USER),
        key_pair(secret, "j1", KeySide.HOST),
        key_pair(secret, "j2", KeySide.USER),
    ]
    made.append(key_pair(bytes(32), "j1", KeySide.USER))
    assert len({public for _, public in made}) == len({private for private, _ in made}) == 4
    assert made[0][0].startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
