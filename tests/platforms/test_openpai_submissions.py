"""OpenPAI's job files go to Slurm as they are, and `submit` says what it passes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from typed_here import Cli, cli, home

__all__ = ["cli", "home"]  # fixtures

HEAD = """\
protocolVersion: 2
name: cifar_1
type: job
version: 1.0
contributor: somebody
jobRetryCount: 0
parameters: {epochs: 2, path: /tmp/model}
prerequisites:
  - {protocolVersion: 2, name: image, type: dockerimage, contributor: x, uri: 'example/standard:py3'}
defaults: {virtualCluster: default}
"""
DISTRIBUTED = """\
taskRoles:
  worker:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: -1}
    taskRetryCount: 0
    dockerImage: image
    resourcePerInstance: {gpu: 2, cpu: 8, memoryMB: 16384, ports: {SynPort: 1}}
    commands:
      - 'git clone https://example.org/apex'
      - cd apex
      - >-
        python train.py --epochs <% $parameters.epochs %> --at $PAI_HOST_IP_worker_0:$PAI_PORT_LIST_worker_0_SynPort
extras:
  com.microsoft.pai.runtimeplugin:
    - {plugin: ssh, parameters: {jobssh: true, userssh: {}}}
  hivedScheduler: {taskRoles: {worker: {skuNum: 1, skuType: null}}}
"""
TWO_ROLES = """\
taskRoles:
  master:
    instances: 1
    completion: {minSucceededInstances: 1}
    dockerImage: image
    extraContainerOptions: {shmMB: 4096}
    resourcePerInstance: {cpu: 16, memoryMB: 16384, gpu: 4}
    commands:
      - sleep 10
      - "horovodrun -np 8 -H master-0:4,worker-0:4 python bench.py --batch-size 64"
  worker:
    instances: 1
    dockerImage: image
    resourcePerInstance: {cpu: 16, memoryMB: 16384, gpu: 4}
    commands: [sleep infinity]
extras:
  com.microsoft.pai.runtimeplugin:
    - {plugin: ssh, parameters: {jobssh: true}}
"""
SERVING = """\
taskRoles:
  server:
    instances: 1
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 0, gpu: 0, ports: {model_server: 0}}
    commands:
      - "while :; do serve --port=$PAI_CONTAINER_HOST_model_server_PORT_LIST --path=<% $parameters.path %>; done"
"""


def submitted(cli: Cli, tmp_path: Path, text: str, *words: str) -> tuple[str, str]:
    """Return the script that would be submitted, and what is said."""
    (tmp_path / "job.yaml").write_text(HEAD + text)
    status, out, err = cli("submit", "--platform", "slurm", "--dry-run", *words, "job.yaml")
    assert status == 0, err
    return out, err


@pytest.mark.parametrize("text", [DISTRIBUTED, TWO_ROLES, SERVING])
def test_a_file_runs_in_its_image_or_without(cli: Cli, tmp_path: Path, text: str) -> None:
    script, said = submitted(cli, tmp_path, text)
    assert script.splitlines()[-1].endswith("--image-runtime auto")
    assert (
        "image example/standard:py3: apptainer, singularity or enroot (pyxis) on the nodes runs it; --no-image" in said
    )
    script, said = submitted(cli, tmp_path, text, "--no-image")
    assert script.splitlines()[-1].endswith("--image-runtime none") and "left out: workers run under the nodes'" in said


def test_what_is_passed_over_is_said(cli: Cli, tmp_path: Path) -> None:
    said = submitted(cli, tmp_path, DISTRIBUTED)[1]
    assert "holdfast: job file job.yaml: extras: hivedScheduler: for other parts of OpenPAI, passed over\n" in said
    assert "extras.hivedScheduler: its priorities and SKUs choose no machines here: `qos` and `constraint`" in said
    assert "taskRoles.master.extraContainerOptions.shmMB: " in submitted(cli, tmp_path, TWO_ROLES)[1]
    assert "hivedScheduler" not in submitted(cli, tmp_path, SERVING)[1]


def test_what_the_workers_need_and_slurm_is_not_asked_for_is_said(cli: Cli, tmp_path: Path) -> None:
    needs = "its workers need 4 GPUs (--gpus), 16 cores (--cpus), 32 GiB of memory (--memory) in all, and Slurm"
    assert needs in submitted(cli, tmp_path, DISTRIBUTED)[1]
    assert "need 16 cores (--cpus) in all" in submitted(cli, tmp_path, DISTRIBUTED, "--gpus", "2", "--mem", "16G")[1]
    for section in ("{exclusive: true}", "{gres: 'gpu:2', cpus: 8, memory: 0}"):
        assert "its workers need" not in submitted(cli, tmp_path, f"slurm: {section}\n{DISTRIBUTED}")[1]
    assert "its workers need 1 core (--cpus) in all" in submitted(cli, tmp_path, SERVING)[1]


def test_kubernetes_says_what_it_passes_over_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(HEAD + DISTRIBUTED)
    words = ("submit", "--platform", "kubernetes", "--dry-run", "job.yaml")
    status, _, err = cli(*words, HOLDFAST_IMAGE="example/holdfast:1")
    assert status == 0 and "extras: hivedScheduler: for other parts of OpenPAI, passed over\n" in err


def test_kubernetes_names_the_devices_of_an_image_of_another_vendor(cli: Cli, tmp_path: Path) -> None:
    text = HEAD.replace("example/standard:py3", "rocm/pytorch:rocm2.10") + TWO_ROLES
    (tmp_path / "job.yaml").write_text(text)
    words = ("submit", "--platform", "kubernetes", "--dry-run", "job.yaml")
    told = "image rocm/pytorch:rocm2.10: its name is of other devices than nvidia.com/gpu, which the pods ask for: "
    status, _, err = cli(*words, HOLDFAST_IMAGE="example/holdfast:1")
    assert status == 0 and f"{told}`gpu_resource: amd.com/gpu` asks for those\n" in err
    (tmp_path / "job.yaml").write_text(text + "kubernetes: {gpu_resource: amd.com/gpu}\n")
    status, _, err = cli(*words, HOLDFAST_IMAGE="example/holdfast:1")
    assert status == 0 and "its name is of other devices" not in err


@pytest.mark.real
def test_a_label_without_ports_has_an_empty_variable(cli: Cli, tmp_path: Path) -> None:
    text = SERVING.replace("while :; do serve --port=", "echo port=").replace("; done", "")
    (tmp_path / "job.yaml").write_text(HEAD + text)
    status, out, err = cli("run", "--no-checks", "--job", "job.yaml")
    assert status == 0, err
    assert "port= --path=/tmp/model" in out
