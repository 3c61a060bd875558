"""A rank dies on a real Kubernetes: holdfast restarts the workers in their pods, others make all pods anew.

The cluster is that of the tests (tests/kubernetes/real_kubernetes.py: a control plane and two nodes of Kubernetes 1.20
in namespaces of this machine, so it takes root and the built servers). One script steps in RANKS pods over plain
sockets, and imports nothing large; rank 1 ends with status 1. How long until all ranks have finished a step again?

- in place: holdfast, with each worker in a pod of its own, cold and warm.
- anew: a controller deletes the pods as soon as one has failed, and at the same moment makes others
  (bench/_recreating.py). It waits for no deletion, its image is on the nodes, and there is room: no controller of this
  kind is faster.
- plain Jobs: each rank is a Job of Kubernetes; ranks that lose their peer end too, and its controller makes other pods.

And in a container of an image with a shell alone: from the start of `run` to the first line of the user's command.

    python bench/kubernetes.py [--runs 7] [--write] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _common import machine, median, put, spread, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests" / "kubernetes"))
sys.path.insert(2, str(Path(__file__).resolve().parent.parent / "tests" / "bundle"))

from containers import exchange
from pods_at_work import OUT, PYTHON, Job, shown
from real_kubernetes import Kubernetes, Object, missing, shared
from roots import missing as missing_roots

RANKS, PORT = 3, 4444
TRAINER = f"""
import os, pathlib, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
out, rank, world = pathlib.Path("{OUT}"), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
start = os.environ["HOLDFAST_ATTEMPT"] or 1 + len(list(out.glob(f"first-*-{{rank}}")))
at = os.environ["PAI_HOST_IP_worker_0"], int(os.environ["PAI_PORT_LIST_worker_0_http"])
if rank == 0:
    listener = socket.create_server(("", at[1]))
    peers = [listener.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(at, 5)]
            break
        except OSError:
            time.sleep(0.02)
first = True
while not (out / "end").exists() or first:
    if rank == 1 and (out / f"die-{{start}}").exists():
        (out / f"died-{{start}}").write_text(repr(time.time()))
        os._exit(1)
    if rank == 0:
        got = [peer.recv(1) for peer in peers]
        if not all(got):
            os._exit(0 if (out / "end").exists() else 1)
        for peer in peers:
            peer.sendall(b"x")
    else:
        peers[0].sendall(b"x")
        if not peers[0].recv(1):
            os._exit(0 if (out / "end").exists() else 1)
    if first:
        part = out / f".first-{{start}}-{{rank}}"
        part.write_text(repr(time.time()))
        part.rename(out / f"first-{{start}}-{{rank}}")
        first = False
    time.sleep(0.02)
"""
STARTS = """
import json, subprocess, sys, time
found = {}
for _ in range(int(sys.argv[1])):
    for name, words in (("sh -c", ["sh", "-c", "echo first line"]), ("run", ["/usr/local/pai/run"])):
        began = time.monotonic()
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            line = process.stdout.readline()
            took = time.monotonic() - began
            process.stdout.read()
        assert b"first line" in line and process.returncode == 0, (name, line, process.returncode)
        found.setdefault(name, []).append(took * 1e3)
print(json.dumps(found))
"""
COLD, WARM, ANEW, JOBS = "holdfast, in place", "holdfast --warm, in place", "all pods made anew", "plain Jobs"


def recovered(cluster: Kubernetes, out: Path) -> float:
    """Seconds from the death of rank 1 in the first start to a common step in the second."""

    def stepped(start: int) -> list[Path]:
        found = [out / f"first-{start}-{rank}" for rank in range(RANKS)]
        return found if all(path.exists() for path in found) else []

    cluster.wait(lambda: bool(stepped(1)), "all ranks have stepped")
    (out / "die-1").write_text("")
    cluster.wait(lambda: bool(stepped(2)), "all ranks have stepped again")
    died = float((out / "died-1").read_text())
    return max(float(path.read_text()) for path in stepped(2)) - died


def _script(out: Path) -> str:
    """The trainer, where pods find it."""
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    (out / "train.py").write_text(TRAINER)
    return f"{OUT}/train.py"


def in_place(cluster: Kubernetes, out: Path, *words: str) -> float:
    command = (PYTHON, _script(out))
    job = Job(cluster, out, nodes=RANKS, command=command, ports={"http": 1}, words=words)
    job.submit()
    before = None
    try:
        cluster.wait(lambda: len(job.agents()) == RANKS, "the pods are there")
        before = {name: pod["metadata"]["uid"] for name, pod in job.agents().items()}
        took = recovered(cluster, out)
        assert {name: pod["metadata"]["uid"] for name, pod in job.agents().items()} == before, "the same pods"
    except AssertionError as error:
        raise SystemExit(f"{error}\n{job.told()}") from None
    finally:
        job.end()
        cluster.kubectl("delete", "namespace", job.space, "--wait=false")
    return took


def _pod(space: str, script: str, out: Path, generation: str, index: str) -> Object:
    """A pod of one rank, as a user of plain Kubernetes writes it."""
    mounts, volumes = shown()
    mounts.append({"name": "out", "mountPath": OUT})
    volumes.append({"name": "out", "hostPath": {"path": str(out)}})
    name = f"train-{generation}-" if generation else "train-"
    env = {
        "RANK": index,
        "WORLD_SIZE": str(RANKS),
        "HOLDFAST_ATTEMPT": generation,
        "PAI_HOST_IP_worker_0": f"{name}0.train.{space}.svc.cluster.local",
        "PAI_PORT_LIST_worker_0_http": str(PORT),
    }
    task = {
        "name": "task",
        "image": "localhost/host:1",
        "imagePullPolicy": "Never",
        "command": [PYTHON, script],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    return {
        "metadata": {"name": f"{name}{index}", "labels": {"app": "train", "generation": generation}},
        "spec": {
            "hostname": f"{name}{index}",
            "subdomain": "train",
            "restartPolicy": "Never",
            "containers": [task],
            "volumes": volumes,
        },
    }


def _service(space: str) -> Object:
    spec = {"clusterIP": "None", "selector": {"app": "train"}, "publishNotReadyAddresses": True}
    meta = {"name": "train", "namespace": space}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {**spec, "ports": [{"port": PORT}]}}


def anew(cluster: Kubernetes, out: Path) -> float:
    space, script = cluster.namespace(), _script(out)
    cluster.apply(_service(space))
    file = out.with_name("pod.json")
    file.write_text(json.dumps(_pod(space, script, out, "GENERATION", "INDEX")))
    controller = cluster.start(sys.executable, Path(__file__).with_name("_recreating.py"), space, file, str(RANKS))
    try:
        return recovered(cluster, out)
    except AssertionError as error:
        raise SystemExit(f"{error}\n{controller.err}") from None
    finally:
        (out / "end").write_text("")
        if controller.outside.poll() is None:  # it ends by itself where its namespace goes
            controller.send(9)
        controller.wait()
        cluster.kubectl("delete", "namespace", space, "--wait=false")


def plain_jobs(cluster: Kubernetes, out: Path) -> float:
    """Each rank a Job of Kubernetes. Those that lose their peer end too, and their Jobs make other pods."""
    space, script = cluster.namespace(), _script(out)
    jobs = []
    for rank in range(RANKS):
        pod = _pod(space, script, out, "", str(rank))
        del pod["metadata"]["name"]
        meta = {"name": f"train-{rank}", "namespace": space}
        jobs.append(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"backoffLimit": 9, "template": pod}}
        )
    cluster.apply(_service(space), *jobs)
    try:
        return recovered(cluster, out)
    finally:
        (out / "end").write_text("")
        cluster.kubectl("delete", "namespace", space, "--wait=false")


def starts(cluster: Kubernetes, runs: int) -> dict[str, list[float]]:
    """Milliseconds to the first line, in one container with busybox alone."""
    space = cluster.namespace()
    pai = "/usr/local/pai"
    task = {
        "name": "task",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": [f"{pai}/holdfast/now/bin/python3", "-c", STARTS, str(runs)],
        "env": [{"name": "USER_CMD", "value": "echo first line"}, {"name": "HOLDFAST_HOME", "value": "/dev/shm/home"}],
        "volumeMounts": [{"name": "pai", "mountPath": pai, "readOnly": True}],
    }
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "starts", "namespace": space},
        "spec": {
            "restartPolicy": "Never",
            "containers": [task],
            "volumes": [{"name": "pai", "hostPath": {"path": str(exchange())}}],
        },
    }
    cluster.apply(pod)
    cluster.wait(lambda: cluster.phase("starts", space) in ("Succeeded", "Failed"), "the starts are measured")
    said = cluster.logs("starts", space)
    try:
        found: dict[str, list[float]] = json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise SystemExit(f"the container printed:\n{said}") from None
    cluster.kubectl("delete", "namespace", space, "--wait=false")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the result into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="once, cold and anew: whether it works, not how fast")
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)  # the directory of a test run with its cluster
    options = parser.parse_args()
    if why := missing() or missing_roots():
        print(f"no Kubernetes can be had here: {why}")
        return
    ways: dict[str, Callable[[Kubernetes, Path], float]] = {
        COLD: lambda cluster, out: in_place(cluster, out, "--no-warm"),
        WARM: lambda cluster, out: in_place(cluster, out, "--warm"),
        ANEW: anew,
        JOBS: plain_jobs,
    }
    if options.smoke:
        del ways[WARM], ways[JOBS]
    times: dict[str, list[float]] = {way: [] for way in ways}
    own = shared(options.shared) if options.shared else Kubernetes(2)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, own as cluster:
        Path(name).chmod(0o755)
        first = starts(cluster, 2 if options.smoke else 21)
        for number in range(1 if options.smoke else options.runs):
            for kind, (way, measure) in enumerate(ways.items()):
                place = Path(name, f"{number}-{kind}")
                place.mkdir()
                place.chmod(0o755)
                times[way].append(measure(cluster, place / "out"))
                print(f"{way}: {times[way][-1]:.2f} s", file=sys.stderr, flush=True)
                time.sleep(0 if options.smoke else 3)  # the pods of this round end
    text = told(times, first)
    print(text)
    if options.write:
        put("kubernetes", text)


def told(times: dict[str, list[float]], first: dict[str, list[float]]) -> str:
    base = median(times[COLD])
    rows = [[way, spread(took, digits=2), f"{median(took) / base:.1f}"] for way, took in times.items()]
    shell = median(first["sh -c"])
    begins = [
        [f"`{what}`", spread(took), f"{median(took) - shell:.1f} ms" if what != "sh -c" else ""]
        for what, took in first.items()
    ]
    rounds = f"{len(times[COLD])} runs of each in turn, {RANKS} ranks in {RANKS} pods on 2 nodes"
    return "\n\n".join(
        [
            f"{machine()}; Kubernetes 1.20.2, {rounds}; medians, and what they lie between.",
            table(["after a rank's death", "to the next common step, s", "times the first"], rows),
            table(["in a container", "to the first line, ms", "over the shell"], begins),
        ]
    )


if __name__ == "__main__":
    main()
