"""What `--json` prints is what its published schema says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

import typed_here
from holdfast.cli.options.verb_group import cli
from holdfast.cli.schema import NO_DATA, PRINTED, names, of_job_files
from places import ROOT

jsonschema = pytest.importorskip("jsonschema")
#: Of a schema, where that is not the first.
SCHEMA_VERSIONS: dict[str, int] = {}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One job that failed, and one that did not."""
    where = tmp_path_factory.mktemp("schemas")
    (where / "bad.py").write_text("print('to stdout')\n[1][5]")
    for words in (["bad.py"], ["--no-python", "true"]):
        typed_where(where, "run", "--no-checks", "--max-restarts", "1", *words)
    typed_where(where, "faults", "report", "--device", "gpu2", "--code", "79")
    (where / "codes.json").write_text("{}")
    (where / "rows.yaml").write_text("[]")
    (where / "events.jsonl").write_text('{"at": 5, "device": "gpu0", "code": "79", "assertion": "occur"}\n')
    (where / "job.yaml").write_text(
        "name: x\nroles: {worker: {count: 1, command: ['true']}}\n"
        "kubernetes: {image: i, holdfast_image: h, namespace: n}\n"
    )
    return where


def typed_where(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOLDFAST_HOME": str(where / "home")}
    if words[0] != "run":
        return typed_here.typed(*words, cwd=where, env=env)
    command = [sys.executable, "-m", "holdfast", *words]
    stdin = subprocess.DEVNULL
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False, stdin=stdin)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("report", ["show", "bad", "--json"]),
        ("report", ["show", "true", "--json"]),
        ("report", ["explain", "bad", "--json"]),
        ("report", ["run", "--no-checks", "--max-restarts", "0", "--json", "bad.py"]),
        ("jobs", ["jobs", "--json"]),
        ("pruned", ["prune", "--dry-run", "--keep-jobs", "1", "--json"]),
        ("doctor", ["doctor", "--json"]),
        ("log-files", ["logs", "bad", "--path", "--json"]),
        ("log-line", ["logs", "bad", "--stdout", "--json"]),
        ("stopped", ["stop", "bad", "--reason", "it is over", "--json"]),
        ("fault-reported", ["faults", "report", "--device", "gpu0", "--code", "79", "--dry-run", "--json"]),
        ("fault-reported", ["faults", "report", "--device", "gpu1", "--code", "79", "--json"]),
        ("released", ["release", "gpu2", "--reason", "it was replaced", "--json"]),
        ("fault-codes", ["faults", "list", "--json"]),
        ("fault-lint", ["faults", "lint", "codes.json", "--json"]),
        ("fault-change", ["faults", "replay", "events.jsonl", "--json"]),
        ("would-submit", ["submit", "--dry-run", "--json", "job.yaml"]),
        ("lint", ["exits", "lint", "rows.yaml", "--json"]),
        ("devices", ["devices", "--json"]),
        ("exits", ["exits", "--json"]),
        ("config", ["config", "--json"]),
        ("checks", ["check", "disk", "--json"]),
        ("check-list", ["check", "--list", "--json"]),
    ],
)
def test_what_is_printed_is_what_its_schema_says(home: Path, schema: str, words: list[str]) -> None:
    done = typed_where(home, *words)
    told = json.loads(done.stdout)  # and nothing else is on stdout, a worker's output neither
    published = json.loads(typed_where(home, "schema", schema).stdout)
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(told, published)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**told, "schema": "holdfast.other/1"}, published)


def commands(of: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(of, click.Group):
        yield " ".join(words), of
        return
    for name in of.list_commands(click.Context(of)):
        command = of.get_command(click.Context(of), name)
        assert command is not None
        yield from commands(command, (*words, name))


@pytest.mark.parametrize(("words", "command"), [pytest.param(*each, id=each[0]) for each in commands(cli)])
def test_every_command_prints_json_with_a_published_schema(words: str, command: click.Command) -> None:
    forms = {form for param in command.params for form in param.opts}
    assert (words in PRINTED) != (words in NO_DATA), "a new command needs --json, and its schemas in PRINTED"
    assert ("--json" in forms) == (words in PRINTED)
    page = (ROOT / "docs/reference/schemas.md").read_text()
    for name in PRINTED.get(words, ()):
        assert name in names(), f"report/schemas/{name}.json is missing"
        assert f"| `{words}` | `{name}` |" in page


def test_every_schema_is_of_a_command() -> None:
    printed = {name for each in PRINTED.values() for name in each}
    assert printed | {"jobfile"} == set(names())
    assert set(PRINTED) | set(NO_DATA) == {words for words, _ in commands(cli)}


def test_a_schema_names_itself_as_what_is_printed_does() -> None:
    for name in set(names()) - {"jobfile", "core-status"}:
        schema = json.loads((ROOT / f"src/holdfast/report/schemas/{name}.json").read_text())
        assert (
            schema["properties"]["schema"]["const"].replace("_", "-")
            == f"holdfast.{name}/{SCHEMA_VERSIONS.get(name, 1)}"
        )
        assert "schema" in schema["required"]


def test_what_is_printed_of_a_cluster_is_what_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli.job_access.cluster_jobs import _plain
    from holdfast.platforms.kubernetes.objects.job_status import ClusterJob, ClusterJobState

    job = _plain(ClusterJob(name="x", namespace="n", uid="u", state=next(iter(ClusterJobState)), created=5.0))
    whole = {"schema": "holdfast.cluster_jobs/1", "namespace": "n", "jobs": [job]}
    jsonschema.validate(whole, json.loads((ROOT / "src/holdfast/report/schemas/cluster-jobs.json").read_text()))
    one = {"schema": "holdfast.cluster_job/1", **job, "placement": None, "events": [], "report": None}
    jsonschema.validate(one, json.loads((ROOT / "src/holdfast/report/schemas/cluster-job.json").read_text()))


def test_all_schemas_have_a_name_and_another_is_refused_with_them(home: Path) -> None:
    assert typed_where(home, "schema").stdout.split() == names()
    done = typed_where(home, "schema", "job")
    assert done.returncode == 2 and "jobfile" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_of_job_files_fit_the_schema_of_job_files(path: Path) -> None:
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict) or "roles" not in found:
        pytest.skip("no job file")
    jsonschema.validate(found, of_job_files())


def test_a_wrong_key_of_a_job_file_does_not_fit() -> None:
    good = {"name": "x", "roles": {"worker": {"count": 1, "command": ["true"]}}}
    jsonschema.validate(good, of_job_files())
    for wrong in ({**good, "nam": 1}, {"name": "x"}, {**good, "roles": {"worker": {"cuont": 1, "command": "true"}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, of_job_files())
