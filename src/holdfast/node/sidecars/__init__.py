"""Processes beside an attempt's workers: hooks, daemons, sshd.

This is the door of all of them: few jobs have any, so each name below loads its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.node.sidecars.attempt_sidecars import SidecarContext
    from holdfast.node.sidecars.node_sidecars import NodeSidecars
    from holdfast.node.sidecars.ssh_server import SshServer

__all__ = [
    "NodeSidecars",
    "SidecarContext",
    "SshServer",
]

if not TYPE_CHECKING:
    _MODULES = {
        "NodeSidecars": "holdfast.node.sidecars.node_sidecars",
        "SidecarContext": "holdfast.node.sidecars.attempt_sidecars",
        "SshServer": "holdfast.node.sidecars.ssh_server",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)
