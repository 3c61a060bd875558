"""OpenPAI's own job files: what each key becomes, what is told, and what is refused with its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.jobfile.job_file_mistakes import Mistakes
from holdfast.launch.jobfile.job_file_reader import load, parsed
from holdfast.launch.jobfile.openpai_values import MANY, script_of
from holdfast.model.job_spec import Completion, Resources
from holdfast.model.runtime_plan import Daemon, Hook, HookMoment, OnFailure, Prerequisite, Ssh

WHOLE = """\
protocolVersion: 2
name: image_classification
type: job
version: 1.0
contributor: Ada
description: two roles
prerequisites:
  - protocolVersion: 2
    name: tf
    type: dockerimage
    version: latest
    auth: {username: user, password: <% $secrets.registry %>, registryuri: registry.example}
    uri: example/tensorflow:2
  - {name: model, type: output, uri: "hdfs://10.0.0.1:9000/model"}
  - {name: bench, type: script, version: 84820935, contributor: Grace, uri: example.org/grace/bench}
  - {name: cifar, type: data, uri: ["https://example.org/a.tgz", "https://example.org/b.tgz"]}
parameters: {model: resnet20, lr: 0.10}
secrets: {registry: hunter2hunter2, token: cGFzc3dvcmQ}
jobRetryCount: 1
taskRoles:
  worker:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: 1}
    taskRetryCount: 0
    dockerImage: tf
    data: cifar
    output: model
    script: bench
    extraContainerOptions: {shmMB: 64, infiniband: true}
    resourcePerInstance: {cpu: 2, memoryMB: 1024, gpu: 4, ports: {ssh: 1, http: 2, none: 0}}
    commands:
      - "cd script_<% $script.name %> # here"
      - >
        python train.py --data <% $data.uri[1] %> --model <% $parameters.model %>
        --index $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX
  ps_server:
    completion: {minFailedInstances: -1, minSucceededInstances: -1}
    dockerImage: tf
    resourcePerInstance: {cpu: 2, memoryMB: 8192, gpu: 0}
    commands: [sleep infinity]
deployments:
  - name: prod
    version: 1.0
    taskRoles:
      worker:
        preCommands: ["git clone https://<% $script.contributor %>@<% $script.uri %>"]
        postCommands: ["hdfs dfs -cp out <% $output.uri %>"]
  - {name: other}
defaults: {virtualCluster: vc1, deployment: prod}
extras:
  submitFrom: submit-job-v2
  hivedScheduler: {jobPriorityClass: prod}
  com.microsoft.pai.runtimeplugin:
    - plugin: ssh
      failurePolicy: ignore
      parameters: {jobssh: true, userssh: {type: custom, value: ssh-ed25519 AAAA ada}}
    - {plugin: teamwise_storage, parameters: {storageConfigNames: [a]}}
    - plugin: cmd
      parameters: {preCommands: [apt-get update, apt-get install -y git], postCommands: [echo done]}
    - plugin: cmd
      taskRoles: [worker]
      failurePolicy: ignore
      parameters: {callbacks: [{event: taskFails, commands: [./tell.sh]}]}
    - {plugin: git, parameters: {repo: "https://example.org/x/code.git", clone_dir: src}}
    - {plugin: tensorboard, parameters: {port: 6006, logPath: {run: /mnt/logs}}}
    - {plugin: strange, failurePolicy: ignore}
"""
SMALL = "protocolVersion: 2\nname: x\ntype: job\ntaskRoles:\n  w:\n    instances: 3\n    commands: [python t.py]\n"


def _script(*commands: str) -> str:
    """The text that bash reads: each command runs if the one before succeeded."""
    return "set -o errexit -o nounset -o pipefail; " + "\ncase $? in 0) ;; *) exit ;; esac; ".join(commands)


def _parsed(text: str) -> JobFile:
    return parsed(Path("job.yaml"), text.encode(), here=False)


def test_every_key_of_the_protocol() -> None:
    job = _parsed(WHOLE)
    spec = job.spec
    assert (spec.name, spec.virtual_cluster, spec.pai) == ("image_classification", "vc1", True)
    assert (spec.restarts.max_restarts, spec.parameters) == (1, {"model": "resnet20", "lr": "0.10"})
    worker, server = spec.roles
    assert (worker.name, worker.count, worker.image) == ("worker", 2, "example/tensorflow:2")
    assert worker.completion == Completion(min_failed=1, min_succeeded=1)
    assert worker.resources == Resources(cpus=2, memory_bytes=1 << 30, devices=4)
    assert worker.ports == {"ssh": 1, "http": 2}
    assert worker.command == (
        "bash",
        "-c",
        _script(
            "git clone https://Grace@example.org/grace/bench",
            "cd script_bench # here",
            "python train.py --data https://example.org/b.tgz --model <% $parameters.model %> "
            "--index $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
            "hdfs dfs -cp out hdfs://10.0.0.1:9000/model",
        ),
    )
    assert (server.count, server.completion) == (1, Completion(min_failed=None, min_succeeded=None))
    assert server.command == ("bash", "-c", _script("sleep infinity"))
    assert job.secrets == {"registry": "hunter2hunter2", "token": "cGFzc3dvcmQ"}
    plan = spec.runtime
    assert plan.ssh == Ssh(keys=("ssh-ed25519 AAAA ada",))
    assert plan.prerequisites == (Prerequisite(name="src", uri="git+https://example.org/x/code.git", into="src"),)
    assert plan.daemons == (
        Daemon(
            name="tensorboard",
            command=("sh", "-c", "exec tensorboard --bind_all --logdir_spec run:/mnt/logs --port 6006"),
            roles=("worker",),
        ),
    )
    assert plan.hooks == (
        Hook(when=HookMoment.BEFORE, command=("bash", "-c", _script("apt-get update", "apt-get install -y git"))),
        Hook(when=HookMoment.ENDED, command=("bash", "-c", _script("echo done"))),
        Hook(
            when=HookMoment.FAILED,
            command=("bash", "-c", _script("./tell.sh")),
            roles=("worker",),
            on_failure=OnFailure.IGNORE,
        ),
    )


DATA_OF_TWO_ROLES = """protocolVersion: 2
name: x
type: job
prerequisites:
  - {name: a, type: data, uri: ["https://example.org/a.tgz"]}
  - {name: b, type: data, uri: ["https://example.org/b.tgz"]}
taskRoles:
  one: {data: a, commands: [pwd]}
  two: {data: DATA, commands: [pwd]}
extras:
  com.microsoft.pai.runtimeplugin:
    - plugin: cmd
      parameters:
        callbacks: [{event: taskStarts, commands: ["wget <% $data.uri[0] %> -O <% $data.name %>"]}]
"""


def test_the_commands_of_a_plugin_have_the_data_of_their_role() -> None:
    hooks = _parsed(DATA_OF_TWO_ROLES.replace("DATA", "b")).spec.runtime.hooks
    assert [(hook.roles, hook.command[-1]) for hook in hooks] == [
        (("one",), _script("wget https://example.org/a.tgz -O a")),
        (("two",), _script("wget https://example.org/b.tgz -O b")),
    ]
    [hook] = _parsed(DATA_OF_TWO_ROLES.replace("DATA", "a")).spec.runtime.hooks
    assert (hook.roles, hook.command[-1]) == ((), _script("wget https://example.org/a.tgz -O a"))
    with pytest.raises(BadUsage, match=r"there is no `\$data.url`"):
        _parsed(DATA_OF_TWO_ROLES.replace("DATA", "a").replace("$data.uri[0]", "$data.url"))


def test_a_plugin_s_roles_are_found_as_openpai_s_examples_write_them() -> None:
    job = _parsed(WHOLE.replace("      taskRoles: [worker]\n", "      taskroles:\n        - worker\n"))
    assert "taskroles" not in WHOLE and job.spec.runtime == _parsed(WHOLE).spec.runtime


def test_what_has_no_meaning_here_is_told() -> None:
    told = "\n".join(_parsed(WHOLE).notes)
    for words in (
        "prerequisites[0].auth: holdfast logs in at no registry",
        "taskRoles.worker.extraContainerOptions.shmMB: /dev/shm keeps the size",
        "extras: hivedScheduler: for other parts of OpenPAI",
        "[1]: holdfast mounts no storage of OpenPAI",
        "there is no plug-in strange here, and its failure is to be ignored",
    ):
        assert words in told
    assert _parsed(SMALL).notes == ()


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("", Completion(min_failed=1, min_succeeded=3)),
        ("{minSucceededInstances: -1}", Completion(min_failed=1, min_succeeded=None)),
        ("{minSucceededInstances: null, minFailedInstances: null}", Completion(min_failed=None, min_succeeded=None)),
        ("{minSucceededInstances: 2, minFailedInstances: 3}", Completion(min_failed=3, min_succeeded=2)),
        ("{minSucceededInstances: 9, minFailedInstances: 9}", Completion(min_failed=None, min_succeeded=None)),
    ],
)
def test_when_a_job_is_complete(completion: str, expected: Completion) -> None:
    assert _parsed(f"{SMALL}    completion: {completion}\n").spec.roles[0].completion == expected


@pytest.mark.parametrize(
    ("job", "task", "charged", "platform"),
    [
        (0, 0, 0, 20),
        (3, 0, 3, 20),
        (3, 5, 5, 20),
        (3, -2, 3, 20),
        (-1, 0, MANY, MANY),
        (0, -1, MANY, MANY),
        (-2, 0, 0, 0),
    ],
)
def test_how_often_a_job_starts_again(job: int, task: int, charged: int, platform: int) -> None:
    found = _parsed(f"jobRetryCount: {job}\n{SMALL}    taskRetryCount: {task}\n")
    restarts = found.spec.restarts
    assert (restarts.max_restarts, restarts.platform_max_restarts) == (charged, platform)
    assert bool(found.notes) == (task not in (0, -2))


def test_a_prerequisite_with_commands_of_its_own_is_a_hook_of_its_roles() -> None:
    text = (
        "prerequisites:\n- {name: d, type: script, plugin: com.microsoft.pai.runtimeplugin.cmd, "
        "failurePolicy: ignore,\n"
        "   callbacks: [{event: taskStarts, commands: [./get.sh]}, "
        "{event: taskSucceeds, commands: [./put.sh]}]}\n"
    )
    assert _parsed(f"{text}{SMALL}    prerequisites: [d]\n").spec.runtime.hooks == (
        Hook(
            when=HookMoment.BEFORE,
            command=("bash", "-c", _script("./get.sh")),
            roles=("w",),
            on_failure=OnFailure.IGNORE,
        ),
        Hook(
            when=HookMoment.SUCCEEDED,
            command=("bash", "-c", _script("./put.sh")),
            roles=("w",),
            on_failure=OnFailure.IGNORE,
        ),
    )


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("protocolVersion: 3\nname: x\ntaskRoles: {w: {commands: [a]}}", "`protocolVersion`", "expected 2, got 3"),
        ("protocolVersion: 2\nname: x\ntype: data\ntaskRoles: {w: {commands: [a]}}", "`type`", "expected job"),
        ("protocolVersion: 2\nname: x", "`taskRoles`", "expected at least one role"),
        ("protocolVersion: 2\nname: ü\ntaskRoles: {w: {commands: [a]}}", "`name`", "expected letters"),
        (
            f"{SMALL}  7: {{commands: [x]}}\ndeployments: [{{name: p, taskRoles: {{v: {{}}}}}}]\n",
            "`taskRoles`",
            "got 7",
        ),
        (f"{SMALL}    comands: [x]\n", "`taskRoles.w`", "did you mean `commands`?"),
        (f"jobRetryCout: 1\n{SMALL}", "", "did you mean `jobRetryCount`?"),
        (f"jobRetryCount: -3\n{SMALL}", "`jobRetryCount`", "-1 (always) or -2 (never"),
        (f"{SMALL}    dockerImage: tf\n", "`taskRoles.w.dockerImage`", "no prerequisite of the type dockerimage 'tf'"),
        (
            f"prerequisites: [{{name: tf2, type: dockerimage, uri: a}}]\n{SMALL}    dockerImage: tf\n",
            "`taskRoles.w.dockerImage`",
            "did you mean `tf2`?",
        ),
        (f"prerequisites: [{{name: a, type: image, uri: a}}]\n{SMALL}", "`prerequisites[0].type`", "expected one of"),
        (f"prerequisites: [{{name: a, type: data}}]\n{SMALL}", "`prerequisites[0]`", "the key `uri` is missing"),
        (f"prerequisites: [{{name: a, type: script, uri: [a]}}]\n{SMALL}", "`prerequisites[0].uri`", "only `data`"),
        (f"defaults: {{deployment: prd}}\ndeployments: [{{name: prod}}]\n{SMALL}", "`defaults.deployment`", "`prod`?"),
        (
            f"deployments: [{{name: p, taskRoles: {{v: {{}}}}}}]\n{SMALL}",
            "`deployments[0].taskRoles.v`",
            "no such role",
        ),
        (f"{SMALL}    resourcePerInstance: {{gpu: -1}}\n", "`taskRoles.w.resourcePerInstance.gpu`", "0 or more"),
        (f"{SMALL}    resourcePerInstance: {{gpus: 1}}\n", "resourcePerInstance`", "did you mean `gpu`?"),
        (
            f"{SMALL}    completion: {{minSucceededInstances: 0}}\n",
            "minSucceededInstances`",
            "expected -1, or 1 or more",
        ),
        (SMALL.replace("python t.py", "a <% $data.uri %>"), "`taskRoles.w.commands[0]`", "there is no `$data.uri`"),
        (
            SMALL.replace("python t.py", "a <% $parameters.lr %>"),
            "`taskRoles.w.commands`",
            "no name in `parameters` 'lr'",
        ),
        (SMALL.replace("python t.py", "a <% $secrets.k %>"), "`taskRoles.w.commands`", "no name in `secrets` 'k'"),
        (SMALL.replace("[python t.py]", "[]"), "`taskRoles.w.commands`", "at least one command"),
        (
            f"extras: {{com.microsoft.pai.runtimeplugin: [{{plugin: hdfs}}]}}\n{SMALL}",
            "`extras.com.microsoft.pai.runtimeplugin[0].plugin`",
            "there is no plug-in 'hdfs' here",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, expected: str) -> None:
    with pytest.raises(BadUsage) as wrong:
        _parsed(text)
    assert place in wrong.value.message
    assert expected in wrong.value.message


FIRST = {
    "jobName": "demo", "image": "example/tensorflow", "virtualCluster": "default", "retryCount": 2,
    "codeDir": "hdfs://10.0.0.1/code", "outputDir": "hdfs://10.0.0.1/out", "gpuType": "K80", "jobEnvs": {"A": 1},
    "taskRoles": [
        {"name": "worker", "taskNumber": 2, "cpuNumber": 2, "memoryMB": 4096, "gpuNumber": 1, "shmMB": 64,
         "minSucceededTaskCount": 1, "command": "from x import y\nz",
         "portList": [{"label": "http", "beginAt": 8000, "portNumber": 2}]},
        {"name": "ps", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 1, "gpuNumber": 0, "command": "sleep 9"},
    ],
}  # fmt: skip


def test_every_key_of_the_first_protocol() -> None:
    job = _parsed(json.dumps(FIRST))
    spec = job.spec
    assert (spec.name, spec.image, spec.virtual_cluster, spec.pai) == ("demo", "example/tensorflow", "default", True)
    assert spec.restarts.max_restarts == 2
    worker, server = spec.roles
    assert worker.command == ("bash", "-c", _script("from x import y\nz"))
    assert (worker.count, worker.env, worker.ports) == (2, {"A": "1"}, {"http": 2})
    assert worker.resources == Resources(cpus=2, memory_bytes=4 << 30, devices=1)
    assert (worker.completion, server.completion) == (Completion(min_succeeded=1), Completion())
    assert spec.runtime.prerequisites == (Prerequisite(name="code", uri="hdfs://10.0.0.1/code"),)
    assert [note.partition(":")[0] for note in job.notes] == [
        "outputDir, gpuType", "taskRoles[0].shmMB", "taskRoles[0].portList",
    ]  # fmt: skip


def test_mistakes_in_the_first_protocol() -> None:
    with pytest.raises(BadUsage) as wrong:
        _parsed(json.dumps({**FIRST, "taskRoles": [{"name": "w", "comand": "x", "taskNumber": "a"}]}))
    assert "`taskRoles[0]`: there is no key `comand`" in wrong.value.message
    assert "`taskRoles[0].taskNumber`: expected `int`" in wrong.value.message


OPENPAI_JOB = """\
protocolVersion: 2
name: for-real
type: job
prerequisites: [{name: i, type: dockerimage, uri: example/i}]
parameters: {word: 0.10}
secrets: {token: s3cr3t-t0ken}
taskRoles:
  worker:
    instances: 2
    dockerImage: i
    commands:
      - "export TOLD=$PAI_TASK_ROLE_helper_HOST_LIST # the next command has it"
      - exec > $OUT/o.$RANK
      - echo "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX <% $parameters.word %> $TOLD" '<% $secrets.token %>'
      - tr '\\0' ' ' < /proc/$$/cmdline > $OUT/words.$RANK
  helper:
    commands: [sleep 60]
    completion: {minSucceededInstances: -1}
"""


def _kept(tmp_path: Path) -> list[Path]:
    """The files of the record; links lead to the user's own."""
    found = (tmp_path / "home").rglob("*")
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _run_openpai(tmp_path: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.yaml").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--no-checks", *words, "--job", "job.yaml"], cwd=tmp_path,
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "OUT": str(tmp_path)},
        capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.mark.real
def test_a_job_of_openpai_runs_on_one_machine(tmp_path: Path) -> None:
    done = _run_openpai(tmp_path, OPENPAI_JOB)
    assert done.returncode == 0, done.stderr
    assert "image example/i: no container is started here" in done.stderr
    for index in range(2):
        assert (tmp_path / f"o.{index}").read_text() == f"{index} 0.10 127.0.0.1 s3cr3t-t0ken\n"
        assert "s3cr3t" not in (tmp_path / f"words.{index}").read_text()
    kept = b"".join(path.read_bytes() for path in _kept(tmp_path))
    assert b"s3cr3t" not in kept


@pytest.mark.real
def test_a_secret_that_a_worker_prints_is_not_in_its_report(tmp_path: Path) -> None:
    done = _run_openpai(
        tmp_path, OPENPAI_JOB.replace("- tr", "- echo got <% $secrets.token %> >&2; exit 3 #"), "--verbose"
    )
    assert done.returncode != 0 and "got ***" in done.stderr
    kept = [path for path in _kept(tmp_path) if b"s3cr3t" in path.read_bytes()]
    assert {path.name for path in kept} <= {"stderr.log"}


@pytest.mark.real
def test_a_variable_may_be_a_secret(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("")
    text = (
        "name: x\nsecrets: {token: {env: MY_TOKEN}}\nroles: {w: {count: 1, env: {T: 'a <% $secrets.token %>'}, "
        "command: [sh, -c, 'echo \"$T\" > out']}}\n"
    )
    os.environ["MY_TOKEN"] = "of-the-environment"
    try:
        done = _run_openpai(tmp_path, text)
    finally:
        del os.environ["MY_TOKEN"]
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "a of-the-environment\n"


def test_a_job_file_of_holdfast_has_its_references_judged(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: x\nparameters: {lr: 1}\nroles: {w: {count: 1, command: [a, '<% $parameters.rl %>']}}\n"
        "plugins: {hooks: [{when: always, command: [b, '<% $secrets.k %>']}]}\n"
    )
    with pytest.raises(BadUsage) as wrong:
        load(tmp_path / "job.yaml")
    assert "`roles.w.command`: there is no name in `parameters` 'rl'; expected one of: lr" in wrong.value.message
    assert "`plugins.hooks[0].command`: there is no name in `secrets` 'k'" in wrong.value.message


@pytest.mark.real
@pytest.mark.parametrize(
    ("commands", "status", "words"),
    [
        (["python3 -c 'raise SystemExit(\"no dataset\")' 2>&1 | tee l"], 1, "no dataset"),
        (['echo "to $OUTPUT_DRI"'], 1, "OUTPUT_DRI, which is not set"),
        (["if true; then false; echo after; fi"], 1, ""),
        (["cd nowhere && echo there"], 1, "nowhere"),
        (["exit 7"], 7, ""),
        (["sh -c 'exit 9' # and a note"], 9, ""),
        (["set +e", "false; echo next"], 0, ""),
        (["false || true", 'echo "${OUTPUT_DRI:-none}"', "if false; then echo; fi", "true &"], 0, ""),
        (["cat <<E\n$PAI_TASK_INDEX | b\nE"], 0, ""),
    ],
)
def test_commands_end_at_the_first_that_fails(tmp_path: Path, commands: list[str], status: int, words: str) -> None:
    role = {"commands": [*commands, "echo THE END"], "completion": {"minFailedInstances": 1}}
    job = {"protocolVersion": 2, "name": "x", "type": "job", "taskRoles": {"w": role}}
    done = _run_openpai(tmp_path, json.dumps(job), "--exit-status", "user")
    assert done.returncode == status, done.stderr
    assert ("THE END" in done.stdout) == (status == 0)
    assert words in " ".join((done.stdout + done.stderr).split())


@pytest.mark.real
def test_a_shell_without_pipefail_still_ends_at_a_failure(tmp_path: Path) -> None:
    for text, expected in (("false; echo on", 1), ("true", 0), ('echo "$NOT_SET_HERE"', 2)):
        script = script_of(Mistakes(Path("job.yaml")), "commands", [text, "echo end"], "sh")
        done = subprocess.run(["dash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "end" in done.stdout) == (expected, expected == 0), done.stderr


TWO_TASKS = """\
protocolVersion: 2
name: two_tasks
type: job
jobRetryCount: 1
taskRoles:
  worker:
    instances: 2
    commands:
      - mkdir work
      - cd work
      - 'test "$PWD" = "$PAI_WORK_DIR/work"'
      - echo "$PAI_TASK_INDEX" > index
      - touch "$OUT/up-$RANK.$HOLDFAST_ATTEMPT"
      - while test "$(ls $OUT/*.$HOLDFAST_ATTEMPT | wc -l)" -lt 2; do sleep 0.1; done
      - test "$(cat index)" = "$PAI_TASK_INDEX"
      - cat ../code.txt
      - test "$HOLDFAST_ATTEMPT" = 2
"""


@pytest.mark.real
def test_each_task_on_a_machine_has_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "code.txt").write_text("the code\n")
    done = _run_openpai(tmp_path, TWO_TASKS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("each task here starts in a directory of its own") == 1
    assert not (tmp_path / "work").exists()
    works = sorted(path.relative_to(tmp_path) for path in (tmp_path / "home").rglob("attempt-2/*/work/work/index"))
    assert [path.parts[-4] for path in works] == ["worker-0", "worker-1"]


@pytest.mark.real
def test_a_task_alone_on_its_machine_starts_where_the_job_does(tmp_path: Path) -> None:
    job = TWO_TASKS.replace("instances: 2", "instances: 1").partition("      - 'test")[0]
    done = _run_openpai(tmp_path, job)
    assert done.returncode == 0 and "directory of its own" not in done.stderr
    assert (tmp_path / "work").is_dir()
