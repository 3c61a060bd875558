"""The workers' rendezvous store lives as long as the attempt, not as long as rank 0."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import Holdfast, wait_for
from holdfast.act.store.store_choice import Torch, opens_itself, speaks_of_torch, torch_in, torch_of

SERVE = Path(sys.modules["holdfast.act.store.store_choice"].__file__ or "").with_name("store_server.py")

RANK_0_LEAVES = """
import os, time
import torch.distributed as dist

dist.init_process_group("gloo")
pids = [None, None]
dist.all_gather_object(pids, os.getpid())
if dist.get_rank() == 0:
    os._exit(0)
while os.path.exists(f"/proc/{pids[0]}/exe"):
    time.sleep(0.05)
print("group of", dist.get_world_size(dist.new_group([1], use_local_synchronization=True)), flush=True)
os._exit(0)
"""


@pytest.mark.real
@pytest.mark.torch
class TestWithTorch:
    @pytest.mark.parametrize("warmth", [(), ("--warm",)], ids=["cold", "warm"])
    def test_a_rank_that_is_left_alone_still_makes_a_group(self, holdfast: Holdfast, warmth: tuple[str, ...]) -> None:
        script = holdfast.script(RANK_0_LEAVES)
        ran = holdfast.run(*warmth, "--nproc-per-node", "2", "--max-restarts", "0", script, timeout_s=120)
        assert (ran.status, "group of 1" in ran.out) == (0, True), ran.err
        assert holdfast.survivors() == []

    def test_it_is_found_by_whom_it_serves_where_no_interpreter_is_named(self, holdfast: Holdfast) -> None:
        holdfast.script(RANK_0_LEAVES, "job.py")
        script = holdfast.script(f"#!/bin/sh\nexec {sys.executable} {holdfast.dir}/job.py\n", "job.sh")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = holdfast.run("--no-python", "--nproc-per-node", "2", "sh", script, timeout_s=120, PATH=path)
        assert (ran.status, "group of 1" in ran.out) == (0, True), ran.err

    def test_a_store_that_dies_is_named_and_the_next_attempt_has_another(self, holdfast: Holdfast) -> None:
        script = holdfast.script(
            """
            import os, signal
            import torch.distributed as dist

            print("held", os.environ["TORCHELASTIC_USE_AGENT_STORE"], "at", os.environ["MASTER_PORT"], flush=True)
            dist.init_process_group("gloo")
            dist.barrier()
            if dist.get_rank() == 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                for pid in open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split():
                    if "store_server.py" in open(f"/proc/{pid}/cmdline").read():
                        os.kill(int(pid), signal.SIGKILL)
            dist.barrier()
            dist.new_group([0, 1])
            dist.barrier()
            """
        )
        ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=120)
        assert ran.status == 0, ran.err
        first, second = ran.report["attempts"]
        assert first["report"]["phrase"] == "RendezvousFailed"
        assert "the rendezvous store (pid " in first["report"]["reason"]
        assert "died (signal 9)" in first["report"]["reason"]
        assert first["report"].get("first") is None
        assert first["report"]["collateral"] == [0, 1]
        assert second["report"]["phrase"] == "Succeeded"
        held = sorted({line.split("] ")[1] for line in ran.out.splitlines() if "held" in line})
        assert len(held) == 2 and all(line.startswith("held True at ") for line in held), held

    def test_it_ends_with_its_supervisor(self, holdfast: Holdfast) -> None:
        script = holdfast.script(
            """
            import os, pathlib, time
            import torch.distributed as dist

            dist.init_process_group("gloo")
            pathlib.Path("up").write_text(str(os.getppid()))
            time.sleep(60)
            """
        )
        process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", script)
        supervisor = int(wait_for(holdfast.dir / "up", 60))
        assert any("store_server.py" in " ".join(child.cmdline()) for child in psutil.Process(supervisor).children())
        os.kill(supervisor, signal.SIGKILL)
        process.communicate(timeout=90)
        assert holdfast.survivors() == []

    @pytest.mark.parametrize("how", ["core", "whole"])
    def test_it_serves_with_a_part_of_torch_and_with_the_whole(self, how: str) -> None:
        from datetime import timedelta

        from torch._C._distributed_c10d import TCPStore

        found = torch_of([sys.executable], os.environ, Path("/"))
        assert found is not None
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [found.python, "-I", "-S", str(SERVE), str(theirs.fileno()), found.package, how]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            for value in ("one", "two"):  # each store is empty
                with closing(socket.create_server(("127.0.0.1", 0))) as listener:
                    port = listener.getsockname()[1]
                    socket.send_fds(mine, [str(port).encode()], [listener.fileno()])
                    assert mine.recv(64) == b"up %d" % port
                store = TCPStore("127.0.0.1", port, 2, False, timedelta(seconds=30), wait_for_workers=False)
                assert not store.check(["key"])
                store.set("key", value)
                assert store.get("key") == value.encode()
            mine.close()
            assert process.wait(timeout=90) == 0

    def test_who_has_loaded_torch_is_seen(self) -> None:
        found = torch_of([sys.executable], os.environ, Path("/"))
        assert found is not None
        with subprocess.Popen(
            [sys.executable, "-c", "import torch; print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            seen = torch_in(process.pid)
            process.kill()
        assert seen == Torch(str(Path(sys.executable).resolve()), str(Path(found.package).resolve()))
        assert torch_in(os.getppid()) is None


@pytest.fixture
def broken_torch(tmp_path: Path) -> Iterator[str]:
    """A directory with a torch that cannot be loaded."""
    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('this torch is broken')\n")
    (package / "_C.so.so").write_bytes(b"\x7fELF")
    yield str(package.parent)


WHO_HOSTS = """
import os
from pathlib import Path
print("held", os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it ended since
        return ""
mine = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
print("stores", sum("store_server.py" in command(pid) for pid in mine), flush=True)
"""


@pytest.mark.real
def test_without_a_store_that_works_rank_0_hosts_it_from_the_next_attempt_on(
    holdfast: Holdfast, broken_torch: str
) -> None:
    script = holdfast.script(
        """
        import os, time  # not torch
        print("held", os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            import socket
            store = socket.create_connection(("127.0.0.1", int(os.environ["MASTER" + "_PORT"])))
            assert store.recv(1) == b""
            raise SystemExit(3)
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", script, PYTHONPATH=broken_torch)
    assert ran.status == 0, ran.err
    assert ran.err.count("rank 0 hosts the store from the next attempt on") == 1, ran.err
    assert "this torch is broken" in ran.err
    assert (ran.out.count("held True"), ran.out.count("held False")) == (2, 2)


@pytest.mark.key
@pytest.mark.real
def test_workers_without_torch_have_no_store(holdfast: Holdfast, broken_torch: str) -> None:
    script = holdfast.script(WHO_HOSTS)
    ran = holdfast.run("--nproc-per-node", "2", script, PYTHONPATH=broken_torch)
    assert (ran.status, ran.out.count("stores 0")) == (0, 2), ran.err


KNOCK = """
import os
from http.client import HTTPConnection, HTTPException
try:
    HTTPConnection("127.0.0.1", int(os.environ["MASTER" + "_PORT"])).getresponse()
except (HTTPException, OSError):
    pass
"""


@pytest.mark.real
def test_a_connection_from_no_torch_starts_nothing(holdfast: Holdfast, broken_torch: str) -> None:
    script = holdfast.script(KNOCK + WHO_HOSTS)
    ran = holdfast.run("--nproc-per-node", "2", script, PYTHONPATH=broken_torch)
    assert (ran.status, ran.out.count("held True"), ran.out.count("stores 0")) == (0, 2, 2), ran.err


@pytest.mark.real
@pytest.mark.parametrize(
    ("more", "env"),
    [
        (
            "import socket\nif os.environ['RANK'] == '0': socket.create_server(('', int(os.environ['MASTER_PORT'])))\n",
            {},
        ),
        ("", {"TORCHELASTIC_USE_AGENT_STORE": "False"}),
    ],
    ids=["the script opens the port", "the user says so"],
)
def test_the_port_is_the_workers_where_they_want_it(
    holdfast: Holdfast, broken_torch: str, more: str, env: dict[str, Any]
) -> None:
    script = holdfast.script(WHO_HOSTS + more)
    ran = holdfast.run("--nproc-per-node", "2", script, PYTHONPATH=broken_torch, **env)
    assert (ran.status, ran.out.count("held False")) == (0, 2), ran.err


@pytest.mark.real
def test_one_worker_hosts_its_own(holdfast: Holdfast, broken_torch: str) -> None:
    ran = holdfast.run(holdfast.script(WHO_HOSTS), PYTHONPATH=broken_torch)
    assert (ran.status, ran.out.count("held False")) == (0, 1), ran.err


@pytest.mark.real
def test_the_port_that_was_asked_for_is_the_first_attempts(holdfast: Holdfast, broken_torch: str) -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    script = holdfast.script(
        """
        import os
        print("port", os.environ["MASTER" + "_PORT"], os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
        raise SystemExit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", "--master-port", str(port), script, PYTHONPATH=broken_torch)
    ports = [line.split("port ")[1] for line in ran.out.splitlines()]
    # One rank's failure may have stopped the other before its first line.
    assert (ran.status, ports[0]) == (0, f"{port} True"), ran.err
    assert all(each.endswith(" True") and each != ports[0] for each in ports[-2:])


@pytest.mark.parametrize(
    ("text", "its_own"),
    [
        ("import torch", False),
        ("os.environ.setdefault('MASTER_PORT', '29500')", False),
        ('init_process_group(init_method=f"tcp://{host}:{os.environ["MASTER_PORT"]}")', False),
        ('if os.environ["MASTER_PORT"] == "1": pass', False),
        ('os.environ["MASTER_PORT"] = "29500"', True),
        ("os.environ.update(MASTER_PORT='1')", True),
        ('os.environ |= {"MASTER_PORT": "1"}', True),
        ("TCPStore(host, int(os.environ['MASTER_PORT']), is_master=True)", True),
        ("jax.distributed.initialize(f'{os.environ['MASTER_PORT']}')", True),
    ],
)
def test_a_script_that_opens_or_chooses_the_port_is_known_by_its_text(tmp_path: Path, text: str, its_own: bool) -> None:
    (tmp_path / "job.py").write_text(text)
    assert opens_itself(["python", "-u", "job.py", "--x"], tmp_path) is its_own
    assert opens_itself(["/usr/bin/python3.12", "-m", "job"], tmp_path) is its_own
    assert opens_itself(["python", "-c", text], tmp_path) is its_own


def test_of_another_program_every_use_of_the_port_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("exec nc -l $MASTER_PORT")
    assert opens_itself(["bash", "job.sh"], tmp_path)
    assert not opens_itself(["bash", "other.sh"], tmp_path)
    assert not opens_itself(["sleep"], tmp_path)


def test_what_speaks_of_torch(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("from lightning import Trainer")
    os.mkfifo(tmp_path / "pipe.py")
    assert speaks_of_torch(["python", "job.py"], tmp_path)
    assert not speaks_of_torch(["python", "pipe.py"], tmp_path)


def test_torch_is_looked_for_where_an_interpreter_finds_packages(tmp_path: Path) -> None:
    package = tmp_path / "venv/lib/python3.12/site-packages/torch"
    package.mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir()
    python.touch(0o755)
    assert torch_of([str(python)], {}, tmp_path) is None
    (package / "_C.cpython-312-x86_64-linux-gnu.so").touch()
    assert torch_of([str(python)], {}, tmp_path) == Torch(str(python), str(package))
    assert torch_of(["venv/bin/python"], {}, tmp_path) == Torch(str(python), str(package))
    assert torch_of(["bash"], {"PATH": str(python.parent)}, tmp_path) == Torch(str(python), str(package))
    assert torch_of(["bash"], {"PATH": str(tmp_path)}, tmp_path) is None
