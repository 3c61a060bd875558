"""`holdfast.run`, `holdfast.explain`, `holdfast.jobs`: real runs, called as a program or a notebook calls them."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import holdfast
from places import DOCS

PYTHON_PAGE = DOCS / "reference" / "python.md"


@pytest.fixture(autouse=True)
def scripts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with two scripts, and a state directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    Path("good.py").write_text("import os, sys\nprint('word', sys.argv[1:], os.environ.get('GIVEN'))\n")
    Path("bad.py").write_text("raise KeyError('<b>x</b>')\n")
    os.mkfifo("up")
    Path("long.py").write_text("import time\nopen('up', 'w').close()\ntime.sleep(600)\n")
    yield tmp_path


def start_python(code: str) -> subprocess.Popen[str]:
    # A shell's background job is born with SIGINT ignored, and Python then makes no KeyboardInterrupt of it.
    interrupts = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = [sys.executable, "-u", "-c", f"{interrupts}\n{code}"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.real
@pytest.mark.key
def test_a_run_returns_the_report_and_shows_what_the_workers_print() -> None:
    shown = io.StringIO()
    with redirect_stdout(shown):
        report = holdfast.run("good.py", ["a", 2], nproc_per_node=2, env={"GIVEN": "yes"}, no_checks=True)
    assert report.ok and report.outcome == "succeeded" and report.attempts == 1
    assert shown.getvalue().count("word ['a', '2'] yes") == 2


@pytest.mark.real
@pytest.mark.key
def test_a_job_that_fails_is_a_report_and_no_exception() -> None:
    report = holdfast.run("bad.py", max_restarts=0, no_checks=True, show=False)
    assert (report.ok, report.outcome, report.exception, report.rank, report.exit_code) == (
        False, "failed", "KeyError", 0, 1,
    )  # fmt: skip
    assert report.where.endswith("bad.py:1") and report.frames == (f"{report.where} in <module>",)
    assert report.log.endswith("worker-0/stderr.log") and "KeyError" in Path(report.log).read_text()
    assert "bad.py:1" in report.text() and "bad.py:1" in report._repr_html_()
    (job,) = holdfast.jobs()
    assert job.report is not None and (job.report.where, job.report.log) == (report.where, report.log)
    assert report.to_dict()["job"]["id"] == report.job_id == holdfast.jobs()[0].id


@pytest.mark.real
@pytest.mark.key
@pytest.mark.parametrize(
    ("what", "options", "said"),
    [
        ("missing.py", {}, "there is no script missing.py"),
        ("good.py", {"hang_timeout": "x"}, "1d12h, got 'x'"),
        ("good.py", {"no_such_option": 1}, "No such option '--no-such-option'"),
        ({"roles": 3}, {}, "the key `name` is missing"),
        ({"roles": object()}, {}, "the job's mapping"),
        ("", {}, "the script's name is empty"),
    ],
)
def test_what_cannot_be_meant_is_one_exception_with_a_hint(what: object, options: dict[str, str], said: str) -> None:
    with pytest.raises(holdfast.BadUsage) as raised:
        holdfast.run(what, show=False, **options)  # type: ignore[arg-type]  # a wrong one is the point
    assert said in raised.value.message and raised.value.hint
    assert holdfast.jobs() == ()


@pytest.mark.real
@pytest.mark.key
def test_a_run_in_another_thread_leaves_the_callers_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD)
    found: list[holdfast.Report] = []
    thread = threading.Thread(target=lambda: found.append(holdfast.run(["true"], no_checks=True, show=False)))
    thread.start()
    thread.join()
    assert found[0].ok
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD)) == before


@pytest.mark.real
@pytest.mark.key
def test_ctrl_c_stops_the_job_and_is_raised_when_it_has_ended() -> None:
    code = """
import holdfast
try:
    holdfast.run("long.py", no_checks=True, show=False)
except KeyboardInterrupt:
    print(holdfast.jobs()[0].state, holdfast.jobs()[0].outcome)
"""
    with start_python(code) as program:
        Path("up").read_bytes()  # until the worker is there
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (out, err) == ("ended stopped\n", "")


@pytest.mark.real
@pytest.mark.key
def test_the_job_ends_when_its_caller_is_killed() -> None:
    with start_python("import holdfast; holdfast.run('long.py', no_checks=True, grace=1)") as program:
        Path("up").read_bytes()  # until the worker is there
        [job] = holdfast.jobs()
        program.kill()
        kinds = [event.kind for event in job.events(follow=True)]
    assert "stop_requested" in kinds
    assert holdfast.jobs()[0].outcome == "stopped"


@pytest.mark.real
@pytest.mark.key
def test_the_events_of_a_running_job_come_until_its_end() -> None:
    with start_python("import holdfast; holdfast.run('long.py', no_checks=True, show=False)") as program:
        Path("up").read_bytes()  # until the worker is there
        events = holdfast.jobs()[0].events(follow=True)
        assert next(events).kind == "job_submitted"
        program.send_signal(signal.SIGINT)
        rest = list(events)
        program.communicate(timeout=60)
    assert "stop_requested" in [event.kind for event in rest]
    assert [event.at for event in rest] == sorted(event.at for event in rest)
    assert holdfast.jobs()[0].report is not None


def test_a_text_or_files_are_explained(scripts_here: Path) -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (scripts_here / "a.log").write_text(text)
    phrases = {holdfast.explain(each).phrase for each in (text, text.encode(), "a.log", Path("a.log"), ["a.log"])}
    assert phrases == {"AcceleratorOutOfMemory"}
    assert holdfast.explain("nothing\n", signal="KILL").signal == "SIGKILL"


@pytest.mark.parametrize(
    ("logs", "more"),
    [("missing.log", {}), ([], {}), (["a\n", "b\n"], {}), ("x\n", {"exit_code": 777}), ("x\n", {"signal": "NO"})],
)
def test_what_cannot_be_explained_is_refused(logs: object, more: dict[str, int]) -> None:
    with pytest.raises(holdfast.BadUsage) as raised:
        holdfast.explain(logs, **more)  # type: ignore[arg-type]  # a wrong one is the point
    assert raised.value.hint


def test_a_report_is_frozen_and_a_notebook_gets_it_escaped() -> None:
    report = holdfast.explain("ValueError: <script>alert(1)</script>\x1b[31m\n", exit_code=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.code = 0  # type: ignore[misc]  # that is the point
    html = report._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "\x1b" not in html
    assert repr(report) == "<holdfast.Report failed UserException (236) rank=0>"
    assert str(report) == report.text()


def test_tab_offers_what_a_user_may_call() -> None:
    assert dir(holdfast) == sorted(holdfast.__all__)
    assert all(hasattr(holdfast, name) for name in dir(holdfast))


@pytest.mark.real
@pytest.mark.key
def test_a_worker_that_imports_holdfast_loads_nothing_of_it() -> None:
    all_of_it = {"msgspec", "dataclasses", "holdfast.api"}
    code = f"import sys, holdfast; holdfast.progress(1); print({all_of_it} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.real
@pytest.mark.key
@pytest.mark.parametrize(
    "first",
    [
        "import holdfast",
        "import holdfast; holdfast.jobs",
        "from holdfast import explain",
        "from holdfast import *",
        "from holdfast.explain import read_workers",
        "import holdfast.explain as package",
        "import holdfast.explain.explanation_rules, holdfast.node.explain_files",
        "import holdfast.api",
    ],
)
def test_explain_can_be_called_and_imported_from_whatever_is_imported_first(first: str) -> None:
    code = f"""
{first}
import holdfast
assert holdfast.explain("ValueError: no\\n", exit_code=1).exception == "ValueError"
from holdfast.explain import explain as pure, read_workers
import holdfast.explain as package
assert (package.explain, package.read_workers) == (pure, read_workers)
from holdfast import explain
assert explain is holdfast.explain
import holdfast.explain.explanation_rules
assert holdfast.explain.explanation_rules and callable(holdfast.explain)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.real
@pytest.mark.key
def test_the_page_about_python_does_what_it_says(scripts_here: Path) -> None:
    text = PYTHON_PAGE.read_text(encoding="utf-8")
    for name, code in re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (scripts_here / name).write_text(code)
    blocks = re.findall(r"^```python run\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    done = subprocess.run(
        [sys.executable, "-c", "".join(blocks)], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
