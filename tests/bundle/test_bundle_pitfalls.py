"""What images do to a Python that is not theirs, one test each: it does no harm, or one sentence says so."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from containers import PAI, PATH, Container, ImageOf, copied
from foreign import fails_to_load, nvml, of_a_newer_libc, refuses_clone3, that_is_seen

from holdfast.bundle.python_files import OPTIONAL_PACKAGES, SHIPPED, SOURCES
from holdfast.bundle.shared_libraries import PRELOAD

TREE = f"{PAI}/holdfast/now"
PYTHON = f"{TREE}/bin/python3"
#: Each worker has these, on any machine.
OF_HOLDFAST = {"PYTHONFAULTHANDLER=1", "PYTHONUNBUFFERED=1"}


@pytest.fixture
def changed(image_of: ImageOf, tmp_path: Path) -> ImageOf:
    """`changed("busybox")`: an image whose root directory the test may change."""

    def make(name: str, **how: object) -> Container:
        container = image_of(name)
        return Container(copied(container.root, tmp_path / name), container.pai, **how)  # type: ignore[arg-type]  # as Container has them

    return make


@pytest.fixture
def deadly(tmp_path: Path, image_of: ImageOf) -> Path:
    library = of_a_newer_libc(tmp_path / "deadly.so")
    assert fails_to_load(library)
    return library


def test_a_library_to_load_first_that_wants_a_newer_libc_does_not_kill_us(changed: ImageOf, deadly: Path) -> None:
    image = changed("scratch")
    deadly.rename(image.root / "deadly.so")
    done = image.given({"LD_PRELOAD": "/deadly.so"}).run("/prog")
    assert done.of_worker() == ["the image's own program"], done.err


def test_a_library_to_load_first_reaches_the_users_programs_and_no_other(changed: ImageOf) -> None:
    image = changed("debian-11")
    that_is_seen(image.root / "seen.so")
    done = image.given({"LD_PRELOAD": "/seen.so"}).run("/bin/cat /dev/shm/seen; echo $LD_PRELOAD")
    *programs, preload = done.of_worker()
    assert preload == "/seen.so", done.err
    assert "cat" in programs
    assert set(programs) <= {"cat", "sh", "bash"}


def test_the_images_list_of_libraries_to_load_first_is_passed_over(changed: ImageOf, deadly: Path) -> None:
    image = changed("scratch")
    deadly.rename(image.root / "deadly.so")
    (image.root / "etc/ld.so.preload").write_text("/deadly.so\n")
    assert image.run("/prog").of_worker() == ["the image's own program"]
    loaders = list((image.pai / "holdfast/now/lib").glob("ld-linux-*"))
    assert [PRELOAD in loader.read_bytes() for loader in loaders] == [False]


@pytest.mark.parametrize("given", [{}, {"LANG": "C"}, {"LC_ALL": ""}])
def test_no_locale_is_written_into_the_users_environment(image_of: ImageOf, given: dict[str, str]) -> None:
    done = image_of("busybox").given(given).run("env")
    found = {line for line in done.of_worker() if line.startswith(("LC_", "LANG", "PYTHON"))}
    assert found - OF_HOLDFAST == {f"{name}={value}" for name, value in given.items()}


def test_a_python_home_of_the_images_is_the_users_alone(image_of: ImageOf) -> None:
    given = {"PYTHONHOME": "/nonexistent", "PYTHONPATH": "/nonexistent", "PYTHONSTARTUP": "/x"}
    done = image_of("busybox").given(given).run("env | grep ^PYTHON | sort")
    assert set(done.of_worker()) - OF_HOLDFAST == {f"{name}={value}" for name, value in given.items()}


def test_without_a_place_for_files_the_job_runs_and_says_what_is_missing(image_of: ImageOf) -> None:
    image = image_of("scratch", read_only=True, shm=False).without("HOLDFAST_HOME")
    done = image.run("/prog")
    assert done.of_worker() == ["the image's own program"], done.err
    assert "Traceback" not in done.err
    assert "Set HOLDFAST_HOME to a writable directory" in done.err


def test_processes_have_a_name_that_says_whose_they_are(image_of: ImageOf) -> None:
    done = image_of("busybox").run('cat /proc/1/comm; cat "/proc/$PPID/comm"')
    assert done.of_worker()[0] == "holdfast"
    assert all("ld-linux" not in name for name in done.of_worker())


def test_an_engine_that_refuses_clone3_is_no_obstacle(image_of: ImageOf, tmp_path: Path) -> None:
    filtered = refuses_clone3(tmp_path / "filtered")
    done = image_of("musl", below=(str(filtered),)).run("/prog")
    assert done.of_worker() == ["the image's own program"], done.err


@pytest.mark.parametrize("place", ["usr/local/nvidia/lib64", "usr/lib64"])
def test_nvidias_library_is_found_in_an_image_without_glibc(changed: ImageOf, place: str) -> None:
    image = changed("musl")
    (image.root / place).mkdir(parents=True)
    nvml(image.root / place / "libnvidia-ml.so.1")
    code = """
from holdfast.observe.devices.nvidia_library import open_library
open_library()
import ctypes
print(ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2())
"""
    done = image(PYTHON, "-c", code)
    assert done.out == "0\n", done.err


def test_a_name_service_of_another_libc_is_passed_over(changed: ImageOf, deadly: Path) -> None:
    image = changed("busybox")
    (image.root / "lib/x86_64-linux-gnu").mkdir(parents=True)
    deadly.rename(image.root / "lib/x86_64-linux-gnu/libnss_sss.so.2")
    (image.root / "etc/nsswitch.conf").write_text("passwd: sss files\nhosts: sss files\n")
    code = "import pwd, socket; print(pwd.getpwuid(0).pw_name, socket.getaddrinfo('localhost', 1)[0][4][1])"
    assert image(PYTHON, "-c", code).out == "root 1\n"


def test_the_users_python_is_the_images(image_of: ImageOf) -> None:
    done = image_of("debian-13").run("python3 -c 'import sys; print(sys.executable, sys.prefix)'; echo $PATH")
    assert done.of_worker() == ["/usr/bin/python3 /usr", PATH], done.err


def test_the_zone_is_that_of_the_images_own_programs(changed: ImageOf) -> None:
    image = changed("busybox")
    code = "import time; print(time.strftime('%z'))"
    assert image.given({"TZ": "Asia/Tokyo"})(PYTHON, "-c", code).out == "+0000\n", "there are no zones in the image"
    zones = image.root / "usr/share/zoneinfo/Asia"
    zones.mkdir(parents=True)
    (zones / "Tokyo").write_bytes(Path("/usr/share/zoneinfo/Asia/Tokyo").read_bytes())
    assert image.given({"TZ": "Asia/Tokyo"})(PYTHON, "-c", code).out == "+0900\n"


def test_no_date_makes_bytecode_stale_and_sources_are_those_of_the_users_python(image_of: ImageOf) -> None:
    tree = image_of("scratch").pai / "holdfast/now"
    [packages] = (tree / "lib").glob("python3.*")
    compiled = list(packages.rglob("*.pyc"))
    unchecked = {struct.unpack("<I", path.read_bytes()[4:8])[0] for path in compiled}
    assert len(compiled) > 500
    assert unchecked == {0b01}, "a hash instead of a date, and it is not compared"
    sources = {str(path.relative_to(packages)) for path in packages.rglob("*.py")}
    assert [name for name in sources if not name.startswith(SOURCES)] == []
    assert {
        "holdfast/worker.py",
        "holdfast/act/warm/inside/nursery_main.py",
        "holdfast/act/warm/entry_point/sitecustomize.py",
    } <= sources


def test_a_tree_that_was_copied_with_other_dates_works(changed: ImageOf, tmp_path: Path) -> None:
    image = changed("busybox")
    copy = copied(image.pai, tmp_path / "a place with blanks")
    for path in copy.rglob("*"):
        path.touch() if path.is_file() and not path.is_symlink() else None
    moved = Container(image.root, copy)
    assert moved.run("echo up").of_worker() == ["up"]


def test_stacks_can_be_taken_in_any_image(image_of: ImageOf) -> None:
    image = image_of("musl")
    if not (image.pai / "holdfast/now/bin/py-spy").exists():
        pytest.skip("py-spy is not installed here")
    assert image(f"{TREE}/bin/py-spy", "--version").out.startswith("py-spy ")


def test_each_part_has_its_licence_and_the_place_of_its_source(image_of: ImageOf) -> None:
    tree = image_of("scratch").pai / "holdfast/now"
    parts = {part["name"]: part for part in json.loads((tree / "LICENSES/manifest.json").read_text())}
    for name, part in parts.items():
        assert part["version"] and part["licence"] and part["source"], name
        assert part["files"], name
        for file in part["files"]:
            assert (tree / "LICENSES" / file).stat().st_size > 100, file
    assert {"holdfast-run", "busybox-static", "musl-dev", "libc6", *SHIPPED} <= set(parts)
    assert set(parts) & set(OPTIONAL_PACKAGES) or not (tree / "bin/py-spy").exists()
    assert {"GPL-2", "LGPL-2.1"} <= {path.name for path in (tree / "LICENSES/common").iterdir()}


def test_nothing_of_the_tests_or_of_development_is_in_it(image_of: ImageOf) -> None:
    [packages] = (image_of("scratch").pai / "holdfast/now/lib").glob("python3.*")
    there = {path.name for path in packages.iterdir()} | {path.name for path in (packages / "holdfast").iterdir()}
    assert (
        there & {"testing", "pytest", "hypothesis", "mypy", "test", "idlelib", "pip", "site-packages", "torch"} == set()
    )
