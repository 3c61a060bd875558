"""Evidence names the stream that it stands in."""

from __future__ import annotations

import json

import pytest

from conftest import Holdfast

pytestmark = pytest.mark.real

SCRIPTS = {
    "a word and a status": "print('hello from worker'); raise SystemExit(3)",
    "a traceback": (
        "import sys, traceback\n"
        "try:\n    {}['rows']\n"
        "except KeyError:\n    traceback.print_exc(file=sys.stdout); sys.exit(1)\n"
    ),
    "an out-of-memory error": (
        "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'); raise SystemExit(1)"
    ),
    "a shell's word": "print('/bin/sh: 1: nvcc: not found'); raise SystemExit(127)",
}


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_rank_that_wrote_to_stdout_alone_has_no_stderr_in_its_evidence(holdfast: Holdfast, text: str) -> None:
    ran = holdfast.run("--max-restarts", "0", holdfast.script(text))
    evidence = ran.report["evidence"]
    assert any(item["source"].startswith("worker-0 stdout:") for item in evidence)
    assert "stderr" not in json.dumps(evidence)
    assert "stderr" not in ran.err.partition("evidence")[2].partition("next ")[0]


def test_words_on_stderr_are_told_as_such(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", holdfast.script("import sys; print('one'); sys.exit('two')"))
    assert [item["source"] for item in ran.report["evidence"] if item["kind"] == "log"] == ["worker-0 stderr:1"]
