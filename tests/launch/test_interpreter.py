"""Which Python runs the workers, how it is chosen, and what a report says of it."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from builders import of_stderr
from conftest import Holdfast, free_port
from holdfast.errors import BadUsage
from holdfast.explain.causes.diagnosis import machine_advice
from holdfast.launch.interpreter import active, choose
from holdfast.model.evidence import HostFacts
from holdfast.node.missing_resources import look_around
from holdfast.python_environments import has_module
from places import SRC

TELLS_PREFIX = "import holdfast, sys; holdfast.progress(7); print(sys.prefix)"


@pytest.fixture(scope="module")
def other_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another environment, without holdfast, with a module `onlythere`."""
    place = tmp_path_factory.mktemp("other") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    [packages] = place.glob("lib/python3*/site-packages")
    (packages / "onlythere").mkdir()
    (packages / "onlythere" / "__init__.py").write_text("")
    return place


# ---------------------------------------------------------------------------------------------- real workers


@pytest.mark.key
@pytest.mark.real
@pytest.mark.parametrize("start", ["--no-warm", "--warm"])
def test_workers_run_with_the_active_environment(holdfast: Holdfast, other_environment: Path, start: str) -> None:
    script = holdfast.script("import onlythere, decimal\n" + TELLS_PREFIX)
    ran = holdfast.run(start, "--nproc-per-node", "2", script, VIRTUAL_ENV=str(other_environment))
    assert ran.status == 0, ran.err
    assert sorted(ran.out.splitlines()) == [f"[worker-{rank}] {other_environment}" for rank in (0, 1)]
    assert f"workers run with {other_environment}/bin/python: VIRTUAL_ENV is active" in ran.err
    assert "start cold" not in ran.err
    assert [attempt["step"] for attempt in ran.report["attempts"]] == [7], "what a worker says of its progress is heard"


@pytest.mark.real
def test_the_python_that_has_the_imports_is_named_and_used_by_auto(holdfast: Holdfast, other_environment: Path) -> None:
    python = other_environment / "bin" / "python"
    path = f"{holdfast.dir}:{python.parent}:{holdfast.env['PATH']}"
    script = holdfast.script("import os.path as p, onlythere\nfrom beside import x\n" + TELLS_PREFIX)
    holdfast.script("x = 1", "beside.py")
    ran = holdfast.run(script, PATH=path)
    assert ran.status != 0
    assert f"imports onlythere, which holdfast's own Python lacks and {python} has" in ran.err
    assert f"holdfast run --python {python} … (or --python auto)" in ran.err
    ran = holdfast.run("--python", "auto", script, PATH=path)
    assert (ran.status, ran.out) == (0, f"[worker-0] {other_environment}\n"), ran.err
    for has in ("import decimal\n", "import nowhere_at_all\n"):
        ran = holdfast.run("--python", "auto", holdfast.script(has + "import sys; print(sys.prefix)"), PATH=path)
        assert "lacks" not in ran.err and ran.out in ("", f"[worker-0] {sys.prefix}\n")
    assert holdfast.run("--python", "auto", "--no-python", "true", PATH=path).status == 0


@pytest.mark.key
@pytest.mark.real
@pytest.mark.parametrize("how", ["option", "PYTHON_EXEC", "HOLDFAST_PYTHON"])
def test_the_python_that_is_asked_for_wins(holdfast: Holdfast, other_environment: Path, how: str) -> None:
    python = str(other_environment / "bin" / "python")
    words = ["--python", python] if how == "option" else []
    holdfast.env |= {} if how == "option" else {how: python}
    ran = holdfast.run("--warm", *words, holdfast.script(TELLS_PREFIX), VIRTUAL_ENV="/nowhere")
    assert ran.out == f"[worker-0] {other_environment}\n", ran.err


@pytest.mark.real
def test_an_environment_without_a_python_is_passed_over_and_said(holdfast: Holdfast) -> None:
    ran = holdfast.run(holdfast.script("import sys; print(sys.executable)"), VIRTUAL_ENV="/nowhere")
    assert ran.out == f"[worker-0] {sys.executable}\n"
    assert "VIRTUAL_ENV=/nowhere has no bin/python" in ran.err


@pytest.mark.real
def test_a_missing_module_is_told_with_the_python_that_has_it(holdfast: Holdfast, other_environment: Path) -> None:
    ran = holdfast.run(
        "--python",
        sys.executable,
        holdfast.script("import onlythere"),
        VIRTUAL_ENV=str(other_environment),
        COLUMNS="500",
    )
    assert ran.report["phrase"] == "ModuleNotFound"
    assert f"workers run with {sys.executable}" in ran.report["reason"]
    assert f"holdfast run --python {other_environment}/bin/python" in ran.report["solution"]


@pytest.mark.real
def test_a_port_that_the_script_chose_is_no_option_of_holdfasts(holdfast: Holdfast) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = holdfast.script(
            f"""
            import socket
            try:
                socket.create_server(("127.0.0.1", {port}))
            except OSError as error:
                raise RuntimeError("Port {port} is already in use") from error
            """
        )
        ran = holdfast.run("--max-restarts", "0", script)
    assert ran.report["phrase"] == "AddressInUse"
    assert f"no option of holdfast changes port {port}, which the program chose" in ran.report["solution"]
    assert "rdzv-endpoint" not in ran.report["solution"]


# ---------------------------------------------------------------------------------------------- the choice


def empty_environment(place: Path, *modules: str) -> Path:
    packages = place / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    for module in modules:
        (packages / f"{module}.py").write_text("")
    return place


def test_of_two_active_environments_the_first_on_the_path_counts(tmp_path: Path) -> None:
    env = {
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "CONDA_PREFIX": str(tmp_path / "conda"),
        "PATH": f"{tmp_path}/conda/bin:{tmp_path}/venv/bin:/usr/bin",
    }
    assert active(env) == ("CONDA_PREFIX", tmp_path / "conda")
    assert active({**env, "PATH": "/usr/bin"}) == ("VIRTUAL_ENV", tmp_path / "venv")
    assert active({**env, "VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin"}) is None
    assert active({}) is None


def test_condas_base_counts_unless_torch_is_here_and_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = empty_environment(tmp_path / "base")
    env = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base"}
    monkeypatch.setattr(sys, "prefix", str(empty_environment(tmp_path / "own", "torch")))
    assert active(env) is None
    assert active({**env, "CONDA_DEFAULT_ENV": "train"}) == ("CONDA_PREFIX", base)
    (base / "lib/python3.12/site-packages/torch.py").write_text("")
    assert active(env) == ("CONDA_PREFIX", base)
    assert has_module(base, "torch")
    assert not has_module(base, "numpy")


@pytest.mark.parametrize("text", ["nosuchpython", "/nowhere/python", ".", "/bin/ls"])
def test_what_is_no_python_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadUsage, match=f"--python {text}"):
        choose(text, "--python", {"PATH": "/usr/bin"}, tmp_path)


def test_an_old_python_starts_cold_and_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho 3 8 cpython {python}\n")
    python.chmod(0o755)
    found = choose(str(python), "--python", {}, tmp_path)
    assert (found.own, found.cold) == (False, f"{python} is cpython 3.8, and a warm start needs CPython 3.9 or newer")


@pytest.mark.real
def test_what_a_script_sets_before_it_becomes_python_reaches_the_workers(holdfast: Holdfast) -> None:
    wrapper = holdfast.script(f'#!/bin/sh\nexport FROM_WRAPPER=1\nexec {sys.executable} "$@"\n', "wrapped")
    wrapper.chmod(0o755)
    ran = holdfast.run(
        "--warm", "--python", str(wrapper), holdfast.script("import os; print(os.environ['FROM_WRAPPER'])")
    )
    assert ran.out == "[worker-0] 1\n", ran.err
    assert f"{wrapper} is a script, and what it sets reaches cold workers only (try --python " in ran.err


def test_a_file_that_may_not_be_executed_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    with pytest.raises(BadUsage, match="may not execute"):
        choose(str(tmp_path / "python"), "--python", {}, tmp_path)


@pytest.mark.real
def test_python_beside_a_command_that_says_it_itself_is_refused(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--python", sys.executable, "--no-python", "true")
    assert ran.status == 2
    assert "with --no-python: the command there says by itself what runs it" in ran.err


@pytest.mark.parametrize(
    ("place", "oldest"),
    [("act/warm/inside", (3, 9)), ("act/warm/entry_point", (3, 9)), ("act/alongside", (3, 9)), ("worker.py", (3, 9))],
)
def test_what_runs_inside_workers_is_written_for_older_pythons(place: str, oldest: tuple[int, int]) -> None:
    found = SRC / place
    files = [found] if found.is_file() else [*found.rglob("*.py")]
    assert files
    for file in files:
        ast.parse(file.read_text(), str(file), feature_version=oldest)


# ---------------------------------------------------------------------------------------------- advice


def test_what_was_missed_is_read_from_the_workers_words() -> None:
    found = look_around(
        of_stderr("ModuleNotFoundError: No module named 'apex.amp'"), ("/v/python",), "/v/python", None, {}
    )
    assert found is not None
    assert (found.python, found.module, found.port) == ("/v/python", "apex.amp", None)
    found = look_around(of_stderr("[::]:29500 (errno: 98 - Address already in use)."), ("sh",), "/p", 29500, {})
    assert found is not None
    assert (found.port, found.asked_port, found.python, found.by_command) == (29500, 29500, "", True)
    assert look_around(of_stderr("loss 3.1"), ("/v/python",), "/v/python", None, {}) is None


def test_advice_names_what_can_be_typed() -> None:
    known = HostFacts(python="/hf/bin/python", module="torch", found_in=("/opt/venv/bin/python",))
    more, better = machine_advice("ModuleNotFound", known)
    assert more == "workers run with /hf/bin/python"
    assert "/opt/venv/bin/python has torch: run with `holdfast run --python /opt/venv/bin/python …`" in better
    assert "`/p -m pip install torch`" in machine_advice("ModuleNotFound", HostFacts(python="/p", module="torch"))[1]
    asked = HostFacts(port=7, asked_port=7, holder="pid 12 (serve)")
    assert machine_advice("AddressInUse", asked)[1].startswith("Give another --master-port, or none")
    assert machine_advice("AddressInUse", asked)[0] == "port 7 is held by pid 12 (serve)"
    assert machine_advice("UserException", known) == machine_advice("ModuleNotFound", None) == ("", "")


def _env(folder: Path, *modules: str) -> Path:
    """An environment as its files show it."""
    packages = folder / "lib" / "python3.12" / "site-packages"
    for module in modules:
        packages.joinpath(*module.split(".")).mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_an_environment_beside_the_script_that_has_the_module_is_named(tmp_path: Path) -> None:
    _env(tmp_path / ".venv", "nowhere_else")
    words = of_stderr("ModuleNotFoundError: No module named 'nowhere_else'")
    command = (sys.executable, str(tmp_path / "train.py"))
    found = look_around(words, command, sys.executable, None, {}, places=(Path("/"),))
    assert found is not None and found.found_in == (str(tmp_path / ".venv" / "bin" / "python"),)


def test_an_environment_without_the_part_of_the_package_is_not_named(tmp_path: Path) -> None:
    words = of_stderr("ModuleNotFoundError: No module named 'half_here.part'")
    venv = _env(tmp_path / "v", "half_here")
    found = look_around(words, (sys.executable,), sys.executable, None, {"VIRTUAL_ENV": str(venv)})
    assert found is not None and found.found_in == ()
    assert "pip install half_here`" in machine_advice("ModuleNotFound", found)[1]
    whole = _env(tmp_path / "w", "half_here.part")
    found = look_around(words, (sys.executable,), sys.executable, None, {"VIRTUAL_ENV": str(whole)})
    assert found is not None and found.found_in == (str(whole / "bin" / "python"),)


def test_the_port_of_pythons_own_words_is_that_of_the_line_above(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = of_stderr(
            f'  File "/srv/a.py", line 7, in <module>\n    s.bind(("", {port}))\n'
            "OSError: [Errno 98] Address already in use\n"
        )
        found = look_around(words, (sys.executable,), sys.executable, None, {})
        assert found is not None and found.port == port and f"pid {os.getpid()} " in found.holder
    found = look_around(words, (sys.executable,), sys.executable, None, {})
    assert found is not None and found.port is None


PORT_OF_ANOTHER_RANK = """
import os, socket, time
mine = socket.socket()
rank = int(os.environ["RANK"])
if rank == 2:
    mine.bind(("127.0.0.1", {port}))
    mine.listen()
    open("held", "w").close()
if rank == 1:
    while not os.path.exists("held"):
        time.sleep(0.01)
    mine.bind(("127.0.0.1", {port}))
time.sleep(600)
"""


@pytest.mark.real
def test_the_rank_that_held_a_port_is_named_though_it_was_stopped(holdfast: Holdfast) -> None:
    port = free_port()
    script = holdfast.script(PORT_OF_ANOTHER_RANK.format(port=port))
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script)
    assert ran.report["phrase"] == "AddressInUse"
    assert f"port {port} is held by rank 2 of this job (pid " in ran.report["reason"]
    assert ran.report["first"]["rank"] == 1


@pytest.mark.real
def test_a_process_that_holds_a_port_is_named_with_its_age_and_its_job(holdfast: Holdfast) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = f"import time; time.sleep(600)  # {port}"
        env = {**os.environ, "HOLDFAST_JOB": "20261120-1101-left"}
        other = subprocess.Popen([sys.executable, "-c", code], pass_fds=[taken.fileno()], env=env)
        taken.close()
        try:
            script = holdfast.script(f"import socket\nsocket.socket().bind(('127.0.0.1', {port}))\n")
            ran = holdfast.run("--max-restarts", "0", script)
        finally:
            other.kill()
            other.wait()
    assert f"port {port} is held by pid {other.pid} (" in ran.report["reason"]
    assert "which runs for" in ran.report["reason"]
    assert "started by job 20261120-1101-left" in ran.report["reason"]
