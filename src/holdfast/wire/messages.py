"""What owner and nodes say to each other beside the gang protocol's own commands and reports (`model/commands.py`)."""

from __future__ import annotations

from holdfast.decide.view import GangView
from holdfast.model.base import Message
from holdfast.model.decisions import AttemptRecord


class Moved(Message, frozen=True, kw_only=True):
    """The gang is in another phase, or leaves another device out."""

    view: GangView


class Recorded(Message, frozen=True, kw_only=True):
    """An attempt is explained and decided: what the nodes write beside its logs, and whether they trust their checks,
    follows from its report."""

    record: AttemptRecord


class ReadFaults(Message, frozen=True, kw_only=True):
    """The node's fault log has something new."""
