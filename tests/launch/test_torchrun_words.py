"""torchrun's words: variables, abbreviations, ranges of nodes, device words, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest

from conftest import Holdfast, free_port
from holdfast.cli.options.run_option_table import read_run_options
from holdfast.cli.run import command
from holdfast.errors import BadUsage
from holdfast.launch.torchrun_options import (
    alone,
    check_devices,
    meeting_place,
    node_range,
    refuse,
    unused,
    with_variables,
    workers,
)
from holdfast.observe.devices.device_discovery import xpus
from holdfast.settings.resolved_settings import SettingSource, resolve
from holdfast.settings.run_options import RunOptions

SHOWS_NAMES = """
import os
names = ("RANK", "LOCAL_RANK", "ROLE_NAME", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
print(" ".join(os.environ.get(name, "-") for name in names), flush=True)
"""


def typed(*words: str) -> RunOptions:
    options = read_run_options([*words, "t.py"])
    assert options is not None
    return options


# ---------------------------------------------------------------------------------------------- abbreviations


@pytest.mark.parametrize(
    ("words", "param", "value"),
    [
        (["--redirect=3"], "redirects", "3"),
        (["--nproc_per", "4"], "nproc_per_node", "4"),
        (["--max-restart", "2"], "max_restarts", "2"),
        (["--virtual"], "virtual_local_rank", True),
        (["--stan"], "standalone", True),
        (["--no-p"], "no_python", True),
    ],
)
def test_the_beginning_of_an_option_of_torchruns_is_enough_where_one_can_be_meant(
    words: list[str], param: str, value: Any
) -> None:
    quick = typed(*words)
    assert getattr(quick, param) == value
    context = click.Context(command, **command.context_settings)
    command.parse_args(context, [*words, "t.py"])
    assert RunOptions(**context.params) == quick


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--repo", "r.json"], "--report"),
        (["--hang-time", "60"], "--hang-timeout"),
        (["--hang_time=60"], "--hang-timeout"),
        (["--requeue"], "--requeue-at-limit"),
        (["--no-chec"], "--no-checks"),
        (["--command", "X"], "--command-from"),
    ],
)
def test_the_beginning_of_an_option_of_holdfasts_is_refused_with_the_whole_name(
    holdfast: Holdfast, words: list[str], right: str
) -> None:
    ran = holdfast("run", *words, holdfast.script("print('begun')"))
    assert ran.status == 2 and "begun" not in ran.out
    assert f"No such option '{words[0].partition('=')[0].replace('_', '-')}'." in ran.err and right in ran.err, ran.err


def test_an_abbreviation_with_two_meanings_is_refused_with_both(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--rdzv-e", "a:1", "--log", "x", holdfast.script("pass"))
    assert ran.status == 2
    assert "`--log` may mean" in ran.err
    assert "--log-dir" in ran.err
    assert "--logs-specs" in ran.err


# ---------------------------------------------------------------------------------------------- variables


def test_a_variable_stands_in_for_an_option_that_was_not_typed() -> None:
    env = {"PET_NPROC_PER_NODE": "8", "PET_NNODES": "1:4", "PET_STANDALONE": "1", "PET_RUN_PATH": "0"}
    options = with_variables(typed("--nnodes", "1"), env)
    assert (options.nproc_per_node, options.nnodes, options.standalone) == ("8", "1", True)
    assert not options.run_path


def test_a_job_file_says_its_workers_itself() -> None:
    options = with_variables(typed("--job", "j.yaml"), {"PET_NPROC_PER_NODE": "8", "PET_RDZV_ID": "7"})
    assert (options.nproc_per_node, options.rdzv_id) == (None, "7")


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(BadUsage, match="PET_STANDALONE=yes: expected 0 or 1"):
        with_variables(typed(), {"PET_STANDALONE": "yes"})
    with pytest.raises(BadUsage, match="PET_NPROC_PER_NODE=many: expected a number from 1 to 100000, or one of auto,"):
        workers(with_variables(typed(), {"PET_NPROC_PER_NODE": "many"}))
    with pytest.raises(BadUsage, match="PET_NNODES=4: there is neither --rdzv-endpoint HOST:PORT nor --master-addr"):
        alone(with_variables(typed(), {"PET_NNODES": "4"}), (4, 4), 0)


@pytest.mark.parametrize(
    ("setting", "env", "value", "origin"),
    [
        ("max-restarts", {"PET_MAX_RESTARTS": "7"}, 7, "PET_MAX_RESTARTS"),
        ("max-restarts", {"PET_MAX_RESTARTS": "7", "HOLDFAST_MAX_RESTARTS": "1"}, 1, "HOLDFAST_MAX_RESTARTS"),
        ("grace", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2"}, 2.0, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
        ("grace", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2", "PET_SHUTDOWN_TIMEOUT": "9"}, 9.0, "PET_SHUTDOWN_TIMEOUT"),
        ("redirects", {"PET_REDIRECTS": "3"}, "3", "PET_REDIRECTS"),
    ],
)
def test_settings_know_torchruns_variables(
    tmp_path: Path, setting: str, env: dict[str, str], value: object, origin: str
) -> None:
    settings = resolve({}, env, tmp_path, system_file=tmp_path / "none")
    assert (settings.value(setting), settings.origin(setting)) == (value, origin)
    assert settings.source(setting) is SettingSource.ENVIRONMENT
    assert resolve({setting: "5"}, env, tmp_path, system_file=tmp_path / "none").source(setting) is SettingSource.OPTION


# ------------------------------------------------------------------------------------------- what one machine decides


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nnodes", "1"], ""),
        (["--nnodes", "1:1"], ""),
        (["--nnodes", "1:2"], "--nnodes 1:2: the job runs on this machine alone: there is neither --rdzv-endpoint"),
        (["--nnodes", "01:8", "--standalone"], "alone: --standalone means one machine"),
        (["--nnodes", "1:4", "--rdzv-endpoint", "localhost:0"], "--rdzv-endpoint localhost:0 means any free port"),
        (["--nnodes", "1:4", "--rdzv-endpoint", "node1"], ""),
        (["--nnodes", "3", "--master-addr", "node1"], ""),
    ],
)
def test_a_range_of_nodes_that_no_other_node_can_find_is_this_machine(words: list[str], said: str) -> None:
    options = typed(*words)
    answer = alone(options, node_range(options), 0)
    assert said in answer
    assert bool(said) == bool(answer)


@pytest.mark.parametrize("nodes", ["0", "3:1", "1:", "a", "1:2:3", "-1", "10001", "1:10001"])
def test_what_is_no_number_of_nodes_is_refused(nodes: str) -> None:
    with pytest.raises(BadUsage, match="--nnodes"):
        node_range(typed(f"--nnodes={nodes}"))


@pytest.mark.parametrize(
    "words", [["--nnodes=2"], ["--nnodes=2:3", "--standalone"], ["--nnodes=2", "--rdzv-endpoint=a:0"]]
)
def test_several_nodes_need_a_place_to_meet(words: list[str]) -> None:
    options = typed(*words)
    with pytest.raises(BadUsage, match="expected the address and port of one node, typed on every node"):
        alone(options, node_range(options), 0)


@pytest.mark.parametrize(
    "words",
    [
        ["--numa-binding", "node"],
        ["--event-log-handler", "console"],
        ["--duplicate-stdout-filters", "loss"],
        ["--duplicate-stderr-filters", "loss"],
        ["--signals-to-handle", "SIGTERM,SIGUSR1"],
        ["--logs-specs", "mine"],
        ["--node-rank", "1"],
    ],
)
def test_what_holdfast_does_not_do_is_refused_with_a_sentence(words: list[str]) -> None:
    with pytest.raises(BadUsage, match=f"{words[0]} {words[1]}: "):
        refuse(typed(*words))


def test_what_asks_for_what_happens_anyway_is_accepted() -> None:
    refuse(typed("--event-log-handler", "null", "--signals-to-handle", "SIGQUIT,SIGTERM,SIGHUP,SIGINT"))
    refuse(typed("--node-rank", "0", "--duplicate-stdout-filters", ""))
    refuse(typed("--node-rank", "3", "--rdzv-backend", "c10d"))
    refuse(typed("--node-rank", "3"), many=True)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], (None, None)),
        (["--rdzv-endpoint", "node7:29511"], ("node7", "29511")),
        (["--rdzv-endpoint", "[::1]:29511"], ("::1", "29511")),
        (["--rdzv-endpoint", "localhost:0"], ("localhost", None)),
        (["--rdzv-endpoint", "node7:29511", "--master-port", "7"], ("node7", "29511")),
        (["--rdzv-backend", "c10d", "--rdzv-endpoint", "node7:29511"], (None, "29511")),
        (["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "etcd:2379"], (None, None)),
        (["--standalone", "--rdzv-endpoint", "node7:29511"], (None, None)),
        (["--local-addr", "10.0.0.1"], ("10.0.0.1", None)),
        (["--master-addr", "[0:0:0:0:0:0:0:1]", "--master-port", "7"], ("0:0:0:0:0:0:0:1", "7")),
    ],
)
def test_the_endpoint_is_where_rank_0_listens(words: list[str], place: tuple[str | None, str | None]) -> None:
    assert meeting_place(typed(*words)) == place


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--standalone", "--rdzv-backend", "c10d"], ["--rdzv-backend", "--standalone"]),
        (["--rdzv-backend", "c10d", "--rdzv-endpoint", "a:1"], []),
        (["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "a:1"], ["--rdzv-endpoint"]),
        (["--standalone", "--rdzv-endpoint", "a:1"], ["--rdzv-endpoint"]),
        (["--standalone", "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:1"], ["--rdzv-backend", "--rdzv-endpoint"]),
        (["--node-rank", "1", "--rdzv-backend", "c10d"], ["--rdzv-backend", "--node-rank"]),
        (["--node-rank", "0", "--monitor-interval", "5"], ["--monitor-interval"]),
    ],
)
def test_only_what_changes_nothing_is_said_to_be_ignored(words: list[str], said: list[str]) -> None:
    assert unused(typed(*words)) == said


def test_a_path_to_run_is_a_python_file_whatever_else_is_said(holdfast: Holdfast) -> None:
    script = holdfast.script("print('ran by python')")
    for words in (["--no-python"], ["-m"]):
        ran = holdfast.run("--run-path", *words, script)
        assert ran.status == 0, ran.err
        assert "ran by python" in ran.out
        assert "ignored" not in ran.err


def test_a_wrong_endpoint_is_refused() -> None:
    with pytest.raises(BadUsage, match="--rdzv-endpoint a:b: expected HOST:PORT"):
        meeting_place(typed("--rdzv-endpoint", "a:b"))


def test_intels_cards_are_counted_by_their_tiles(tmp_path: Path) -> None:
    for name, vendor, tiles in (("renderD128", "0x8086", 2), ("renderD129", "0x8086", 0), ("renderD130", "0x1002", 0)):
        device = tmp_path / "sys/class/drm" / name / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        for tile in range(tiles):
            (device / f"tile{tile}").mkdir()
    assert xpus({}, tmp_path) == 3
    assert xpus({"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, tmp_path) == 2
    assert xpus({"ZE_AFFINITY_MASK": "0,3"}, tmp_path) == 2
    assert xpus({}, tmp_path / "nothing") == 0


def test_too_few_devices_for_one_each_are_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    check_devices(typed("--virtual-local-rank"), 2)
    with pytest.raises(BadUsage, match="CUDA_VISIBLE_DEVICES=4,5 has 2 for 3 workers"):
        check_devices(typed("--virtual-local-rank"), 3)


# ---------------------------------------------------------------------------------------------- as a user types them


@pytest.mark.real
def test_workers_get_what_the_words_say(holdfast: Holdfast) -> None:
    port = free_port()
    ran = holdfast.run(
        "--nnodes=1",
        "--role=trainer:a/b",
        "--virt",
        f"--rdzv-endpoint=localhost:{port}",
        holdfast.script(SHOWS_NAMES),
        PET_NPROC_PER_NODE="2",
        CUDA_VISIBLE_DEVICES="6,7",
        TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="${hostname} ${role_name} ${rank} ${unknown} ",
    )
    assert ran.status == 0
    host = os.uname().nodename
    assert sorted(ran.out.splitlines()) == [
        f"{host} trainer:a/b {rank} ${{unknown}} {rank} 0 trainer:a/b 2 localhost {port} {6 + rank}" for rank in (0, 1)
    ]


@pytest.mark.real
def test_with_json_stdout_is_the_report_alone(holdfast: Holdfast) -> None:
    ran = holdfast.run("--json", "--nproc-per-node", "2", holdfast.script("print('hello')"))
    assert json.loads(ran.out)["outcome"] == "succeeded"
    assert "[worker-1] hello" in ran.err


@pytest.mark.real
def test_the_launchers_own_error_file_has_what_the_culprit_wrote(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import json, os, signal
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": {"message": "ValueError: batch 7", "extraInfo": {"timestamp": "1"}}}, file)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = holdfast.run("--max-restarts", "0", script, TORCHELASTIC_ERROR_FILE=str(holdfast.dir / "why.json"))
    written = json.loads((holdfast.dir / "why.json").read_text())["message"]
    assert ran.status != 0
    assert (written["message"], written["errorCode"]) == ("ValueError: batch 7", -9)


@pytest.mark.real
def test_the_launchers_own_error_file_has_the_report_where_no_worker_wrote_one(holdfast: Holdfast) -> None:
    script = holdfast.script("raise RuntimeError('no data')")
    ran = holdfast.run("--max-restarts", "0", script, TORCHELASTIC_ERROR_FILE="why.json")
    written = json.loads((holdfast.dir / "why.json").read_text())["message"]
    assert ran.report["reason"] in written["message"]
    assert written["errorCode"] == ran.status
    assert written["extraInfo"]["timestamp"].isdigit()


@pytest.mark.real
def test_a_success_leaves_the_error_file_alone(holdfast: Holdfast) -> None:
    holdfast.run(holdfast.script("pass"), TORCHELASTIC_ERROR_FILE="why.json")
    assert not (holdfast.dir / "why.json").exists()
