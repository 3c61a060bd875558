"""The user's command as a text in a variable: what `run` does with USER_CMD in a task's container."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Holdfast, Ran
from holdfast.launch.jobfile.job_file_values import split

pytestmark = pytest.mark.real


def run_runtime(holdfast: Holdfast, text: str | None = None, **env: str) -> Ran:
    """The start command of a container, with this Python instead of a tree's."""
    given = {**holdfast.env, **env} | ({"USER_CMD": text} if text is not None else {})
    words = [sys.executable, "-m", "holdfast.bundle.entry", "run"]
    done = subprocess.run(
        words, env=given, capture_output=True, text=True, cwd=holdfast.dir, timeout=60, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr, holdfast.home)


def task_lines(ran: Ran) -> list[str]:
    return [line.removeprefix("[task-0] ") for line in ran.out.splitlines()]


def test_several_lines_with_quotes_and_any_letters_are_the_shell_s(holdfast: Holdfast) -> None:
    ran = run_runtime(holdfast, "set -e\nx='it''s'\nprintf '%s\\n' \"$x\" 'zwölf \"Boxkämpfer\"' \\\n  last # don't\n")
    assert (ran.status, task_lines(ran)) == (0, ["its", 'zwölf "Boxkämpfer"', "last"]), ran.err


def test_no_strict_mode_is_forced_on_the_user(holdfast: Holdfast) -> None:
    assert task_lines(run_runtime(holdfast, "false; echo $NOT_SET; echo goes on")) == ["", "goes on"]


def test_a_first_line_names_the_interpreter_which_gets_one_word_as_the_kernel_gives_it(holdfast: Holdfast) -> None:
    text = f"#! {sys.executable} -u -s\nimport sys\nprint('never')\n"
    ran = run_runtime(holdfast, text)
    assert ran.status != 0 and task_lines(ran) != ["never"], "`-u -s` is one word to the kernel"
    text = f"#!{sys.executable} -s\nimport sys; print(sys.flags.no_user_site, '$PAI_TASK_ROLE_NAME', 'ü')\n"
    assert task_lines(run_runtime(holdfast, text)) == ["1 task ü"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/no/such/thing -x\n", "line 1, `#!/no/such/thing -x`: the interpreter /no/such/thing is not there"),
        ("#!/usr/bin/env no-such-program\n", "there is no program no-such-program on the PATH"),
        ("#!/bin/sh\r\necho x\r\n", "the line ends with a carriage return"),
        ("#!\necho x", "expected the path of an interpreter"),
        ("  \n", "the variable USER_CMD is empty"),
        ("echo a\necho $PAI_TASK_INDX", "USER_CMD, line 2, column 6: there is no `$PAI_TASK_INDX`; did you mean"),
        ("#!/bin/sh\necho <% $secrets.none %>", "USER_CMD, line 2, column 6: there is no `$secrets.none`"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_message_before_anything_starts(holdfast: Holdfast, text: str, message: str) -> None:
    ran = run_runtime(holdfast, text)
    assert ran.status == 2 and message in ran.err and "Traceback" not in ran.err, ran.err
    assert not list(holdfast.home.glob("jobs/*"))


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_wrong_name_ends_a_job_of_several_nodes_on_each_of_them_before_it_starts(
    holdfast: Holdfast, rank: str
) -> None:
    words = ["--command-from", "USER_CMD", "--nnodes", "2", "--node-rank", rank, "--rdzv-endpoint", "127.0.0.1:1"]
    given = {**holdfast.env, "USER_CMD": "echo $PAI_HOST_IP_task_1\necho $PAI_TASK_INDX"}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *words, "--nproc-per-node", "1"], env=given, capture_output=True,
        text=True, cwd=holdfast.dir, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2 and "USER_CMD, line 2, column 6: there is no `$PAI_TASK_INDX`" in done.stderr
    assert "did you mean `$PAI_TASK_INDEX`" in done.stderr and "PAI_HOST_IP_task_1" not in done.stderr


def test_a_missing_command_is_bad_usage_and_the_variable_may_have_another_name(holdfast: Holdfast) -> None:
    ran = run_runtime(holdfast)
    assert ran.status == 2 and "the variable USER_CMD is not set: expected the user's command" in ran.err
    assert task_lines(
        run_runtime(holdfast, HOLDFAST_COMMAND_FROM="MY_CMD", MY_CMD="echo $PAI_JOB_NAME", PAI_JOB_NAME="j7")
    ) == ["j7"]


def test_parameters_are_filled_in_and_secrets_stand_on_no_command_line(holdfast: Holdfast) -> None:
    text = "tr '\\0' ' ' < /proc/$$/cmdline; echo; echo \"<% $parameters.lr %> <% $secrets.t %>\""
    ran = run_runtime(holdfast, text, HOLDFAST_PARAMETER_lr="0.1", HOLDFAST_SECRET_t="sesame-1234")
    *line, last = task_lines(ran)
    assert last == "0.1 sesame-1234"
    assert "sesame" not in " ".join(line)


def test_a_secret_that_a_task_prints_stands_in_no_report(holdfast: Holdfast) -> None:
    text = 'echo "RuntimeError: cannot log in with <% $secrets.t %>" >&2; exit 3'
    ran = run_runtime(holdfast, text, HOLDFAST_SECRET_t="sesame-1234")
    records = [*holdfast.home.glob("jobs/*/report.json"), *holdfast.home.glob("jobs/*/attempt-1/runtime.pai.agg.error")]
    assert len(records) == 2
    told = ran.err[ran.err.index("FAILED") :]
    assert "cannot log in with ***" in told
    assert "sesame" not in told + "".join(path.read_text() for path in records)


def test_a_script_of_a_shell_has_secrets_too_and_one_of_another_interpreter_is_told_the_variable(
    holdfast: Holdfast,
) -> None:
    given = {"HOLDFAST_SECRET_t": "sesame-1234"}
    ran = run_runtime(holdfast, "#!/bin/sh\necho '<% $secrets.t %>' '$PAI_TASK_INDEX'", **given)
    assert task_lines(ran) == ["sesame-1234 $PAI_TASK_INDEX"], ran.err
    [file] = holdfast.home.glob("jobs/*/attempt-1/task-0/command")
    assert "sesame" not in file.read_text()
    ran = run_runtime(holdfast, f"#!{sys.executable}\nprint('<% $secrets.t %>')", **given)
    assert ran.status == 2
    assert "USER_CMD, line 2, column 8: a secret has no place here" in ran.err
    assert "the worker has it as $HOLDFAST_SECRET_t" in ran.err


def test_a_job_file_beside_run_is_the_job(holdfast: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "j.yaml"
    path.write_text(
        "name: j\nparameters: {lr: 3}\nroles: {w: {count: 2, command: 'echo $PAI_TASK_INDEX <% $parameters.lr %>'}}\n"
    )
    ran = run_runtime(holdfast, "echo never", HOLDFAST_JOB_FILE=str(path))
    assert sorted(ran.out.splitlines()) == ["[w-0] 0 3", "[w-1] 1 3"], ran.err
    path.write_text("name: j\nroles: {w: {count: 1, command: [echo, a, $PAI_TASK_INDXE]}}\n")
    ran = run_runtime(holdfast, HOLDFAST_JOB_FILE=str(path))
    assert ran.status == 2
    assert "j.yaml: `roles.w.command`, word 3, line 1, column 1: there is no `$PAI_TASK_INDXE`" in ran.err


def test_what_a_command_leaves_behind_ends_with_it(holdfast: Holdfast) -> None:
    ran = run_runtime(holdfast, "(sleep 300 &); setsid sleep 300 & echo done")
    assert (ran.status, task_lines(ran)) == (0, ["done"])
    assert holdfast.survivors() == []


def test_a_line_of_a_job_file_may_have_names_of_ours_though_no_shell_reads_it() -> None:
    assert split("a --to=${PAI_X} '<% $parameters.y %>' <% $secrets.z %>$PAI_HOST_IP_my-ps_0") == [
        "a", "--to=${PAI_X}", "<% $parameters.y %>", "<% $secrets.z %>$PAI_HOST_IP_my-ps_0",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="shell syntax"):
        split("echo $HOME")
