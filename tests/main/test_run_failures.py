"""Real gangs that fail: who is named, what is printed, what is decided. Each starts real processes."""

from __future__ import annotations

import sys

import pytest

from conftest import Holdfast
from holdfast.model.events import AgentReported
from holdfast.model.gang_protocol import Member, MemberState
from holdfast.record.job_views import events

pytestmark = [pytest.mark.real, pytest.mark.key]

WAIT = "import time; time.sleep(60)"


def dies(rank: int, how: str) -> str:
    """A script in which one rank dies and the others wait."""
    return f"import os, sys, signal, time\nif os.environ['RANK'] == '{rank}':\n    {how}\n{WAIT}\n"


@pytest.mark.parametrize(
    ("how", "phrase", "original"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "KilledBySignal", {"exit_code": None, "signal": "SIGKILL"}),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "NativeCrash", {"exit_code": None, "signal": "SIGSEGV"}),
        ("os.abort()", "NativeCrash", {"exit_code": None, "signal": "SIGABRT"}),
        ("raise ValueError('wrong loss')", "UserException", {"exit_code": 1, "signal": None}),
        ("sys.exit(3)", "Unexplained", {"exit_code": 3, "signal": None}),
        ("import no_such_module", "ModuleNotFound", {"exit_code": 1, "signal": None}),
    ],
)
def test_one_rank_dies(holdfast: Holdfast, how: str, phrase: str, original: dict[str, object]) -> None:
    script = holdfast.script(dies(1, how))
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script)
    report = ran.report
    assert (report["phrase"], report["first"]["rank"], report["original"]) == (phrase, 1, original)
    assert report["outcome"] == "failed"
    assert ran.status == report["code"] != 0
    assert sorted(report["collateral"]) == [0, 2]
    assert [a["attempt"] for a in report["attempts"]] == [1]
    assert report["attempts"][0]["decision"]["kind"] == "fail"
    assert report["attempts"][0]["decision"]["reason"]


def test_exception_comes_with_its_last_frames(holdfast: Holdfast) -> None:
    script = holdfast.script("def deep():\n    raise RuntimeError('the tensor is on fire')\ndeep()\n")
    report = holdfast.run("--max-restarts", "0", script).report
    told = report["reason"] + "".join(item["text"] for item in report["evidence"])
    assert "the tensor is on fire" in told
    assert "deep" in told


def test_error_file_of_torch_elastic_is_read(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import json, os, sys
        error = {"message": {"message": "ValueError: bad batch 17", "extraInfo": {
            "py_callstack": "Traceback (most recent call last):\\n  File \\"x.py\\", line 3, in step\\n"
            "ValueError: bad batch 17\\n", "timestamp": "1700000000"}}}
        json.dump(error, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
        sys.exit(1)
        """
    )
    report = holdfast.run("--max-restarts", "0", script).report
    assert report["phrase"] == "UserException"
    assert "bad batch 17" in report["reason"] + "".join(item["text"] for item in report["evidence"])


def test_the_first_death_is_the_cause_not_the_loudest(holdfast: Holdfast) -> None:
    """Rank 1 is killed without a word; the others die of the broken connection, with tracebacks."""
    script = holdfast.script(
        """
        import os, signal, socket, time
        rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
        if rank == 1:
            server = socket.create_server(("127.0.0.1", port))
            peers = [server.accept()[0] for _ in range(3)]
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            try:
                peer = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        if not peer.recv(1):
            raise RuntimeError(f"[rank{rank}] Connection closed by peer [127.0.0.1]:{port}")
        """
    )
    report = holdfast.run("--nproc-per-node", "4", "--max-restarts", "0", script).report
    assert (report["first"]["rank"], report["original"]["signal"]) == (1, "SIGKILL")
    assert sorted(report["collateral"]) == [0, 2, 3]


def test_a_blamed_peer_gets_its_moment_to_speak(holdfast: Holdfast) -> None:
    """Rank 0 only blames a peer and dies first; rank 2's own exception comes 0.2 s later and is the cause."""
    script = holdfast.script(
        """
        import os, time
        rank = int(os.environ["RANK"])
        if rank == 0:
            raise RuntimeError("Connection closed by peer [127.0.0.1]:12345")
        if rank == 2:
            time.sleep(0.2)
            raise IndexError("index 50257 is out of bounds for dimension 0 with size 50257")
        time.sleep(60)
        """
    )
    report = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script).report
    assert report["first"]["rank"] == 2
    assert report["phrase"] == "IndexOutOfRange"
    assert 0 in report["collateral"]


def test_sigterm_is_not_the_cause(holdfast: Holdfast) -> None:
    """Rank 0 prints a traceback when we stop it; rank 1 was the one."""
    script = holdfast.script(
        """
        import os, signal, sys, time
        def leave(*_):
            raise SystemExit("shutting down badly: RuntimeError: CUDA out of memory")
        if os.environ["RANK"] == "1":
            time.sleep(0.3)
            sys.exit(7)
        signal.signal(signal.SIGTERM, leave)
        time.sleep(60)
        """
    )
    report = holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", script).report
    assert report["first"]["rank"] == 1
    assert report["original"]["exit_code"] == 7
    assert report["collateral"] == [0]


def test_start_failure_names_the_command(holdfast: Holdfast) -> None:
    ran = holdfast.run("--no-python", "no-such-trainer", "--lr", "1")
    assert ran.report["phrase"] == "CommandNotFound"
    assert "no-such-trainer" in ran.report["reason"]
    assert ran.report["attempts"][0]["decision"]["kind"] == "fail"


def test_not_executable(holdfast: Holdfast) -> None:
    path = holdfast.script("this is no program\n", "trainer")
    ran = holdfast.run("--no-python", path)
    assert ran.report["phrase"] in ("PermissionDenied", "ExecFormatError")
    path.chmod(0o755)
    ran = holdfast.run("--no-python", path)
    assert ran.report["phrase"] == "ExecFormatError"


def test_worker_that_ignores_sigterm_is_killed_after_the_grace_time(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, pathlib, signal, sys, time
        rank = os.environ["RANK"]
        if rank == "0":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            pathlib.Path("ready").write_text("1")
            time.sleep(60)
        while not pathlib.Path("ready").exists():
            time.sleep(0.01)
        sys.exit(9)
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", "--grace", "0.5", script)
    report = ran.report
    assert report["original"]["exit_code"] == 9
    assert report["first"]["rank"] == 1
    assert report["collateral"] == [0]
    told = "rank 0 had not left 0.5 s after SIGTERM and was killed"
    assert f"attempt 1: {told}" in ran.err
    assert told[1:] in report["solution"] and "save and leave on SIGTERM" in report["solution"]
    # The journal's order: once the kill has told, nothing is waited for. No timer lies between it and the end.
    happened = list(events(holdfast.home, report["job"]["id"]))
    stop = next(at for at, event in happened if _failed(event))
    after = [(at, event) for at, event in happened if at > stop]
    (killed,) = [number for number, (_, event) in enumerate(after) if _killed(event)]
    assert after[killed][0] - stop >= 0.5
    kinds = [type(event).__name__ for _, event in after[killed:]]
    assert kinds == ["AgentReported", "AgentReported", "EvidenceCollected", "Tick"]
    assert report["attempts"][0]["parts"]["draining"] >= 0.5


def _members(event: object) -> tuple[Member, ...]:
    return event.report.members if isinstance(event, AgentReported) else ()


def _failed(event: object) -> bool:
    return any(member.state is MemberState.FAILED for member in _members(event))


def _killed(event: object) -> bool:
    """Told first: the report in which the kill's death is news."""
    fresh = isinstance(event, AgentReported) and event.report.stopped < event.report.attempt
    return fresh and any(member.state is MemberState.STOPPED for member in _members(event))


def test_sixty_four_workers(holdfast: Holdfast) -> None:
    script = holdfast.script(
        # One write a line: where output is unbuffered, `print` writes its words apart, and a line may stand unfinished.
        "import os, sys; sys.stdout.write(os.environ['RANK'] + ' ' + os.environ['WORLD_SIZE'] + '\\n')"
    )
    ran = holdfast.run("--nproc-per-node", "64", "--no-python", sys.executable, script, timeout_s=120)
    assert ran.status == 0
    lines = sorted(ran.out.splitlines(), key=lambda line: int(line.split("-")[1].split("]")[0]))
    assert lines == [f"[worker-{rank}] {rank} 64" for rank in range(64)]


def test_what_the_report_must_hold(holdfast: Holdfast) -> None:
    """Design 10: the keys scripts rely on, beside any others."""
    script = holdfast.script(dies(0, "raise KeyError('loss')"))
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "1", "--report", "copy.json", script)
    report = ran.report
    assert report["schema"] == "holdfast.report/1"
    keys = "schema job outcome code phrase blame rerun reason solution trigger hint original first evidence collateral"
    assert set(keys.split()) | {"attempt", "attempts"} <= set(report)
    assert set(report["job"]) >= {"id", "name"}
    assert report["job"]["name"] == "job"
    assert set(report["first"]) >= {"role", "rank", "node", "pid", "at"}
    for item in report["evidence"]:
        assert set(item) >= {"kind", "text", "source", "at"}
    assert [a["attempt"] for a in report["attempts"]] == [1, 2]
    first, second = (a["decision"] for a in report["attempts"])
    assert (first["kind"], first["charged"]) == ("restart", True)
    assert set(first) >= {"kind", "reason", "charged", "delay_s", "avoid"}
    assert second["kind"] == "fail"
    assert report["attempts"][1]["started_at"] >= report["attempts"][0]["ended_at"]
    agg = (ran.job_dir / "attempt-1" / "runtime.pai.agg.error").read_bytes()
    assert len(agg) <= 4096
    assert agg.startswith(b"[PAI_RUNTIME_ERROR_START]\n")
    assert (holdfast.dir / "copy.json").read_text() == (ran.job_dir / "report.json").read_text()
