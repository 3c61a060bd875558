"""Writes `src/holdfast/catalogue/exits/rows.json` when the package is built or installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StoreExitRows(BuildHookInterface[Any]):
    """Stores the rows of the exit catalogue in the form in which they load in milliseconds.

    An editable install writes them into the checkout. Where a YAML file has changed since, the rows are stored again in
    the user's cache directory at the next use.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "src"
        if not (source / "holdfast" / "catalogue").is_dir():
            return  # the first layer of an image installs the dependencies alone
        sys.path.insert(0, str(source))
        from holdfast.catalogue.exit_rows import write_snapshot

        write_snapshot()
