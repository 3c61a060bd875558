"""What scripts and their surroundings may count on from any launcher of torch's kind, one fact a test.

The facts are those that torch, and launchers built on it, test of themselves: who gets which number, what is passed on,
what ends what, and how often it is tried again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Holdfast, free_port, wait_for
from holdfast.cli.options.run_option_table import takes_values

pytestmark = pytest.mark.real

RANK_NAMES = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
)  # fmt: skip
WRITES_ENVIRONMENT = "import json, os; open('seen-' + os.environ['RANK'], 'w').write(json.dumps(dict(os.environ)))"


def environments_seen(holdfast: Holdfast) -> list[dict[str, str]]:
    """The environment of each worker that ran `WRITES_ENVIRONMENT`, in the order of their ranks."""
    files = sorted(holdfast.dir.glob("seen-*"), key=lambda path: int(path.name.removeprefix("seen-")))
    return [json.loads(path.read_text()) for path in files]


# ---------------------------------------------------------------------------------------------- ways to start


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc-per-node=3", "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=7"],
        ["--nproc_per_node=3", "--nnodes=1:2", "--rdzv_backend=c10d", "--monitor_interval=1", "--start_method=fork"],
        ["--standalone", "--nproc-per-node", "3"],
        ["--run-path", "--nproc-per-node", "3"],
        ["--nproc-per-node", "3", "--master-addr", "localhost", "--node-rank", "0"],
    ],
)  # fmt: skip
def test_a_script_runs_once_for_each_worker(holdfast: Holdfast, words: list[str]) -> None:
    assert holdfast.run(*words, holdfast.script(WRITES_ENVIRONMENT)).status == 0
    assert [env["RANK"] for env in environments_seen(holdfast)] == ["0", "1", "2"]


def test_the_surroundings_may_say_all_of_it(holdfast: Holdfast) -> None:
    port = free_port()
    ran = holdfast.run(
        holdfast.script(WRITES_ENVIRONMENT),
        PET_NNODES="1",
        PET_NPROC_PER_NODE="3",
        PET_RDZV_ID="seven",
        PET_RDZV_BACKEND="c10d",
        PET_RDZV_ENDPOINT=f"localhost:{port}",
        PET_RDZV_CONF="timeout=5",
        PET_MAX_RESTARTS="0",
        PET_MONITOR_INTERVAL="1",
        PET_START_METHOD="fork",
        PET_ROLE="trainer",
    )
    assert ran.status == 0, ran.err
    assert [env["TORCHELASTIC_RUN_ID"] for env in environments_seen(holdfast)] == ["seven"] * 3
    assert {(env["MASTER_PORT"], env["ROLE_NAME"]) for env in environments_seen(holdfast)} == {(str(port), "trainer")}
    assert {env["TORCHELASTIC_MAX_RESTARTS"] for env in environments_seen(holdfast)} == {"0"}


def test_a_shell_command_is_run_as_it_is(holdfast: Holdfast) -> None:
    words = ["--no-python", "--nproc-per-node", "2", "bash", "-c", 'echo "$0 $1 of $WORLD_SIZE"', "a", "b"]
    assert sorted(holdfast.run(*words).out.splitlines()) == [f"[worker-{rank}] a b of 2" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("word", "devices", "workers"),
    [
        (None, None, 1),
        ("auto", "", len(os.sched_getaffinity(0))),
        ("cpu", "0,1,2", len(os.sched_getaffinity(0))),
        ("gpu", "4,5,6", 3),
        ("auto", "4,5", 2),
    ],
)
def test_a_word_may_say_how_many_workers(
    holdfast: Holdfast, word: str | None, devices: str | None, workers: int
) -> None:
    if devices is not None:
        holdfast.env["CUDA_VISIBLE_DEVICES"] = devices
    words = [] if word is None else ["--nproc-per-node", word]
    assert holdfast.run(*words, holdfast.script(WRITES_ENVIRONMENT)).status == 0
    assert len(environments_seen(holdfast)) == workers


# ---------------------------------------------------------------------------------------------- what workers see


@pytest.mark.key
def test_every_worker_knows_its_place(holdfast: Holdfast) -> None:
    script = holdfast.script(WRITES_ENVIRONMENT)
    assert holdfast.run("--nproc-per-node", "2", "--rdzv-id", "seven", "--max-restarts", "5", script).status == 0
    for rank, env in enumerate(environments_seen(holdfast)):
        assert [env[name] for name in RANK_NAMES] == [str(rank), str(rank), "0", str(rank), "2", "2", "1", "2"]
        assert (env["TORCHELASTIC_RESTART_COUNT"], env["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "5")
        assert env["TORCHELASTIC_RUN_ID"] == "seven"
        assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
        assert env["MASTER_PORT"].isdigit()


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_choice_about_nccl_stays_the_users(holdfast: Holdfast, value: str) -> None:
    holdfast.run(holdfast.script(WRITES_ENVIRONMENT), TORCH_NCCL_ASYNC_ERROR_HANDLING=value)
    assert environments_seen(holdfast)[0]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == value


def test_the_address_and_port_that_were_given_are_the_workers(holdfast: Holdfast) -> None:
    port = str(free_port())
    holdfast.run("--master-addr", "127.0.0.2", "--master-port", port, holdfast.script(WRITES_ENVIRONMENT))
    assert (environments_seen(holdfast)[0]["MASTER_ADDR"], environments_seen(holdfast)[0]["MASTER_PORT"]) == (
        "127.0.0.2",
        port,
    )


@pytest.mark.key
def test_roles_are_numbered_one_after_the_other(holdfast: Holdfast) -> None:
    script = holdfast.script(WRITES_ENVIRONMENT)
    job = holdfast.dir / "job.yaml"
    roles = {"trainer": 2, "evaluator": 1, "reader": 3}
    lines = [f"  {name}: {{count: {count}, command: [python, {script}]}}" for name, count in roles.items()]
    job.write_text("\n".join(["name: mixed", "roles:", *lines, ""]))
    ran = holdfast.run("--job", job, PATH=f"{Path(holdfast.python).parent}:{os.environ['PATH']}")
    assert ran.status == 0, ran.err
    assert [(env["ROLE_NAME"], env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) for env in environments_seen(holdfast)] == [
        (name, str(number), str(count)) for name, count in roles.items() for number in range(count)
    ]
    assert {env["WORLD_SIZE"] for env in environments_seen(holdfast)} == {"6"}


# ---------------------------------------------------------------------------------------------- output


@pytest.mark.key
def test_files_have_what_was_redirected_and_teed(holdfast: Holdfast) -> None:
    script = holdfast.script("import os, sys; print('out'); print('err', file=sys.stderr)")
    ran = holdfast.run("--nproc-per-node", "2", "--redirect=3", "--tee", "0:1", "--log-dir", "logs", script)
    assert ran.out == "[worker-0] out\n"
    assert "err" not in ran.err.replace("stderr", "")
    for name in ("stdout", "stderr"):
        found = sorted(holdfast.dir.glob(f"logs/*/attempt-1/worker-*/{name}.log"))
        assert [path.read_text() for path in found] == [f"{name[3:]}\n"] * 2


def test_a_line_begins_as_the_template_says(holdfast: Holdfast) -> None:
    template = "[${role_name}-${local_rank}:${rank}]:"
    script = holdfast.script("print('hello')")
    ran = holdfast.run("--role", "trainer", script, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template)
    assert ran.out == "[trainer-0:0]:hello\n"
    words = ("--log_line_prefix_template", "${local_rank}> ", script)
    assert holdfast.run(*words, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template).out == "0> hello\n"
    assert holdfast.run(script, PET_LOG_LINE_PREFIX_TEMPLATE="$$ ").out == "$ hello\n"


@pytest.mark.torch
@pytest.mark.parametrize("template", ["${hostname}:${rank}: ", "${hostnam}:$rank ${role_name}$$ ", "[${local_rank}]"])
def test_a_template_gives_the_prefix_that_torchrun_gives(holdfast: Holdfast, template: str) -> None:
    script = holdfast.script("print('hello')")
    words = ("--role", "trainer", "--log-line-prefix-template", template, str(script))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--tee", "3", *words]
    theirs = subprocess.run(torchrun, cwd=holdfast.dir, capture_output=True, text=True, check=False)
    if "unrecognized arguments: --log-line-prefix-template" in theirs.stderr:
        pytest.skip("torchrun has the option since 2.15")
    assert theirs.returncode == 0, theirs.stderr
    assert holdfast.run(*words).out == theirs.stdout


@pytest.mark.torch
def test_each_option_of_the_installed_torchrun_is_known() -> None:
    lists = (
        "import json; from torch.distributed.run import get_args_parser as p;"
        "print(json.dumps({form: each.nargs != 0 for each in p()._actions for form in each.option_strings}))"
    )
    options = json.loads(subprocess.check_output([sys.executable, "-c", lists], text=True).splitlines()[-1])
    known = {**takes_values(), "--print-completion": True}
    assert len(options) > 30
    for form, takes_value in options.items():
        name = form.replace("_", "-") if form.startswith("--") else form
        assert known.get(name) == takes_value, form


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_option_for_completion_prints_it(holdfast: Holdfast, shell: str) -> None:
    ran = holdfast("run", "--print-completion", shell)
    assert (ran.status, ran.out) == (0, holdfast("completion", shell).out) and "_HOLDFAST_COMPLETE" in ran.out


# ---------------------------------------------------------------------------------------------- what ends what


@pytest.mark.key
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_one_worker_that_a_signal_ends_ends_all(holdfast: Holdfast, number: signal.Signals) -> None:
    script = holdfast.script(
        f"""
        import os, time
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), {int(number)})
        time.sleep(60)
        """
    )
    ran = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", "--grace", "5", script)
    assert ran.status not in (0, 1)
    assert ran.report["first"]["rank"] == 1
    assert ran.report["original"]["signal"] == number.name


def test_a_worker_that_leaves_early_and_well_ends_nothing(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, time
        time.sleep(0.0 if os.environ["RANK"] == "0" else 1.0)
        print("done")
        """
    )
    assert holdfast.run("--nproc-per-node", "3", script).out.count("done") == 3


def test_the_same_failure_spends_all_restarts_where_that_is_wanted(holdfast: Holdfast) -> None:
    """Half of the workers fail each time: the budget is spent, and not one attempt more."""
    script = holdfast.script(
        """
        import os
        if int(os.environ["RANK"]) % 2:
            raise RuntimeError("this half fails")
        """
    )
    words = ["--nproc-per-node", "4", "--max-restarts", "2", "--same-failure", "off"]
    ran = holdfast.run(*words, script, timeout_s=60)
    assert len(ran.report["attempts"]) == 3
    assert (ran.report["outcome"], ran.report["phrase"]) == ("failed", "UserException")


@pytest.mark.key
def test_restarts_count_up_in_the_workers(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, signal
        print("count", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = holdfast.run("--max-restarts", "3", script)
    assert ran.status == 0
    assert ran.out.splitlines() == ["[worker-0] count 0", "[worker-0] count 1"]


def test_a_file_of_the_worker_says_why_to_whoever_started_the_launcher(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import json, os, sys
        if os.environ["RANK"] == "1":
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
                json.dump({"message": {"message": "RuntimeError: rank 1 is sad", "extraInfo": {}}}, file)
            sys.exit(7)
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "0", script, TORCHELASTIC_ERROR_FILE="why.json")
    message = json.loads((holdfast.dir / "why.json").read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("RuntimeError: rank 1 is sad", 7)
    assert ran.report["first"]["rank"] == 1


# ---------------------------------------------------------------------------------------------- leaving


LEAVES_IN_GRACE = """
import os, signal, sys, time
def leave(*_):
    print("saved", os.environ["RANK"], flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, HANDLER)
if os.environ["RANK"] == "0":
    while not all(os.path.exists(f"up-{rank}") for rank in range(1, int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.01)
    ASKS
open("up-" + os.environ["RANK"], "w").write("up")
time.sleep(60)
"""


def test_a_worker_may_ask_its_launcher_to_end_the_job(holdfast: Holdfast) -> None:
    script = LEAVES_IN_GRACE.replace("HANDLER", "leave").replace("ASKS", "os.kill(os.getppid(), signal.SIGTERM)")
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "3", holdfast.script(script))
    assert ran.status == 250
    assert "saved 1" in ran.out
    assert len(ran.report["attempts"]) == 1


@pytest.mark.key
def test_a_launcher_that_is_asked_to_end_lets_its_workers_save(holdfast: Holdfast) -> None:
    script = LEAVES_IN_GRACE.replace("HANDLER", "leave").replace("ASKS", "pass")
    process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", holdfast.script(script))
    wait_for(holdfast.dir / "up-0")
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process)
    assert ran.status == 250
    assert sorted(line for line in ran.out.splitlines() if "saved" in line) == [
        "[worker-0] saved 0",
        "[worker-1] saved 1",
    ]


@pytest.mark.parametrize("how", ["--shutdown-timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "PET_SHUTDOWN_TIMEOUT"])
def test_who_ignores_the_request_is_killed_after_the_time_that_was_given(holdfast: Holdfast, how: str) -> None:
    script = LEAVES_IN_GRACE.replace("HANDLER", "signal.SIG_IGN").replace("ASKS", "pass")
    words = [how, "1"] if how.startswith("--") else []
    if not words:
        holdfast.env[how] = "1"
    process = holdfast.start("run", "--no-checks", *words, "--nproc-per-node", "2", holdfast.script(script))
    wait_for(holdfast.dir / "up-0")
    process.send_signal(signal.SIGTERM)
    ran = holdfast.finish(process, timeout_s=25)
    assert ran.status == 250
    assert "Ranks 0 and 1 had not left" in ran.report["solution"]


@pytest.mark.parametrize("value", ["-1", "soon"])
def test_a_time_that_is_none_is_refused(holdfast: Holdfast, value: str) -> None:
    script = holdfast.script("pass")
    assert holdfast("run", f"--shutdown-timeout={value}", script).status == 2
    ran = holdfast("run", script, TORCH_ELASTIC_SHUTDOWN_TIMEOUT=value)
    assert ran.status == 2
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in ran.err


def test_ranks_that_hang_and_then_raise_are_tried_until_they_go_through(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, time
        attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), os.environ["RANK"]
        print("at work", attempt, flush=True)
        if attempt == 0:
            time.sleep(60)
        if attempt == 1 and rank == "1":
            raise ConnectionResetError("the data is away for a moment")
        """
    )
    words = ["--nproc-per-node", "2", "--max-restarts", "4", "--hang-timeout", "1", "--grace", "1"]
    ran = holdfast.run(*words, script, timeout_s=60)
    assert ran.status == 0, ran.err
    phrases = [attempt["report"]["phrase"] for attempt in ran.report["attempts"]]
    assert (phrases[0], phrases[2], len(phrases)) == ("HungWorker", "Succeeded", 3)


# ---------------------------------------------------------------------------------------------- torch's own view


class TestTorch:
    pytestmark = pytest.mark.torch

    @pytest.mark.parametrize("start", ["--no-warm", "--warm"])
    def test_all_ranks_meet_and_know_that_a_launcher_started_them(self, holdfast: Holdfast, start: str) -> None:
        script = holdfast.script(
            """
            import torch, torch.distributed as dist
            assert dist.is_torchelastic_launched()
            dist.init_process_group("gloo", init_method="env://")
            total = torch.tensor([dist.get_rank() + 1])
            dist.all_reduce(total)
            print("sum", int(total), flush=True)
            dist.barrier()
            dist.destroy_process_group()
            """
        )
        ran = holdfast.run(start, "--nproc-per-node", "3", script, timeout_s=120)
        assert ran.status == 0, ran.err
        assert ran.out.count("sum 6") == 3

    def test_the_port_that_was_given_is_free_for_a_meeting_by_its_address(self, holdfast: Holdfast) -> None:
        script = holdfast.script(
            """
            import os, torch.distributed as dist
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            place = "tcp://{}:{}".format(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
            dist.init_process_group("gloo", init_method=place, rank=rank, world_size=size)
            dist.barrier()
            print("met", flush=True)
            dist.destroy_process_group()
            """
        )
        ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=120)
        assert ran.status == 0, ran.err
        assert ran.out.count("met") == 2

    def test_what_record_writes_reaches_whoever_started_the_launcher(self, holdfast: Holdfast) -> None:
        script = holdfast.script(
            """
            import os
            from torch.distributed.elastic.multiprocessing.errors import record

            @record
            def main():
                if os.environ["RANK"] == "1":
                    raise RuntimeError("sad because I throw")

            main()
            """
        )
        ran = holdfast.run(
            "--nproc-per-node", "2", "--max-restarts", "0", script, timeout_s=120, TORCHELASTIC_ERROR_FILE="why.json"
        )
        written = json.loads((holdfast.dir / "why.json").read_text())["message"]
        assert written["message"] == "RuntimeError: sad because I throw"
        assert "sad because I throw" in written["extraInfo"]["py_callstack"]
        assert (written["errorCode"], ran.report["first"]["rank"]) == (1, 1)

    def test_calls_between_named_workers_of_several_roles(self, holdfast: Holdfast) -> None:
        script = holdfast.script(
            """
            import os, torch.distributed.rpc as rpc
            name = "{}{}".format(os.environ["ROLE_NAME"], os.environ["ROLE_RANK"])
            rpc.init_rpc(name, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
            if name == "master0":
                print("answer", rpc.rpc_sync("worker1", max, args=(40, 2)), flush=True)
            rpc.shutdown()
            """
        )
        job = holdfast.dir / "job.yaml"
        command = f"[{holdfast.python}, {script}]"
        roles = [f"  {name}: {{count: {count}, command: {command}}}" for name, count in (("master", 1), ("worker", 2))]
        job.write_text("\n".join(["name: calls", "roles:", *roles, ""]))
        ran = holdfast.run("--job", job, timeout_s=120)
        assert ran.status == 0, ran.err
        assert "answer 40" in ran.out
