"""`holdfast run --events`: JSON lines with stable names on stdout, and all that a person reads on stderr."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from conftest import Holdfast
from holdfast.model.event_lines import EventKind
from places import ROOT

SCHEMA = json.loads((ROOT / "src/holdfast/report/schemas/event.json").read_text())
DIES_ONCE = """
import os
print("words of a worker", flush=True)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), 11)
"""


def event_lines(text: str) -> list[dict[str, Any]]:
    jsonschema = pytest.importorskip("jsonschema")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        jsonschema.validate(line, SCHEMA)
    return lines


@pytest.mark.real
def test_a_death_and_a_restart_are_lines_on_stdout_and_nothing_else_is(holdfast: Holdfast) -> None:
    ran = holdfast.run(
        "--events", "--no-checks", "--nproc-per-node", "2", "--max-restarts", "1", holdfast.script(DIES_ONCE)
    )
    assert ran.status == 0
    lines = event_lines(ran.out)
    assert [line["event"] for line in lines] == [
        "job_started",
        "attempt_started",
        "worker_exited",
        "attempt_ended",
        "attempt_started",
        "attempt_ended",
        "job_ended",
    ]
    died, ended, last = lines[2], lines[3], lines[-1]
    assert (died["attempt"], died["rank"], died["signal"], died["status"]) == (1, 1, 11, None)
    assert (ended["report"]["phrase"], ended["decision"]["kind"]) == ("NativeCrash", "restart")
    assert (last["outcome"], last["code"]) == ("succeeded", 0)
    assert last["report"]["job"]["id"] == last["job"]["id"]
    assert "words of a worker" in ran.err and "SUCCEEDED" in ran.err


@pytest.mark.real
def test_a_stop_is_told_and_a_secret_is_not(holdfast: Holdfast) -> None:
    script = holdfast.script("raise SystemExit('token ghp_abcdefghijklmnopqrstuvwxyz0123456789')")
    ran = holdfast.run("--events", "--json", "--no-checks", "--max-restarts", "0", script)
    lines = event_lines(ran.out)
    assert lines[-1]["event"] == "job_ended" and lines[-1]["code"] == ran.status != 0
    assert "ghp_abcdefghij" not in ran.out


def test_every_kind_of_event_stands_in_the_schema_and_on_the_page() -> None:
    kinds = [each["properties"]["event"]["const"] for each in SCHEMA["oneOf"]]
    assert kinds == [kind.value for kind in EventKind]
    page = (ROOT / "docs/reference/schemas.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("## Events of a run")[2], re.MULTILINE) == kinds
