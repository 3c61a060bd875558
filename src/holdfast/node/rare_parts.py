"""The door of modules that a node's start does not need: few jobs use them, or only after a death or a long while.

`rare_parts.explain_files` loads the module when it is first used. Together they would delay every start by 60 ms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.act.store import store_process
    from holdfast.act.warm import nurseries
    from holdfast.catalogue import exit_rows, stop_phrases
    from holdfast.explain import hang_judgement, openpai_exit_file, row_matcher, secret_masking, stop_file_lines
    from holdfast.launch import fetch_request, multi_node
    from holdfast.node import disk_cleaner, explain_files, missing_resources, owner_probes
    from holdfast.observe import checkpoint_files, flight_dumps, python_stacks

__all__ = [
    "checkpoint_files",
    "disk_cleaner",
    "exit_rows",
    "explain_files",
    "fetch_request",
    "flight_dumps",
    "hang_judgement",
    "missing_resources",
    "multi_node",
    "nurseries",
    "openpai_exit_file",
    "owner_probes",
    "python_stacks",
    "row_matcher",
    "secret_masking",
    "stop_file_lines",
    "stop_phrases",
    "store_process",
]

if not TYPE_CHECKING:
    _PACKAGES = {
        "store_process": "holdfast.act.store",
        "nurseries": "holdfast.act.warm",
        "exit_rows": "holdfast.catalogue",
        "stop_phrases": "holdfast.catalogue",
        "hang_judgement": "holdfast.explain",
        "openpai_exit_file": "holdfast.explain",
        "row_matcher": "holdfast.explain",
        "secret_masking": "holdfast.explain",
        "stop_file_lines": "holdfast.explain",
        "fetch_request": "holdfast.launch",
        "multi_node": "holdfast.launch",
        "disk_cleaner": "holdfast.node",
        "explain_files": "holdfast.node",
        "missing_resources": "holdfast.node",
        "owner_probes": "holdfast.node",
        "checkpoint_files": "holdfast.observe",
        "flight_dumps": "holdfast.observe",
        "python_stacks": "holdfast.observe",
    }

    def __getattr__(name):
        if name not in _PACKAGES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{_PACKAGES[name]}.{name}")
