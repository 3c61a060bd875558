"""Loads modules that a node's start does not need, because only a few jobs, or only failures, use them.

Each attribute of this module, such as `rare_parts.explain_files`, is the module of that name, which is imported at its
first use. All of them together would delay every start by 60 ms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.act.store import store_process
    from holdfast.act.warm import nurseries
    from holdfast.catalogue import exit_rows, stop_phrases
    from holdfast.explain import openpai_exit_file
    from holdfast.explain.hangs import hang_judgement
    from holdfast.explain.logs import row_matcher, stop_file_lines
    from holdfast.launch import fetch_request, multi_node
    from holdfast.node import disk_cleaner, explain_files, missing_resources, owner_probes, source_lines
    from holdfast.observe import checkpoint_files, flight_dumps, python_stacks

__all__ = [
    "checkpoint_files", "disk_cleaner", "exit_rows", "explain_files", "fetch_request", "flight_dumps",
    "hang_judgement", "missing_resources", "multi_node", "nurseries", "openpai_exit_file", "owner_probes",
    "python_stacks", "row_matcher", "source_lines", "stop_file_lines", "stop_phrases", "store_process",
]  # fmt: skip

if not TYPE_CHECKING:
    _PACKAGES = {
        "holdfast.act.store": ("store_process",),
        "holdfast.act.warm": ("nurseries",),
        "holdfast.catalogue": ("exit_rows", "stop_phrases"),
        "holdfast.explain": ("openpai_exit_file",),
        "holdfast.explain.hangs": ("hang_judgement",),
        "holdfast.explain.logs": ("row_matcher", "stop_file_lines"),
        "holdfast.launch": ("fetch_request", "multi_node"),
        "holdfast.node": ("disk_cleaner", "explain_files", "missing_resources", "owner_probes", "source_lines"),
        "holdfast.observe": ("checkpoint_files", "flight_dumps", "python_stacks"),
    }

    def __getattr__(name):
        for package, names in _PACKAGES.items():
            if name in names:
                return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
