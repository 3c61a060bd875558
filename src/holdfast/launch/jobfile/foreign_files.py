"""Recognises another tool's file that the user passes as a job file, and names the command to type instead. This module
does no I/O."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy

#: Keys at the top level that only a job file of holdfast or OpenPAI has.
_OWN = frozenset({"roles", "taskRoles", "protocolVersion", "jobName"})
_KEY = Lazy(r"(?m)^(?:\s{0,4}\{?\s*\"([\w.-]+)\"|([A-Za-z_][\w.-]*))\s*:")
_VALUE = Lazy(r"(?m)^(apiVersion|kind):\s*[\"']?([\w./-]+)")
_BATCH = Lazy(r"(?m)^#(SBATCH|PBS|BSUB|\$) ")
_TORCHX = Lazy(r"(?m)^\[(?:cli:|component:|dist\.|[a-z_]+\]\s*$)")
#: Kinds of Kubernetes objects that often accompany the object that runs the job.
_BESIDE = frozenset({"Service", "Namespace", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"})
_INSTEAD = "write `holdfast run` in it in the place of torchrun"


class _Kind(NamedTuple):
    """A kind of file. `keys`: groups of keys. A file of this kind has one key of each group at the top level."""

    name: str
    keys: tuple[frozenset[str], ...]
    use: str
    hint: str


def _any(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KINDS = (
    _Kind(
        "an accelerate config",
        (_any("distributed_type compute_environment"), _any("num_processes num_machines mixed_precision")),
        "`holdfast run` reads it beside a script",
        "holdfast run --accelerate-config {path} train.py",
    ),
    _Kind(
        "a DeepSpeed config",
        (_any("train_batch_size train_micro_batch_size_per_gpu zero_optimization gradient_accumulation_steps"),),
        "the script reads it",
        "holdfast run train.py --deepspeed {path}",
    ),
    _Kind(
        "a SkyPilot task",
        (_any("run"), _any("resources num_nodes setup file_mounts workdir envs")),
        f"{_INSTEAD}: --nnodes $SKYPILOT_NUM_NODES --node-rank $SKYPILOT_NODE_RANK --master-addr "
        "$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)",
        "sky launch {path}",
    ),
    _Kind(
        "a dstack configuration",
        (_any("type"), _any("commands"), _any("resources nodes python image")),
        f"{_INSTEAD}: --nnodes $DSTACK_NODES_NUM --node-rank $DSTACK_NODE_RANK --master-addr $DSTACK_MASTER_NODE_IP",
        "dstack apply -f {path}",
    ),
    _Kind("a Determined experiment", (_any("entrypoint"), _any("searcher")), _INSTEAD, "det e create {path} ."),
    _Kind("a Docker Compose file", (_any("services"),), _INSTEAD, "docker compose -f {path} up"),
    _Kind(
        "a Ray cluster's configuration", (_any("cluster_name"), _any("provider available_node_types")), _INSTEAD,
        "ray up {path}",
    ),
)  # fmt: skip
_BATCHES = {
    "SBATCH": ("Slurm", "sbatch {path}"),
    "PBS": ("PBS", "qsub {path}"),
    "BSUB": ("LSF", "bsub < {path}"),
    "$": ("Grid Engine", "qsub {path}"),
}


def refuse_foreign(path: Path, data: bytes) -> None:
    """If another tool reads the file, raise `BadUsage`. The message names the kind of file, and how to use it."""
    text = data.decode(errors="replace").lstrip("\ufeff")
    if text.startswith("#!"):
        batch = _BATCH.search(text)
        name, hint = _BATCHES[batch[1]] if batch else ("", "holdfast run --no-python bash {path}")
        kind = f"a batch script of {name}" if batch else "a shell script"
        raise _refused(path, kind, _INSTEAD if batch else "no job file describes it", hint)
    keys = {one or other for one, other in (found.groups() for found in _KEY.finditer(text))}
    if keys & _OWN:
        return
    values = [found.groups() for found in _VALUE.finditer(text)]
    kinds = [value for key, value in values if key == "kind"]
    if kinds and "apiVersion" in keys:
        kind = next((name for name in kinds if name not in _BESIDE), kinds[0])
        raise _refused(path, f"a Kubernetes {kind}", _INSTEAD, "kubectl apply -f {path}")
    if not keys and _TORCHX.search(text):
        raise _refused(
            path, "a torchx config", "its component runs torchrun: a script is typed here", "holdfast run train.py"
        )
    for known in _KINDS:
        if all(keys & group for group in known.keys):
            raise _refused(path, known.name, known.use, known.hint)


def _refused(path: Path, kind: str, use: str, hint: str) -> BadUsage:
    return BadUsage(f"{path} is {kind}, and no job file of holdfast: {use}", hint=hint.format(path=path))
