"""The holdfast image as its Containerfile builds it: the owner, and the init container beside images of others.

Nothing of this machine is mounted here: what a pod has comes from its images alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from images import of_root, python
from podman import IMAGE, build, missing, podman
from real_kubernetes import Object, Shared
from roots import missing as missing_roots
from roots import root

from netns import Started

SHELL, OLD, HALF, OWN = (f"localhost/{name}:1" for name in ("busybox", "debian-11", "debian-13", "python"))
#: All of it runs there: no other node is given the large images.
NODE = "k1"
HERE = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
TRAIN = b"""
import os, sys
warm = "decimal" in sys.modules
import decimal
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    sys.exit(3)
print("python", sys.executable, "warm" if warm else "cold", flush=True)
"""


def archive(place: Path) -> Path:
    """The holdfast image as one file."""
    if why := missing() or missing_roots():
        pytest.fail(why, pytrace=False)
    done = build()
    assert done.status == 0, done.out[-2000:] + done.err[-2000:]
    file = place / "holdfast.tar"
    done = podman("save", "--format", "docker-archive", "--output", file, IMAGE)
    assert done.status == 0, done.err
    return file


@pytest.fixture
def cluster(kubernetes: Shared, tmp_path: Path) -> Shared:
    with kubernetes.once("images") as wanted:
        if wanted:
            kubernetes.load_archive(archive(tmp_path), on=[NODE])
            kubernetes.load(
                of_root(OLD, root("debian-11")),
                of_root(HALF, root("debian-13")),
                python(OWN, tmp_path / "python", {"train.py": TRAIN}),
                on=[NODE],
            )
    return kubernetes


class Site:
    """A namespace, and the settings by which jobs of users come there."""

    def __init__(self, cluster: Shared, place: Path) -> None:
        self.cluster, self.space, self.place = cluster, cluster.namespace(), place
        self._done: list[Started] = []
        (place / "home").mkdir(mode=0o700)
        said = {
            "holdfast_image": IMAGE,
            "pull_policy": "Never",
            "pod_security": "baseline",  # the images have no user
            "node_selector": HERE["nodeSelector"],
            "owner_template": {"spec": HERE},
        }
        (place / "home/config.yaml").write_text(json.dumps({"kubernetes": said}))

    def submit(self, text: str) -> int:
        """Submit a job, and read along to its end: 0 for success. Its pods go with it, and their logs with them."""
        file, on = self.place / "job.yaml", ("--platform", "kubernetes", "-n", self.space)
        file.write_text(text)
        env = {"HOLDFAST_HOME": str(self.place / "home")}
        self._done = [self.cluster.holdfast("submit", *on, "--json", str(file), env=env)]
        if status := self._done[0].wait():
            return status
        name = json.loads(self._done[0].out)["platform"]["id"]
        self._done.append(self.cluster.holdfast("logs", "-f", name, *on, env=env))
        self._done[1].wait(300)

        def over() -> list[str]:
            conditions = self.cluster.get("job", name, self.space).get("status", {}).get("conditions", ())
            return [each["type"] for each in conditions if each["status"] == "True"]

        self.cluster.wait(lambda: bool(over()), f"the job {name} is over")
        return int("Complete" not in over())

    def said(self) -> str:
        """What was printed about the job, and by each of its containers that are there still."""
        found = [text for done in self._done for text in (done.out, done.err)]
        for pod in self.cluster.items("pods", self.space):
            name = pod["metadata"]["name"]
            log = self.cluster.start("kubectl", "-n", self.space, "logs", name, "--all-containers")
            log.wait()
            found += [name, log.out, log.err]
        return "\n".join(found)

    def told(self) -> str:
        """For a test that has failed."""
        pods = self.cluster.start("kubectl", "-n", self.space, "describe", "pods")
        pods.wait()
        return self.said() + pods.out[-8000:]


@pytest.fixture
def site(cluster: Shared, tmp_path: Path) -> Site:
    return Site(cluster, tmp_path)


GANG = f"""
name: gang
warm: true
restarts: {{max_restarts: 1}}
roles:
  shell: {{count: 1, image: {SHELL}, command: [sh, -c, "ls /lib*; echo a shell alone $RANK"]}}
  old: {{count: 1, image: {OLD}, command: [bash, -c, "ldd --version | head -1; command -v python3 || echo no Python"]}}
  half: {{count: 1, image: {HALF}, command: [python3, -c, "import sys; print('half', sys.executable)"]}}
  own: {{count: 1, image: {OWN}, command: [python3, /train.py]}}
"""


def test_one_gang_runs_in_a_shell_alone_on_an_old_c_library_and_warm_under_a_python_of_the_images_own(
    site: Site,
) -> None:
    assert site.submit(GANG) == 0, site.told()
    said = site.said()
    assert "a shell alone 0" in said and "half /usr/bin/python3" in said
    assert "GLIBC 2.31" in said and "no Python" in said
    assert "python /usr/local/bin/python3 warm" in said, said
    assert "SUCCEEDED after 2 attempts" in said


OPENPAI = f"""
protocolVersion: 2
name: pai_job
type: job
prerequisites:
  - {{name: bash, type: dockerimage, uri: "{OLD}"}}
parameters: {{greeting: hello}}
secrets: {{token: hunter2hunter2}}
taskRoles:
  worker:
    instances: 2
    completion: {{minFailedInstances: 1, minSucceededInstances: 2}}
    taskRetryCount: 0
    dockerImage: bash
    resourcePerInstance: {{cpu: 0.2, memoryMB: 64, gpu: 0, ports: {{http: 1}}}}
    commands:
      - echo "<% $parameters.greeting %> from $PAI_TASK_ROLE_TASK_INDEX_X of $PAI_CURRENT_TASK_ROLE_NAME"
  server:
    instances: 1
    completion: {{minFailedInstances: 1, minSucceededInstances: -1}}
    dockerImage: bash
    resourcePerInstance: {{cpu: 0.2, memoryMB: 64, gpu: 0}}
    commands: [sleep 600]
"""


def test_an_openpai_job_file_is_submitted_as_it_is(site: Site) -> None:
    assert site.submit(OPENPAI) == 2
    assert "there is no `$PAI_TASK_ROLE_TASK_INDEX_X`" in site.said() and "line 1" in site.said()
    assert site.cluster.items("jobs", site.space) == []
    right = OPENPAI.replace("PAI_TASK_ROLE_TASK_INDEX_X", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX")
    assert site.submit(right) == 0, site.told()
    said = site.said()
    assert "hello from 0 of worker" in said and "hello from 1 of worker" in said
    assert "hunter2" not in said
    kept = site.cluster.kubectl("-n", site.space, "get", "configmaps", "-o", "yaml")
    assert "hunter2" not in kept


def _task(name: str, space: str, user_cmd: str, **more: str) -> Object:
    """A pod that a user writes: `prepare`, then `run`."""
    pai = {"name": "pai", "mountPath": "/usr/local/pai"}
    env = {"USER_CMD": user_cmd, "HOLDFAST_HOME": "/dev/shm/home", **more}
    task: dict[str, Any] = {
        "name": "task",
        "image": SHELL,
        "imagePullPolicy": "Never",
        "command": ["/usr/local/pai/run"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [pai],
        "securityContext": {
            "runAsUser": 1000660000,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    init = {"name": "prepare", "image": IMAGE, "imagePullPolicy": "Never", "args": ["prepare"], "volumeMounts": [pai]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            **HERE,
            "restartPolicy": "Never",
            "initContainers": [init],
            "containers": [task],
            "volumes": [{"name": "pai", "emptyDir": {}}],
        },
    }


def test_run_ends_with_its_verdict_in_the_pods_status_and_with_the_users_status_where_that_is_asked_for(
    site: Site,
) -> None:
    cluster, space = site.cluster, site.space
    cluster.apply(
        _task("ours", space, "echo from the task; exit 7"),
        _task("users", space, "exit 7", HOLDFAST_EXIT_STATUS="user"),
        _task("wrong", space, "#!/no/such/interpreter\n"),
        _task("good", space, "echo fine"),
    )
    ended = {}
    for name in ("ours", "users", "wrong", "good"):
        cluster.wait(lambda pod=name: cluster.phase(pod, space) in ("Succeeded", "Failed"), f"{name} has ended")  # type: ignore[misc]  # bound now
        [status] = cluster.get("pod", name, space)["status"]["containerStatuses"]
        ended[name] = status["state"]["terminated"]
    assert "[task-0] from the task" in cluster.logs("ours", space)
    assert {name: how["exitCode"] for name, how in ended.items()} == {"ours": 255, "users": 7, "wrong": 2, "good": 0}
    for name in ("ours", "users"):
        message = ended[name]["message"]
        assert message.startswith("[PAI_RUNTIME_ERROR_START]"), message
        assert "exited with status 7" in message and len(message.encode()) <= 4096
    assert "/no/such/interpreter" in ended["wrong"]["message"]
    assert not ended["good"].get("message")


DOOR = f"""
name: door
plugins: {{ssh: {{required: true}}}}
roles:
  worker:
    count: 2
    image: {IMAGE}
    command:
      - sh
      - -c
      - |
        if [ "$RANK" = 0 ]; then
          ssh -F "$HOLDFAST_SSH_CONFIG" worker-1 \
            'echo "entered $HOLDFAST_POD as $(id -un), rank $RANK"; touch /tmp/entered'
        else
          until [ -e /tmp/entered ]; do sleep 0.1; done
        fi
"""


def test_a_worker_enters_a_worker_of_another_pod_by_ssh(site: Site) -> None:
    assert site.submit(DOOR) == 0, site.told()
    assert "entered door-1 as holdfast, rank 1" in site.said()


SERVER = """
mkdir -p /tmp/www /tmp/git && cd /tmp/git
git init -q -b main train.git && cd train.git
git config user.email a@example.org && git config user.name a
echo 'echo code of the repository' >train.sh && git add . && git commit -qm one
cd /tmp && echo weights of the model >www/model.bin
git daemon --export-all --base-path=/tmp/git --reuseaddr --detach
exec python3 -m http.server 8000 --directory /tmp/www
"""
#: A pod goes with its job, and its log with it: the reader must have begun before.
FETCHES = f"""
name: fetches
prerequisites:
  code: {{uri: "git://data:9418/train.git@main"}}
  model: {{uri: "http://data:8000/MODEL"}}
restarts: {{max_restarts: 0}}
roles:
  worker:
    count: 1
    image: {SHELL}
    command: [sh, -c, "sh $HOLDFAST_DATA_CODE/train.sh; cat $HOLDFAST_DATA_MODEL; sleep 4"]
"""


def _serve(cluster: Shared, space: str) -> None:
    """A web server and a git daemon, as the service `data`."""
    meta = {"name": "data", "namespace": space, "labels": {"app": "data"}}
    serves = {
        "name": "serves",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-ec", SERVER],
        "readinessProbe": {"httpGet": {"path": "/model.bin", "port": 8000}, "periodSeconds": 1},
    }
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**HERE, "containers": [serves]}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"clusterIP": "None", "selector": {"app": "data"}, "ports": [{"port": 8000}]},
        },
    )

    def ready() -> bool:
        statuses = cluster.get("pod", "data", space)["status"].get("containerStatuses", ())
        return any(each["ready"] for each in statuses)

    cluster.wait(ready, "the servers answer")


def test_data_and_code_are_fetched_in_the_init_container_and_what_is_missing_ends_the_job_by_its_name(
    site: Site,
) -> None:
    _serve(site.cluster, site.space)
    assert site.submit(FETCHES.replace("MODEL", "model.bin", 1)) == 0, site.told()
    said = site.said()
    assert "code of the repository" in said and "weights of the model" in said, said
    site.cluster.kubectl("-n", site.space, "delete", "job", "fetches")

    missing = FETCHES.replace("MODEL", "none.bin", 1).replace("fetches", "missing")
    assert site.submit(missing) == 1
    said = site.said()
    assert "DownloadNotFound" in said and "http://data:8000/none.bin" in said
    words = ("show", "missing", "--platform", "kubernetes", "-n", site.space)
    shown = site.cluster.holdfast(*words)
    shown.wait()
    assert "DownloadNotFound" in shown.out, shown.out + shown.err
    assert "weights" not in said.partition("missing-0")[2], "no worker began"
