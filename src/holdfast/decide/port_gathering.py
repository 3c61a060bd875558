"""Whether the nodes have reserved enough ports for the workers of an attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.decide.attempt_state import AttemptState
from holdfast.model.evidence import CheckFailure
from holdfast.model.job_spec import JobSpec, Seat
from holdfast.model.peer_addresses import gather, ports_needed


def gathered(
    spec: JobSpec,
    trial: AttemptState,
    seats: Sequence[Seat],
    addresses: Mapping[str, str],
    reserved: Mapping[str, tuple[int, ...]],
) -> str:
    """Tell the attempt where the tasks of these seats are reached; else return why the checks must run again.

    A node that was asked for enough and has reserved fewer fails the start: `trial.check` says so.
    """
    trial.reach_peers(gather(spec, seats, addresses, reserved))
    if trial.peers is not None:
        return ""
    needed = ports_needed(spec, seats)
    short = [node for node, count in needed.items() if len(reserved.get(node, ())) < count]
    if any(trial.ports.get(node, 0) < needed[node] for node in short):
        return "the nodes have changed: others have to reserve ports"
    message = f"{short[0]} has reserved {len(reserved.get(short[0], ()))} of {needed[short[0]]} ports"
    trial.fail_check(CheckFailure(check="ports", message=message, nodes=(short[0],), blame="platform"))
    return message
