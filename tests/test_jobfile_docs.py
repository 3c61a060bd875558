"""docs/reference/jobfile.md: its example can be read, every key has its row, and every default is the one in force."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.loop.jobfile import keys, reading

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "jobfile.md").read_text(encoding="utf-8")
ROWS = {
    name: row
    for row in (line.split("|") for line in PAGE.splitlines() if line.startswith("| `"))
    for name in re.findall(r"`([\w.\[\]]+)`", row[1])
}


def test_the_example_is_a_job_file(tmp_path: Path) -> None:
    example, *sections = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    text = example.replace("64GiB", "64MiB")  # the machine of the test may have less
    (tmp_path / "job.yaml").write_text(text)
    spec = reading.load(tmp_path / "job.yaml").spec
    assert [(role.name, role.count) for role in spec.roles] == [("worker", 8), ("evaluator", 1)]
    for section in sections:
        job = section if "taskRoles" in section else f"name: x\nroles: {{w: {{count: 1, command: [a]}}}}\n{section}"
        assert reading.parsed(tmp_path / "job.yaml", job.encode(), here=False).spec.roles


@pytest.mark.parametrize(
    ("struct", "before"),
    [
        (keys.JobKeys, ""),
        (keys.RoleKeys, ""),
        (keys.ResourceKeys, "resources."),
        (keys.CompletionKeys, "completion."),
        (keys.RestartKeys, ""),
        (keys.PrerequisiteKeys, "NAME."),
        (keys.SshKeys, "ssh."),
        (keys.DaemonKeys, "daemons.NAME."),
        (keys.HookKeys, "hooks[]."),
    ],
)
def test_every_key_has_its_row(struct: type[msgspec.Struct], before: str) -> None:
    for field in msgspec.structs.fields(struct):
        if field.name in ("resources", "completion"):
            continue  # told by their parts
        assert before + field.encode_name in ROWS
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert f"{field.default:g}" in re.findall(r"\d+", ROWS[before + field.encode_name][3])
