"""What is published: its name, and what a person is told to install."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import audit
import pytest
import sbom
from packaging.requirements import Requirement

from holdfast.catalogue import exit_rows
from places import ROOT

# Another project's package is called holdfast: `pip install holdfast` and `holdfast[extra]` would bring it.
_FOREIGN = re.compile(
    r"(?:pip3?|pipx|uv|uvx|tool|conda|mamba|poetry|pdm)\s+(?:-\S+\s+)*(?:install|add|inject|upgrade)\s+(?:-\S+\s+)*['\"]?holdfast"
    r"(?![\w./:-])|--(?:with|from)[ =]holdfast(?![\w./:-])|(?<![\w./-])holdfast\[[a-z]+[\],]"
)


def told_to_install() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [ROOT / name for name in listed.split("\0") if name] or [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    kinds = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".cff", ""}
    return [path for path in names if path.suffix in kinds and path.is_file() and path != Path(__file__)]


def test_nothing_tells_anyone_to_install_the_other_package_of_that_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:120]}"
        for path in told_to_install()
        for line in path.read_text(errors="replace").splitlines()
        if _FOREIGN.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("pip install holdfast", True),
        ("python -m pip install -q 'holdfast[nvidia]'", True),
        ("uv tool install holdfast", True),
        ("pip install --upgrade holdfast==1.0", True),
        ("`holdfast[stacks]` brings py-spy", True),
        ("pip install 'holdfast-run[nvidia]'", False),
        ("uv tool install holdfast-run", False),
        ("install holdfast_testing elsewhere", False),
        ("names = holdfast[0]", False),
    ],
)
def test_the_search_for_it_knows_both_names(line: str, foreign: bool) -> None:
    assert bool(_FOREIGN.search(line)) is foreign


def test_the_distribution_is_holdfast_run_and_its_command_and_package_are_holdfast() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert about["name"] == "holdfast-run"
    assert about["scripts"] == {"holdfast": "holdfast.cli:main"}
    assert (ROOT / "src/holdfast/__init__.py").is_file()


def test_every_python_that_is_supported_has_its_classifier() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" :: ")[2] for line in about["classifiers"] if ":: Python :: 3." in line}
    assert named == {"3.11", "3.12", "3.13", "3.14"}
    assert {"Source", "Issues", "Changelog", "Documentation"} <= set(about["urls"])


#: A version with a known fault that would reach us, by package: docs/reference/security.md names the faults.
FAULTY = {
    "starlette": "0.49.0",
    "h11": "0.15.9",
    "jinja2": "3.1.5",
    "requests": "2.32.3",
    "cryptography": "44.0.0",
}


def requirements(*extras: str) -> list[Requirement]:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*about["dependencies"], *(line for extra in extras for line in about["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def test_no_lower_bound_allows_a_version_with_a_known_fault() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = requirements(*about["optional-dependencies"])
    assert {each.name for each in found} >= FAULTY.keys()
    assert not [str(each) for each in found if each.name in FAULTY and FAULTY[each.name] in each.specifier]


@pytest.mark.parametrize("name", ["ci.txt", "image.txt"])
def test_a_lock_fits_what_is_asked_for_and_has_hashes(name: str) -> None:
    """`requirements/lock.sh` writes both anew."""
    text = (ROOT / "requirements" / name).read_text()
    locked = sbom.locked(ROOT / "requirements" / name)
    first = text.partition("\n")[0]
    found = re.fullmatch(r"# Locked (\d{4}-\d\d-\d\d) by requirements/lock.sh: ([\w -]+)", first)
    assert found
    date, extras = found.groups()
    assert date <= time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    used = (ROOT / (".ci/run" if name == "ci.txt" else "Containerfile")).read_text()
    assert f"requirements/{name}" in used and extras.replace(" ", ",") in used, (
        "the lock has the extras that are installed"
    )
    wrong = [
        f"{each}, and {locked.get(each.name.lower().replace('_', '-'))} is locked"
        for each in requirements(*extras.split())
        if not each.specifier.contains(locked.get(each.name.lower().replace("_", "-"), "0"), prereleases=True)
    ]
    assert not wrong, "requirements/lock.sh"
    for package in re.split(r"\n(?=\S)", text)[1:]:
        assert "--hash=sha256:" in package, package


def test_the_bill_of_materials_names_each_locked_package() -> None:
    found = json.loads(sbom.bill(ROOT))
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["purl"].startswith("pkg:pypi/holdfast-run@")
    by_name = {each["name"]: each for each in found["components"]}
    assert by_name.keys() == sbom.locked(ROOT / "requirements/image.txt").keys()
    assert {name for name, each in by_name.items() if each["scope"] == "required"} == {
        each.name.lower() for each in requirements()
    }
    [needs] = found["dependencies"]
    assert set(needs["dependsOn"]) <= {each["bom-ref"] for each in found["components"]}
    assert sbom.bill(ROOT) == sbom.bill(ROOT)


@pytest.mark.parametrize(
    ("answers", "trouble", "status", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], "", 0, "1 packages have no known faults; locked on 20"),
        ([{"name": "a", "skip_reason": "not found"}], "", 0, "NOT AUDITED: data about known faults could not be had"),
        ([], "no network", 0, "could not be had here (no network); locked on 20"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}],
            "",
            1,
            "a 1: CVE-1, fixed in 2\nwrite the locks anew: requirements/lock.sh",
        ),
    ],
)
def test_an_audit_says_what_it_could_not_look_up(
    answers: list[dict[str, object]], trouble: str, status: int, words: str
) -> None:
    found, said = audit.verdict(answers, trouble)
    assert found == status and words in said


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as its wheel has it, unpacked. To build it takes a package index: it needs hatchling."""
    to = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(to), str(ROOT)]
    subprocess.run(words, capture_output=True, check=True)
    with zipfile.ZipFile(next(to.glob("holdfast_run-*.whl"))) as wheel:
        wheel.extractall(to / "site")
    return to / "site"


@pytest.mark.extras
def test_the_wheel_has_neither_the_tools_of_the_tests_nor_rows_in_two_forms(package: Path) -> None:
    names = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert "holdfast/py.typed" in names
    assert (package / "holdfast/sbom.cdx.json").read_bytes() == sbom.bill(ROOT)
    assert not (ROOT / "dist" / "sbom.cdx.json").exists()
    assert (package / "holdfast/catalogue/exits/rows.json").read_bytes() == exit_rows.snapshot()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"holdfast", "holdfast_run"}
    assert not [name for name in names if "/exits/" in name and ".yaml" in name]


@pytest.mark.extras
def test_what_the_wheel_holds_runs_and_explains_as_the_sources_do(package: Path, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n")
    (tmp_path / "t.py").write_text("print('hi')")
    env = {
        **os.environ,
        "PYTHONPATH": str(package),
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path),
    }

    def typed(*words: str) -> str:
        command = [sys.executable, "-P", "-c", "import holdfast.cli as c; c.main()", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout

    where = subprocess.run(
        [sys.executable, "-P", "-c", "import holdfast; print(holdfast.__file__)"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(package))
    assert typed("explain", str(log)).startswith("AcceleratorOutOfMemory")
    assert "HungWorker" in typed("exits")
    assert typed("run", "--no-checks", "t.py") == "[worker-0] hi\n"
    assert not list(tmp_path.glob("holdfast/exits-*")), "the rows need no cache"


def test_one_argument_names_the_base_of_the_whole_image_by_its_digest() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}"] * 2
    [base] = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=docker\.io/library/debian:[\w.-]+@sha256:[0-9a-f]{64}", base)
