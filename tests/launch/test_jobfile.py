"""Job files: what they mean, and one message with file, path and expectation for what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.jobfile.job_file_reader import load, parsed
from holdfast.launch.jobfile.secret_values import hidden
from holdfast.model.check_results import CheckChoice
from holdfast.model.job_spec import Completion, JobKind, Resources
from holdfast.model.runtime_plan import Daemon, Hook, HookMoment, OnFailure, Prerequisite, Ssh
from holdfast.node.prechecks.check_planning import plan_checks

GOOD = """
name: night-run
kind: inference
roles:
  worker:
    count: 2
    command: [python, t.py, --lr, "0.1"]
    env: {A: 1, B: true, C: x}
    resources: {memory: 512M, cpus: 0.5}
    completion: {min_failed: 2, min_succeeded: 1}
  evaluator:
    count: 1
    command: python eval.py "two words"
restarts: {max_restarts: 7, backoff_s: 0.5}
checks: [disk, {ports: {ports: 8080}}]
grace: 12
hang_timeout: 60
time_limit: 3600
"""


def test_every_key(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    spec = load(path).spec
    worker, evaluator = spec.roles
    assert (spec.name, spec.kind, spec.world_size) == ("night-run", JobKind.INFERENCE, 3)
    assert worker.command == ("python", "t.py", "--lr", "0.1")
    assert worker.env == {"A": "1", "B": "true", "C": "x"}
    assert worker.resources == Resources(memory_bytes=512 << 20, cpus=0.5)
    assert worker.completion == Completion(min_failed=2, min_succeeded=1)
    assert evaluator.command == ("python", "eval.py", "two words")
    assert evaluator.completion == Completion(min_failed=1, min_succeeded=None)
    assert (spec.restarts.max_restarts, spec.restarts.backoff_s) == (7, 0.5)
    assert spec.checks == (CheckChoice(name="disk"), CheckChoice(name="ports", params={"ports": 8080}))
    assert (spec.timers.grace_s, spec.hang_timeout_s, spec.time_limit_s) == (12.0, 60.0, 3600.0)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "", "expected a mapping"),
        ("[1, 2]", "", "expected a mapping"),
        ("name: x", "", "the key `roles` is missing"),
        ("roles: {w: {count: 1, command: [a]}}", "", "the key `name` is missing"),
        ("name: x\nroles: {}", "`roles`", "at least one role"),
        ('name: x\nroles: {w: {count: 1, command: "a > f"}}', "`roles.w.command`", "write [sh, -c, 'a > f']"),
        ('name: x\nroles: {w: {count: 1, command: "a \'b"}}', "`roles.w.command`", "left open"),
        ("name: x\nrolse: {}", "", "there is no key `rolse`"),
        ("name: x\nrolse: {}", "", "did you mean `roles`?"),
        (
            "nmae: x\nroles: {w: {count: 1, comand: [a]}}\nrestarts: {max_restart: 1}",
            "has 3 mistakes:",
            "did you mean `name`? expected some of: name, roles, ",
        ),
        (
            "nmae: x\nroles: {w: {count: 1, comand: [a]}}\nrestarts: {max_restart: 1}",
            "`restarts`: there is no key `max_restart`",
            "same_failure\n  - `roles.w`: there is no key `comand`; did you mean `command`?",
        ),
        ("name: 'a b'\nroles: {w: {count: 1, command: [a]}}", "`name`", "letters, digits"),
        ("name: x\nroles: {w: 3}", "`roles.w`", "expected a mapping with `count` and `command`"),
        ("name: x\nroles: {w: {count: two, command: [a]}}", "`roles.w.count`", "expected `int`"),
        ("name: x\nroles: {w: {count: 1, command: [sleep, 1]}}", "`roles.w.command[1]`", "as text stands in quotes"),
        ("name: x\nroles: {w: {count: 0, command: [a]}}", "`roles.w.count`", "expected 1 or more, got 0"),
        ("name: x\nroles: {w: {count: 1, command: []}}", "`roles.w.command`", "expected a command"),
        ("name: x\nroles: {w: {count: 1}}", "`roles.w`", "the key `command` is missing"),
        ("name: x\nroles: {w: {count: 1, command: [a], cpu: 3}}", "`roles.w`", "there is no key `cpu`"),
        (
            "name: x\nroles: {w: {count: 1, command: [a], resources: {memroy: 1G}}}",
            "`roles.w.resources`",
            "there is no key `memroy`; did you mean `memory`? expected some of: memory, cpus, devices",
        ),
        ("name: x\nroles: {'../w': {count: 1, command: [a]}}", "`roles.../w`", "role's name"),
        (
            "name: x\nroles: {w: {count: 2, command: [a], completion: {min_failed: 3}}}",
            "`roles.w.completion.min_failed`",
            "expected 1 to 2",
        ),
        (
            "name: x\nroles: {w: {count: 1, command: [a], resources: {memory: lots}}}",
            "`roles.w.resources.memory`",
            "500M, 16GiB or 1.5T",
        ),
        (
            "name: x\nroles: {w: {count: 1, command: [a], resources: {memory: 900T}}}",
            "`roles.w.resources.memory`",
            "expected at most this machine's",
        ),
        (
            "name: x\nroles: {w: {count: 1, command: [a], resources: {cpus: 100000}}}",
            "`roles.w.resources.cpus`",
            "at most this machine's",
        ),
        (
            "name: x\ngrace: -1\nroles: {w: {count: 1, command: [a]}}",
            "`grace`",
            "expected seconds, or a time such as 5m, 2h or 1d12h, 0 or more, got -1",
        ),
        ("name: x\nkind: toy\nroles: {w: {count: 1, command: [a]}}", "`kind`", "invalid enum value 'toy'"),
        ("name: x\nrestarts: {max: 1}\nroles: {w: {count: 1, command: [a]}}", "`restarts`", "there is no key `max`"),
        (
            "name: x\nchecks: [{a: {}, b: {}}]\nroles: {w: {count: 1, command: [a]}}",
            "`checks[0]`",
            "one with its parameters",
        ),
        ("name: x\nroles: {w: {count: 200000, command: [a]}}", "`roles`", "at most 100000 workers"),
        ("name: [x\n", "line 1", "the `[` that opens here is not closed"),
        ("name: \x00", "", "not allowed"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, place: str, expected: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(BadUsage) as wrong:
        load(path)
    message = wrong.value.message
    assert str(path) in message
    assert place in message
    assert expected in message
    assert wrong.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="No such file"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(BadUsage, match="directory"):
        load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadUsage, match="not a text file"):
        load(tmp_path / "binary")


UNITS = """
name: night
grace: 1m
hang_timeout: 1h30m
hang_warning: 2h
time_limit: 1d12h
restarts: {window_s: 1d, backoff_s: 500ms, backoff_cap_s: 5m, healthy_s: 10 min}
checks: [{disk: {timeout: 2m, interval: 5s}}, {standing: {xid_window_s: 2d}}]
prerequisites: {data: {uri: "s3://b/d.tar", max_size: 500GB}}
plugins: {hooks: [{when: taskFails, command: [./tell.sh], limit: 2m}]}
roles: {w: {count: 1, command: [a], resources: {memory: 64M}}}
"""


def test_each_duration_and_size_takes_units(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(UNITS)
    spec = load(path).spec
    found = (spec.timers.grace_s, spec.hang_timeout_s, spec.hang_warning_s, spec.time_limit_s)
    assert found == (60.0, 5400.0, 7200.0, 129_600.0)
    restarts = spec.restarts
    assert (restarts.window_s, restarts.backoff_s, restarts.backoff_cap_s, restarts.healthy_s) == (
        86_400,
        0.5,
        300,
        600,
    )
    assert spec.runtime.hooks[0].limit_s == 120.0
    assert spec.runtime.prerequisites[0].most_bytes == 500 << 30
    assert spec.roles[0].resources.memory_bytes == 64 << 20
    disk, _ = [each.step for each in plan_checks(spec.checks).checks]
    assert (disk.limit_s, disk.interval_s) == (120.0, 5.0)


@pytest.mark.parametrize(
    "line",
    [
        "grace: 5x",
        "hang_timeout: 0s",
        "hang_warning: -5m",
        "time_limit: 1h30",
        "restarts: {window_s: long}",
        "plugins: {hooks: [{when: taskFails, command: [a], limit: 5G}]}",
    ],
)
def test_a_wrong_unit_is_one_message_with_the_place_and_the_form(tmp_path: Path, line: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: x\n{line}\nroles: {{w: {{count: 1, command: [a]}}}}\n")
    with pytest.raises(BadUsage, match="expected seconds, or a time such as 5m, 2h or 1d12h") as wrong:
        load(path)
    assert wrong.value.message.count("expected") == 1


# ------------------------------------------------------------------------------------------------------- the runtime

RUNTIME = """
name: night
image: registry.example/train:1.2
user: ada
virtual_cluster: gpu
parameters: {lr: 0.10, deep: {a: [x, yes]}, empty: null}
prerequisites:
  data: {uri: "s3://b/d.tar", into: d, sha256: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA,
         max_size: 2G, extract: true, tries: 2}
  code: git+https://example.org/x.git@main
plugins:
  ssh: {keys: "ssh-ed25519 AAAA ada", port: 2222}
  daemons: {logs: {command: tail -f x, env: {A: 1}, roles: worker, required: true, restarts: 0}}
  hooks: [{when: taskFails, command: [./tell.sh], roles: [worker], on_failure: ignore, limit: 5}]
kubernetes: {queue: x}
roles:
  worker: {count: 1, command: "python t.py --lr <% $parameters.lr %>", image: other, ports: {http: 2}}
"""


def _load(tmp_path: Path, text: str) -> JobFile:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load(path)


def test_every_key_of_the_runtime(tmp_path: Path) -> None:
    spec = _load(tmp_path, RUNTIME).spec
    assert (spec.image, spec.user, spec.virtual_cluster) == ("registry.example/train:1.2", "ada", "gpu")
    assert spec.parameters == {"lr": "0.10", "deep.a[0]": "x", "deep.a[1]": "yes", "empty": ""}
    data, code = spec.runtime.prerequisites
    assert data == Prerequisite(
        name="data", uri="s3://b/d.tar", into="d", sha256="a" * 64, most_bytes=2 << 30, extract=True, tries=2
    )
    assert code == Prerequisite(name="code", uri="git+https://example.org/x.git@main")
    assert spec.runtime.ssh == Ssh(keys=("ssh-ed25519 AAAA ada",), port=2222)
    assert spec.runtime.daemons == (
        Daemon(name="logs", command=("tail", "-f", "x"), env={"A": "1"}, roles=("worker",), required=True, restarts=0),
    )
    assert spec.runtime.hooks == (
        Hook(
            when=HookMoment.FAILED, command=("./tell.sh",), roles=("worker",), on_failure=OnFailure.IGNORE, limit_s=5.0
        ),
    )
    [role] = spec.roles
    assert (role.image, role.ports) == ("other", {"http": 2})
    assert role.command == ("python", "t.py", "--lr", "<% $parameters.lr %>")


def test_a_door_is_opened_only_where_the_file_asks_for_it(tmp_path: Path) -> None:
    text = "name: x\nroles: {w: {count: 1, command: [a]}}\nplugins: {ssh: %s}\n"
    assert _load(tmp_path, text % "true").spec.runtime.ssh == Ssh()
    assert _load(tmp_path, text % "false").spec.runtime.ssh is None


@pytest.mark.parametrize(
    ("keys", "place", "expected"),
    [
        ("prerequisites: [a]", "`prerequisites`", "expected a mapping of names"),
        ("prerequisites: {d: {url: x}}", "`prerequisites.d`", "there is no key `url`"),
        ("prerequisites: {d: {url: x}}", "`prerequisites.d`", "did you mean `uri`?"),
        ("prerequisites: {d: {}}", "`prerequisites.d`", "the key `uri` is missing"),
        ("prerequisites: {d: {uri: x, into: a/../b}}", "`prerequisites.d.into`", "without `..`"),
        ("prerequisites: {d: {uri: x, sha256: abc}}", "`prerequisites.d.sha256`", "64 hexadecimal digits"),
        ("prerequisites: {d: {uri: x, max_size: big}}", "`prerequisites.d.max_size`", "500M, 16GiB or 1.5T"),
        ("prerequisites: {d: {uri: x, tries: 0}}", "`prerequisites.d.tries`", "expected 1 to 100, got 0"),
        ("prerequisites: {'a/b': {uri: x}}", "`prerequisites.a/b`", "letters, digits"),
        ("plugins: {sshd: true}", "`plugins`", "did you mean `ssh`?"),
        ("plugins: {ssh: yes please}", "`plugins.ssh`", "expected a mapping with some of: keys, port, required"),
        ("plugins: {ssh: {port: 70000}}", "`plugins.ssh.port`", "expected a port"),
        ("plugins: {ssh: {keys: [AAAA]}}", "`plugins.ssh.keys[0]`", "one line of a `*.pub` file"),
        ("plugins: {ssh: {keys: ['-----BEGIN OPENSSH PRIVATE KEY-----']}}", "keys[0]", "expected the public one"),
        ("plugins: {daemons: {d: {}}}", "`plugins.daemons.d`", "the key `command` is missing"),
        ("plugins: {daemons: {d: {command: [a], roles: [x]}}}", "`plugins.daemons.d.roles`", "there is no role 'x'"),
        ("plugins: {daemons: {d: {command: [a], restarts: -1}}}", "restarts`", "expected 0 to 10000"),
        ("plugins: {hooks: {}}", "`plugins.hooks`", "expected a list"),
        ("plugins: {hooks: [{when: never, command: [a]}]}", "`plugins.hooks[0].when`", "invalid enum value 'never'"),
        ("plugins: {hooks: [{when: always, command: 'a > b'}]}", "hooks[0].command`", "write [sh, -c, 'a > b']"),
        ("plugins: {hooks: [{when: always, command: [a], limit: 0}]}", "hooks[0].limit`", "more than 0"),
        ("parameters: [1]", "`parameters`", "expected a mapping"),
        ("parameters: {'a b': 1}", "`parameters.a b`", "letters, digits"),
        ("secrets: {t: [a]}", "`secrets.t`", "{env: VARIABLE} or {file: PATH}, got a list"),
        ("secrets: {t: {env: HF_NOT_THERE}}", "`secrets.t.env`", "HF_NOT_THERE is not set here"),
        ("secrets: {t: {evn: HF_NOT_THERE}}", "`secrets.t`", "did you mean `env`?"),
        ("secrets: {t: {file: /nowhere/x}}", "`secrets.t.file`", "/nowhere/x: no such file"),
        ("secrets: {t-1: x}", "`secrets.t-1`", "letters, digits and `_`"),
        ("image: a b", "`image`", "without spaces"),
        ("user: ' a'", "`user`", "without spaces around it"),
        ("virtualCluster: a\nvirtual_cluster: b", "`virtual_cluster`", "`virtualCluster` says the same"),
    ],
)
def test_what_is_wrong_with_a_key_of_the_runtime(tmp_path: Path, keys: str, place: str, expected: str) -> None:
    with pytest.raises(BadUsage) as wrong:
        _load(tmp_path, f"name: x\nroles: {{w: {{count: 1, command: [a]}}}}\n{keys}\n")
    assert place in wrong.value.message
    assert expected in wrong.value.message


@pytest.mark.parametrize("ports", ["{a b: 1}", "{http: 0}"])
def test_ports_that_cannot_be_reserved_are_refused(tmp_path: Path, ports: str) -> None:
    with pytest.raises(BadUsage, match=r"roles\.w\.ports"):
        _load(tmp_path, f"name: x\nroles: {{w: {{count: 1, command: [a], ports: {ports}}}}}\n")


def test_one_message_has_all_mistakes(tmp_path: Path) -> None:
    with pytest.raises(BadUsage) as wrong:
        _load(
            tmp_path,
            "name: 3\ngrace: x\nroles: {w: {count: 1, command: [a], env: 3, image: 4}, v: {count: a, command: [a]}}\n"
            "prerequisites: {d: 5}\nplugins: {daemons: {z: {command: [a], roles: [v, q]}}}\n",
        )
    places = re.findall(r"`([\w.]+)`: ", wrong.value.message)
    assert places == [
        "name", "grace", "roles.w.env", "roles.w.image", "roles.v.count", "prerequisites.d", "plugins.daemons.z.roles",
    ]  # fmt: skip


def test_very_many_mistakes_are_counted(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="and 18 more"):
        _load(tmp_path, "name: x\nroles: {" + ", ".join(f"r{i}: 3" for i in range(30)) + "}")


# -------------------------------------------------------------------------------------------------------- the secrets

SMALL_JOB = "name: x\nroles: {w: {count: 1, command: [a]}}"
THREE_SECRETS = (
    "name: x\nroles: {w: {count: 1, command: [a]}}\nsecrets: {one: {env: MY_TOKEN}, two: {file: %s}, three: 'p w'}\n"
)


def test_the_values_of_secrets_stand_beside_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "t0ps3cret")
    (tmp_path / "password").write_text("hunter2\n")
    job = _load(tmp_path, THREE_SECRETS % (tmp_path / "password"))
    assert job.secrets == {"one": "t0ps3cret", "two": "hunter2", "three": "p w"}
    assert b"hunter2" not in msgspec.json.encode(job.spec) and "hunter2" not in repr(job)


def test_submit_fetches_no_secret(tmp_path: Path) -> None:
    job = parsed(Path("j"), (THREE_SECRETS % "/nowhere").encode(), here=False)
    assert job.secrets == {"three": "p w"}


def test_a_file_of_secrets_wins_over_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all.json").write_text('{"one": "1", "two": "2", "three": "3"}')
    monkeypatch.setenv("HOLDFAST_SECRETS", str(tmp_path / "all.json"))
    assert _load(tmp_path, THREE_SECRETS % "/nowhere").secrets == {"one": "1", "two": "2", "three": "3"}
    (tmp_path / "all.json").write_text("[]")
    with pytest.raises(BadUsage, match="expected one JSON object"):
        _load(tmp_path, THREE_SECRETS % "/nowhere")


def test_a_copy_of_a_job_file_has_no_value_of_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# ü\n" + SMALL_JOB + "\nsecrets:\n  a: pa ss\n  b: {env: B}\n  c: |\n    l1\n    l2\n  d: 5\n"
    copy = hidden(text.encode())
    assert not any(word in copy for word in (b"pa ss", b"l1", b"l2", b"5"))
    assert b"# \xc3\xbc" in copy
    monkeypatch.setenv("B", "v")
    with pytest.raises(BadUsage, match=r"`secrets\.a`: this copy of the job file has no value"):
        parsed(Path("j"), copy)
    (tmp_path / "all.json").write_text('{"a": "1", "c": "2", "d": "3"}')
    monkeypatch.setenv("HOLDFAST_SECRETS", str(tmp_path / "all.json"))
    assert parsed(Path("j"), copy).secrets == {"a": "1", "b": "v", "c": "2", "d": "3"}


def test_a_message_about_a_secret_has_no_value_of_it(tmp_path: Path) -> None:
    with pytest.raises(BadUsage) as wrong:
        _load(tmp_path, "name: x\nroles: {w: {count: 1, command: [a]}}\nsecrets: {a: [hunter2], b: {c: hunter2}}\n")
    assert "hunter2" not in wrong.value.message
