"""Where the repository, the package, its documentation and the data of the tests are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SRC = ROOT / "src" / "holdfast"
DOCS = ROOT / "docs"
DATA = TESTS / "data"
