"""The Containerfile: built, and run as a pod runs it: `prepare` first, then a task in an image that has nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from containers import PAI, SOMEBODY, Done
from podman import IMAGE, build, have, missing, podman
from roots import missing as missing_roots

pytestmark = [pytest.mark.bundle, pytest.mark.real]
QUIET = ("--rm", "--network=none")


@pytest.fixture(scope="module")
def image() -> str:
    if why := missing() or missing_roots():
        pytest.fail(why, pytrace=False)
    done = build()
    assert done.status == 0, done.out[-2000:] + done.err[-2000:]
    return IMAGE


@pytest.fixture
def exchange(tmp_path: Path) -> Path:
    """What an emptyDir is: a directory that all may write."""
    place = tmp_path / "pai"
    place.mkdir()
    place.chmod(0o777)
    return place


def prepared(image: str, exchange: Path) -> Done:
    done = podman("run", *QUIET, f"--volume={exchange}:{PAI}", image, "prepare")
    assert done.status == 0, done.err
    return done


def test_the_image_is_an_ordinary_users_and_has_its_tools(image: str) -> None:
    code = (
        "id -u; git --version; ssh -V; command -v sshd; python3 -c 'import sys; print(sys.prefix)'; holdfast --version"
    )
    done = podman("run", *QUIET, "--entrypoint=sh", image, "-c", code)
    assert done.status == 0, done.err
    uid, git, *_, sshd, prefix, version = done.out.splitlines()
    assert uid == "10001"
    assert git.startswith("git version") and sshd == "/usr/sbin/sshd" and "OpenSSH" in done.err
    assert prefix == "/usr", "only `holdfast` itself stands on the PATH"
    assert version.startswith("holdfast, version")


def test_a_task_runs_after_prepare_in_an_image_with_a_shell_alone(image: str, exchange: Path) -> None:
    assert f"{PAI}/run is holdfast" in prepared(image, exchange).out
    task = have("localhost/holdfast-busybox:1", "busybox")
    how = [
        "--read-only",
        f"--user={SOMEBODY}:0",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--shm-size=32m",
    ]
    given = ["--env=USER_CMD=id -u; exit 7", "--env=HOLDFAST_HOME=/dev/shm/home"]
    mounted = f"--volume={exchange}:{PAI}:ro"
    done = podman("run", *QUIET, *how, *given, mounted, task, f"{PAI}/run")
    assert done.of_worker() == [str(SOMEBODY)], done.err
    assert "exit status 7" in done.err
    assert done.status == 255


def test_a_repeated_prepare_says_so(image: str, exchange: Path) -> None:
    prepared(image, exchange)
    assert "is there already" in prepared(image, exchange).out


def test_prepare_works_for_a_user_without_a_name(image: str, exchange: Path) -> None:
    done = podman("run", *QUIET, f"--user={SOMEBODY}:0", f"--volume={exchange}:{PAI}", image, "prepare")
    assert done.status == 0, done.err


def test_the_image_has_the_licences_of_what_it_passes_on(image: str) -> None:
    done = podman("run", *QUIET, "--entrypoint=cat", image, "/opt/holdfast/tree/LICENSES/manifest.json")
    for name in (
        "holdfast-run",
        "python3.13-minimal",
        "libc6",
        "busybox-static",
        "musl-dev",
        "py-spy",
        "libssl3t64",
        "libstdc++6",
    ):
        assert f'"name": "{name}"' in done.out, name


def test_stacks_of_holdfast_itself_can_be_taken_where_its_python_is_one_static_program(image: str) -> None:
    code = """
        tree=/opt/holdfast/tree
        $tree/bin/python3 -c 'import time
def stands_here(): time.sleep(60)
stands_here()' &
        sleep 2
        $tree/bin/py-spy dump --nonblocking --pid $!
    """
    done = podman("run", *QUIET, "--entrypoint=sh", image, "-c", code)
    assert "stands_here" in done.out, done.out + done.err
