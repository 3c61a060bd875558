"""`jobs`, and which job `show`, `logs` and `explain` mean: real jobs of one state directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders import DAY_S
from holdfast.cli.options.job_filter import parse_moment
from holdfast.cli.output.table import fitted, table
from holdfast.errors import BadUsage
from typed_here import Cli, cli, typed

__all__ = ["cli"]  # fixtures

JOB_NAMES = ("a-model-with-a-name-that-is-long", "a-model-with-a-name-that-is-long", "quick")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs that fail, and then one that does not."""
    where = tmp_path_factory.mktemp("jobs")
    (where / "quick.py").write_text("print('all is well')")
    (where / "long.py").write_text("print('begun')\n[1, 2][17]")
    for name in JOB_NAMES:
        script = "quick.py" if name == "quick" else "long.py"
        words = ["run", "--no-checks", "--max-restarts", "0", "--name", name, script]
        env = {**os.environ, "HOLDFAST_HOME": str(where / "home")}
        subprocess.run([sys.executable, "-m", "holdfast", *words], cwd=where, env=env, capture_output=True, check=False)
    return where / "home"


def ids(cli: Cli, *words: str) -> list[str]:
    status, out, err = cli("jobs", "--json", *words)
    assert (status, err) == (0, "")
    return [job["id"] for job in json.loads(out)["jobs"]]


def test_jobs_are_shown_newest_first_and_whole_in_a_pipe(cli: Cli) -> None:
    status, out, _ = cli("jobs")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == list(reversed(JOB_NAMES))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_is_no_wider_than_the_screen(cli: Cli, columns: int) -> None:
    _, out, _ = cli("jobs", columns=columns)
    assert max(len(line) for line in out.splitlines()) <= columns
    assert all(job in out for job in ids(cli)), "an id is there to be copied"
    assert " ago" in out


@pytest.mark.parametrize(
    ("words", "fit"),
    [
        (["--state", "failed"], 2),
        (["--state", "succeeded"], 1),
        (["--state", "failed,succeeded"], 3),
        (["--state", "running"], 0),
        (["--name", "a-model-*"], 2),
        (["--class", "indexoutofrange"], 2),
        (["--class", "Hung*"], 0),
        (["--since", "1d"], 3),
        (["--since", "2099-01-01"], 0),
        (["-n", "1"], 1),
        (["--limit", "0"], 3),
        (["quick"], 1),
        ([JOB_NAMES[0]], 2),
        (["a-model-*", "--state", "failed"], 2),
        (["nosuch"], 0),
    ],
)
def test_options_choose_among_them(cli: Cli, words: list[str], fit: int) -> None:
    assert len(ids(cli, *words)) == fit


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--state", "faild"], "did you mean failed?"),
        (["--class", "hungworkr"], "did you mean HungWorker?"),
        (["--since", "soon"], "expected an age"),
        (["-n", "many"], "expected a number of jobs"),
    ],
)
def test_a_wrong_value_is_bad_usage_that_names_a_right_one(cli: Cli, words: list[str], told: str) -> None:
    status, _, err = cli("jobs", *words)
    assert status == 2 and told in err and "try: " in err


def test_none_that_fits_is_told_with_how_many_there_are(cli: Cli) -> None:
    assert cli("jobs", "--name", "other")[::2] == (0, "holdfast: none of 3 jobs fits\n  try: holdfast jobs\n")


def test_a_job_is_listed_by_its_name_or_a_part_of_its_id(cli: Cli) -> None:
    job = ids(cli)[0]
    assert ids(cli, job) == ids(cli, job[:-1]) == ids(cli, job.rpartition("-")[2]) == ids(cli, "quick") == [job]


def test_a_name_that_no_job_has_is_answered_with_the_nearest(cli: Cli) -> None:
    status, out, err = cli("jobs", "quik")
    assert (status, out) == (2, "") and "there is no job `quik`" in err and "`quick`" in err


def test_of_a_failure_the_table_has_the_exceptions_message(cli: Cli) -> None:
    assert "  IndexOutOfRange: list index out of range  " in cli("jobs", "-n", "2")[1]


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("raise KeyError('warmup')", "KeyError: 'warmup'"),
        ("import nosuchmodule", "ModuleNotFound: No module named 'nosuchmodule'"),
        ("raise ValueError('a' * 200)", f"ValueError: {'a' * 67}…"),
        ("raise ValueError", "ValueError"),
        (r"raise ValueError('a\x1b[31m\nb')", "ValueError: a"),
        ("import sys; sys.exit(7)", "Unexplained: exit status 7"),
        ("import os; os.kill(os.getpid(), 11)", "NativeCrash: SIGSEGV"),
        ("print('fine')", "Succeeded"),
    ],
)
def test_the_exception_stands_in_the_table_where_it_says_more(
    cli: Cli, tmp_path: Path, script: str, shown: str
) -> None:
    (tmp_path / "job.py").write_text(script)
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "new")}
    words = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--max-restarts", "0", "job.py"]
    subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, check=False)
    out = typed("jobs", cwd=tmp_path, env=env).stdout
    assert f"  {shown}" in out and "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("alias", ["ls", "ps", "list"])
def test_the_names_of_other_tools_list_jobs_too(cli: Cli, alias: str) -> None:
    assert cli(alias, "-n", "1") == cli("jobs", "-n", "1")


def test_the_version_has_a_short_option(cli: Cli) -> None:
    assert cli("-V") == cli("--version")


def test_without_a_job_the_last_one_is_meant(cli: Cli) -> None:
    last = ids(cli)[0]
    assert cli("show") == cli("show", last) == cli("status")
    assert cli("logs")[1].endswith("all is well\n")
    assert cli("explain") == cli("explain", last)


def test_the_beginning_of_an_id_or_its_end_means_its_job(cli: Cli) -> None:
    for job in ids(cli):
        assert cli("show", job[:-1]) == cli("show", job) == cli("show", job.rpartition("-")[2])


def test_the_beginning_of_several_ids_is_refused_with_their_names(cli: Cli) -> None:
    status, _, err = cli("show", ids(cli)[0][:6])
    assert status == 2 and "begins the ids of 3 jobs" in err and "quick" in err


def test_a_job_is_explained_by_its_name(cli: Cli) -> None:
    status, out, _ = cli("explain", JOB_NAMES[0])
    assert status == 0 and out.startswith("IndexOutOfRange")
    assert json.loads(cli("explain", "--json", JOB_NAMES[0])[1])["phrase"] == "IndexOutOfRange"


def test_a_file_of_a_jobs_name_is_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "quick").write_text("ValueError: from the file\n")
    assert "from the file" in cli("explain", "quick")[1]


def test_a_word_that_is_neither_is_told_so(cli: Cli) -> None:
    status, _, err = cli("explain", "quickly")
    assert status == 2 and "neither a file nor a job" in err


def test_what_is_piped_in_is_explained_and_no_job(cli: Cli) -> None:
    assert "ValueError: piped" in cli("explain", stdin="ValueError: piped\n")[1]


def test_without_any_job_there_is_no_last_one(tmp_path: Path) -> None:
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "empty")}
    for verb in ("show", "logs"):
        done = typed(verb, cwd=tmp_path, env=env)
        assert done.returncode == 2 and "there is no last job" in done.stderr


def test_columns_that_do_not_fit_are_left_out_and_then_words_are_cut() -> None:
    rows: list[tuple[str, ...]] = [("ID", "NAME", "MORE"), ("1", "x" * 30, "y" * 10)]
    assert fitted(rows, 100, drop=["MORE"], cut=["NAME"]) == rows
    assert fitted(rows, 40, drop=["MORE"], cut=["NAME"]) == [("ID", "NAME"), ("1", "x" * 30)]
    narrow = table(fitted(rows, 20, drop=["MORE"], cut=["NAME"]))
    assert max(len(line) for line in narrow.splitlines()) == 20 and "…" in narrow


def test_moments_are_ages_or_dates() -> None:
    assert parse_moment("2d", 10 * DAY_S, "--since") == 8 * DAY_S
    assert parse_moment("1d12h", 10 * DAY_S, "--since") == 8.5 * DAY_S
    assert parse_moment("1970-01-05T00:00:00+00:00", 0.0, "--since") == 4 * DAY_S
    for wrong in ("", "2", "-1d", "2y", "yesterdays"):
        with pytest.raises(BadUsage, match="expected an age"):
            parse_moment(wrong, 0.0, "--since")
