"""Job files: what they mean, and one message with file, path and expectation for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.loop.jobfile import load, size
from holdfast.model.checks import CheckChoice
from holdfast.model.jobs import Completion, Kind, Resources

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
    assert (spec.name, spec.kind, spec.world_size) == ("night-run", Kind.INFERENCE, 3)
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
        ("nmae: x\nroles: {w: {count: 1, comand: [a]}}\nrestarts: {max_restart: 1}", "", "did you mean `name`?; also"),
        (
            "nmae: x\nroles: {w: {count: 1, comand: [a]}}\nrestarts: {max_restart: 1}",
            "`restarts`: there is no key `max_restart`",
            "did you mean `max_restarts`?; also `roles.w`: there is no key `comand`",
        ),
        ("name: 'a b'\nroles: {w: {count: 1, command: [a]}}", "`name`", "letters, digits"),
        ("name: x\nroles: {w: 3}", "`roles.w`", "expected a mapping with `count` and `command`"),
        ("name: x\nroles: {w: {count: two, command: [a]}}", "`roles.w.count`", "expected `int`"),
        ("name: x\nroles: {w: {count: 0, command: [a]}}", "`roles.w.count`", "expected 1 or more, got 0"),
        ("name: x\nroles: {w: {count: 1, command: []}}", "`roles.w.command`", "expected a command"),
        ("name: x\nroles: {w: {count: 1}}", "`roles.w`", "the key `command` is missing"),
        ("name: x\nroles: {w: {count: 1, command: [a], cpu: 3}}", "`roles.w`", "there is no key `cpu`"),
        (
            "name: x\nroles: {w: {count: 1, command: [a], resources: {memroy: 1G}}}",
            "`roles.w.resources`",
            "there is no key `memroy`; expected some of: memory, cpus, devices",
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
            "500M or 16GiB",
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
        ("name: x\ngrace: -1\nroles: {w: {count: 1, command: [a]}}", "`grace`", "number of seconds"),
        ("name: x\nkind: toy\nroles: {w: {count: 1, command: [a]}}", "`kind`", "invalid enum value 'toy'"),
        ("name: x\nrestarts: {max: 1}\nroles: {w: {count: 1, command: [a]}}", "`restarts`", "there is no key `max`"),
        (
            "name: x\nchecks: [{a: {}, b: {}}]\nroles: {w: {count: 1, command: [a]}}",
            "`checks[0]`",
            "one with its parameters",
        ),
        ("name: x\nroles: {w: {count: 200000, command: [a]}}", "`roles`", "at most 100000 workers"),
        ("name: [x\n", "line 2", "expected"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024", 1024),
        (7, 7),
        ("1K", 1024),
        ("1.5 MiB", 3 << 19),
        ("2GB", 2 << 30),
        ("1t", 1 << 40),
        ("1X", None),
        ("", None),
    ],
)
def test_sizes(text: str | int, expected: int | None) -> None:
    assert size(text) == expected
