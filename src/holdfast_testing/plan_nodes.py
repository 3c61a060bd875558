"""Plans in which nodes join, leave and come back, drawn from a seed and based on a plan with fixed nodes."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from holdfast.model.job_spec import NodeInfo, NodePlan
from holdfast_testing.trouble_plan import Crash, Leave, Plan

#: The fraction of the plans with more than one node.
SHARE = 0.45


def joining(plan: Plan, seed: int) -> Plan:
    """Return a plan with the same troubles for a gang that waits for its nodes to join; or, by chance, the plan as it
    is."""
    dice = random.Random(f"nodes {seed}")
    large = len(plan.nodes) > 8
    if plan.local or len(plan.nodes) < 2 or (dice.random() >= SHARE and not large):
        return plan
    count = len(plan.nodes)
    most = max(1, count - dice.choice((0, 1, 1, 2)))
    spares = dice.randint(0, count - most)
    if most + spares < 2:
        most = 2
    # Plans that kill two ranks on two nodes need nodes with equal slots. Otherwise both ranks might be on one node.
    even = large or any(ill.ending.by_memory for ill in plan.ills.values())
    nodes = tuple(_node(node, dice, even=even) for node in plan.nodes)
    least = most if dice.random() < 0.4 else max(1, most - dice.choice((1, 1, 2)))
    wanted = NodePlan(
        least=least,
        most=most,
        spares=spares,
        last_call_s=dice.choice((2.0, 10.0)),
        join_s=dice.choice((30.0, 90.0)),
        replace_s=dice.choice((5.0, 30.0, 60.0)),
        grow=dice.random() < 0.4 and not plan.quiet,
        save_s=dice.choice((0.0, 3.0)),
    )
    slots = max(node.slots for node in nodes)
    roles = tuple(structs.replace(role, count=slots, per_node=True) for role in plan.spec.roles)
    spec = structs.replace(plan.spec, nodes=wanted, roles=roles)
    late = (0.0, 0.0, 1.0, 5.0) if plan.quiet or large else (0.0, 0.0, 3.0, 8.0, 60.0)
    joins = {node.name: dice.choice(late) * dice.random() for node in nodes}
    if not plan.quiet and not large and dice.random() < 0.05:
        joins = {name: (at if index < least - 1 else float("inf")) for index, (name, at) in enumerate(joins.items())}
    leaves: tuple[Leave, ...] = ()
    if not plan.quiet and dice.random() < 0.2:
        at = dice.uniform(0.0, 90.0)
        back = at + dice.uniform(1.0, 40.0) if dice.random() < 0.6 else None
        leaves = (Leave(dice.choice(nodes).name, at, back),)
    plan = _refilled(replace(plan, nodes=nodes, spec=spec, joins=joins, leaves=leaves), seed)
    if count > 2 and not plan.quiet and not large and dice.random() < 0.2:
        return _forgotten(plan, dice)
    return plan


def _refilled(plan: Plan, seed: int) -> Plan:
    """Return a plan on a platform that replaces lost nodes and says where it has no room; or, by chance, the plan as it
    is."""
    dice = random.Random(f"refill {seed}")
    wanted = plan.spec.nodes
    if plan.quiet or wanted.least == wanted.most or dice.random() < 0.3:
        return plan
    wanted = structs.replace(wanted, refill_s=dice.choice((2.0, 10.0, 40.0)))
    places = {node.name: place for place, node in enumerate(plan.nodes)}
    lost = [(gone.at, gone.back, gone.node) for gone in plan.leaves]
    lost += [(gone.start, gone.end, gone.node) for gone in plan.outages]
    rooms = []
    for at, back, node in lost:
        rooms.append((at + dice.choice((0.5, 3.0, 12.0)), places[node], "no room"))
        if back is not None and dice.random() < 0.7:
            rooms.append((back - 0.1, places[node], ""))
    return replace(plan, spec=structs.replace(plan.spec, nodes=wanted), rooms=tuple(rooms))


def _forgotten(plan: Plan, dice: random.Random) -> Plan:
    """Return a plan in which the owner and all agents forget the first attempt, while messages about it are still on
    their way."""
    most = len(plan.nodes) - 1
    wanted = structs.replace(plan.spec.nodes, least=most, most=most, spares=0, grow=False, refill_s=0.0)
    lease_s = plan.spec.timers.lease_s
    return replace(
        plan,
        spec=structs.replace(plan.spec, nodes=wanted),
        joins={node.name: 0.0 for node in plan.nodes},
        check_s=0.2,
        owner_crashes=(Crash(dice.uniform(0.5, 1.5), 0.3),),
        lose_tail=1000,
        lying_disk=True,
        agent_crashes=tuple(Crash(dice.uniform(1.5, 1.7), dice.uniform(0.1, 1.0), node.name) for node in plan.nodes),
        latency_s=0.05,
        jitter=1.0,
        duplicate=0.9,
        very_late_s=dice.uniform(2.0, 4.0) * lease_s,
        loss=0.0,
        cuts=(),
        outages=(),
        leaves=(),
        rooms=(),
        ills={},
        bug=None,
        bad_nodes={},
        bad_checks={},
        stops=(),
        unreachable=frozenset(),
        unkillable=frozenset(),
        journal_troubles=(),
        boot_s=dict.fromkeys(range(16), 0.5),
        work_s=50.0,
    )


def _node(node: NodeInfo, dice: random.Random, *, even: bool) -> NodeInfo:
    """Return the node with another number of slots, by chance, so that nodes take different numbers of workers."""
    slots = node.slots if even or dice.random() < 0.8 else dice.choice((1, 2))
    devices = tuple(f"{node.name}/gpu{index}" for index in range(slots)) if node.devices else ()
    return structs.replace(node, slots=slots, devices=devices)
