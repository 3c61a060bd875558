"""The processes beside an attempt's workers: hooks, daemons, sshd.

Few jobs have any, so a module is imported at the first use of one of the names below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.node.sidecars.attempt_sidecars import SidecarContext
    from holdfast.node.sidecars.node_sidecars import NodeSidecars
    from holdfast.node.sidecars.ssh_server import SshServer

__all__ = [
    "NodeSidecars", "SidecarContext", "SshServer",
]  # fmt: skip

if not TYPE_CHECKING:
    _MODULES = {
        "holdfast.node.sidecars.attempt_sidecars": ("SidecarContext",),
        "holdfast.node.sidecars.node_sidecars": ("NodeSidecars",),
        "holdfast.node.sidecars.ssh_server": ("SshServer",),
    }

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
