"""docs/jobfile.md: its example can be read, every key has its row, and every default is the one in force."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.loop import jobfile

PAGE = (Path(__file__).parent.parent / "docs" / "jobfile.md").read_text(encoding="utf-8")
ROWS = {
    name: row
    for row in (line.split("|") for line in PAGE.splitlines() if line.startswith("| `"))
    for name in re.findall(r"`([\w.]+)`", row[1])
}


def test_the_example_is_a_job_file(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    text = example.replace("64GiB", "64MiB")  # the machine of the test may have less
    (tmp_path / "job.yaml").write_text(text)
    spec = jobfile.load(tmp_path / "job.yaml").spec
    assert [(role.name, role.count) for role in spec.roles] == [("worker", 8), ("evaluator", 1)]


@pytest.mark.parametrize(
    ("keys", "before"),
    [
        (jobfile._Job, ""),
        (jobfile._Role, ""),
        (jobfile._Resources, "resources."),
        (jobfile._Completion, "completion."),
        (jobfile._Restarts, ""),
    ],
)
def test_every_key_has_its_row(keys: type[msgspec.Struct], before: str) -> None:
    for field in msgspec.structs.fields(keys):
        if field.name in ("resources", "completion"):
            continue  # told by their parts
        assert before + field.name in ROWS
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert f"{field.default:g}" in re.findall(r"\d+", ROWS[before + field.name][3])
