"""Words of other launchers: what stands for them, and a warning where a launcher runs below the launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.launch.nested_launchers import nested_warning
from holdfast.settings.other_launchers import line, other_command

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


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "said", "instead"),
    [
        ("run --use_env train.py", "--use_env is an option of torch.distributed.launch", "run train.py"),
        ("run --num_processes=4 train.py -n 1", "is an option of accelerate", "run --nproc-per-node 4 train.py -n 1"),
        ("run --grace 2 --num_gpus 4 train.py", "an option of deepspeed", "run --grace 2 --nproc-per-node 4 train.py"),
        ("run -np 4 train.py", "-np is an option of mpirun", "run --nproc-per-node 4 train.py"),
        ("run -n 4 python train.py", "-n is an option of mpirun", "run --nproc-per-node 4 train.py"),
        ("run --gpus 2 train.py", "--gpus is an option of srun", "run --nproc-per-node 2 train.py"),
        ("run --include a:0 train.py", "--hosts A,B chooses machines", "run train.py"),
        ("torchrun --nproc_per_node 2 train.py", "there is no verb `torchrun`", "run --nproc-per-node 2 train.py"),
        ("launch --num_processes 2 train.py", "there is no verb `launch`", "run --nproc-per-node 2 train.py"),
        ("accelerate launch train.py", "there is no verb `accelerate`", "run train.py"),
        ("mpirun -np 2 python train.py", "there is no verb `mpirun`\n", "run --nproc-per-node 2 train.py"),
        ("--nproc-per-node=2 train.py", "before the verb", "run --nproc-per-node 2 train.py"),
        ("run train.sh 3", "train.sh is a shell script", "run --no-python bash train.sh 3"),
        ("run start --x", "start is a shell script", "run --no-python bash start --x"),
    ],
)  # fmt: skip
def test_words_of_others_are_answered_with_what_to_type(
    holdfast: Holdfast, words: str, said: str, instead: str
) -> None:
    holdfast.script("print('trains')", "train.py")
    holdfast.script("python train.py\n", "train.sh")
    holdfast.script("#!/usr/bin/env bash\npython train.py\n", "start")
    ran = holdfast(*words.split())
    assert ran.status == 2 and said in ran.err and f"try: holdfast {instead}\n" in ran.err


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("nb.ipynb", '{"cells": []}', "try: jupyter nbconvert --to script nb.ipynb; holdfast run nb.py\n"),
        ("train.sbatch", "#!/bin/bash\n#SBATCH -N 2\nsrun torchrun t.py\n", "try: sbatch train.sbatch\n"),
        ("train.slurm", "#!/bin/bash -l\n#SBATCH -N 2\n", "try: sbatch train.slurm\n"),
    ],
)
def test_a_file_that_is_no_script_is_called_by_its_kind(holdfast: Holdfast, name: str, text: str, said: str) -> None:
    holdfast.script(text, name)
    ran = holdfast.run(name)
    assert ran.status == 2 and said in ran.err


@pytest.mark.real
def test_an_option_behind_the_script_is_named(holdfast: Holdfast) -> None:
    parser = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--lr'); print(p.parse_known_args())"
    script = holdfast.script(parser, "train.py")
    ran = holdfast.run("train.py", "--lr", "1", "--nproc_per_node", "4", "--x")
    assert ran.status == 0
    assert "put it before; try: holdfast run --no-checks --nproc_per_node 4 train.py --lr 1 --x\n" in ran.err
    script.write_text(parser.replace("--lr", "--nproc-per-node"))
    assert "put it before" not in holdfast.run("train.py", "--nproc-per-node", "4").err


@pytest.mark.real
@pytest.mark.parametrize(
    ("declared", "words", "fix"),
    [
        ("'--lr'", ["--nnodes", "2"], "--nnodes stands behind the script"),
        ("'--local_rank', required=True", [], "--local_rank is not passed: read the variable LOCAL_RANK"),
        ("'--lr'", ["--local-rank=0"], "add the argument"),
    ],
)
def test_a_report_names_the_launchers_part(holdfast: Holdfast, declared: str, words: list[str], fix: str) -> None:
    holdfast.script(
        f"import argparse; p = argparse.ArgumentParser(); p.add_argument({declared}); p.parse_args()", "t.py"
    )
    ran = holdfast.run("t.py", *words)
    assert "InvalidArguments" in ran.err and fix in " ".join(ran.err.split())
