"""The fault engine's state as a value.

It has everything that must survive a restart, and enough history to insert late events.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.decide.faults.code_state import CodeState, TrackedDevice
from holdfast.decide.faults.compiled_rules import Code, CompiledRules, Entry
from holdfast.decide.faults.fault_policy import Policy
from holdfast.model.noun_base import Noun

FORMAT = 1


class SavedCodeState(Noun, frozen=True, kw_only=True):
    """The saved state of one fault code on one device.

    `folded` is the state at `checkpoint`. `log` has the later events. The other fields are as in `CodeState`.
    """

    folded: list[Any]
    log: list[list[Any]] = []
    checkpoint: list[Any] | None = None
    seen_until: int = 0
    suppressed: int = 0
    level: int = -1


class DeviceState(Noun, frozen=True, kw_only=True):
    node: str = ""
    in_use: bool = False
    level: int = -1
    tracks: dict[str, SavedCodeState] = {}


class EngineState(Noun, frozen=True, kw_only=True):
    """The whole state of a fault engine. `policy` has the rules in force."""

    format: int = FORMAT
    policy: Policy = Policy()
    clock: int = 0
    ticked: int = 0
    devices: dict[str, DeviceState] = {}
    #: The names of devices of which the engine keeps only the name.
    known: tuple[str, ...] = ()
    taken: dict[str, dict[str, int]] = {}
    refused: dict[str, int] = {}
    reloads: list[tuple[int, Policy, Policy]] = []
    releases: list[tuple[int, str]] = []
    #: Code → device → the code's latest momentary event, for codes that have no rule and no remedy.
    seen: dict[str, dict[str, tuple[int, int]]] = {}


def save_code_state(code_state: CodeState) -> SavedCodeState:
    return SavedCodeState(
        folded=_plain(code_state.snapshot()),
        log=[_saved(entry) for entry in code_state.log],
        checkpoint=None if code_state.checkpoint is None else _plain(code_state.checkpoint),
        seen_until=code_state.seen_until,
        suppressed=code_state.suppressed,
        level=code_state.level,
    )


def load_code_state(state: SavedCodeState, device: TrackedDevice, code: Code) -> CodeState:
    code_state = CodeState(device, code)
    code_state.restore(tuple(state.folded))
    code_state.log = [_entry(*saved) for saved in state.log]
    code_state.checkpoint = None if state.checkpoint is None else tuple(state.checkpoint)
    code_state.seen_until = state.seen_until
    code_state.suppressed = state.suppressed
    code_state.level = state.level
    return code_state


def _plain(snapshot: tuple[object, ...]) -> list[Any]:
    return [list(value) if isinstance(value, tuple) else value for value in snapshot]


def _saved(entry: Entry) -> list[Any]:
    """Return a log entry of a code state as JSON values.

    An event becomes [order, 0]; a reload [order, [rules before, rules after]]; a release [order, null].
    """
    if isinstance(entry, int):
        return [entry, 0]
    order, user_action = entry
    return [order, None if user_action is None else [list(msgspec.structs.astuple(rules)) for rules in user_action]]


def _entry(order: int, user_action: Any) -> Entry:
    if isinstance(user_action, int):
        return order
    return order, None if user_action is None else (CompiledRules(*user_action[0]), CompiledRules(*user_action[1]))
