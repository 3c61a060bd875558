"""`holdfast submit --platform kubernetes` without a cluster: what is judged before any server is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.errors import BadUsage
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble
from holdfast.platforms.kubernetes.objects.kubernetes_options import (
    OWN,
    KubernetesOptions,
    KubernetesValue,
    kubernetes_options,
)
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.submit.create_refusals import create_refusal, in_words
from holdfast.untrusted import json_as
from places import DOCS
from typed_here import typed

KUBERNETES_PAGE = DOCS / "how-to" / "kubernetes.md"
KUBERNETES_JOB = """
name: Train_2
secrets: {token: hunter2}
roles:
  worker: {count: 4, command: [train], image: example/train:1, resources: {memory: 1GiB, cpus: 2}}
kubernetes:
  namespace: research
  nodes: 2
  holdfast_image: example/holdfast:1
  tolerations: [gpu:NoSchedule]
  template: {spec: {containers: [{name: task, securityContext: {runAsUser: 1000}}]}}
"""


def _kubernetes_wanted(**said: Any) -> KubernetesOptions:
    return kubernetes_options(
        [{key: KubernetesValue(value=value, origin=f"`{key}`") for key, value in said.items()}], ["worker", "ps"]
    )


def _submit_pods(
    tmp_path: Path, *words: str, text: str = KUBERNETES_JOB, **env: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.yaml").write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "home"), **env}
    return typed("submit", *words, "job.yaml", cwd=tmp_path, env=env)


def _objects(text: str) -> dict[str, dict[str, Any]]:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text) if each}


@pytest.mark.extras
def test_the_objects_of_a_dry_run_are_valid_by_the_strict_schema(tmp_path: Path) -> None:
    import kubernetes_validate

    for each in _objects(_submit_pods(tmp_path, "--dry-run", KUBECONFIG="/nowhere").stdout).values():
        kubernetes_validate.validate(each, "1.37", strict=True)


def test_a_dry_run_prints_the_objects_and_asks_no_server(tmp_path: Path) -> None:
    done = _submit_pods(tmp_path, "--dry-run", KUBECONFIG="/nowhere")
    assert done.returncode == 0, done.stderr
    found = _objects(done.stdout)
    assert list(found) == [
        *("ServiceAccount/train-2", "Role/train-2", "RoleBinding/train-2", "Secret/train-2-key"),
        *("ConfigMap/train-2-job", "ConfigMap/train-2-state", "Service/train-2", "Job/train-2"),
    ]
    assert all(each["metadata"]["namespace"] == "research" for each in found.values())
    assert "Train_2 is called train-2" in done.stderr and "nothing was submitted" in done.stderr
    assert not (tmp_path / "home").exists() or not list((tmp_path / "home").iterdir())


def test_the_plan_of_the_pods_lies_beside_the_job_file(tmp_path: Path) -> None:
    found = _objects(_submit_pods(tmp_path, "--dry-run").stdout)["ConfigMap/train-2-job"]["data"]
    plan = json_as(found["plan.json"], PodPlan)
    assert (plan.job, plan.nodes, plan.shapes[0].resources) == ("Train_2", 2, {"cpu": "4", "memory": "2304Mi"})
    assert plan.tolerations == ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},)
    assert yaml.safe_load(found["job.yaml"])["roles"]["worker"]["count"] == 4


def test_the_values_of_secrets_are_in_no_configmap_and_on_no_terminal(tmp_path: Path) -> None:
    done = _submit_pods(tmp_path, "--dry-run")
    assert "hunter2" not in done.stdout + done.stderr
    owner = _objects(done.stdout)["Job/train-2"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "HOLDFAST_SECRETS", "value": "/etc/holdfast-key/secrets.json"} in owner["env"]


def test_options_win_over_the_section_and_the_section_over_settings(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("kubernetes: {namespace: other, priority_class: high, node_selector: {a: b}}\n")
    found = _objects(_submit_pods(tmp_path, "--dry-run", "-n", "mine", "--nodes", "4").stdout)
    plan = json_as(found["ConfigMap/train-2-job"]["data"]["plan.json"], PodPlan)
    assert (plan.namespace, plan.nodes, plan.priority_class) == ("mine", 4, "high")
    assert plan.node_selector == {"a": "b"}


def test_config_shows_the_section(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("kubernetes: {namespace: other, node_selector: {a: b}}\n")
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    found = json.loads(typed("config", "--json", cwd=tmp_path, env=env).stdout)["sections"]
    assert {each["name"]: each["value"] for each in found} == {
        "kubernetes.namespace": "other",
        "kubernetes.node_selector": {"a": "b"},
    }


def test_what_runs_behind_the_double_dash_is_the_owners(tmp_path: Path) -> None:
    text = KUBERNETES_JOB
    (tmp_path / "job.yaml").write_text(text)
    words = [sys.executable, "-m", "holdfast", "submit", "--dry-run", "--name", "x", "job.yaml", "--", "--warm"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    owner = _objects(done.stdout)["Job/x"]["spec"]["template"]["spec"]["containers"][0]
    assert owner["command"][2:] == ["--job", "/etc/holdfast/job.yaml", "--nnodes", "2", "--name", "x", "--warm"]


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (
            (),
            KUBERNETES_JOB.replace("nodes:", "nodez:"),
            "`kubernetes.nodez`: there is no such key; did you mean `nodes`?",
        ),
        (
            (),
            KUBERNETES_JOB.replace("nodes: 2", "nodes: 3"),
            "`kubernetes.nodes`: 4 workers with 2 in each pod fill 2 pods",
        ),
        (("--nodes", "9"), KUBERNETES_JOB, "--nodes: 4 workers cannot use 9 pods"),
        (
            ("--partition", "gpu"),
            KUBERNETES_JOB,
            "--partition: it is an option for slurm, and this job goes to kubernetes",
        ),
        (("--platform", "slurm", "-n", "x"), KUBERNETES_JOB, "--namespace: it is an option for kubernetes"),
        (("--platform", "kubernetse"), KUBERNETES_JOB, "did you mean `kubernetes`?"),
        ((), KUBERNETES_JOB.replace("holdfast_image", "image"), "no image with holdfast is named"),
        ((), KUBERNETES_JOB.replace("image: example/train:1, ", ""), "role worker has no image"),
        ((), KUBERNETES_JOB.replace("namespace: research", "namespace: Research"), "expected a name of small letters"),
        ((), KUBERNETES_JOB + "slurm: {gpus: 1}\n", "has sections of slurm and kubernetes: expected --platform"),
        (
            (),
            KUBERNETES_JOB.replace("template:", "template: {spec: {restartPolicy: Always}}\n  owner_template:"),
            "restartPolicy",
        ),
        (("-n", "x"), "name: x\nroles: {w: {count: 1, command: [a]}}\n", "--namespace: it is an option for kubernetes"),
    ],
)
def test_a_mistake_is_one_message(tmp_path: Path, words: tuple[str, ...], text: str, said: str) -> None:
    done = _submit_pods(tmp_path, "--dry-run", *words, text=text)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
    assert "\n  try: " in done.stderr


@pytest.mark.extras
def test_without_a_cluster_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    done = _submit_pods(tmp_path)
    assert done.returncode == 1 and "no cluster is configured" in done.stderr and "KUBECONFIG" in done.stderr


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"memory": "64"}, "write 64Gi"),
        ({"nodes": 62}, "'1:2'"),
        ({"nodes": "3:2"}, "expected a number of pods, or MIN:MAX"),
        ({"gpus": True}, "expected a number of devices"),
        ({"gpu_resource": "gpu"}, "with a domain"),
        ({"gang": "slurm"}, "expected one of auto"),
        ({"tolerations": "a b"}, "expected a list"),
        ({"roles": {"chief": {}}}, "there is no such role; the job has worker, ps"),
        ({"roles": {"ps": {"image": "x"}}}, "`ps.image`: expected `per_pod` or `template`"),
        ({"roles": {"ps": {"template": {"spec": {"nodeName": "k1"}}}}}, "`ps.template`: `spec.nodeName`"),
        ({"mem": "1Gi", "memory": "2Gi"}, "says the same"),
        ({"partition": "gpu"}, "there is no such key"),
        ({"keep": "2y"}, "expected seconds, or a time such as 5m, 2h or 1d12h"),
    ],
)
def test_a_value_that_cannot_be_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadUsage) as caught:
        _kubernetes_wanted(**said)
    assert words in str(caught.value)


def test_values_may_be_texts_as_options_have_them() -> None:
    found = _kubernetes_wanted(
        nodes="2:4",
        gpus="8",
        tolerations="a=b:NoExecute,c",
        node_selector="pool=a,disk=ssd",
        gang=False,
        pull_secrets="r",
        keep="2d",
    )
    assert found.values["keep"] == 172_800
    assert found.values["nodes"] == (2, 4) and found.least == 2 and found.asked.gpus == 8
    assert found.values["tolerations"][0] == {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}
    assert found.values["node_selector"] == {"pool": "a", "disk": "ssd"} and found.values["gang"] == "none"


def test_pods_that_are_not_alike_have_no_spares(tmp_path: Path) -> None:
    text = KUBERNETES_JOB.replace("  nodes: 2\n", "  spares: 1\n").replace(
        "roles:\n", "roles:\n  ps: {count: 1, command: [x], image: example/ps:1}\n"
    )
    done = _submit_pods(tmp_path, "--dry-run", text=text)
    assert done.returncode == 2 and "`kubernetes.spares`: the pods of this job are not alike" in done.stderr


@pytest.mark.parametrize(
    ("status", "message", "key", "words", "hint"),
    [
        (403, 'pods "train-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
         "nodes", "exceeded quota: q", "kubectl describe quota -n ns"),
        (403, 'jobs.batch is forbidden: User "eve" cannot create resource "jobs" in API group "batch"', "namespace",
         "you may not create jobs", "kubectl auth can-i create jobs.batch -n ns"),
        (403, 'roles "x" is forbidden: user "eve" is attempting to grant RBAC permissions not currently held:',
         "owner_service_account", "may not have more rights", "can-i --list"),
        (404, 'namespaces "nope" not found', "namespace", "there is no namespace nope", "create namespace nope"),
        (403, 'pods "x" is forbidden: no PriorityClass with name high was found', "priority_class",
         "there is no priority class high", "get priorityclasses"),
        (400, 'admission webhook "limits.corp" denied the request: no more than 8 GPUs', "",
         "the cluster's own rule limits.corp refuses it: no more than 8 GPUs", "webhook"),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "template",
         "Pod Security", "show-labels"),
        (422, 'Pod "x" is invalid: spec.tolerations[0].operator: Invalid value', "tolerations", "does not take the Pod",
         "--dry-run=server"),
        (401, "Unauthorized", "", "does not know who asks", "auth"),
        (503, "etcd is away", "", "answers 503", "readyz"),
    ],
)  # fmt: skip
def test_what_a_server_refuses_is_told_in_its_words_and_with_what_to_type(
    status: int, message: str, key: str, words: str, hint: str
) -> None:
    from holdfast.platforms.kubernetes.client.api_server import meant

    trouble, reason, said = meant(status, {"kind": "Status", "message": message})
    found = create_refusal(
        Answered(number=0, status=status, trouble=trouble, reason=reason, said=said), kind="Pod", namespace="ns"
    )
    assert found.key == key and words in found.said and hint in found.hint
    assert in_words(found, {key: "job file x: `k`"} if key else {}).startswith(
        "job file x: `k`: the job was not" if key else "the job was not"
    )


def test_without_the_client_library_the_message_says_what_to_install() -> None:
    found = create_refusal(
        Answered(number=0, trouble=ApiTrouble.MISSING, said="lightkube is not installed"), kind="Job", namespace="ns"
    )
    assert found.ours and "lightkube" in found.said


def test_the_page_has_the_table_of_keys() -> None:
    rows = ["| key | what it says |", "|---|---|"]
    for own in OWN:
        others = "".join(f", `{name}`" for name in own.also)
        rows.append(f"| `{own.key}`{others} | {own.what} |")
    begin, end = "<!-- keys: made by tests/platforms/kubernetes/test_kubernetes_submit.py -->\n", "<!-- end of keys -->"
    page = KUBERNETES_PAGE.read_text(encoding="utf-8")
    made = f"{page.partition(begin)[0]}{begin}" + "\n".join(rows) + f"\n{end}{page.partition(end)[2]}"
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        KUBERNETES_PAGE.write_text(made, encoding="utf-8")
    assert page == made, (
        "make it anew: HOLDFAST_WRITE_DOCS=1 pytest tests/platforms/kubernetes/test_kubernetes_submit.py"
    )


@pytest.mark.parametrize("platform", ["kubernetes", "slurm"])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("[sh, -c, 'echo ok; echo $PAI_JOB_NAM']", "line 1, column 15: there is no `$PAI_JOB_NAM`; did you mean"),
        ("[train, '--lr', '<% $parameters.rl %>']", "no name in `parameters` 'rl'"),
        ("[sh, -c, 'echo <% $secrets.tokn %>']", "tokn"),
    ],
)
def test_a_name_that_no_worker_will_have_is_refused_with_its_place_before_anything_is_made(
    tmp_path: Path, platform: str, command: str, said: str
) -> None:
    text = f"""
name: x
parameters: {{lr: 1}}
secrets: {{token: hunter2}}
roles: {{worker: {{count: 1, command: {command}}}}}
kubernetes: {{image: a, holdfast_image: b}}
"""
    done = _submit_pods(tmp_path, "--platform", platform, text=text, KUBECONFIG="/nowhere")
    assert done.returncode == 2
    assert "job.yaml: `roles.worker.command`" in done.stderr and said in done.stderr
    assert "hunter2" not in done.stderr


def test_names_that_workers_will_have_are_left_to_them(tmp_path: Path) -> None:
    command = "echo $PAI_JOB_NAME $HOLDFAST_POD <% $parameters.lr %> <% $secrets.token %> $PAI_HOST_IP_worker_0"
    text = f"""
name: x
parameters: {{lr: 1}}
secrets: {{token: hunter2}}
roles: {{worker: {{count: 1, command: [sh, -c, '{command}']}}}}
kubernetes: {{image: a, holdfast_image: b}}
"""
    done = _submit_pods(tmp_path, "--platform", "kubernetes", "--dry-run", text=text)
    assert done.returncode == 0, done.stderr
