"""Files of other tools in the place of a job file are called by their kind, with the line to type."""
# ruff: noqa: E501 - a case stays on its line

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.errors import BadUsage
from holdfast.launch.jobfile.foreign_files import refuse_foreign

JOBSET = """\
# two documents
apiVersion: v1
kind: Service
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: net}
"""


@pytest.mark.parametrize(
    ("name", "text", "kind", "hint"),
    [
        ("a.yaml", JOBSET.partition("---\n")[2], "a Kubernetes JobSet", "kubectl apply -f a.yaml"),
        ("a.yaml", JOBSET, "a Kubernetes JobSet", "kubectl apply -f a.yaml"),
        ("t.yaml", 'kind: "TrainJob"\napiVersion: trainer.kubeflow.org/v1alpha1\n', "a Kubernetes TrainJob", "kubectl apply"),
        ("p.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {{ broken\n", "a Kubernetes PyTorchJob", "kubectl"),
        ("x.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n", "an accelerate config",
         "holdfast run --accelerate-config x.yaml train.py"),
        ("x.json", '{"distributed_type": "NO",\n "num_processes": 1}', "an accelerate config", "--accelerate-config x.json"),
        ("ds.json", '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 3}\n}', "a DeepSpeed config", "train.py"),
        ("s.yaml", "resources: {accelerators: 'L4:2'}\nrun: |\n  torchrun train.py\n", "a SkyPilot task", "sky launch s.yaml"),
        ("d.yml", "type: task\nnodes: 2\ncommands:\n  - torchrun t.py\n", "a dstack configuration", "dstack apply -f d.yml"),
        ("e.yaml", "name: x\nentrypoint: torchrun t.py\nsearcher: {name: single}\n", "a Determined experiment", "det "),
        ("compose.yaml", "services:\n  train:\n    image: i\n", "a Docker Compose file", "docker compose -f compose.yaml up"),
        (".torchxconfig", "[cli:run]\ncomponent = dist.ddp\n", "a torchx config", "holdfast run train.py"),
        ("t.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun t.py\n", "a batch script of Slurm", "sbatch t.sbatch"),
        ("t.pbs", "#!/bin/sh\n#PBS -l select=2\n", "a batch script of PBS", "qsub t.pbs"),
        ("t.lsf", "#!/bin/sh\n#BSUB -n 2\n", "a batch script of LSF", "bsub < t.lsf"),
        ("run.sh", "#!/usr/bin/env bash\ntorchrun t.py\n", "a shell script", "holdfast run --no-python bash run.sh"),
    ],
)  # fmt: skip
def test_a_file_of_another_tool_is_called_by_its_kind(name: str, text: str, kind: str, hint: str) -> None:
    with pytest.raises(BadUsage) as refused:
        refuse_foreign(Path(name), text.encode())
    assert f"{name} is {kind}, and no job file of holdfast" in refused.value.message
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "name: x\nroles: {worker: {count: 2, command: [python, t.py]}}\nslurm: {gpus: 8}\n",
        "protocolVersion: 2\nname: x\ntype: job\nextras: {}\ntaskRoles: {w: {commands: [a]}}\n",
        '{"jobName": "x", "image": "i", "taskRoles": []}',
        "name: x\nrole: {}\n",
        "",
    ],
)
def test_a_job_file_with_or_without_mistakes_is_not_foreign(text: str) -> None:
    refuse_foreign(Path("job.yaml"), text.encode())


@pytest.mark.real
@pytest.mark.parametrize(
    "verb", [["run", "--job"], ["submit", "--dry-run"], ["submit", "--platform", "slurm"], ["run"]]
)
def test_every_verb_calls_it_so(holdfast: Holdfast, verb: list[str]) -> None:
    for name, text in (("net.yaml", JOBSET), ("t.sbatch", "#!/bin/bash\n#SBATCH -N 2\nsrun torchrun t.py\n")):
        holdfast.script(text, name)
        ran = holdfast(*verb, name)
        assert ran.status == 2 and f"holdfast: {name} is a" in ran.err and "try: " in ran.err
