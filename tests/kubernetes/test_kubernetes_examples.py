"""Each example of examples/kubernetes/, submitted to a real cluster as a user would: prepared, run, read, deleted.

No registry can be reached from there: the holdfast image is this machine's own Python and source, mounted into an empty
image, and the workers' image is busybox under a name of the cluster's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from containers import exchange
from images import busybox
from pods_at_work import shown
from real_kubernetes import Shared

from places import ROOT

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "kubernetes"
TREE = "/opt/holdfast/tree"
IMAGES = ("docker.io/library/busybox:1.36", "docker.io/library/busybox:1.37")


def of_this_machine(home: Path) -> None:
    """Settings that make an empty image the holdfast image."""
    home.mkdir(mode=0o700)
    mounts, volumes = shown()
    tree = (exchange() / "holdfast" / "now").resolve()
    mounts.append({"name": "tree", "mountPath": TREE, "readOnly": True})
    volumes.append({"name": "tree", "hostPath": {"path": str(tree)}})
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    # The Python may have another tree installed, which is not in the pod.
    env = {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
    own: dict[str, Any] = {
        "volumeMounts": mounts,
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    said = {
        "holdfast_image": "localhost/host:1",
        "pull_policy": "Never",
        "template": {"spec": {"volumes": volumes, "initContainers": [{"name": "prepare", **own}]}},
        "owner_template": {"spec": {"volumes": volumes, "containers": [{"name": "owner", **own}]}},
    }
    (home / "config.yaml").write_text(json.dumps({"kubernetes": said}))


def submitted(cluster: Shared, home: Path, file: Path) -> tuple[str, str]:
    """The namespace, and what the command said when the job was over."""
    of_this_machine(home)
    cluster.load(*(busybox(name) for name in IMAGES))
    space = cluster.namespace()
    done = cluster.holdfast(
        *("submit", "--platform", "kubernetes", "-n", space, "--wait", str(file)), env={"HOLDFAST_HOME": str(home)}
    )
    status = done.wait()
    log = cluster.holdfast("logs", file.stem, "--platform", "kubernetes", "-n", space)
    log.wait()
    pods = cluster.start("kubectl", "-n", space, "describe", "pods")
    pods.wait()
    assert status == 0, f"{done.out}{done.err}{log.out}{log.err}{pods.out[-6000:]}"
    return space, done.out + done.err


def test_hello_fails_once_and_succeeds_in_the_same_pods(kubernetes: Shared, tmp_path: Path) -> None:
    space, said = submitted(kubernetes, tmp_path / "home", EXAMPLES / "hello.yaml")
    assert "2 pods of 2 workers" in said and "job hello has succeeded" in said
    shown = kubernetes.holdfast("show", "hello", "--platform", "kubernetes", "-n", space)
    assert shown.wait() == 0
    assert "SUCCEEDED" in shown.out and "attempts" in shown.out
    [owner] = [
        pod for pod in kubernetes.items("pods", space) if pod["metadata"]["labels"]["holdfast.io/part"] == "owner"
    ]
    log = kubernetes.logs(owner["metadata"]["name"], space)
    told = {event["reason"]: event["message"] for event in kubernetes.items("events", space, "holdfast.io/job=hello")}
    assert told["Unexplained"].startswith("attempt 1: Unexplained: rank 2 on k")
    assert "restart: restart 1 of 3 now" in told["Unexplained"] and told["Succeeded"].startswith("succeeded: ")
    assert "restart 1 of 3" in log and "hello-1-1" not in log
    kubernetes.kubectl("-n", space, "delete", "job", "hello")
    made = "jobs,pods,secrets,configmaps,services,serviceaccounts,roles,rolebindings"
    kubernetes.wait(lambda: kubernetes.items(made, space, "holdfast.io/job=hello") == [], "nothing is left")


def test_roles_with_their_own_images_have_their_own_pods(kubernetes: Shared, tmp_path: Path) -> None:
    _, said = submitted(kubernetes, tmp_path / "home", EXAMPLES / "roles.yaml")
    assert "1 pod of 1 worker (server), 2 pods of 1 worker (worker)" in said
    assert "job roles has succeeded" in said
