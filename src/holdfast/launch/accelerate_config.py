"""Reads accelerate's configuration file, which `accelerate config` writes and `accelerate launch` reads. The result is
options of holdfast, and the variables from which accelerate reads its settings in each worker. accelerate is not
imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.safe_files import read_given
from holdfast.settings.run_options import RunOptions
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, yaml_value

#: Maps a key in the file to a variable, for settings that are the same for each kind of training.
_GENERAL = {
    "mixed_precision": "ACCELERATE_MIXED_PRECISION",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "num_cpu_threads_per_process": "OMP_NUM_THREADS",
}
_DYNAMO = {
    "dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "dynamo_mode": "ACCELERATE_DYNAMO_MODE",
    "dynamo_use_dynamic": "ACCELERATE_DYNAMO_USE_DYNAMIC",
    "dynamo_use_fullgraph": "ACCELERATE_DYNAMO_USE_FULLGRAPH",
    "dynamo_use_regional_compilation": "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
}
_DEEPSPEED = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "offload_optimizer_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload_param_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
#: Keys for DeepSpeed's own launcher. holdfast ignores them, because that launcher starts no node of this job.
_DEEPSPEED_LAUNCHER = frozenset({
    "deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter",
})  # fmt: skip
_RENAMED = {"fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP"}
#: Keys about machines and about the start of workers. Options of holdfast replace them, or holdfast does not need them.
_READ = frozenset({
    "compute_environment", "distributed_type", "num_processes", "num_machines", "machine_rank", "main_process_ip",
    "main_process_port", "rdzv_backend", "same_network", "main_training_function", "gpu_ids", "use_cpu", "debug",
    "enable_cpu_affinity", "downcast_bf16", "tpu_env", "tpu_use_cluster", "tpu_use_sudo", "tpu_name", "tpu_zone",
    "commands", "command_file", "fsdp_config", "deepspeed_config", "megatron_lm_config", "dynamo_config", *_GENERAL,
})  # fmt: skip


class AccelerateConfig(msgspec.Struct, frozen=True):
    """The content of a configuration file of accelerate."""

    path: Path
    #: The number of workers on all machines together, or None if the file does not specify it.
    processes: int | None
    machines: int
    rank: int | None
    address: str
    port: str
    backend: str
    #: The variables that `accelerate launch` would add to the workers' environment.
    environment: Mapping[str, str]
    #: The kind of training: FSDP, DEEPSPEED, MULTI_GPU.
    kind: str
    passed_over: tuple[str, ...]

    def filled(self, options: RunOptions, *, machines: bool) -> RunOptions:
        """Return the options, with the file's values for those that the user did not type.

        `machines`: true if the file describes the machines, false if a list of hosts or a platform does.
        """
        found: dict[str, str] = {}
        if self.processes is not None:
            found["nproc_per_node"] = str(self.processes // self.machines)
        if machines and self.machines > 1:
            found["nnodes"] = str(self.machines)
            found["rdzv_backend"] = self.backend
            if self.rank is not None:
                found["node_rank"] = str(self.rank)
            if not options.rdzv_endpoint:
                found |= {"master_addr": self.address, "master_port": self.port}
        found = {name: text for name, text in found.items() if text and not options.is_set(name)}
        origins = {name: f"{self.path}: {name.replace('_', '-')} {text}" for name, text in found.items()}
        return replace(options, **found, origins={**options.origins, **origins})

    @property
    def note(self) -> str:
        """Return the lines about this file that the run prints at its start."""
        over = f"; passed over: {', '.join(self.passed_over)}" if self.passed_over else ""
        variables = ", ".join(sorted(self.environment)) or "no variables"
        return f"accelerate's config {self.path} ({self.kind or 'NO'}): the workers get {variables}{over}"


def accelerate_config(path: Path, origin: str) -> AccelerateConfig:
    """Read accelerate's configuration file. `origin`: the option or variable that names the file, for messages. Raises
    `BadUsage`."""
    try:
        data = yaml_value(read_given(path, MOST_CONFIG_BYTES))
    except OSError as error:
        raise BadUsage(f"{origin} {path}: {error.strerror}", hint=f"ls -l {path}") from None
    except Malformed as error:
        where = f", line {error.line}" if error.line is not None else ""
        raise BadUsage(f"{path}{where}: {error}{error.excerpt}", hint=f"cat -A {path} | head") from None
    if not isinstance(data, dict):
        raise BadUsage(f"{path}: expected a mapping, as `accelerate config` writes it", hint=f"cat {path}")
    kind = _text(data.get("distributed_type")).upper().rpartition(".")[2]
    if kind in ("TPU", "XLA") or _text(data.get("compute_environment")) == "AMAZON_SAGEMAKER":
        raise BadUsage(
            f"{path}: {kind if kind in ('TPU', 'XLA') else 'AMAZON_SAGEMAKER'}: holdfast starts no such training",
            hint=f"accelerate launch --config_file {path} …",
        )
    machines = _number(path, data, "num_machines", 1) or 1
    processes = _number(path, data, "num_processes", 1)
    if processes is not None and processes % machines:
        raise BadUsage(
            f"{path}: num_processes {processes} over num_machines {machines}: expected as many on each machine",
            hint="holdfast run --nproc-per-node N …",
        )
    return AccelerateConfig(
        path=path,
        processes=processes,
        machines=machines,
        rank=_number(path, data, "machine_rank", 0),
        address=_text(data.get("main_process_ip")),
        port=str(_number(path, data, "main_process_port", 1) or ""),
        backend=_text(data.get("rdzv_backend")),
        environment=_environment(data, kind),
        kind=kind,
        passed_over=tuple(str(key) for key, value in data.items() if key not in _READ and value not in (None, {}, "")),
    )


def _environment(data: Mapping[str, Any], kind: str) -> dict[str, str]:
    found = _variables(data, _GENERAL) | _variables(data.get("dynamo_config"), _DYNAMO)
    if "ACCELERATE_DYNAMO_BACKEND" in found:
        found["ACCELERATE_DYNAMO_BACKEND"] = found["ACCELERATE_DYNAMO_BACKEND"].upper()
    if "ACCELERATE_MIXED_PRECISION" in found and data.get("mixed_precision") is False:
        # translate false to `no`, because YAML reads an unquoted `no` as false
        found["ACCELERATE_MIXED_PRECISION"] = "no"
    gpus = data.get("gpu_ids")
    if gpus is not None and gpus != "all":
        found["CUDA_VISIBLE_DEVICES"] = _text(gpus)
    for key, variable in (
        ("use_cpu", "ACCELERATE_USE_CPU"),
        ("debug", "ACCELERATE_DEBUG_MODE"),
        ("downcast_bf16", "ACCELERATE_DOWNCAST_BF16"),
    ):
        if _text(data.get(key)).lower() in ("true", "yes"):
            found[variable] = "true"
    if data.get("enable_cpu_affinity") is True:
        found["ACCELERATE_CPU_AFFINITY"] = "1"
    if kind == "FSDP":
        found["ACCELERATE_USE_FSDP"] = "true"
        found |= _prefixed(data.get("fsdp_config"), "fsdp_", "FSDP_")
    elif kind == "DEEPSPEED":
        section = data.get("deepspeed_config")
        found["ACCELERATE_USE_DEEPSPEED"] = "true"
        found |= _variables(section, _DEEPSPEED)
        if isinstance(section, dict):
            fields = [str(key) for key in section if key not in _DEEPSPEED_LAUNCHER]
            found["ACCELERATE_CONFIG_DS_FIELDS"] = ",".join(fields).lower()
    elif kind == "MEGATRON_LM":
        found["ACCELERATE_USE_MEGATRON_LM"] = "true"
        found |= _prefixed(data.get("megatron_lm_config"), "megatron_lm_", "MEGATRON_LM_")
    return found


def _variables(section: Any, names: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(section, dict):
        return {}
    return {names[key]: _text(value) for key, value in section.items() if key in names and value is not None}


def _prefixed(section: Any, prefix: str, variable: str) -> dict[str, str]:
    """Return the variables for those keys of a section that have this prefix. In the variables' names `variable`
    replaces the prefix."""
    if not isinstance(section, dict):
        return {}
    return {
        _RENAMED.get(key, variable + str(key).removeprefix(prefix).upper()): _text(value)
        for key, value in section.items()
        if value is not None
    }


def _text(value: Any) -> str:
    """Return a value as accelerate writes it into the environment."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)


def _number(path: Path, data: Mapping[str, Any], key: str, least: int) -> int | None:
    """Return a whole number of the file, with or without quotes; None if the value is missing."""
    value = _text(data.get(key))
    if not value or value == "-1":
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 8 and int(value) >= least):
        raise BadUsage(f"{path}: {key}: expected a number from {least}, got {value!r}", hint=f"grep -n {key} {path}")
    return int(value)
