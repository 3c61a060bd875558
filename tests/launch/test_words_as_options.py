"""A user's word that begins with `-` is never an option of a program that holdfast starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import BadUsage
from holdfast.fetch.prerequisite_uris import uri_of
from holdfast.launch.image_runtime import image_words
from holdfast.launch.worker_program import command_of
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.runtime_plan import Prerequisite
from holdfast.node.worker_context import image_address
from holdfast.platforms.slurm.node_health import after_release
from holdfast.platforms.ssh.host_lists import hostfile, hosts_of
from holdfast.platforms.ssh.ssh_command import host_check_command, start_command
from holdfast.web.offered_changes import release_of, report_of


def _uri(text: str) -> object:
    return uri_of(Prerequisite(name="code", uri=text, into="code"))


def _image(image: str, program: str = "apptainer") -> object:
    spec = JobSpec(name="x", roles=(Role(name="a", count=1, command=("a",)),), image=image)
    return image_words(program, "--image-runtime", spec, {"PATH": os.environ["PATH"]}, Path("/tmp"))


def _listed(text: str) -> object:
    file = Path("hosts")
    file.write_text(text)
    return hostfile(file, "--hostfile")


#: The word, and what is said about it.
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a host of --hosts": (lambda: hosts_of(["-oProxyCommand=x"], "--hosts"), "-oProxyCommand=x: expected HOST"),
    "a host with a user": (lambda: hosts_of(["a@-oProxyCommand=x"], "--hosts"), "expected HOST"),
    "a host of a file": (lambda: _listed("n1\n-oProxyCommand=x slots=2\n"), "line 2: -oProxyCommand=x slots=2"),
    "an image": (lambda: _image("--nv://x"), "image --nv://x: expected an image's address"),
    "an image for enroot": (lambda: _image("-o://x", "enroot"), "image -o://x: expected an image's address"),
    "a uri": (lambda: _uri("--upload-pack=x"), "its uri has characters that no uri has"),
    "a git path": (lambda: _uri("git+--upload-pack=x.git"), "no user, host or path of a repository begins with `-`"),
    "a git reference": (lambda: _uri("https://h/a.git@--upload-pack=x"), "no name of a branch, a tag or a commit"),
    "a git host": (lambda: _uri("ssh://-oProxyCommand=x/a.git"), "no user, host or path"),
    "a git user": (lambda: _uri("ssh://-oProxyCommand=x@h/a.git"), "no user, host or path"),
    "a git host behind a user": (lambda: _uri("git@-oProxyCommand=x:a.git"), "no user, host or path"),
    "a git host, as git+ssh": (lambda: _uri("git+ssh://a@-oProxyCommand=x/a"), "no user, host or path"),
    "a script of the API": (lambda: holdfast.run("--summary=x"), "--summary=x: expected a script"),
    "a module of the API": (lambda: holdfast.run("-x", module=True), "-x: expected a script, a module"),
    "a command of the API": (lambda: holdfast.run(["--on-end=x", "y"]), "--on-end=x: expected a program"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused_with_one_message(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for program in ("apptainer", "enroot"):
        (tmp_path / program).write_text("")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    call, words = REFUSED[kind]
    with pytest.raises(BadUsage) as met:
        call()
    assert words in met.value.message, met.value.message


#: The words of a program, and the user's word in them.
BEHIND: dict[str, tuple[Callable[[], tuple[str, ...] | list[str]], str]] = {
    "a host of ssh": (lambda: start_command(("ssh",), "-oX=y", "/w", "python"), "-oX=y"),
    "a host of ssh that is looked at": (lambda: host_check_command(("ssh",), "-oX=y", "/w", "python", ()), "-oX=y"),
    "a device of a page": (lambda: release_of({"device": "-x", "reason": "-y"}), "-x"),
}


@pytest.mark.parametrize("kind", BEHIND)
def test_it_stands_behind_the_end_of_options(kind: str) -> None:
    call, word = BEHIND[kind]
    words = list(call())
    assert words.index("--") == words.index(word) - 1


def test_it_is_a_part_of_another_word() -> None:
    report = report_of({"device": "-x", "code": "-y", "assertion": "occur", "text": "-z", "node": "-n"})
    assert [word for word in report if word.startswith("-")] == [
        "--device=-x", "--code=-y", "--occur", "--text=-z", "--node=-n",
    ]  # fmt: skip
    assert image_address("--nv") == "docker://--nv"


def test_a_node_whose_name_is_an_option_is_not_asked_of_slurm(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho $* >>{tmp_path}/asked\n")
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "slurm.conf").write_text("")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert after_release("-Mother", "gpu0", dict(environment)) == ""
    assert not (tmp_path / "asked").exists()
    after_release("n1", "gpu0", dict(environment))
    assert "show node n1" in (tmp_path / "asked").read_text(), "the drill reaches scontrol"


def test_a_script_whose_name_is_an_option_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-c.py").write_text("print('ran')")
    words = command_of(("-c.py", "-x"), module=False, plain=False, python=sys.executable)
    assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout == "ran\n"
