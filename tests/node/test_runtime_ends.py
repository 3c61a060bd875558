"""What a task tells its surroundings when it ends, and what its surroundings tell it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conftest import Holdfast
from holdfast.observe.container_end import container_word, in_words

pytestmark = pytest.mark.real


def between_landmarks(text: str) -> dict[str, object]:
    first, *inner, last, end = text.split("\n")
    assert (first, last, end) == ("[PAI_RUNTIME_ERROR_START]", "[PAI_RUNTIME_ERROR_END]", "")
    found = yaml.safe_load("\n".join(inner))
    assert isinstance(found, dict)
    return found


def test_a_container_s_engine_finds_the_exit_where_it_looks(holdfast: Holdfast) -> None:
    place = holdfast.dir / "termination-log"
    place.touch()
    noisy = 'for i in $(seq 2000); do echo "line $i ü\\"" >&2; done; echo \'CUDA error: out of memory\' >&2; exit 3'
    ran = holdfast.run("--termination-log", place, "--max-restarts", "0", "--no-python", "sh", "-c", noisy)
    assert place.stat().st_size <= 4096
    assert between_landmarks(place.read_text())["exitcode"] == ran.status
    ran = holdfast.run("--no-python", "true", HOLDFAST_TERMINATION_LOG=str(place))
    assert (ran.status, place.read_text()) == (0, "")


def test_a_task_that_is_refused_before_its_start_says_so_there_too(holdfast: Holdfast) -> None:
    place = holdfast.dir / "termination-log"
    place.touch()
    ran = holdfast("run", "--command-from", "C", HOLDFAST_TERMINATION_LOG=str(place), C="echo $PAI_NOT_THERE")
    said = between_landmarks(place.read_text())
    assert (ran.status, said["exitcode"], said["trigger"]) == (2, 2, "runtimeErrorLog")
    assert said["reason"] == "C, line 1, column 6: there is no `$PAI_NOT_THERE`"


def test_a_file_that_cannot_be_written_costs_one_line(holdfast: Holdfast) -> None:
    ran = holdfast.run("--termination-log", "/no/such/dir/log", "--no-python", "true")
    assert ran.status == 0 and "/no/such/dir/log: not written: No such file or directory" in ran.err


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)])
def test_a_run_may_end_with_the_user_s_own_status(holdfast: Holdfast, command: str, status: int) -> None:
    words = ("--max-restarts", "0", "--no-python", "sh", "-c", command)
    assert holdfast.run("--exit-status", "user", *words).status == status
    if status == 7:
        assert holdfast.run(*words).status == 255


def test_a_component_is_told_where_its_error_file_goes(holdfast: Holdfast) -> None:
    text = """echo "1 ERROR REASON \\"the disk of this rack is full\\"" > $HOLDFAST_ERRORS/mount.pai.error; exit 1"""
    ran = holdfast.run("--max-restarts", "0", "--no-python", "sh", "-c", text)
    assert "the disk of this rack is full" in ran.err


def test_the_engine_s_word_stands_in_docker_status(holdfast: Holdfast) -> None:
    word = holdfast.dir / "state.json"
    said = json.dumps([{"State": {"Status": "exited", "OOMKilled": True, "ExitCode": 137}}]).replace('"', '\\"')
    ran = holdfast.run(
        "--container-status",
        word,
        "--max-restarts",
        "0",
        "--no-python",
        "sh",
        "-c",
        f'echo "{said}" > {word}; exit 137',
    )
    [agg] = ran.job_dir.glob("attempt-1/runtime.pai.agg.error")
    assert between_landmarks(agg.read_text())["dockerStatus"] == "oomKilled: true, exitCode: 137, status: exited"
    assert container_word(word, word.stat().st_mtime + 1) == ""


def test_a_status_of_kubernetes_is_read_too() -> None:
    status = {"name": "task", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "a\nb"}}}
    assert in_words(status) == "oomKilled: true, exitCode: 137, reason: OOMKilled, message: a\\nb"
    assert in_words([]) == in_words(3) == ""
    pod = {"kind": "Pod", "status": {"phase": "Failed", "containerStatuses": [status]}}
    assert in_words(pod) == in_words({"items": [pod]}) == in_words(status)
    before = {"name": "task", "state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}}
    assert "OOMKilled" not in in_words(before)


@pytest.mark.parametrize(("said", "end", "phrase"), [
    ({"State": {"Status": "exited", "OOMKilled": True, "ExitCode": 137}}, "kill -9 $$", "HostOutOfMemoryKilled"),
    ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "exit 137", "HostOutOfMemoryKilled"),
    ({"State": {"Status": "exited", "OOMKilled": False, "ExitCode": 137}}, "kill -9 $$", "KilledBySignal"),
    ({"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}, "kill -9 $$", "KilledBySignal"),
    ({"State": {"Status": "exited", "OOMKilled": True, "ExitCode": 3}}, "exit 3", "Unexplained"),
])  # fmt: skip
def test_an_engine_that_tells_of_a_memory_kill_decides(
    holdfast: Holdfast, said: dict[str, object], end: str, phrase: str
) -> None:
    (holdfast.dir / "said.json").write_text(json.dumps(said))
    word = holdfast.dir / "state.json"
    ran = holdfast.run(
        *("--container-status", word, "--max-restarts", "0", "--no-python"),
        *("sh", "-c", f"cat said.json > {word}; {end}"),
    )
    assert ran.report["phrase"] == phrase
    if phrase == "HostOutOfMemoryKilled":
        assert ran.report["trigger"] == "dockerStatus"
        assert "killed at the memory limit of the container" in ran.report["reason"]


def test_the_places_of_a_task_are_made_and_told(holdfast: Holdfast) -> None:
    text = 'cd "$HOLDFAST_TMP" && touch x && echo made > "$PAI_OUTPUT_DIR/result" && cat "$HOLDFAST_CONFIG"'
    ran = holdfast(
        "run", "--no-checks", "--command-from", "C", "--name", "j", C=f"export API_TOKEN=tok-12345678; {text}"
    )
    assert ran.status == 0, ran.err
    [result] = holdfast.home.glob("output/*/result")
    assert result.read_text() == "made\n"
    assert '"name":"j"' in ran.out and "tok-12345678" not in ran.out
    ran = holdfast(
        "run", "--no-checks", "--command-from", "C", C="touch $HOLDFAST_OUTPUT/y", HOLDFAST_OUTPUT_DIR="there"
    )
    assert ran.status == 0 and (holdfast.dir / "there/y").exists()


def started_by(holdfast: Holdfast, outer: str, *, ignores: str = "") -> subprocess.Popen[str]:
    text = f"{ignores} touch up; echo $$ > pid; while :; do sleep 0.1; done"
    process = holdfast.start(
        "run", "--no-checks", "--outer", outer, "--max-restarts", "0", "--no-python", "sh", "-c", text
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "is up" in line:
            return process
    raise AssertionError("the worker never came up")


def test_the_task_ends_when_the_process_it_runs_for_is_gone(holdfast: Holdfast) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as outer:
        process = started_by(holdfast, str(outer.pid))
        os.kill(outer.pid, signal.SIGKILL)
    ran = holdfast.finish(process)
    assert f"the process {outer.pid} (python" in ran.err and "is gone" in ran.err, ran.err
    assert ran.status != 0 and holdfast.survivors() == []


def test_a_fifo_tells_of_an_outer_agent_in_another_container(holdfast: Holdfast) -> None:
    fifo = holdfast.dir / "alive"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)
    process = started_by(holdfast, str(fifo))
    os.close(held)
    ran = holdfast.finish(process)
    assert f"the writer of {fifo}, by which this task was started, is gone" in ran.err


@pytest.mark.parametrize("outer", ["999999999", "/nowhere", "0"])
def test_an_outer_process_that_is_not_there_is_bad_usage(holdfast: Holdfast, outer: str) -> None:
    ran = holdfast.run("--outer", outer, "--no-python", "true")
    assert ran.status == 2 and "--outer" in ran.err


def test_a_task_s_start_command_ends_with_what_has_started_it(holdfast: Holdfast, tmp_path: Path) -> None:
    """`run` is started by an agent of a site; the agent is killed."""
    agent = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -m holdfast.bundle.entry run 2> err; true"],
        env={**holdfast.env, "USER_CMD": "trap 'echo told > told; exit' TERM; touch up; while :; do sleep 0.1; done"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    while not (tmp_path / "up").exists():
        assert agent.poll() is None
    agent.kill()
    agent.wait()
    while holdfast.survivors():
        pass
    assert (tmp_path / "told").read_text() == "told\n"
    assert "is gone" in (tmp_path / "err").read_text()
