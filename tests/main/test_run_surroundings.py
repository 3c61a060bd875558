"""A user's limits, PYTHONPATH and names: holdfast starts in them, and workers get them unchanged."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from conftest import Holdfast
from places import DATA

pytestmark = pytest.mark.real

LIMIT = "import resource; print('files', *resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)\n"


def limited(holdfast: Holdfast, soft: int, hard: int) -> Path:
    """Return a script that starts holdfast with these limits of open files."""
    return holdfast.script(
        f"""
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
        os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "holdfast", *sys.argv[1:]])
        """,
        "limited.py",
    )


@pytest.mark.key
def test_the_soft_limit_of_open_files_is_raised_and_workers_keep_theirs(holdfast: Holdfast) -> None:
    script, starts = holdfast.script(LIMIT), limited(holdfast, 160, 2000)
    words = ("run", "--no-checks", "--nproc-per-node", "16")
    ran = holdfast("run", "--no-checks", "--no-python", sys.executable, starts, *words, script)
    assert ran.status == 0
    assert ran.out.count("files 160 2000") == 16


def test_pre_checks_see_the_limit_of_the_workers(holdfast: Holdfast) -> None:
    script, starts = holdfast.script(LIMIT), limited(holdfast, 160, 2000)
    job = holdfast.dir / "job.yaml"
    check = "{limits: {min_open_files: 161}}"
    job.write_text(f"name: job\nroles: {{w: {{count: 16, command: [python, {script}]}}}}\nchecks: [{check}]\n")
    ran = holdfast("run", "--no-checks", "--no-python", sys.executable, starts, "run", "--job", job)
    assert "open files (ulimit -n): 160 allowed, 161 asked" in ran.out + ran.err


def test_a_hard_limit_that_is_too_low_is_named(holdfast: Holdfast) -> None:
    script, starts = holdfast.script(LIMIT), limited(holdfast, 100, 120)
    ran = holdfast("run", "--no-checks", "--no-python", sys.executable, starts, "run", "--nproc-per-node", "16", script)
    assert "only 120 files may be open at a time here (ulimit -Hn); holdfast needs 168 for 16 workers" in ran.err


#: Standard modules that Python itself loads before a program begins cannot be here: every Python would fail.
SHADOWED = (
    "msgspec",
    "click",
    "yaml",
    "json",
    "queue",
    "select",
    "signal",
    "sqlite3",
    "typing",
    "logging",
    "dataclasses",
)


@pytest.fixture
def shadows(holdfast: Holdfast) -> str:
    """A PYTHONPATH with the user's own modules, before the folder in which this holdfast lies."""
    folder = holdfast.dir / "modules"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the user')\n")
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.key
@pytest.mark.parametrize("more", [(), ("--no-checks", "--on-end", "cat >ended"), ("--no-checks", "--json")], ids=str)
def test_modules_of_pythonpath_do_not_replace_holdfasts(
    holdfast: Holdfast, shadows: str, more: tuple[str, ...]
) -> None:
    script = holdfast.script("import os; print('path', os.environ['PYTHONPATH'], flush=True)\n")
    ran = holdfast("run", *more, script, PYTHONPATH=shadows)
    assert ran.status == 0, ran.err
    assert "Traceback" not in ran.err
    assert f"path {shadows}" in ran.out + ran.err, "the worker has the variable as it was"
    if "--on-end" in more:
        assert json.loads((holdfast.dir / "ended").read_text())["event"] == "job_ended"
    for verb in ("jobs", "show", "logs", "exits", "doctor"):
        done = holdfast(verb, PYTHONPATH=shadows)
        assert "Traceback" not in done.err, f"{verb}: {done.err}"


def test_a_pythonpath_may_name_the_folders_of_python_itself(holdfast: Holdfast, shadows: str) -> None:
    ran = holdfast.run(holdfast.script("print('ok')\n"), PYTHONPATH=os.pathsep.join([shadows, *filter(None, sys.path)]))
    assert ran.status == 0, ran.err


def test_a_plugin_still_finds_its_modules_there(holdfast: Holdfast, shadows: str) -> None:
    (holdfast.dir / "modules" / "of_ours.py").write_text("NAME = 'found-in-pythonpath'\n")
    plugin = holdfast.script(
        """
        from of_ours import NAME
        from holdfast.checks import PreCheckOperator, PreCheckResult

        class Mine(PreCheckOperator):
            def check(self, *args, **kwargs):
                return PreCheckResult(1, NAME, [])

            def failed_actions(self, *args, **kwargs):
                return []
        """,
        "plugin.py",
    )
    ran = holdfast("run", "--plugin", plugin, holdfast.script("print('ok')\n"), PYTHONPATH=shadows)
    assert "found-in-pythonpath" in ran.err, ran.err


def test_a_sitecustomize_that_fails_does_not_matter(holdfast: Holdfast, shadows: str) -> None:
    (holdfast.dir / "modules" / "sitecustomize.py").write_text("import json\n")
    ran = holdfast.run(holdfast.script("print('ok')\n"), PYTHONPATH=shadows, PYTHONSTARTUP="/nowhere.py")
    assert ran.status == 0, ran.err


NAMES = {
    "训练.py": "训练",
    "評価 2.py": "評価-2",
    "обучение.py": "обучение",
    "тест-тест.py": "тест-тест",
    "εκπαίδευση.py": "εκπαίδευση",
    "ट्रेन.py": "ट्रेन",
    "train.py": "train",
    unicodedata.normalize("NFD", "entraînement.py"): "entraînement",
    "🚀.py": "folder",
    "学" * 70 + ".py": "学" * 60,
}


@pytest.mark.key
@pytest.mark.parametrize(("file", "name"), NAMES.items(), ids=NAMES.values())
def test_a_job_has_its_scripts_name_in_any_alphabet(holdfast: Holdfast, file: str, name: str) -> None:
    folder = holdfast.dir / "folder"
    folder.mkdir()
    (folder / file).write_text("print('ok')\n")
    ran = holdfast.run(folder / file)
    assert ran.report["job"]["name"] == name
    assert "ok" in holdfast("logs", unicodedata.normalize("NFD", name)).out


@pytest.mark.parametrize(
    ("name", "right"), [("训练-1", True), ("训练 1", False), ("my job", False), ("e\u0301te", True)]
)
def test_a_typed_name_in_any_alphabet(holdfast: Holdfast, name: str, right: bool) -> None:
    ran = holdfast.run("--name", name, holdfast.script("print('ok')\n"))
    assert ran.status == (0 if right else 2)
    if right:
        assert ran.report["job"]["name"] == unicodedata.normalize("NFC", name)


def test_the_next_command_finds_a_job_whose_state_directory_cannot_be_written(holdfast: Holdfast) -> None:
    """A file stands where the directory would be: this holds for root as well."""
    (holdfast.dir / "file").write_text("")
    script = holdfast.script("raise SystemExit(7)")
    ran = holdfast.run("--max-restarts", "0", script, HOLDFAST_HOME=str(holdfast.dir / "file" / "home"))
    [begun] = [at for at, line in enumerate(ran.err.splitlines()) if line.startswith("  next ")]
    command = " ".join(" ".join(ran.err.splitlines()[begun:]).split()[1:]).partition(" holdfast exits")[0]
    environment, *words = command.split(" holdfast ")
    assert environment.startswith("HOLDFAST_HOME=") and len(words) == 1, command
    home = environment.partition("=")[2]
    found = holdfast(*words[0].split(), HOLDFAST_HOME=home)
    assert found.status == 0, found.err
    shown = " ".join(holdfast("show", HOLDFAST_HOME=home).out.split())
    assert f"next HOLDFAST_HOME={home} holdfast " in shown, "what it names next finds the job too"
    shutil.rmtree(home)


#: Starts holdfast where no process of it gets a lock of a file below `sys.argv[2]`.
UNLOCKED = """
    import fcntl, os, sys
    code, below = int(sys.argv.pop(1)), sys.argv.pop(1)

    def refusing(real):
        def lock(fd, *words):
            if os.readlink(f"/proc/self/fd/{fd if isinstance(fd, int) else fd.fileno()}").startswith(below):
                raise OSError(code, os.strerror(code))
            return real(fd, *words)
        return lock

    fcntl.flock, fcntl.lockf = refusing(fcntl.flock), refusing(fcntl.lockf)
    from holdfast.cli import main
    sys.argv[0] = "holdfast"
    main()
"""


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
@pytest.mark.parametrize("everywhere", [False, True], ids=["its home", "everywhere"])
@pytest.mark.parametrize("by", ["python", "libc"])
def test_a_job_runs_on_file_systems_without_locks(holdfast: Holdfast, by: str, everywhere: bool, code: int) -> None:
    below = "/" if everywhere else str(holdfast.home)
    words = ["run", "--no-checks", "--no-python", "sh", "-c", "echo begun; exit 7"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_HOME": str(holdfast.home)}
    if by == "python":
        command = [sys.executable, str(holdfast.script(UNLOCKED, "unlocked.py")), str(code), below, *words]
    else:
        if shutil.which("cc") is None:
            pytest.skip("a file system without locks for all programs takes a C compiler")
        library = holdfast.dir / "no_locks.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, DATA / "no_locks.c", "-ldl"], check=True)
        command = [sys.executable, "-m", "holdfast", *words]
        env |= {"LD_PRELOAD": str(library), "NO_LOCKS": below, "NO_LOCKS_ERRNO": str(code)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 255 and "Traceback" not in ran.stderr, ran.stderr
    assert "begun" in ran.stdout
    why = f"the state directory {holdfast.home} cannot be written ({os.strerror(code).lower()}); "
    other = (
        "no other directory of this machine can be written either" if everywhere else "this job's logs and its report"
    )
    assert why + other in " ".join((ran.stdout + ran.stderr).split())


def test_the_next_command_names_no_directory_where_it_is_the_usual_one(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", holdfast.script("raise SystemExit(7)"))
    assert "  next     holdfast show " in ran.err and "HOLDFAST_HOME" not in ran.err
