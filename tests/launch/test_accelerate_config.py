"""accelerate's configuration file: workers, machines, and the variables that `accelerate launch` would set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.errors import BadUsage
from holdfast.launch.accelerate_config import AccelerateConfig, accelerate_config
from holdfast.settings.run_options import RunOptions

FSDP = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: true
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_version: 2
  fsdp_min_num_params: null
dynamo_config: {dynamo_backend: inductor, dynamo_use_dynamic: true}
machine_rank: 1
main_process_ip: 10.0.0.1
main_process_port: 29501
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
fp8_config: {backend: TE}
use_cpu: false
"""
ZERO = """\
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_clipping: 1.0
  offload_optimizer_device: none
  zero3_init_flag: true
  zero_stage: 3
mixed_precision: no
num_machines: 1
num_processes: '8'
gpu_ids: 0,1,2,3
"""


def _read(tmp_path: Path, text: str) -> AccelerateConfig:
    (tmp_path / "a.yaml").write_text(text)
    return accelerate_config(tmp_path / "a.yaml", "--accelerate-config")


def test_machines_and_workers_become_options(tmp_path: Path) -> None:
    config = _read(tmp_path, FSDP)
    options = config.filled(RunOptions(words=("t.py",)), machines=True)
    assert (options.nnodes, options.nproc_per_node, options.node_rank, options.rdzv_backend) == (
        "2",
        "8",
        "1",
        "static",
    )
    assert (options.master_addr, options.master_port) == ("10.0.0.1", "29501")
    assert options.origins["nnodes"] == f"{tmp_path}/a.yaml: nnodes 2"
    typed = config.filled(RunOptions(nproc_per_node="2", node_rank="0", rdzv_endpoint="n0:1"), machines=True)
    assert (typed.nproc_per_node, typed.node_rank, typed.master_addr, typed.nnodes) == ("2", "0", None, "2")
    listed = config.filled(RunOptions(), machines=False)
    assert (listed.nproc_per_node, listed.nnodes, listed.node_rank, listed.master_addr) == ("8", None, None, None)


def test_settings_of_the_training_become_variables(tmp_path: Path) -> None:
    config = _read(tmp_path, FSDP)
    assert config.environment == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DYNAMO_USE_DYNAMIC": "true",
        "ACCELERATE_CPU_AFFINITY": "1",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
        "FSDP_VERSION": "2",
    }
    assert config.passed_over == ("fp8_config",) and "passed over: fp8_config" in config.note
    zero = _read(tmp_path, ZERO)
    assert zero.environment == {
        "ACCELERATE_MIXED_PRECISION": "no",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_GRADIENT_CLIPPING": "1.0",
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "none",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_CONFIG_DS_FIELDS": "gradient_clipping,offload_optimizer_device,zero3_init_flag,zero_stage",
    }
    assert zero.filled(RunOptions(), machines=True) == RunOptions(
        nproc_per_node="8", origins={"nproc_per_node": f"{tmp_path}/a.yaml: nproc-per-node 8"}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("distributed_type: TPU\n", "TPU: holdfast starts no such training"),
        ("compute_environment: AMAZON_SAGEMAKER\n", "AMAZON_SAGEMAKER"),
        ("num_processes: 7\nnum_machines: 2\n", "num_processes 7 over num_machines 2"),
        ("num_processes: many\n", "num_processes: expected a number from 1, got 'many'"),
        ("machine_rank: -3\n", "machine_rank: expected a number from 0"),
        ("- a\n", "expected a mapping"),
        ("a: [\n", "line 1"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadUsage, match=r"a\.yaml") as refused:
        _read(tmp_path, text)
    assert expected in refused.value.message
    with pytest.raises(BadUsage, match="--accelerate-config nosuch: No such file"):
        accelerate_config(Path("nosuch"), "--accelerate-config")


@pytest.mark.real
def test_a_run_with_the_file_or_its_variable(holdfast: Holdfast) -> None:
    config = holdfast.script(ZERO.replace("'8'", "3"), "a.yaml")
    script = holdfast.script(
        "import json, os; open(os.environ['RANK'] + '.json', 'w').write(json.dumps(dict(os.environ)))", "t.py"
    )
    assert holdfast.run("--accelerate-config", config, script).status == 0
    seen = [json.loads((holdfast.dir / f"{rank}.json").read_text()) for rank in range(3)]
    assert {env["WORLD_SIZE"] for env in seen} == {"3"}
    assert {env["ACCELERATE_DEEPSPEED_ZERO_STAGE"] for env in seen} == {"3"}
    ran = holdfast.run("--nproc-per-node", "1", script, ACCELERATE_CONFIG_FILE=str(config))
    assert ran.status == 0 and "accelerate's config" in ran.err
    assert json.loads((holdfast.dir / "0.json").read_text())["WORLD_SIZE"] == "1"
    job = holdfast.script("name: x\nroles: {w: {count: 1, command: [env]}}\n", "job.yaml")
    ran = holdfast.run("--job", job, ACCELERATE_CONFIG_FILE=str(config))
    assert ran.status == 0 and "ACCELERATE_USE_DEEPSPEED" not in ran.out
    assert holdfast.run("--job", job, "--accelerate-config", config).status == 2
