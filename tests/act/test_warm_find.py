"""Which imports are found in a script by reading it, and which commands may start warm at all."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.act.warm.inside.import_scan import Finder
from holdfast.act.warm.warm_command import Blueprint, blueprint, difference, shared


def find(tmp_path: Path, text: str, **others: str) -> Finder:
    """`pack_of_inner="…"` is the file pack/inner.py."""
    (tmp_path / "job.py").write_text(textwrap.dedent(text))
    for name, body in others.items():
        path = tmp_path / (name.replace("_of_", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(body))
    finder = Finder(str(tmp_path))
    finder.script(str(tmp_path / "job.py"))
    return finder


def imports_found(finder: Finder) -> list[str]:
    return [name for what, name, _ in finder.steps if what == "import"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json, os.path\nfrom xml import dom\nfrom __future__ import annotations", ["json", "os.path", "xml"]),
        ("import no_such_module, json", ["json"]),
        ("def f():\n    import csv\nclass A:\n    import csv\nimport json", ["json"]),
        ("try:\n    import no_such_module\nexcept ImportError:\n    import csv\nimport json", ["json"]),
        ("try:\n    import csv\nexcept ImportError:\n    csv = None\nelse:\n    import json", ["csv", "json"]),
        ("if True:\n    import csv\nimport json", ["json"]),
        ("import json\nif __name__ == '__main__':\n    import csv\nimport decimal", ["json"]),
        ("import json\nT0 = json.dumps(1)\nprint(T0)\nlog = print\nimport csv", ["json", "csv"]),
        ("import json\njson.dumps(1)\nimport csv", ["json", "csv"]),
        ("import json\nx = = 1", []),
        ("import json\nimport json\nfrom json import loads", ["json", "json"]),
    ],
)
def test_imports_at_the_top_are_found(tmp_path: Path, text: str, found: list[str]) -> None:
    finder = find(tmp_path, text)
    assert (imports_found(finder), finder.note) == (found, "")


@pytest.mark.parametrize(
    "statement",
    [
        "sys.path.insert(0, 'lib')",
        "sys.path = ['lib']",
        "sys.path += ['lib']",
        "sys.modules['csv'] = None",
        "os.environ['A'] = str(3)",
        "os.environ.update(A='b')",
        "os.environ.pop('A', None)",
        "del os.environ['A']",
        "os.putenv('A', 'b')",
        "os.chdir('/')",
        "monkey.patch_all()",
        "matplotlib.use('Agg')",
        "multiprocessing.set_start_method('spawn')",
        "if sys.argv[1:]:\n    os.environ['A'] = sys.argv[1]",
        "for p in 'ab': sys.path.append(p)",
        "exec('import csv')",
        "sys.argv = ['x']",
        "sys.stdout = open('log', 'w')",
        "warnings.filterwarnings('ignore', category=Mine)",
        "if not sys.warnoptions: warnings.simplefilter('ignore')",
        "torch.set_default_dtype(torch.float64)",
        "atexit.register(print)",
        "profiler.start()",
        "prepare()",
        "def prepare():\n    helper()\ndef helper():\n    os.environ['A'] = sys.argv[0]\nprepare()",
        "try:\n    import no_such\nexcept ImportError:\n    sys.path.append('x')",
    ],
)
def test_reading_ends_where_later_imports_may_change(tmp_path: Path, statement: str) -> None:
    finder = find(tmp_path, f"import sys, os\n{statement}\nimport csv, click\n")
    assert imports_found(finder) == ["sys", "os"]
    assert "may change what is imported after it" in finder.note and "of job.py" in finder.note
    assert finder.left == ["click"], "Python's own are not worth a word"


def test_what_is_left_to_the_workers_is_named_once_and_only_if_it_could_have_been_shared(tmp_path: Path) -> None:
    text = "import yaml\nprepare()\nimport yaml.nodes, click, no_such\nfrom click import echo\nfrom . import mine\n"
    assert find(tmp_path, text + "if __name__ == '__main__':\n    import rich\n").left == ["click"]
    assert find(tmp_path, "import json\nprepare()\nprint(1)\n").left == []


def test_a_function_of_its_own_that_changes_nothing_is_passed_over(tmp_path: Path) -> None:
    finder = find(tmp_path, "def f(n):\n    return f(n - 1) if n else print(n)\nf(2)\nimport csv\n")
    assert (imports_found(finder), finder.note) == (["csv"], "")


def test_constant_variables_are_steps(tmp_path: Path) -> None:
    finder = find(tmp_path, "import os\nos.environ['A'] = 'b'\nos.environ.setdefault('C', 'd')\nimport csv")
    assert finder.steps == [
        ("import", "os", ()),
        ("set", "A", ("b",)),
        ("default", "C", ("d",)),
        ("import", "csv", ()),
    ]


def test_filters_of_warnings_are_steps_where_they_are_plain(tmp_path: Path) -> None:
    text = "import warnings\nwarnings.filterwarnings('ignore', category=UserWarning)\nimport csv\n"
    text += "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\nimport json"
    finder = find(tmp_path, text)
    assert [step[:2] for step in finder.steps] == [
        ("import", "warnings"),
        ("warn", "warnings.filterwarnings('ignore', category=UserWarning)"),
        ("import", "csv"),
        ("import", "json"),
    ]


def test_what_imports_may_set_too_is_noted_where_the_script_sets_it(tmp_path: Path) -> None:
    text = """
        import random, logging
        def prepare():
            random.seed(3)
        prepare()
        import csv
        logging.basicConfig(level=10)
        import json
    """
    assert [step[:2] for step in find(tmp_path, text).steps] == [
        ("import", "random"),
        ("import", "logging"),
        ("sets", "random"),
        ("import", "csv"),
        ("sets", "logging"),
        ("import", "json"),
    ]


def test_each_step_knows_where_it_stands_and_what_is_caught_there(tmp_path: Path) -> None:
    text = """
        import json
        import helper
        try:
            import csv
        except (OSError, ImportError):
            pass
        try:
            import wave
        except:
            raise
        try:
            import decimal
        except ValueError:
            pass
    """
    finder = find(tmp_path, text, helper="import argparse")
    job, helper = str(tmp_path / "job.py"), str(tmp_path / "helper.py")
    assert finder.main == job and finder.places == [
        (job, 2, "__main__", ""),
        (helper, 1, "helper", ""),
        (job, 5, "__main__", "ImportError"),
        (job, 9, "__main__", "Exception"),
        (job, 13, "__main__", ""),
    ]


def test_modules_of_the_user_are_read_and_not_run(tmp_path: Path) -> None:
    finder = find(
        tmp_path,
        "import helper\nfrom pack import inner, deep\nfrom pack.deep import thing\nimport decimal",
        helper="import csv\nraise RuntimeError('it was run')",
        pack_of___init__="from .top import X",
        pack_of_top="import argparse",
        pack_of_inner="from . import sibling\nfrom ..outside import x",
        pack_of_sibling="import json",
        pack_of_deep_of___init__="from .thing import y",
        pack_of_deep_of_thing="import wave",
    )
    assert imports_found(finder) == ["csv", "argparse", "json", "wave", "decimal"]
    assert sorted(Path(file).relative_to(tmp_path).as_posix() for file in finder.files) == [
        "helper.py", "job.py", "pack/__init__.py", "pack/deep/__init__.py", "pack/deep/thing.py", "pack/inner.py",
        "pack/sibling.py", "pack/top.py",
    ]  # fmt: skip


def test_a_file_beside_the_script_comes_before_the_standard_library(tmp_path: Path) -> None:
    assert imports_found(find(tmp_path, "import queue, json", queue="import csv")) == ["csv", "json"]


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    assert imports_found(find(tmp_path, "import a", a="import b\nimport csv", b="import a\nimport json")) == [
        "json",
        "csv",
    ]


def test_directories_without_init_are_packages_too(tmp_path: Path) -> None:
    finder = find(tmp_path, "import a.b.c\nfrom a.b import d", a_of_b_of_c="import csv", a_of_b_of_d="import json")
    assert imports_found(finder) == ["csv", "json"]


def test_a_module_as_main(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("import csv")
    (tmp_path / "pack/__main__.py").write_text("from . import x\nimport json")
    (tmp_path / "pack/x.py").write_text("import wave")
    for name in ("pack", "pack.__main__"):
        finder = Finder(str(tmp_path))
        finder.module(name)
        assert imports_found(finder) == ["csv", "wave", "json"]


def python_words(*words: str) -> tuple[str, ...]:
    return (sys.executable, *words)


OPTIONS = python_words("-uOB", "-W", "i", "-Xdev", "/a.py")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (python_words("-u", "a.py", "-x"), Blueprint(python_words("-u", "a.py", "-x"), "/w/a.py", None)),
        (OPTIONS, Blueprint(OPTIONS, "/a.py", None)),
        (python_words("-m", "pack.x", "y"), Blueprint(python_words("-m", "pack.x", "y"), None, "pack.x")),
        (python_words("-mpack"), Blueprint(python_words("-mpack"), None, "pack")),
        (python_words("-c", "pass"), "python's option -c keeps the nursery out"),
        (python_words("-R", "a.py"), Blueprint(python_words("-R", "a.py"), "/w/a.py", None)),
        (python_words("-X", "importtime", "a.py"), "-X importtime measures what the nursery takes away"),
        (python_words("-I", "a.py"), "python's option -I keeps the nursery out"),
        (python_words("-uE", "a.py"), "python's option -E keeps the nursery out"),
        (python_words("--version"), "python's option --version keeps the nursery out"),
        (python_words("-"), "the program comes from stdin"),
        (python_words("-u"), "there is no script"),
        (python_words("-m"), "-m has no module"),
        (("/bin/sh", "a.sh"), f"/bin/sh is not the interpreter that runs holdfast ({sys.executable})"),
        (("no-such-python", "a.py"), f"no-such-python is not the interpreter that runs holdfast ({sys.executable})"),
    ],
)  # fmt: skip
def test_which_commands_may_start_warm(command: tuple[str, ...], expected: Blueprint | str) -> None:
    assert blueprint(command, {"PATH": "/usr/bin"}, Path("/w")) == expected


def test_the_interpreter_may_be_named_by_its_directory_in_path() -> None:
    found = blueprint(("python3", "a.py"), {"PATH": str(Path(sys.executable).parent)}, Path("/w"))
    assert isinstance(found, Blueprint)


def test_variables_that_keep_the_nursery_out() -> None:
    assert blueprint(python_words("a.py"), {"PYTHONINSPECT": "1"}, Path("/w")) == "PYTHONINSPECT is set"


def test_what_differs_between_attempts_is_told_by_name() -> None:
    first = {"RANK": "0", "MASTER_PORT": "1", "OMP_NUM_THREADS": "1", "A": "x", "HOLDFAST_ATTEMPT": "1"}
    assert difference(shared(first), shared({**first, "RANK": "3", "MASTER_PORT": "2"})) == ""
    assert difference(shared(first), shared({"RANK": "0", "OMP_NUM_THREADS": "2", "B": ""})) == "A, B, OMP_NUM_THREADS"
