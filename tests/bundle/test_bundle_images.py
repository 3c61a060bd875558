"""`run` starts in any Linux image, under any user, also where nothing can be written, as the first process."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from containers import PAI, PATH, SOMEBODY, Container, copied

from holdfast import __version__
from holdfast.bundle.tree_copy import lay_down
from holdfast.bundle.tree_manifest import write_tree

PYTHON = f"{PAI}/holdfast/now/bin/python3"
IMAGES = ("scratch", "busybox", "musl", "debian-11", "debian-13")
OURS = ("HOLDFAST_", "PAI_", "FC_", "TORCH", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED")
TORCHRUNS = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
}  # fmt: skip
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.fixture(params=["as root", "read-only", "read-only, any user"])
def how(request: pytest.FixtureRequest) -> dict[str, object]:
    ways: dict[str, dict[str, object]] = {
        "as root": {},
        "read-only": {"read_only": True},
        "read-only, any user": {"read_only": True, "uid": SOMEBODY},
    }
    return ways[request.param]


@pytest.fixture(params=IMAGES)
def container(request: pytest.FixtureRequest, image_of: object, how: dict[str, object]) -> Container:
    assert callable(image_of)
    made: Container = image_of(request.param, **how)
    return made


def test_the_images_own_program_runs(container: Container) -> None:
    done = container.run("/prog")
    assert done.of_worker() == ["the image's own program"], done.err
    assert done.status == 0


def test_a_status_of_the_users_reaches_the_report(container: Container) -> None:
    done = container.run("/prog 7")
    assert "exit status 7" in done.err
    assert done.status == 255


def test_nothing_of_the_runtimes_python_reaches_the_users_environment(container: Container) -> None:
    given = {"PATH": PATH, "HOLDFAST_HOME": "/dev/shm/home", "LC_ALL": "de_DE", "LD_LIBRARY_PATH": "/opt/vendor"}
    given |= {
        "PYTHONHOME": "/nonexistent",
        "PYTHONPATH": "/nonexistent",
        "USER_CMD": "/usr/bin/env || env || /prog env",
        "LANG": "x",
    }
    lines = container.given(given)(f"{PAI}/run").of_worker()
    seen = {line.partition("=")[0]: line.partition("=")[2] for line in lines if "=" in line}
    assert {name: seen.get(name) for name in given} == given
    strange = set(seen) - set(given) - TORCHRUNS - OF_THE_SHELL
    assert {name for name in strange if not name.startswith(OURS)} == set()


PROBE = Path(__file__).with_name("probe.py")


def test_all_that_holdfast_uses_of_python_works(container: Container) -> None:
    done = container(PYTHON, "-c", PROBE.read_text())
    assert done.status == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert {name: said for name, said in found.items() if said != "ok"} == {}


def test_as_process_1_it_reaps_what_others_left(image_of: Callable[..., Container]) -> None:
    orphans = 'for _ in 1 2 3; do sh -c "sleep 0.1 & exit 0"; done; sleep 0.6; ps -o pid,stat,comm | grep -c Z; true'
    assert image_of("busybox").run(orphans).of_worker() == ["0"]


def test_as_process_1_it_hands_a_signal_on_and_lets_the_user_end(image_of: Callable[..., Container]) -> None:
    done = image_of("busybox").run(
        "trap 'echo saved; exit 0' TERM; kill -TERM 1; for _ in 1 2 3 4 5 6; do sleep 1; done"
    )
    assert done.of_worker() == ["saved"]
    assert "StoppedByOperator" in done.err


def test_a_runtime_is_replaced_under_a_running_task_which_ends_with_its_own(
    image_of: Callable[..., Container], tmp_path: Path
) -> None:
    image = image_of("busybox")
    pai = copied(image.pai, tmp_path / "pai")
    newer = copied((pai / "holdfast/now").resolve(), tmp_path / "newer")
    (newer / "lib/newer").write_text("")
    write_tree(newer, "9.9", "3.11.7", platform.machine())
    task = Container(image.root, pai)
    with ThreadPoolExecutor(1) as pool:
        until_then = "until [ -e /usr/local/pai/holdfast/now/lib/newer ]; do sleep 0.1; done; exit 7"
        running = pool.submit(task.run, until_then)
        assert lay_down(newer, pai).before == __version__
        done = running.result(timeout=60)
    assert "exit status 7" in done.err and "Traceback" not in done.err
    assert task.run("ls /usr/local/pai/holdfast/now/lib/newer").of_worker() == [f"{PAI}/holdfast/now/lib/newer"]
