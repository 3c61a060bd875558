"""What `holdfast run` shows of several ranks' tracebacks and progress bars, and that the logs have every byte."""

from __future__ import annotations

import re

import pytest

from conftest import Holdfast, Ran, free_port

pytestmark = [pytest.mark.real, pytest.mark.key]

#: Every rank but the last loses its connection after the last one has failed and is reaped.
PEERS = """
    import os, pathlib, signal, sys, time
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    failing = pathlib.Path("failing")
    if rank == world - 1:
        ready = [pathlib.Path(f"ready-{peer}") for peer in range(rank)]
        while not all(path.exists() for path in ready):
            time.sleep(0.01)
        pathlib.Path("pid").write_text(str(os.getpid()))
        os.rename("pid", failing)
        raise KeyError("warmup")
    pathlib.Path(f"ready-{rank}").touch()
    while not failing.exists() or os.path.exists(f"/proc/{failing.read_text()}"):
        time.sleep(0.01)
    print("usual words of", rank, file=sys.stderr)
    raise ConnectionResetError(f"Connection closed by peer 127.0.0.1:{40000 + rank}")
"""
AFTER = (
    r"\[worker-%s\] ConnectionResetError: Connection closed by peer 127\.0\.0\.1:4000\d "
    r"\(after the exit of rank %d; whole text in the logs\)"
)


def logs(ran: Ran, stream: str = "stderr") -> dict[str, bytes]:
    """Worker → its log of the first attempt."""
    return {path.parent.name: path.read_bytes() for path in ran.job_dir.glob(f"attempt-1/*/{stream}.log")}


def of_workers(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("[worker-")]


def folded(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith("; whole text in the logs)")]


def test_the_same_exception_of_all_ranks_is_printed_once(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, signal, time
        from pathlib import Path
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(f"up-{os.environ['RANK']}").touch()
        while len(list(Path().glob("up-*"))) < 4:
            time.sleep(0.01)
        raise ValueError("num_heads (12) must divide hidden_size (770)")
        """
    )
    ran = holdfast.run("--max-restarts", "0", "--nproc-per-node", "4", script)
    lines = of_workers(ran.err)
    assert sum("Traceback" in line for line in lines) == 1, ran.err
    exception = r"ValueError: num_heads \(12\) must divide hidden_size \(770\)"
    same = rf"\[worker-[0-9to, ]+\] {exception} \(the same traceback as rank \d; whole text in the logs\)"
    assert [line for line in folded(lines) if not re.fullmatch(same, line)] == []
    assert 1 <= len(folded(lines)) <= 3
    texts = logs(ran)
    assert len(texts) == 4
    assert len(set(texts.values())) == 1, "each log has its own rank's whole traceback"


@pytest.mark.parametrize("words", [[], ["--no-fold"]])
def test_connections_lost_after_an_exit_are_one_line_unless_folding_is_off(
    holdfast: Holdfast, words: list[str]
) -> None:
    ran = holdfast.run("--max-restarts", "0", *words, "--nproc-per-node", "4", holdfast.script(PEERS))
    lines = of_workers(ran.err)
    assert "[worker-3] KeyError: 'warmup'" in lines, ran.err
    usual = sorted(line for line in lines if "usual words" in line)
    assert usual == [f"[worker-{rank}] usual words of {rank}" for rank in range(3)]
    assert sum("Traceback" in line for line in lines) == (4 if words else 1), ran.err
    if words:
        assert folded(lines) == []
    else:
        assert folded(lines) != []
        assert [line for line in folded(lines) if not re.fullmatch(AFTER % ("[0-9to, ]+", 3), line)] == []
    for rank in range(3):
        text = logs(ran)[f"worker-{rank}"].decode()
        assert text.startswith(f"usual words of {rank}\nTraceback (most recent call last):\n"), text
        assert text.endswith(f"\nConnectionResetError: Connection closed by peer 127.0.0.1:{40000 + rank}\n"), text


def test_explain_reads_the_folded_output_of_a_run(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", "--nproc-per-node", "4", holdfast.script(PEERS))
    (holdfast.dir / "run.out").write_text(ran.err)
    told = holdfast("explain", "run.out").out
    assert "KeyError: 'warmup'" in told.splitlines()[0]
    assert "rank 3" in told
    assert "ranks 0, 1 and 2 ended because of it" in told.replace("ranks 0 to 2", "ranks 0, 1 and 2")


def test_each_node_folds_what_followed_an_exit_on_another_node(holdfast: Holdfast) -> None:
    script = holdfast.script(PEERS)
    words = ["run", "--no-checks", "--max-restarts", "0", "--nnodes", "2", "--nproc-per-node", "2"]
    words += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    processes = [holdfast.start(*words, "--node-rank", str(node), script) for node in range(2)]
    outputs = [holdfast.finish(process).err for process in processes]
    lines = of_workers("\n".join(outputs))
    assert sum("Traceback" in line for line in lines) == 1, "\n".join(outputs)
    assert [line for line in folded(lines) if not re.fullmatch(AFTER % ("[0-9to, ]+", 3), line)] == []
    assert len(folded(lines)) >= 2, "a line for each node"


def test_one_worker_s_output_passes_as_it_came(holdfast: Holdfast) -> None:
    script = holdfast.script(
        r"""
        import sys
        for percent in range(5):
            sys.stderr.write(f"\r{percent} of 5")
            sys.stderr.flush()
        sys.stderr.write("\n")
        raise ConnectionResetError("Connection closed by peer")
        """
    )
    ran = holdfast.run("--max-restarts", "0", "--nproc-per-node", "1", script)
    assert ran.err.count("of 5") == 5
    assert "[worker-0] Traceback (most recent call last):\n" in ran.err


def test_progress_bars_of_several_workers_are_thinned_out_and_whole_in_the_logs(holdfast: Holdfast) -> None:
    script = holdfast.script(
        r"""
        import sys, time
        for step in range(200):
            sys.stderr.write(f"\rstep {step}")
            sys.stderr.flush()
            time.sleep(0.001)
        sys.stderr.write("\rstep 200\n")
        print("usual line")
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", script)
    assert sorted(of_workers(ran.out)) == ["[worker-0] usual line", "[worker-1] usual line"]
    shown = [line for line in of_workers(ran.err.replace("\r", "\n")) if "step" in line]
    assert {"[worker-0] step 200", "[worker-1] step 200"} <= set(shown)
    assert len(shown) < 100, "two hundred states of each bar in less than a second, or a few on a busy machine"
    whole = "".join(f"\rstep {step}" for step in range(201)) + "\n"
    assert logs(ran) == {"worker-0": whole.encode(), "worker-1": whole.encode()}
