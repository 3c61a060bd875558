"""A job on the real cluster, with this machine's Python and this source mounted into its pods."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from real_kubernetes import TOLERATES, Kubernetes, Object, Shared

from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.job_manifests import (
    OWNER_CONTAINER,
    OwnerPodSpec,
    manifests,
    over,
    owned,
)
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from places import ROOT

PYTHON = sys.executable
_SHOWN = ("/usr/bin", "/usr/lib", "/lib", "/lib64", "/bin", sys.prefix, sys.base_prefix, str(ROOT))
OUT = "/out"
_ELSEWHERE = {
    "labelSelector": {"matchLabels": {object_names.PART: object_names.AGENT}},
    "topologyKey": "kubernetes.io/hostname",
}
#: No two agents of a namespace on one node.
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_ELSEWHERE]}}

#: Until the test has written `end`; who it is and where stands in a file for each attempt, rank and pod.
TRAINER = f"""
import os, pathlib, signal, sys, time
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
out = pathlib.Path("{OUT}")
(out / f"{{attempt}}-{{rank}}-{{os.environ['HOLDFAST_POD']}}").write_text(str(os.getpid()))
print(f"rank {{rank}} of {{os.environ['WORLD_SIZE']}} in attempt {{attempt}}", flush=True)
while not (out / "end").exists():
    time.sleep(0.05)
"""


class Job:
    """One job, and what the test sees of it."""

    def __init__(
        self,
        cluster: Kubernetes,
        out: Path,
        *,
        name: str = "train",
        nodes: int = 2,
        least: int = 0,
        workers: int = 1,
        spares: int = 0,
        trainer: str = TRAINER,
        command: tuple[str, ...] = (),
        task: Object | None = None,
        prepare: Object | None = None,
        added: Object | None = None,
        beside_owner: Object | None = None,
        words: tuple[str, ...] = (),
        retries: int = 6,
        restarts: int = 3,
        on: Object | None = None,
        owner_on: str = "",
        ports: dict[str, int] | None = None,
        may_taint: bool = False,
    ) -> None:
        """`least`: with so many pods the job goes on.
        `task`, `prepare`: merged into the containers of an agent's pod; `on`: into the spec of an agent's pod.
        `added`, `beside_owner`: a further container of an agent's pod or the owner's, as webhooks inject them.
        `owner_on`: the node of the owner's pod."""
        self.cluster, self.name, self.out = cluster, name, out
        out.mkdir(mode=0o777, exist_ok=True)
        out.chmod(0o777)
        self.space = cluster.namespace()
        self._nodes = nodes
        shape = PodShape(roles=("worker",), pods=nodes, workers=workers, image="localhost/host:1")
        mounts, volumes = _shown(out)
        # The Python may have another tree installed, which is not in the pod.
        this_tree = {"volumeMounts": mounts, "env": [{"name": "PYTHONPATH", "value": str(ROOT / "src")}]}
        containers: list[Object] = [
            {"name": object_names.TASK, "command": [PYTHON, "-m", "holdfast", "agent"], **this_tree}
        ]
        copies = ["cp", f"{object_names.CONFIG_DIR}/{object_names.JOB_FILE}", f"{object_names.EXCHANGE}/"]
        prepares = [{"name": object_names.PREPARE, "image": "localhost/busybox:1", "command": copies, "env": None}]
        containers[0] |= task or {}
        prepares[0] |= prepare or {}
        containers += [added] if added else []
        spec = {"containers": containers, "initContainers": prepares, "volumes": volumes, **(on or {})}
        plan = PodPlan(
            name=name,
            namespace=self.space,
            job=name,
            shapes=(replace(shape, template={"spec": spec}),),
            spares=spares,
            least=least,
            holdfast_image="localhost/host:1",
            pull_policy="Never",
            grace_s=5.0,
            pod_security="baseline",  # the images have no user
            may_taint=may_taint,
        )
        of_worker = list(command) or [PYTHON, "-c", trainer]
        job = {
            "name": name,
            "roles": {"worker": {"count": nodes * workers, "command": of_worker, "ports": ports or {}}},
            "restarts": {"max_restarts": restarts},
        }
        words = ("--no-checks", "--nproc-per-node", str(workers), *words)
        runs = [PYTHON, "-m", "holdfast", "run", "--job", f"{object_names.CONFIG_DIR}/{object_names.JOB_FILE}"]
        container = {
            "name": OWNER_CONTAINER,
            "command": [*runs, *over(plan), *words],
            **this_tree,
        }
        here = {"nodeSelector": {"kubernetes.io/hostname": owner_on}} if owner_on else {}
        owner = OwnerPodSpec(
            plan=plan,
            job_file=json.dumps(job),
            key="ab" * 32,
            retries=retries,
            template={
                "spec": {
                    "containers": [container, *([beside_owner] if beside_owner else ())],
                    "volumes": volumes,
                    **here,
                }
            },
            pod_failure_policy=False,
        )
        self.objects = manifests(owner)

    def submit(self) -> None:
        *others, job = self.objects
        for each in (*others, job):
            each["metadata"]["namespace"] = self.space
        self.cluster.apply(*others, job)
        uid = self.cluster.get("job", self.name, self.space)["metadata"]["uid"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": uid}
        self.cluster.apply(*(owned(each, reference) for each in others))

    # ------------------------------------------------------------------------------------------------- what it sees

    def owners(self) -> list[Object]:
        pods = self.cluster.items("pods", self.space, object_names.selector(self.name, object_names.OWNER))
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def agents(self) -> dict[str, Object]:
        pods = self.cluster.items("pods", self.space, object_names.selector(self.name, object_names.AGENT))
        return {pod["metadata"]["name"]: pod for pod in pods}

    def said(self) -> str:
        """What the owners have printed."""
        return "".join(self.cluster.logs(pod["metadata"]["name"], self.space) for pod in self.owners())

    def at(self, attempt: int) -> dict[int, str]:
        """The ranks that have begun in this attempt, with their pods."""
        found = [path.name.split("-", 2) for path in self.out.glob(f"{attempt}-*")]
        return {int(rank): pod for _, rank, pod in found}

    def until_at(self, attempt: int, ranks: int | None = None) -> dict[int, str]:
        wanted = self._nodes if ranks is None else ranks
        try:
            self.cluster.wait(lambda: len(self.at(attempt)) >= wanted, f"attempt {attempt} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        return self.at(attempt)

    def until_carried_by_another(self, pod: str) -> str:
        """Another pod of the owner has the job; its name."""

        def carries() -> str:
            state = self.cluster.get("configmap", object_names.state_config(self.name), self.space).get("data", {})
            return str(json.loads(state["state.json"])["pod"]) if state else ""

        try:
            self.cluster.wait(lambda: carries() not in ("", pod), "another owner has the job")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        return carries()

    def end(self) -> None:
        (self.out / "end").write_text("")

    def until_over(self) -> Object:
        """The status of the Kubernetes job that is complete or has failed."""

        def over() -> bool:
            # A pod of the owner that hands the job over counts among the failed ones.
            conditions = self.cluster.get("job", self.name, self.space).get("status", {}).get("conditions", ())
            return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)

        try:
            self.cluster.wait(over, "the job is over")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        found: Object = self.cluster.get("job", self.name, self.space)["status"]
        return found

    def told(self) -> str:
        """For a test that has failed."""
        done = self.cluster.start("kubectl", "-n", self.space, "get", "pods", "-o", "wide")
        done.wait()
        events = self.cluster.start("kubectl", "-n", self.space, "get", "events")
        events.wait()
        logs = []
        for name in self.agents():
            log = self.cluster.start("kubectl", "-n", self.space, "logs", name, "--all-containers")
            log.wait()
            logs.append(f"{name}: {log.out}{log.err}")
        return "\n".join([self.said(), done.out, *logs, events.out[-3000:]])

    def inside(self, pod: str, *words: str, may_fail: bool = False) -> str:
        """A command in the task's container of a pod."""
        exec_ = ("kubectl", "-n", self.space, "exec", pod, "-c", object_names.TASK, "--", *words)
        done = self.cluster.start(*exec_)
        status = done.wait()
        assert may_fail or status == 0, f"{words} in {pod}: {done.err}"
        return done.out

    def delete(self, pod: str, *more: str) -> None:
        self.cluster("kubectl", "-n", self.space, "delete", "pod", pod, "--wait=false", *more)


def on_breakable(cluster: Shared) -> Object:
    """Of a pod's spec: each pod of this kind has a node of its own, one of them not a breakable one."""
    nodes = [cluster.ordinary[-1], *cluster.breakable]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    return {
        "tolerations": TOLERATES,
        "affinity": {
            **APART,
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
            },
        },
    }


def _shown(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes."""
    mounts, volumes = shown()
    mounts.append({"name": "out", "mountPath": OUT})
    volumes.append({"name": "out", "hostPath": {"path": str(out)}})
    return mounts, volumes


def shown() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes with this machine's Python and this source."""
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    for number, path in enumerate(dict.fromkeys(_SHOWN)):
        mounts.append({"name": f"host-{number}", "mountPath": path, "readOnly": True})
        volumes.append({"name": f"host-{number}", "hostPath": {"path": path}})
    return mounts, volumes
