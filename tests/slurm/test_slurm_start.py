"""How a command comes to all nodes of an allocation: one step, `srun holdfast run`, a shell of salloc."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from real_slurm import HOLDFAST, USER, Slurm, SlurmOf

WORKER = """\
import glob, os, subprocess, sys, time
rank, node = os.environ["RANK"], os.environ["SLURMD_NODENAME"]
def meet():
    open(f"up-{os.environ['HOLDFAST_JOB']}-{rank}", "w").close()
    while len(glob.glob(f"up-{os.environ['HOLDFAST_JOB']}-*")) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.05)
print("rank", rank, "of", os.environ["WORLD_SIZE"], "on", node, os.environ.get("WORDS", "-"), flush=True)
for line in sys.argv[1:]:
    exec(line)
"""


def script(slurm: Slurm, text: str = WORKER) -> Path:
    path = slurm.home / "worker.py"
    path.write_text(text)
    return path


def ranks(printed: str) -> list[str]:
    """`0 of 3 on n1 -`, by rank."""
    return sorted(line.partition(" rank ")[2] for line in printed.splitlines() if "] rank " in line)


def test_a_batch_script_takes_all_nodes_and_ends_with_the_status_of_the_job(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(gpus=2)
    run = f"{script(slurm)} 'meet()' 'sys.exit(5 if rank == \"3\" else 0)'"
    job = slurm.sbatch(
        f"export WORDS=mine\nexec holdfast run --max-restarts 0 --no-checks {run}",
        *("-N3", "--gres=gpu:2", "--no-kill", "-c2", "--mem-per-cpu=100"),
    )
    assert slurm.ended(job)["ExitCode"] == "255:0", "holdfast's own code"
    printed = slurm.output(job)
    assert ranks(printed) == [f"{rank} of 6 on n{rank // 2 + 1} mine" for rank in range(6)], "a worker for each GPU"
    assert (printed.count(" FAILED: "), "class    Unexplained" in printed) == (1, True), printed
    assert "srun:" not in printed, printed
    slurm.nothing_left()


@pytest.mark.parametrize("asked", [("--ntasks-per-node=2", "--gpus-per-task=1"), ("--gpus=4",)])
def test_gpus_that_are_counted_by_the_task_or_by_the_job_are_all_used(slurm_of: SlurmOf, asked: Sequence[str]) -> None:
    slurm = slurm_of(gpus=2)
    seen = """'print("rank", rank, "sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)'"""
    job = slurm.sbatch(f"exec holdfast run --no-checks {script(slurm)} {seen}", "-N2", "--no-kill", *asked)
    assert slurm.ended(job)["ExitCode"] == "0:0"
    assert [line for line in ranks(slurm.output(job)) if "sees" in line] == [f"{rank} sees 0,1" for rank in range(4)]


def test_gpus_that_slurm_spreads_unevenly_are_told(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(gpus=2)
    (slurm.home / "train.py").write_text("")
    job = slurm.sbatch("exec holdfast run --no-checks --nproc-per-node 1 train.py", "-N2", "--no-kill", "--gpus=3")
    assert slurm.ended(job)["ExitCode"] == "0:0"
    assert f"Slurm has spread the 3 GPUs of job {job} unevenly over 2 nodes" in slurm.output(job)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_is_called_as_in_squeue_and_says_that_other_components_are_idle(slurm: Slurm, nodes: int) -> None:
    (slurm.home / "train.py").write_text("")
    run = "exec holdfast run --no-checks --nproc-per-node 1 train.py"
    job = slurm.sbatch(run, f"-N{nodes}", "--no-kill", "-J", "llama 7b", ":", "-N1")
    assert slurm.ended(job)["ExitCode"] == "0:0", slurm.output(job)
    said = f"Slurm job {job} has 2 components: the job runs on the {'1 node' if nodes == 1 else '2 nodes'} of this one"
    assert slurm.output(job).count(said) == 1, slurm.output(job)
    listed = slurm.holdfast("jobs", "--json")
    assert listed.wait() == 0
    assert [each["name"] for each in json.loads(listed.out)["jobs"]] == ["llama-7b"]


def test_tasks_that_slurm_spreads_unevenly_are_told(slurm: Slurm) -> None:
    (slurm.home / "train.py").write_text("")
    job = slurm.sbatch("exec holdfast run --no-checks train.py", "-N2", "-n3", "--no-kill", "--ntasks-per-core=1")
    assert slurm.ended(job)["ExitCode"] == "0:0", slurm.output(job)
    told = f"Slurm job {job} has unequal numbers of tasks on its nodes (2,1): each node gets one worker; "
    assert slurm.output(job).count(told) == 1, slurm.output(job)


REACHES = """\
import os, socket
listener = socket.create_server(("", int(os.environ["PAI_CONTAINER_HOST_http_PORT_LIST"])))
for peer in os.environ["PAI_TASK_ROLE_task_HOST_LIST"].split(","):
    host, _, port = peer.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            break
        except ConnectionRefusedError:
            pass  # it has begun, and does not listen yet
    print("rank", os.environ["RANK"], "has reached", host, flush=True)
open("met-" + os.environ["RANK"], "w").close()
while not all(os.path.exists(f"met-{peer}") for peer in range(3)):
    pass
"""


def test_workers_reach_each_other_at_the_hosts_and_ports_that_they_are_told(slurm: Slurm) -> None:
    path = script(slurm, REACHES)
    role = f"count: 3, command: [{sys.executable}, {path}], ports: {{http: 1}}"
    (slurm.home / "ports.yaml").write_text(f"name: ports\nroles:\n  task: {{{role}}}\n")
    job = slurm.sbatch("exec holdfast run --no-checks --job ports.yaml", "-N3", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "0:0", slurm.output(job)
    reached = [line.partition(" has reached ")[2] for line in ranks(slurm.output(job)) if " has reached " in line]
    assert len(reached) == 9 and len(set(reached)) == 3


def test_workers_on_all_nodes_have_the_umask_of_the_batch_script(slurm: Slurm) -> None:
    seen = """'print("rank", rank, "sees", oct(os.umask(0)), flush=True)'"""
    job = slurm.sbatch(f"umask 027\nexec holdfast run --no-checks {script(slurm)} {seen}", "-N2", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "0:0"
    assert [line for line in ranks(slurm.output(job)) if "sees" in line] == ["0 sees 0o27", "1 sees 0o27"]


def test_nodes_beyond_those_asked_for_are_spares(slurm: Slurm) -> None:
    job = slurm.sbatch(f"exec holdfast run --nnodes 2 --no-checks {script(slurm)}", "-N3", "--no-kill")
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    assert "2 of 2 nodes and 1 spare" in slurm.output(job)
    assert len(ranks(slurm.output(job))) == 2


def test_more_nodes_than_the_allocation_has_are_refused(slurm: Slurm) -> None:
    job = slurm.sbatch(f"exec holdfast run --nnodes 2 --spares 1 --no-checks {script(slurm)}", "-N2", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "2:0"
    assert f"--nnodes 2 and --spares 1: Slurm job {job} has 2 nodes" in slurm.output(job)


def test_a_node_of_its_own_needs_no_step(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(gpus=2)
    job = slurm.sbatch(f"exec holdfast run --no-checks {script(slurm)}", "--gres=gpu:2")
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    assert ranks(slurm.output(job)) == ["0 of 2 on n1 -", "1 of 2 on n1 -"]


def test_the_users_own_steps_run_beside_the_agents(slurm: Slurm) -> None:
    """From the batch script, and from within a worker."""
    nested = "rank == '0' and print(subprocess.run(['srun', 'hostname'], capture_output=True, text=True), flush=True)"
    wait = "[time.sleep(0.1) for _ in iter(lambda: os.path.exists('go'), True)]"
    run = f'holdfast run --no-checks {script(slurm)} "{nested}" "{wait}"'
    job = slurm.sbatch(
        f"{run} &\nuntil grep -q 'all 3 workers' *.out; do sleep 0.1; done\nsrun hostname > own; touch go; wait", "-N3"
    )
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert sorted((slurm.home / "own").read_text().split()) == ["n1", "n2", "n3"]
    said = next(line for line in slurm.output(job).splitlines() if "CompletedProcess" in line)
    assert "returncode=0" in said
    assert all(name in said for name in ("n1", "n2", "n3")), said


def test_an_agent_that_is_killed_comes_back(slurm: Slurm) -> None:
    wait = "[time.sleep(0.1) for _ in iter(lambda: os.path.exists('go'), True)]"
    job = slurm.sbatch(f'exec holdfast run --no-checks {script(slurm)} "{wait}"', "-N3", "--no-kill")
    slurm.wait(lambda: len(ranks(slurm.output(job))) == 3, "all ranks are there")
    guard = next(p for p in slurm.node("n2").processes() if p.name() == "holdfast-guard")
    guard.kill()
    slurm.wait(lambda: "n2" in slurm.output(job).partition("joined again")[0][-60:], "n2 has an agent again")
    slurm.wait(lambda: len(ranks(slurm.output(job))) == 6, "all ranks are there again")
    (slurm.home / "go").touch()
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    slurm.nothing_left()


def test_a_task_a_node_is_another_way_to_start(slurm: Slurm) -> None:
    run = f"srun --ntasks-per-node=1 holdfast run --max-restarts 0 --no-checks {script(slurm)}"
    job = slurm.sbatch(f"{run} && exec {run} 'meet()' 'sys.exit(rank == \"1\" and 5)'", "-N3")
    assert slurm.ended(job)["ExitCode"] == "255:0"
    printed = slurm.output(job)
    assert ranks(printed) == sorted([f"{rank} of 3 on n{rank + 1} -" for rank in range(3)] * 2)
    assert (printed.count(" SUCCEEDED "), printed.count(" FAILED: ")) == (1, 1), "one report a job, not one a task"
    assert not list((slurm.state / "slurm").iterdir()), "the word of the first task is gone with its job"


def test_too_many_tasks_are_told_once(slurm: Slurm) -> None:
    job = slurm.sbatch(f"srun holdfast run --no-checks {script(slurm)}", "-N2", "--ntasks-per-node=2")
    assert slurm.ended(job)["ExitCode"] == "2:0"
    printed = slurm.output(job)
    assert printed.count("holdfast: ") == 1
    assert "srun has started holdfast 4 times on 2 nodes" in printed
    assert "holdfast run --nproc-per-node 2" in printed


def test_a_shell_of_salloc_hosts_the_owner_on_the_login_node(slurm: Slurm) -> None:
    run = ("salloc", "-N2", HOLDFAST, "run", "--nproc-per-node", "2", "--no-checks", script(slurm))
    assert ranks(slurm(*run)) == ["0 of 4 on n1 -", "1 of 4 on n1 -", "2 of 4 on n2 -", "3 of 4 on n2 -"]
    slurm.nothing_left()


def test_a_shell_on_the_login_node_does_not_run_a_job_of_one_node_there(slurm: Slurm) -> None:
    refused = slurm.start("salloc", "-N1", HOLDFAST, "run", "--no-checks", script(slurm))
    assert refused.wait() == 2
    assert "this machine is not n1, the one node of Slurm job 1" in refused.err
    # The node of the refused job may still be completing: Slurm would give the other one.
    run = ("salloc", "-N1", "-w", "n1", "srun", "--ntasks=1", HOLDFAST, "run", "--no-checks", script(slurm))
    assert ranks(slurm(*run)) == ["0 of 1 on n1 -"]


def test_one_node_may_have_a_spare(slurm: Slurm) -> None:
    job = slurm.sbatch(f"exec holdfast run --nnodes 1 --spares 1 --no-checks {script(slurm)}", "-N2", "--no-kill")
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    assert "1 of 1 nodes and 1 spare" in slurm.output(job)


def test_an_ordinary_user_starts_a_job_over_nodes_that_share_a_machine(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(flat=True)
    job = slurm.sbatch(f"exec holdfast run --no-checks {script(slurm)}", "-N3", "--no-kill", user=USER)
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert ranks(slurm.output(job)) == ["0 of 3 on n1 -", "1 of 3 on n2 -", "2 of 3 on n3 -"]
    slurm.nothing_left()


def test_a_job_without_slurms_authentication_says_so(slurm: Slurm) -> None:
    away = "AuthInfo=socket=/nowhere/munge.sock"
    conf = f"sed 's,^AuthInfo=.*,{away},' $SLURM_CONF > own.conf; export SLURM_CONF=$PWD/own.conf"
    job = slurm.sbatch(f"{conf}\nexec holdfast run --no-checks {script(slurm)}", "-N2", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "197:0"
    printed = slurm.output(job)
    assert "Slurm's authentication does not work on this machine" in printed
    assert "2 of 2 nodes get no agent, and the job needs 2" in printed
    assert printed.count("srun is tried again") == 1, "the same sentence is not said for each try"


def test_a_script_that_lets_slurm_end_the_job_first_is_warned_of_once(slurm: Slurm) -> None:
    job = slurm.sbatch(f"holdfast run --no-checks {script(slurm)} 'time.sleep(2)'", "-N2")
    slurm.ended(job)
    printed = slurm.output(job)
    assert printed.count("line 2 of the batch script starts holdfast without exec") == 1, printed
    assert "try: exec holdfast run --no-checks" in printed
    assert "the batch script has no line `#SBATCH --no-kill`; where it was not typed for sbatch" in printed


def test_a_script_that_is_as_it_should_be_is_not_warned_of(slurm: Slurm) -> None:
    run = f"holdfast run --no-checks {script(slurm)} 'time.sleep(2)'"
    good = slurm.sbatch(f"#!/bin/bash\n#SBATCH --no-kill\nexec {run}\n", "-N2")
    slurm.ended(good)
    trap = slurm.sbatch(f"trap : TERM\n{run}", "-N1")
    slurm.ended(trap)
    assert "warning" not in slurm.output(good) + slurm.output(trap)


def test_a_node_that_cannot_run_the_agent_ends_the_start_at_once(slurm: Slurm) -> None:
    """Not after --join-timeout; and with a range the others begin without it."""
    slurm.spent = True
    slurm.node("n3")("mount", "-t", "tmpfs", "tmpfs", Path(sys.executable).parent)
    run = f"exec holdfast run --no-checks --last-call 1 {script(slurm)}"
    job = slurm.sbatch(run, "-N3", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "197:0"
    assert "n3: the agent did not start: execve()" in slurm.output(job)
    assert "1 of 3 nodes get no agent, and the job needs 3" in slurm.output(job)
    job = slurm.sbatch(run.replace("--no-checks", "--no-checks --nnodes 2:3"), "-N3", "--no-kill")
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)


def test_a_directory_that_one_node_lacks_is_named(slurm: Slurm) -> None:
    run = f"exec holdfast run --no-checks {script(slurm)}"
    job = slurm.sbatch(f"mkdir /var/tmp/mine; cd /var/tmp/mine; {run}", "-N2", "--no-kill")
    assert slurm.ended(job)["ExitCode"] == "197:0"
    assert "n2: /var/tmp/mine, where the command was typed, cannot be entered there" in slurm.output(job)


def test_a_node_that_left_the_job_before_the_start_is_done_without(slurm: Slurm) -> None:
    """srun alone would wait for it for ever."""
    until = "until [ -e go ]; do sleep 0.1; done"
    run = f"exec holdfast run --nnodes 1:2 --last-call 1 --no-checks {script(slurm)}"
    job = slurm.sbatch(f"{until}\n{run}", "-N2", "--no-kill")
    slurm.wait_state(job, "RUNNING")
    slurm.off("n2")
    slurm.wait(lambda: slurm.job(job)["NodeList"] == "n1", "Slurm has taken n2 out")
    (slurm.home / "go").touch()
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert "Slurm has taken n2 out of the job" in slurm.output(job)
    assert ranks(slurm.output(job)) == ["0 of 1 on n1 -"]


def test_agents_come_back_when_srun_is_killed(slurm: Slurm) -> None:
    """Slurm ends its step with it: one restart, in the same placements."""
    wait = "[time.sleep(0.1) for _ in iter(lambda: os.path.exists('go'), True)]"
    job = slurm.sbatch(f'exec holdfast run --no-checks {script(slurm)} "{wait}"', "-N2", "--no-kill")
    slurm.wait(lambda: len(ranks(slurm.output(job))) == 2, "all ranks are there")
    next(p for p in slurm.node("n1").processes() if p.name() == "srun").kill()
    slurm.wait(lambda: len(ranks(slurm.output(job))) == 4, "all ranks are there again")
    (slurm.home / "go").touch()
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert "srun was ended by SIGKILL" in slurm.output(job)
    assert "@" not in "".join(line for line in slurm.output(job).splitlines() if "joined" in line)
    slurm.nothing_left()


def test_ranks_follow_the_switches_above_the_nodes(slurm_of: SlurmOf) -> None:
    switches = "SwitchName=s1 Nodes=n2\nSwitchName=s2 Nodes=n[1,3]\nSwitchName=top Switches=s[1-2]\n"
    slurm = slurm_of(conf={"TopologyPlugin": "topology/tree"}, files={"topology.conf": switches})
    job = slurm.sbatch(f"exec holdfast run --no-checks {script(slurm)}", "-N3", "--no-kill")
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    assert ranks(slurm.output(job)) == ["0 of 3 on n2 -", "1 of 3 on n1 -", "2 of 3 on n3 -"]


def test_a_job_file_spreads_its_workers_over_the_nodes(slurm: Slurm) -> None:
    command = f"[{sys.executable}, {script(slurm)}]"
    (slurm.home / "job.yaml").write_text(f"name: x\nroles:\n  worker: {{count: 4, command: {command}}}\n")
    job = slurm.sbatch("exec holdfast run --no-checks --spares 1 --job job.yaml", "-N3", "--no-kill")
    assert slurm.ended(job)["JobState"] == "COMPLETED"
    nodes = [rank.split()[4] for rank in ranks(slurm.output(job))]
    assert len(nodes) == 4
    assert len({*nodes}) == 2, nodes
