"""Named pipes, devices and dead mounts where the supervisor expects a file: it waits for none of them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import Holdfast
from holdfast.act.time_limited import descriptor_of, within
from holdfast.record.database import DatabaseTrouble, Unusable, make_private_dir, open_for_reading, open_for_writing
from holdfast.record.report_file import read_in_place
from holdfast.safe_files import (
    open_file,
    opened,
    read_file,
    read_given,
    replace_file,
    write_file,
    write_given,
)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_what_is_no_file_is_not_opened(tmp_path: Path, pipe: Path) -> None:
    (tmp_path / "link").symlink_to(pipe)
    for place, kind in ((pipe, "named pipe"), (tmp_path / "link", "named pipe"), (Path("/dev/null"), "device")):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(OSError, match=f"it is a {kind}, and a file was expected"):
                open_file(place, flags)
    with pytest.raises(IsADirectoryError):
        opened(tmp_path)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "none")


def test_reading_and_writing_are_bounded_and_whole(tmp_path: Path, pipe: Path) -> None:
    place = tmp_path / "file"
    write_file(place, b"12345")
    write_file(place, b"123")
    assert read_file(place, 3) == b"123"
    assert read_file(place, 2, cut=True) == b"12"
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_file(place, 2)
    assert place.stat().st_mode & 0o777 == 0o600
    replace_file(pipe, b"in its place")
    assert pipe.read_bytes() == b"in its place"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]


def test_a_temporary_file_s_place_that_is_taken_is_cleared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f".report.{os.getpid()}")
    replace_file(tmp_path / "report", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_pipe_that_a_user_named_is_written_to_while_somebody_reads(pipe: Path) -> None:
    with pytest.raises(OSError, match="no process reads it"):
        write_given(pipe, b"lost")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    while True:
        try:
            write_given(pipe, b"x" * 300_000)
            break
        except OSError as error:
            assert error.errno == errno.ENXIO  # the reader has not opened it yet
    reader.join(20)
    assert read == [b"x" * 300_000]
    write_given("/dev/null", b"x")


def test_a_pipe_that_a_user_named_is_read_to_its_end(pipe: Path) -> None:
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"y" * 200_000))
    writer.start()
    assert read_given(pipe, 1 << 20) == b"y" * 200_000
    writer.join(20)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        read_given("/dev/zero", 1000)


def test_work_that_never_returns_is_given_up() -> None:
    reader, writer = os.pipe()
    with pytest.raises(OSError, match=r"within 0\.1 s") as late:
        within(lambda: os.read(reader, 1), keep=reader, seconds=0.1)
    assert late.value.errno == errno.ETIMEDOUT
    os.close(reader)
    os.close(writer)
    assert os.wait()[1] != 0, "the child was killed"


def test_work_in_a_child_tells_its_error_and_holds_nothing_of_ours(tmp_path: Path) -> None:
    def work() -> None:
        write_file(
            tmp_path / "fds", json.dumps(sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())).encode()
        )
        raise PermissionError(errno.EACCES, "no, thank you")

    with (tmp_path / "ours").open("wb"), pytest.raises(PermissionError, match="no, thank you"):
        within(work)
    held = json.loads((tmp_path / "fds").read_text())
    assert len(held) <= 2, "its pipe, and the directory that it lists"
    within(lambda: None)
    with pytest.raises(OSError, match="a bug of holdfast: ZeroDivisionError"):
        within(lambda: 1 / 0)


def test_only_a_descriptor_s_own_name_is_one() -> None:
    assert [descriptor_of(name) for name in ("/dev/fd/63", "/proc/self/fd/7")] == [63, 7]
    assert {descriptor_of(name) for name in ("/dev/fd/x", "report.json", "63")} == {-1}
    assert descriptor_of(Path("/dev/stdout")) == 1


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_journal_beside_which_lies_a_pipe_is_not_opened(tmp_path: Path, suffix: str) -> None:
    open_for_writing(tmp_path).close()
    (tmp_path / f"holdfast.db{suffix}").unlink(missing_ok=True)
    os.mkfifo(tmp_path / f"holdfast.db{suffix}")
    for opening in (open_for_writing, open_for_reading):
        with pytest.raises(Unusable, match="named pipe") as found:
            opening(tmp_path)
        assert found.value.ailment is DatabaseTrouble.FOREIGN


def test_a_journal_with_a_damaged_page_is_left_as_it_is(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path)
    for number in range(200):
        db.execute("INSERT INTO events VALUES ('job', ?, 1.0, ?)", (number, os.urandom(400)))
    db.close()
    file = tmp_path / "holdfast.db"
    data = bytearray(file.read_bytes())
    data[40_000:60_000] = b"\xaa" * 20_000
    file.write_bytes(data)
    with pytest.raises(Unusable, match=r"[Pp]age") as found:
        open_for_writing(tmp_path)
    assert found.value.ailment is DatabaseTrouble.DAMAGED
    assert file.read_bytes() == data


def test_a_report_that_is_a_pipe_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "j").mkdir(parents=True)
    os.mkfifo(tmp_path / "jobs" / "j" / "report.json")
    assert read_in_place(tmp_path, "j") is None


PLACES = {
    "error file": 'os.environ["TORCHELASTIC_ERROR_FILE"]',
    "progress": 'os.environ["HOLDFAST_PROGRESS"]',
    "pai error": 'own + "/x.pai.error"',
    "agg": 'attempt + "/runtime.pai.agg.error"',
    "report": 'job + "/report.json"',
    "report's temporary file": 'f"{job}/.report.json.{os.getppid()}"',
    "disk share": 'job + "/.disk-share.json"',
}


@pytest.mark.real
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_pipe_in_a_job_s_directory_holds_nobody_up(holdfast: Holdfast, place: str) -> None:
    holdfast.script(f"""
        import os, sys
        own = os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])
        attempt = os.path.dirname(own)
        job = os.path.dirname(attempt)
        os.mkfifo({place})
        sys.exit("ValueError: so it ended")
    """)
    ran = holdfast.run("--no-checks", "--max-restarts", "0", "job.py")
    assert ran.report["outcome"] == "failed"
    assert "so it ended" in ran.err


@pytest.mark.real
def test_pipes_in_the_next_attempt_s_directory_cost_its_logs_only(holdfast: Holdfast) -> None:
    holdfast.script("""
        import os, sys
        job = os.path.dirname(os.path.dirname(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])))
        if not os.path.exists(job + "/attempt-2"):
            os.makedirs(job + "/attempt-2/worker-0")
            for name in ("stdout.log", "stderr.log", "progress", "error.json", "drain"):
                os.mkfifo(job + "/attempt-2/worker-0/" + name)
            sys.exit(1)
        print("second attempt")
    """)
    ran = holdfast.run("--no-checks", "--max-restarts", "1", "job.py")
    assert ran.status == 0, ran.err
    assert "second attempt" in ran.out
    assert "stdout.log: it is a named pipe, and a file was expected" in ran.err


@pytest.mark.real
def test_a_report_for_a_pipe(holdfast: Holdfast, pipe: Path) -> None:
    ran = holdfast.run("--no-checks", "--report", pipe, "--no-python", "true")
    assert ran.status == 0
    assert f"{pipe}: not written: no process reads it" in ran.err
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    ran = holdfast.run("--no-checks", "--report", pipe, "--no-python", "true")
    reader.join(20)
    assert b"holdfast.report/1" in read[0]
    for place in ("/dev/null", "/dev/stdout"):
        assert holdfast.run("--no-checks", "--report", place, "--no-python", "true").status == 0
    assert (
        "not written"
        in holdfast.run(
            "--no-checks", "--max-restarts", "0", "--no-python", "false", TORCHELASTIC_ERROR_FILE=str(pipe)
        ).err
    )


@pytest.mark.real
@pytest.mark.parametrize("name", ["holdfast.db", "config.yaml"])
def test_a_pipe_in_the_home_holds_no_command_up(holdfast: Holdfast, name: str) -> None:
    holdfast.home.mkdir()
    os.mkfifo(holdfast.home / name)
    for verb in (["jobs"], ["run", "--no-checks", "--no-python", "true"], ["config"], ["devices"]):
        ran = holdfast(*verb)
        assert ran.status in (0, 1, 2)
        assert "Traceback" not in ran.err


def test_a_temporary_file_is_not_written_through_a_link_that_another_user_has_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious, unlink = tmp_path / "precious", os.unlink
    precious.write_bytes(b"mine")

    def faster(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            unlink(path)
        Path(path).symlink_to(precious)

    monkeypatch.setattr(os, "unlink", faster)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "report", b"x")
    assert precious.read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_a_state_directory_that_another_user_makes_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def faster(path: Path, *words: Any, **more: Any) -> None:
        if path.name == "home":
            mkdir(path)
            os.chown(path, 65534, 65534)
        mkdir(path, *words, **more)

    monkeypatch.setattr(Path, "mkdir", faster)
    with pytest.raises(PermissionError, match="another user has made it meanwhile"):
        make_private_dir(tmp_path / "home" / "jobs")
    assert list((tmp_path / "home").iterdir()) == []
