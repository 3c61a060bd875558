"""`holdfast schema [NAME]`: prints the JSON Schema of the output of `--json`, and of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli.options.shared_options import pipeable
from holdfast.cli.output.printing import print_line
from holdfast.errors import BadUsage

FOLDER = Path(__file__).parent.parent / "report" / "schemas"
JOB_FILE = "jobfile"


#: Maps a command to the names of the JSON schemas of its `--json` output.
PRINTED: dict[str, tuple[str, ...]] = {
    "run": ("report", "event"),
    "submit": ("submitted", "would-submit"),
    "queue": ("queue",),
    "core status": ("core-status",),
    "prepare": ("prepared",),
    "explain": ("report",),
    "exits": ("exits", "lint", "matches"),
    "check": ("checks", "check-list"),
    "devices": ("devices", "held-nodes"),
    "release": ("released",),
    "faults report": ("fault-reported",),
    "faults list": ("fault-codes",),
    "faults lint": ("fault-lint",),
    "faults replay": ("fault-change",),
    "jobs": ("jobs", "cluster-jobs"),
    "show": ("report", "cluster-job"),
    "logs": ("log-line", "log-files", "pod-line"),
    "prune": ("pruned",),
    "stop": ("stopped",),
    "config": ("config",),
    "doctor": ("doctor",),
}
#: Maps a command without `--json` to the reason.
NO_DATA: dict[str, str] = {
    "priority": "its exit status says whether the class was changed",
    "core stop": "its exit status says whether the core was asked",
    "core serve": "it is the core itself",
    "web": "each page of the server has a twin in JSON",
    "notify": "its exit status says whether all took the message",
    "schema": "what it prints is JSON",
    "completion": "a shell reads what it prints",
    "man": "what it prints is a page of a manual",
}


def names() -> list[str]:
    return [JOB_FILE, *sorted(path.stem for path in FOLDER.glob("*.json"))]


@click.command()
@click.argument("name", required=False)
@pipeable
def command(name: str | None) -> None:
    """Print the JSON Schema called NAME; without NAME, the names.

    An editor checks a job file that begins with `# yaml-language-server: $schema=PATH`. PATH is a file with the output
    of `holdfast schema jobfile`.
    """
    if name is None:
        print_line("\n".join(names()))
        return
    if name not in names():
        raise BadUsage(f"there is no schema `{name}`: expected one of {', '.join(names())}", hint="holdfast schema")
    if name == JOB_FILE:
        from holdfast.report.report_json import pretty

        print_line(pretty(of_job_files()))
        return
    print_line((FOLDER / f"{name}.json").read_text(encoding="utf-8"), nl=False)


def of_job_files() -> dict[str, Any]:
    """Return the schema of a job file.

    It is made from the keys of the job file's reader, so that the two cannot differ.
    """
    import msgspec

    from holdfast.launch.jobfile.job_file_keys import JobKeys, RoleKeys

    (_, role), parts = msgspec.json.schema_components([JobKeys, RoleKeys], ref_template="#/$defs/{name}")
    whole = dict(parts["JobKeys"])
    whole["properties"] = {**whole["properties"], "roles": {"type": "object", "additionalProperties": role}}
    parts = {name: {**part, "additionalProperties": False} for name, part in parts.items() if name != "JobKeys"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A job file of holdfast"}
    return {**head, **whole, "additionalProperties": False, "$defs": parts}
