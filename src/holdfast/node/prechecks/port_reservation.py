"""Reserves ports on a node for its workers before they start, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.act.rendezvous_ports import NoPort
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.events import ChecksFinished
from holdfast.model.evidence import CheckFailure


def with_ports(
    order: RunChecks, answer: ChecksFinished, node: str, reserve: Callable[[int, int], tuple[int, ...]]
) -> ChecksFinished:
    """Add the ports that this node holds to the answer; make it a failure if there are not enough."""
    count = sum(order.ports.values())  # the order has only this node's ports
    try:
        return replace(answer, ports={node: reserve(order.attempt, count)})
    except NoPort as error:
        free = int(error.args[0])
    failure = CheckFailure(
        check="ports",
        message=f"{node}: the workers need {count} {'port' if count == 1 else 'ports'}, and {free} of them can be had",
        solution="Let --port-range be wider, let the roles have fewer `ports`, or stop what holds ports on that node "
        "(`holdfast check ports` there names it).",
        nodes=(node,),
        blame="platform",
        elsewhere=True,
    )
    return replace(answer, state=CheckState.FAIL, failure=failure, avoid=(node,))
