"""Writes `src/holdfast/catalogue/exits/rows.json` when the package is built or installed, and a bill of materials into
a wheel."""

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
        if version != "editable" and (Path(self.root) / "requirements" / "sbom.py").is_file():
            sys.path.insert(0, str(Path(self.root) / "requirements"))
            import sbom

            bill = Path(self.directory, "sbom.cdx.json")
            bill.parent.mkdir(parents=True, exist_ok=True)
            bill.write_bytes(sbom.bill(Path(self.root)))
            build_data["force_include"][str(bill)] = "holdfast/sbom.cdx.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        Path(self.directory, "sbom.cdx.json").unlink(missing_ok=True)
