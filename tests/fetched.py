"""A fetch as a test sees it: the real process, with the words that it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.model.fetch_messages import FetchAgain, FetchDone, FetchFailed, FetchOrder, FetchWord
from holdfast.model.runtime_plan import Prerequisite

PLAIN_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.upper().endswith("_PROXY") and not name.startswith(("AWS_", "HOLDFAST_", "GIT_"))
}


class FetchRan:
    """What the process wrote and how it ended."""

    def __init__(self, status: int, out: bytes, errors: str) -> None:
        self.status = status
        self.errors = errors
        self.text = out.decode()
        self.words: list[FetchWord] = [msgspec.json.decode(line, type=FetchWord) for line in out.splitlines()]

    @property
    def failed(self) -> FetchFailed:
        last = self.words[-1]
        assert isinstance(last, FetchFailed), self.text
        return last

    @property
    def phrase(self) -> str:
        return self.failed.trouble.phrase

    @property
    def done(self) -> list[FetchDone]:
        return [word for word in self.words if isinstance(word, FetchDone)]

    @property
    def again(self) -> list[FetchAgain]:
        return [word for word in self.words if isinstance(word, FetchAgain)]


def order_bytes(into: Path, uri: str, *, stall_s: float = 20.0, limit_s: float = 100.0, **more: Any) -> bytes:
    thing = Prerequisite(name="thing", uri=uri, into=str(into), **more)
    return msgspec.json.encode(FetchOrder(things=(thing,), who="a test", stall_s=stall_s, limit_s=limit_s))


def fetch(into: Path, uri: str, *, env: Mapping[str, str] | None = None, **more: Any) -> FetchRan:
    """Run the fetch to its end. `more`: of the prerequisite, `stall_s` and `limit_s`."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "holdfast.fetch"],
        input=order_bytes(into, uri, **more),
        capture_output=True,
        env={**PLAIN_ENVIRONMENT, **(env or {})},
        timeout=120,
        check=False,
    )
    return FetchRan(ended.returncode, ended.stdout, ended.stderr.decode())


def nothing_counts(into: Path) -> bool:
    """No content and no record: a part may be there."""
    return not os.path.lexists(into) and not (into.parent / f".{into.name}.holdfast.json").exists()
