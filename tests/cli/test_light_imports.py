"""What a start leaves out. Each case is a Python of its own: imports happen once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = {
    "ctypes",
    "socket",
    "holdfast.launch.jobfile.job_file_reader",
    "holdfast.node.report_writer",
    "holdfast.explain.funnel",
}
START |= {"ssl", "cryptography", "holdfast.wire.message_ages", "holdfast.wire.job_key", "holdfast.wire.owner_listener"}
"""What one node needs, too, does not come with more than one."""


def tell(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.real
@pytest.mark.key
def test_what_a_start_does_not_use_is_not_imported() -> None:
    modules = "holdfast.main.run_command, holdfast.main.single_machine_run, holdfast.wire.control_socket"
    code = f"import {modules}, sys; print({START!r} & set(sys.modules))"
    assert tell(code) == "set()"


@pytest.mark.real
@pytest.mark.key
def test_a_start_leaves_the_standard_library_as_it_is() -> None:
    """No stand-in is left in `sys.modules`, and no function or class of a library was replaced."""
    code = """
import msgspec, re, typing, platform, datetime, sys
kept = {m: {name: it for name, it in vars(m).items() if callable(it)} for m in (re, typing, platform, datetime)}
import holdfast.main.run_command, holdfast.main.single_machine_run, holdfast.cli.options.run_option_table
same = all(vars(module).get(name) is value for module, names in kept.items() for name, value in names.items())
own = {"holdfast", "holdfast.explain"}  # the package that can be called
others = {name for name, it in sys.modules.items() if type(it).__module__.startswith("holdfast")} - own
print(same, sorted(others))
"""
    assert tell(code) == "True []"


@pytest.mark.real
@pytest.mark.key
def test_a_start_compiles_no_python() -> None:
    """A NamedTuple compiles something for each field, a ForwardRef its text. A table of imports does not show that."""
    code = """
import builtins, msgspec
real, seen = builtins.compile, []
def compile(source, *words, **more):
    if isinstance(source, str):  # else it is a module without its .pyc
        seen.append(source)
    return real(source, *words, **more)
builtins.compile = compile
import holdfast.main.run_command, holdfast.main.single_machine_run, holdfast.cli.options.run_option_table
print(len(seen), end=" ")
import typing
typing.List["int"]
print(seen)
"""
    assert tell(code) == "0 ['int']"


@pytest.mark.real
@pytest.mark.key
def test_the_guard_is_made_before_anything_large_is_imported() -> None:
    """`guarded` forks; what the command line has imported by then is what the guard holds."""
    large = "{'typing', 're', 'ctypes', 'msgspec', 'pathlib', 'sqlite3', 'socket', 'click', 'holdfast.model.job_spec'}"
    assert tell(f"import sys, holdfast.cli, holdfast.main.run_guard; print({large} & set(sys.modules))") == "set()"


@pytest.mark.real
@pytest.mark.key
@pytest.mark.parametrize("nodes", [[], ["--nnodes", "1"], ["--nnodes", "1:1"], ["--nnodes", "1:4"], ["--standalone"]])
def test_a_run_on_one_machine_imports_nothing_of_many(nodes: list[str], tmp_path: Path) -> None:
    words = ["-X", "importtime", "-m", "holdfast", "run", "--no-checks", *nodes, "--no-python", "true"]
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=True, env=env)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    of_many = {
        "holdfast.launch.multi_node",
        "holdfast.platforms.ssh.ssh_platform",
        "holdfast.node.agent",
        "holdfast.owner.nodes",
        "holdfast.wire.addresses",
    }
    assert "holdfast.main.platform_choice" in imported
    assert imported & (of_many | {"ssl", "cryptography", "socket"}) == set()
