"""The example of a platform: installed as a package, it runs a job over two hosts with stand-ins of LSF's commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import Holdfast, Ran
from holdfast.platforms.platform_registry import GROUP

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[2] / "examples" / "lsf"
BSUB = """#!/bin/sh
# bsub -n 2 -R TEXT COMMAND…: at once, on this machine
shift 4
LSB_JOBID=7 LSB_JOBINDEX=0 LSB_MCPU_HOSTS="h1 1 h2 1" exec "$@"
"""
BLAUNCH = """#!/bin/sh
# blaunch HOST COMMAND…: on this machine
echo "$1" >>"$STARTED"
shift
exec "$@"
"""
TELLS = """
import json, os
names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
open(f"told-{os.environ['RANK']}", "w").write(json.dumps({name: os.environ[name] for name in names}))
print("rank", os.environ["RANK"], flush=True)
"""


@pytest.fixture
def lsf(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has the example installed, and LSF's commands."""
    site, commands = tmp_path / "site", tmp_path / "commands"
    described = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = site / "holdfast_lsf-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    points = "".join(f"{name} = {target}\n" for name, target in described["entry-points"][GROUP].items())
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")
    shutil.copy(EXAMPLE / "holdfast_lsf.py", site)
    commands.mkdir()
    for name, text in (("bsub", BSUB), ("blaunch", BLAUNCH)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    python_path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": python_path,
        "HOLDFAST_PLATFORM": "lsf",
        "STARTED": str(tmp_path / "started"),
    }


def bsub(holdfast: Holdfast, lsf: dict[str, str], *words: str | Path) -> Ran:
    command = ["bsub", "-n", "2", "-R", "span[ptile=1]", sys.executable, "-m", "holdfast", "run", "--no-checks"]
    done = subprocess.run(
        [*command, *map(str, words)],
        executable=shutil.which("bsub", path=lsf["PATH"]),
        cwd=holdfast.dir,
        env={**holdfast.env, **lsf},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, holdfast.home)


def typed(holdfast: Holdfast, env: dict[str, str], *words: str | Path) -> Ran:
    return holdfast.finish(holdfast.start(*words, **env), 60)


def test_a_job_runs_on_the_two_hosts_of_its_lsf_job(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    done = bsub(holdfast, lsf, holdfast.script(TELLS))
    assert done.status == 0, done.err
    assert sorted(Path(lsf["STARTED"]).read_text().split()) == ["h1", "h2"]
    told = [json.loads((holdfast.dir / f"told-{rank}").read_text()) for rank in (0, 1)]
    assert [each["GROUP_RANK"] for each in told] == ["0", "1"]
    assert all((each["WORLD_SIZE"], each["GROUP_WORLD_SIZE"]) == ("2", "2") for each in told)
    assert {"rank 0", "rank 1"} <= {line.rpartition("] ")[2] for line in done.out.splitlines()}
    shown = json.loads(typed(holdfast, lsf, "show", "--json").out)
    assert (shown["platform"]["platform"], shown["platform"]["id"]) == ("lsf", "7")


def test_an_agent_that_is_lost_is_started_again(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    """The agent of the first rank's host is killed by its worker; another one takes its place, and the job goes on."""
    text = """
import os, signal, psutil
rank, again = os.environ["RANK"], os.path.exists("killed")
if rank == "0" and not again:
    open("killed", "w").close()
    above = [p for p in psutil.Process().parents() if "agent" in p.cmdline()]
    for process in reversed(above):  # the guard first: it would end this worker when the agent is gone
        process.kill()
"""
    done = bsub(holdfast, lsf, "--max-restarts", "2", holdfast.script(text))
    assert done.status == 0, done.err
    assert len(Path(lsf["STARTED"]).read_text().split()) == 3


def test_a_worker_that_fails_ends_the_job_with_its_class(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    done = bsub(holdfast, lsf, holdfast.script("raise ValueError('no such column')"))
    assert done.status not in (0, 1)
    assert "no such column" in done.err


def test_one_host_needs_no_blaunch(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    inside = {**lsf, "LSB_JOBID": "8", "LSB_MCPU_HOSTS": "h1 4"}
    done = typed(holdfast, inside, "run", "--no-checks", holdfast.script(TELLS))
    assert done.status == 0, done.err
    assert not Path(lsf["STARTED"]).exists()


def test_more_nodes_than_the_lsf_job_has_hosts_are_refused(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    done = bsub(holdfast, lsf, "--nnodes", "3", holdfast.script(TELLS))
    assert done.status == 2
    assert "the LSF job has 2 hosts" in done.err


def test_a_platform_that_is_not_installed_is_named(holdfast: Holdfast, lsf: dict[str, str]) -> None:
    done = typed(holdfast, {**lsf, "HOLDFAST_PLATFORM": "lfs"}, "run", "--no-checks", holdfast.script(TELLS))
    assert done.status == 2
    assert "HOLDFAST_PLATFORM lfs" in done.err and "expected kubernetes, ssh, slurm" in done.err
