"""`doctor`, `completion` in real shells, and the manual's pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.completion import WHERE
from holdfast.cli.man import page
from holdfast.cli.options.verb_group import VERBS


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a command called holdfast and one job of the name `training-alpha`."""
    tmp_path = tmp_path_factory.mktemp("shells")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (bin_dir / "holdfast").chmod(0o755)
    there = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST")}
    there |= {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "home")}
    words = ["holdfast", "run", "--no-checks", "--name", "training-alpha", "--no-python", "true"]
    subprocess.run(words, env=there, cwd=tmp_path, capture_output=True, check=True)
    return there


def run_words(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


_BASH = """COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); COMPREPLY=(); _holdfast_completion holdfast
printf "%%s\\n" "${COMPREPLY[@]}"
"""
#: What zsh's own functions would show is printed instead.
_ZSH = """autoload -U compinit; compinit -u -D; eval "$(holdfast completion zsh)"
_describe() { print -l ${(P)@[-1]} ${(P)@[3]} }; compadd() { print -l $completions }
"""
#: How each is made ready, and how one line is completed.
SHELL_SCRIPTS = {
    "bash": ('eval "$(holdfast completion bash)"', _BASH),
    "zsh": (_ZSH, "words=(%s); CURRENT=$#words; _holdfast_completion"),
    "fish": ("holdfast completion fish | source", "complete -C '%s'"),
}
OFFERED = {
    "holdfast sho": "show",
    "holdfast show train": "training-alpha",
    "holdfast logs train": "training-alpha",
    "holdfast check por": "ports",
    "holdfast run --checks por": "ports",
    "holdfast exits hungw": "HungWorker",
    "holdfast jobs --state fai": "failed",
    "holdfast run --max-res": "--max-restarts",
}


@pytest.mark.parametrize("shell", sorted(SHELL_SCRIPTS))
def test_each_shell_completes(env: dict[str, str], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    flags = ["-f"] if shell == "zsh" else []
    ready, complete = SHELL_SCRIPTS[shell]
    done = run_words(env, shell, *flags, "-c", "\n".join([ready, *(f"{complete % line}\necho ==" for line in OFFERED)]))
    answers = dict(zip(OFFERED, done.stdout.split("==\n"), strict=False))
    wrong = {line: answers.get(line) for line, offered in OFFERED.items() if offered not in answers.get(line, "")}
    assert not wrong, done.stderr


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(env: dict[str, str]) -> None:
    done = run_words(env, "holdfast", "completion", "tcsh")
    assert done.returncode == 2 and all(shell in done.stderr for shell in WHERE)


def test_completion_says_nothing_where_there_is_no_job(env: dict[str, str], tmp_path: Path) -> None:
    asked = {"COMP_WORDS": "holdfast show x", "COMP_CWORD": "2", "_HOLDFAST_COMPLETE": "bash_complete"}
    done = run_words({**env, **asked, "HOLDFAST_HOME": str(tmp_path / "none")}, "holdfast")
    assert (done.stdout.strip(), done.stderr) == ("", "") and not (tmp_path / "none").exists()


def test_doctor_names_version_python_and_what_each_missing_thing_is_for(env: dict[str, str]) -> None:
    told = json.loads(run_words(env, "holdfast", "doctor", "--json").stdout)
    assert told["schema"] == "holdfast.doctor/1" and told["executable"] == sys.executable
    assert {"stacks", "nvidia", "kubernetes", "data", "web", "notify", "otel"} == set(told["extras"])
    names = {each["name"] for each in told["findings"]}
    assert {"py-spy", "ptrace", "kernel log", "cgroups", "open files", "/dev/shm"} <= names
    for each in told["findings"]:
        assert each["ok"] or (each["purpose"] and each["command"]), each


def test_doctor_tells_what_is_missing_with_a_line_to_type(env: dict[str, str]) -> None:
    done = run_words(env, "sh", "-c", "ulimit -n 100; holdfast doctor")
    assert done.returncode == 0
    assert "missing  open files  100" in done.stdout and "more than 10 workers" in done.stdout
    assert "try: ulimit -n " in done.stdout


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_each_verb_has_a_page_that_the_formatter_takes(verb: str) -> None:
    text = page(verb)
    assert (
        text.startswith(f'.TH "HOLDFAST{"-" * bool(verb)}{verb.upper()}"')
        and ".SH NAME" in text
        and ".SH SYNOPSIS" in text
    )
    if shutil.which("groff") is not None:
        words = ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-P-c"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


def test_all_pages_are_written_at_once_and_man_reads_them(env: dict[str, str], tmp_path: Path) -> None:
    done = run_words(env, "holdfast", "man", "--into", str(tmp_path / "man/man1"))
    assert done.returncode == 0 and len(list((tmp_path / "man/man1").glob("holdfast*.1"))) == len(VERBS) + 1
    assert "--max-restarts" in (tmp_path / "man/man1/holdfast-run.1").read_text().replace("\\-", "-")
