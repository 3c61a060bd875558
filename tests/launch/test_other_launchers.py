"""Words of other launchers: what stands for them, and a warning where a launcher runs below the launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.launch.other_launchers import line, nested_warning, other_command

SCRIPT = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("torchrun --nproc-per-node 2 p.py --lr 1", "--nproc-per-node 2 p.py --lr 1"),
        ("torchrun --nnodes=1 --nproc_per_node=8 --standalone p.py", "--nproc-per-node 8 --standalone p.py"),
        ("accelerate launch --num_processes 8 --num_machines 2 --use_fsdp p", "--nproc-per-node 4 --nnodes 2 p"),
        ("accelerate launch --config_file=a.yaml --multi_gpu p.py", "--accelerate-config a.yaml p.py"),
        ("deepspeed --num_gpus 4 p.py --deepspeed ds.json", "--nproc-per-node 4 p.py --deepspeed ds.json"),
        ("deepspeed --hostfile hosts --master_port 29501 p.py", "--hostfile hosts --master-port 29501 p.py"),
        ("mpirun -np 4 python p.py", "--nproc-per-node 4 p.py"),
        ("mpiexec --allow-run-as-root -n 4 -x A=1 --mca btl tcp python3 -u p.py", "--nproc-per-node 4 p.py"),
        ("srun --ntasks-per-node=1 torchrun --nproc-per-node 2 p.py", "--nproc-per-node 2 p.py"),
        ("/opt/bin/horovodrun -np 2 -H a,b python p.py", "--nproc-per-node 2 --hosts a,b p.py"),
        ("python3.11 -u p.py --x", "p.py --x"),
        ("python -X dev -m pkg.train --a", "-m pkg.train --a"),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 2 p.py", "--nproc-per-node 2 p.py"),
    ],
)  # fmt: skip
def test_what_stands_for_another_launchers_command(command: str, instead: str) -> None:
    found = other_command(command.split())
    assert found is not None and line(found.words, ()) == f"holdfast run {instead}"


@pytest.mark.parametrize("command", ["ls -l", "python -c pass", "accelerate config", "uv run torchrun p.py", "train"])
def test_other_commands_are_none_of_a_launcher(command: str) -> None:
    assert other_command(command.split()) is None


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["torchrun", "--nproc-per-node", "2", "p.py"], "torchrun"),
        (["python", "-u", "-m", "torch.distributed.run", "p.py"], "torchrun"),
        (["python3", "-u", "/venv/bin/torchrun", "p.py"], "torchrun"),
        (["env", "A=1", "accelerate", "launch", "p.py"], "accelerate launch"),
        (["bash", "-c", "cd x && exec torchrun --nproc-per-node 2 p.py 2>&1 | tee log"], "torchrun"),
        (["bash", "run.sh"], "deepspeed"),
        (["mpirun", "-np", "2", "python", "p.py"], "mpirun"),
        (["torchrun", "--nnodes=2", "--node-rank", "0", "p.py"], ""),
        (["bash", "-c", "python -m torch.distributed.launch --nnodes $N --node_rank $R p.py"], ""),
        (["python", "-u", "p.py", "torchrun"], ""),
        (["echo", "torchrun"], ""),
        (["bash", "-c", "echo torchrun p.py # torchrun p.py"], ""),
    ],
)
def test_a_launcher_in_each_of_several_workers(tmp_path: Path, command: list[str], launcher: str) -> None:
    (tmp_path / "run.sh").write_text("set -e\n# torchrun p.py\nOMP_NUM_THREADS=1 deepspeed --num_gpus 2 \\\n  p.py\n")
    said = nested_warning(command, 2, tmp_path)
    assert said.startswith(f"each of the 2 workers starts {launcher}," if launcher else "") and bool(said) == bool(
        launcher
    )
    assert nested_warning(command, 1, tmp_path) == ""


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "name", "instead"),
    [
        (["torchrun", "--nproc_per_node", "2", "p.py"], "torchrun", "--nproc-per-node 2 p.py"),
        (["--max-restarts", "1", "accelerate", "launch", "p.py"], "accelerate launch", "--max-restarts 1 p.py"),
        (["--nproc-per-node=2", "mpirun", "-np", "4", "python", "p.py"], "mpirun", "--nproc-per-node=2 p.py"),
        (["python", "p.py", "--lr", "1"], "python", "p.py --lr 1"),
    ],
)
def test_a_launcher_in_the_place_of_the_script_is_left_out(
    holdfast: Holdfast, words: list[str], name: str, instead: str
) -> None:
    holdfast.script(SCRIPT, "p.py")
    ran = holdfast.run(*words)
    assert ran.status == 2
    assert f"leave {name} out: holdfast" in ran.err and f"try: holdfast run --no-checks {instead}\n" in ran.err


@pytest.mark.real
def test_a_python_by_its_path_is_an_option(holdfast: Holdfast) -> None:
    holdfast.script(SCRIPT, "p.py")
    assert (
        f"try: holdfast run --no-checks --python {holdfast.python} p.py\n" in holdfast.run(holdfast.python, "p.py").err
    )


@pytest.mark.real
def test_a_run_warns_of_a_launcher_in_each_worker(holdfast: Holdfast) -> None:
    torchrun = holdfast.script(SCRIPT, "torchrun")
    ran = holdfast.run("--nproc-per-node", "2", torchrun, "--nproc-per-node", "3", "p.py")
    assert ran.status == 0 and ran.err.count("each of the 2 workers starts torchrun") == 1
    assert "try: holdfast run --nproc-per-node 3 p.py" in ran.err
    assert "starts torchrun" not in holdfast.run(torchrun, "p.py").err
