"""docs/reference/jobfile.md: its example can be read, every key has its row, and every default is the one in force."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.launch.jobfile import job_file_keys, job_file_reader
from places import DOCS

JOBFILE_PAGE = (DOCS / "reference" / "jobfile.md").read_text(encoding="utf-8")
PAGE_ROWS = {
    name: row
    for row in (line.split("|") for line in JOBFILE_PAGE.splitlines() if line.startswith("| `"))
    for name in re.findall(r"`([\w.\[\]]+)`", row[1])
}


def test_the_example_is_a_job_file(tmp_path: Path) -> None:
    example, *sections = re.findall(r"```yaml\n(.*?)```", JOBFILE_PAGE, re.DOTALL)
    text = example.replace("64GiB", "64MiB")  # the machine of the test may have less
    (tmp_path / "job.yaml").write_text(text)
    spec = job_file_reader.load(tmp_path / "job.yaml").spec
    assert [(role.name, role.count) for role in spec.roles] == [("worker", 8), ("evaluator", 1)]
    for section in sections:
        job = section if "taskRoles" in section else f"name: x\nroles: {{w: {{count: 1, command: [a]}}}}\n{section}"
        assert job_file_reader.parsed(tmp_path / "job.yaml", job.encode(), here=False).spec.roles


@pytest.mark.parametrize(
    ("struct", "before"),
    [
        (job_file_keys.JobKeys, ""),
        (job_file_keys.RoleKeys, ""),
        (job_file_keys.ResourceKeys, "resources."),
        (job_file_keys.CompletionKeys, "completion."),
        (job_file_keys.RestartKeys, ""),
        (job_file_keys.PrerequisiteKeys, "NAME."),
        (job_file_keys.SshKeys, "ssh."),
        (job_file_keys.DaemonKeys, "daemons.NAME."),
        (job_file_keys.HookKeys, "hooks[]."),
    ],
)
def test_every_key_has_its_row(struct: type[msgspec.Struct], before: str) -> None:
    for field in msgspec.structs.fields(struct):
        if field.name in ("resources", "completion"):
            continue  # told by their parts
        assert before + field.encode_name in PAGE_ROWS
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert f"{field.default:g}" in re.findall(r"\d+", PAGE_ROWS[before + field.encode_name][3])
