"""Draws a plan from a seed: the nodes, the job, the troubles and the faults of the network."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from holdfast.model.evidence import StopRequest
from holdfast.model.job_spec import JobSpec, NodeInfo, RestartPolicy, Role, Timers
from holdfast_testing.plan_nodes import joining
from holdfast_testing.plan_platform import on_platform
from holdfast_testing.trouble_plan import BadCheck, Crash, Cut, Ending, Ill, Outage, Plan, What, When

#: The fraction of jobs whose workers have reserved ports.
PORTS = 0.25

#: Ways to die whose evidence names the cause. In the last one the process vanished without a status.
OWN_ENDINGS = (
    Ending(
        exit_code=1,
        words='Traceback (most recent call last):\n  File "/job/train.py", line 31, in <module>\n    main()\n'
        '  File "/job/train.py", line 17, in main\n    raise ValueError("batch 17 has no labels")\n'
        "ValueError: batch 17 has no labels\n",
    ),
    Ending(
        exit_code=1,
        words='Traceback (most recent call last):\n  File "/job/train.py", line 12, in <module>\n    step()\n'
        "RuntimeError: CUDA error: device-side assert triggered\n",
    ),
    Ending(exit_code=1, words="RuntimeError: bind: Address already in use\n"),
    Ending(exit_code=3),
    Ending(exit_code=1, words="bad device\n"),
    Ending(signal=9),
    Ending(signal=11),
    Ending(signal=6, words="terminate called after throwing an instance of 'std::length_error'\n"),
    Ending(),
)

#: Ways to die whose evidence only says that a peer is gone.
PEER_ENDINGS = (
    Ending(exit_code=1, words="RuntimeError: recv failed: Connection closed by rank {rank}\n"),
    Ending(
        exit_code=1,
        words="RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.1.12]:52414\n",
    ),
    Ending(
        exit_code=1,
        words="torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n",
    ),
    Ending(signal=6, words="[Rank 0] Watchdog caught collective operation timeout: no answer from rank {rank}\n"),
)

#: How a process exits after SIGTERM. The last two look like failures but are none.
TERM_ENDINGS = (
    Ending(signal=15),
    Ending(exit_code=0),
    Ending(exit_code=1, words="Terminated (exitcode=1)\n"),
    Ending(exit_code=1, words="ValueError: Queue <multiprocessing.queues.Queue object> is closed\n"),
)

#: Up to this number of nodes, a seed draws their number; above it, the number is exactly the requested one.
SMALL = 8


def draw(seed: int, nodes: int) -> Plan:
    """Return the plan of a seed on at most (above 8: exactly) `nodes` nodes."""
    dice = random.Random(f"plan {seed}")
    count = dice.randint(1, nodes) if nodes <= SMALL else nodes
    plan = _local(seed, dice) if count == 1 and dice.random() < 0.5 else _cluster(seed, dice, count)
    plan = plan if plan.quiet else _with_ends(plan, random.Random(f"ends {seed}"))
    return on_platform(joining(plan, seed), seed)


def _with_ends(plan: Plan, dice: random.Random) -> Plan:
    """Add to the plan the time that dying and reading the logs take, and sometimes a kill after which the node is
    silent."""
    never = float("inf")
    if dice.random() < 0.3:
        plan = replace(plan, dying_s=dice.choice((0.2, 1.0, 3.0)))
    if dice.random() < 0.12:
        slow = (0.5, 20.0, never, dice.uniform(31.0, 60.0), dice.uniform(31.0, 120.0))
        plan = replace(plan, collect_s={attempt: dice.choice(slow) for attempt in range(1, 8)})
    ranks, slots = plan.spec.world_size, plan.nodes[0].slots
    if ranks > slots and dice.random() < 0.1:
        # Two ranks with equal pids are killed at about the same time, on two nodes. One of them is killed for its
        # memory.
        after_s = dice.uniform(1.0, 5.0)
        killed = [Ending(signal=9), Ending(signal=9, by_memory=True)]
        dice.shuffle(killed)
        times = (after_s, after_s + dice.choice((0.05, 0.15, 0.4)))
        both = zip((0, slots), times, killed, strict=True)
        ills = {(1, rank): Ill(When.RUN, What.CRASH, at, ending) for rank, at, ending in both}
        plan = replace(plan, ills=plan.ills | ills)
    if len(plan.nodes) > 1 and dice.random() < 0.12:
        return _with_lost_tail(plan, dice)
    return _killed_then_silent(plan, dice) if slots < ranks <= SMALL and dice.random() < 0.06 else plan


def _with_lost_tail(plan: Plan, dice: random.Random) -> Plan:
    """Add a power loss of the owner's machine, which loses the end of the journal, or a full disk of the journal."""
    crashes = tuple(Crash(dice.uniform(0.0, 60.0), dice.choice((0.2, 2.0, 8.0))) for _ in range(dice.choice((1, 2, 3))))
    plan = replace(plan, owner_crashes=crashes, lose_tail=dice.choice((1, 3, 10, 100)))
    if dice.random() < 0.3:
        start = dice.uniform(0.0, 40.0)
        return replace(plan, journal_troubles=((start, start + dice.choice((5.0, 45.0, 300.0))),))
    if dice.random() < 0.6:
        early = Crash(dice.uniform(0.3, 8.0), 0.2)
        plan = replace(plan, owner_crashes=(early, *plan.owner_crashes), lose_tail=100) if dice.random() < 0.7 else plan
        # Now only the agents know the lost attempts. If an agent were lost too, nobody could know the truth.
        return replace(plan, lying_disk=True, cuts=(), outages=(), agent_crashes=(), loss=0.0, unreachable=frozenset())
    return plan


def _killed_then_silent(plan: Plan, dice: random.Random) -> Plan:
    """Make a node unreachable after a kill.

    Either this happens while the first attempt drains, until the node has just been fenced and is needed again. Or it
    lasts long in the second attempt, after the node's ranks had to be killed in the first.
    """
    timers, node = plan.spec.timers, plan.nodes[1].name
    draining = dice.random() < 0.7
    check_s = dice.choice((0.2, 4.0))
    crash_s = 4.0
    first = check_s + max(plan.boot_s.values(), default=1.0) + plan.up_s + plan.connect_s + crash_s
    if draining:
        start = first + dice.uniform(-2.0, 1.5)
        end = start + timers.lease_s + timers.drift_s + timers.beat_s + dice.uniform(0.0, 8.0)
    else:
        start = first + timers.grace_s + dice.uniform(8.0, 30.0)
        end = start + dice.uniform(2.0, 4.0) * timers.lease_s
    restarts = RestartPolicy(max_restarts=9, max_in_a_row=9, backoff_s=1.0, backoff_cap_s=4.0)
    ill = Ill(When.RUN, What.CRASH, crash_s, Ending(signal=11))
    return replace(
        plan,
        spec=structs.replace(plan.spec, restarts=restarts),
        ills={(attempt, 0): ill for attempt in ((1, 2, 3) if draining else (1,))},
        check_s=check_s,
        stubborn=frozenset(range(plan.spec.world_size)),
        cuts=(Cut(node, start, end),),
        outages=(),
        agent_crashes=(),
        owner_crashes=(),
        stops=(),
        bad_checks={},
        bad_nodes={},
        bug=None,
        loss=0.0,
        collect_s={},
        collective_timeout_s=120.0,
        peer_detect_s=-1.0,
        work_s=120.0,
    )


def _timers(dice: random.Random, *, large: bool) -> Timers:
    beat_s = 5.0 if large else dice.choice((1.0, 2.0, 5.0))
    return Timers(
        check_s=dice.choice((5.0, 20.0)),
        prepare_s=dice.choice((15.0, 40.0)),
        start_s=dice.choice((15.0, 40.0)),
        grace_s=dice.choice((1.0, 5.0, 20.0)),
        kill_s=5.0,
        beat_s=beat_s,
        lease_s=6.0 * beat_s,
        drift_s=1.0,
        resend_s=1.0,
    )


def _spec(seed: int, dice: random.Random, ranks: int, *, large: bool) -> JobSpec:
    restarts = RestartPolicy(
        max_restarts=dice.choice((0, 1, 3, 6)),
        platform_max_restarts=dice.choice((2, 6)),
        max_in_a_row=dice.choice((2, 5)),
        window_restarts=dice.choice((3, 12)),
        backoff_s=1.0,
        backoff_cap_s=dice.choice((4.0, 30.0)),
        healthy_s=dice.choice((15.0, 60.0)),
    )
    # Use a separate random generator for the ports, so that the rest of a seed's plan stays as it was before ports were
    # added.
    ports = {"http": 2} if random.Random(f"ports {seed}").random() < PORTS else {}
    return JobSpec(
        name=f"sim-{seed}",
        roles=(Role(name="worker", count=ranks, command=("train",), ports=ports),),
        restarts=restarts,
        timers=_timers(dice, large=large),
        checks=(),
        hang_timeout_s=dice.choice((None, 8.0)),
        time_limit_s=dice.choice((None, None, None, 300.0)),
    )


def _ill(dice: random.Random) -> Ill:
    when = dice.choice((When.BOOT, When.CONNECT, When.RUN, When.RUN, When.RUN))
    what = dice.choice((What.CRASH, What.CRASH, What.CRASH, What.HANG, What.LEAVE))
    if dice.random() < 0.05:
        return Ill(When.START, What.NO_START, ending=Ending(words="[Errno 2] No such file or directory: 'trian.py'"))
    after_s = dice.choice((0.0, 0.05, 0.5)) if when is not When.RUN else dice.choice((0.0, 0.3, 5.0, 25.0))
    return Ill(when, what, after_s, dice.choice(OWN_ENDINGS))


def _local(seed: int, dice: random.Random) -> Plan:
    """Return a plan for one machine: owner and agent share a process, and no message between them is lost."""
    ranks = dice.randint(1, 4)
    quiet = dice.random() < 0.2
    spec = _spec(seed, dice, ranks, large=False)
    plan = Plan(
        seed=seed,
        spec=spec,
        nodes=(NodeInfo(name="here", slots=ranks),),
        local=True,
        peer_detect_s=dice.choice((0.02, 0.3, 1.0, -1.0)),
        peer_words=PEER_ENDINGS,
        work_s=dice.choice((0.05, 20.0, 60.0)),
        step_s=dice.choice((0.0, 2.0)),
        term_ending=dice.choice(TERM_ENDINGS),
    )
    return _as_quiet(plan) if quiet else _with_ills(plan, dice)


def _cluster(seed: int, dice: random.Random, count: int) -> Plan:
    large = count > SMALL
    spare = min(count - 1, dice.choice((0, 1, 1, 2)))
    slots = 1 if large else dice.choice((1, 1, 2))
    ranks = (count - spare) * slots
    names = [f"n{index}" for index in range(count)]
    devices = dice.random() < 0.3
    nodes = tuple(
        NodeInfo(name=name, slots=slots, devices=tuple(f"{name}/gpu{i}" for i in range(slots)) if devices else ())
        for name in names
    )
    quiet = dice.random() < 0.2
    spec = _spec(seed, dice, ranks, large=large)
    plan = Plan(
        seed=seed,
        spec=spec,
        nodes=nodes,
        latency_s=dice.choice((0.005, 0.05, 0.3)),
        jitter=0.0 if quiet else dice.choice((0.0, 1.0, 5.0)),
        drift={name: dice.choice((0.0, 0.0, 0.01, -0.01)) for name in names},
        duplicate=dice.choice((0.0, 0.2, 0.5)),
        very_late_s=dice.choice((20.0, 60.0, 200.0)),
        boot_s={rank: dice.uniform(0.2, 4.0) for rank in range(ranks)},
        peer_detect_s=dice.choice((0.02, 0.3, 1.0, 5.0, -1.0)),
        peer_words=PEER_ENDINGS,
        connect_timeout_s=dice.choice((5.0, 30.0)),
        collective_timeout_s=dice.choice((5.0, 20.0, 120.0)),
        work_s=dice.choice((20.0, 50.0)),
        step_s=dice.choice((0.0, 2.0)),
        term_s=dice.choice((0.02, 0.5)),
        term_ending=dice.choice(TERM_ENDINGS),
    )
    if quiet:
        return _as_quiet(plan)
    troubled = _with_ills(_with_network(plan, dice, names), dice)
    return _left_alone(troubled, dice) if ranks > slots and dice.random() < 0.04 else troubled


def _left_alone(plan: Plan, dice: random.Random) -> Plan:
    """Return a plan in which rank 0 leaves, unnoticed by its peers, and the other node's lease later expires.

    Each of the two events ends only a part of the attempt.
    """
    lease_s = plan.spec.timers.lease_s
    begin = 12.0
    cuts = []
    for _ in range(
        6
    ):  # each cut alone is too short to lose the node; if an acknowledgement is lost too, the agent gives up by itself
        begin += lease_s
        cuts.append(Cut(plan.nodes[1].name, begin, begin + dice.uniform(0.7, 0.9) * lease_s))
    return replace(
        plan,
        ills={(1, 0): Ill(When.RUN, What.LEAVE, 5.0)},
        cuts=tuple(cuts),
        loss=0.25,
        bug=None,
        bad_nodes={},
        peer_detect_s=-1.0,
        collective_timeout_s=120.0,
    )


def _as_quiet(plan: Plan) -> Plan:
    return replace(plan, quiet=True, spec=structs.replace(plan.spec, time_limit_s=None))


def _with_network(plan: Plan, dice: random.Random, names: list[str]) -> Plan:
    lease_s = plan.spec.timers.lease_s
    away = (0.2, 2.0, 0.5 * lease_s, 1.5 * lease_s)
    cuts = []
    if dice.random() < 0.35:
        for _ in range(dice.choice((1, 2, 4))):
            start = dice.uniform(0.0, 120.0)
            cuts.append(Cut(dice.choice(names), start, start + dice.choice((2.0, 0.8, 1.2, 3.0)) * lease_s))
    outages = []
    if dice.random() < 0.25:
        start = dice.choice((0.0, 0.3, dice.uniform(0.0, 90.0)))
        back = None if dice.random() < 0.5 else start + dice.choice((1.0, 10.0, 2.0 * lease_s))
        outages.append(Outage(dice.choice(names), start, back))
    agents = []
    if dice.random() < 0.25:
        agents = [
            Crash(dice.uniform(0.0, dice.choice((5.0, 90.0))), dice.choice((0.02, 0.1, 1.0, 10.0)), dice.choice(names))
            for _ in range(dice.choice((1, 3)))
        ]
    owners = []
    if dice.random() < 0.35:
        owners = [Crash(dice.uniform(0.0, 90.0), dice.choice(away)) for _ in range(dice.choice((1, 1, 3)))]
    return replace(
        plan,
        loss=dice.choice((0.0, 0.0, 0.05, 0.25)),
        cuts=tuple(cuts),
        outages=tuple(outages),
        agent_crashes=tuple(agents),
        owner_crashes=tuple(owners),
    )


def _with_ills(plan: Plan, dice: random.Random) -> Plan:
    ranks, names = plan.spec.world_size, [node.name for node in plan.nodes]
    ills = {
        (attempt, rank): _ill(dice)
        for attempt in range(1, dice.choice((1, 2, 3, 6)))
        for rank in dice.sample(range(ranks), k=min(ranks, dice.choice((0, 1, 1, 1, 2))))
    }
    bad_nodes = {dice.choice(names): _ill(dice)} if dice.random() < 0.12 else {}
    bug = _ill(dice) if dice.random() < 0.08 else None
    stops = []
    if dice.random() < 0.15:
        when = dice.uniform(0.0, 80.0)
        final = dice.random() < 0.7
        stops = [(when, StopRequest(reason="the simulation asked for it", final=final))]
        if dice.random() < 0.4:
            stops.append((when + dice.uniform(0.0, 3.0), StopRequest(reason="again", grace_s=0.0)))
    bad_checks = {}
    if dice.random() < 0.15:
        node = dice.choice(names)
        bad_checks = {
            dice.randint(1, 3): dice.choice((BadCheck(silent=True), BadCheck(fatal=True), BadCheck(avoid=(node,))))
        }
    stubborn = frozenset(rank for rank in range(min(ranks, 64)) if dice.random() < 0.1)
    stuck: frozenset[tuple[int, int]] = frozenset()
    undisturbed = not (plan.cuts or plan.outages or plan.agent_crashes or plan.owner_crashes or plan.loss)
    if undisturbed and dice.random() < 0.05:
        stuck = frozenset({(1, dice.randrange(ranks))})
    spec = plan.spec
    troubles = [*ills.values(), *bad_nodes.values(), *([bug] if bug else [])]
    if any(ill.what is What.HANG and ill.when is not When.BOOT for ill in troubles) and dice.random() < 0.7:
        spec = structs.replace(spec, hang_timeout_s=8.0)
    hanging = any(ill.what is What.HANG for ill in troubles)
    if hanging and (ranks == 1 or len(troubles) > 1 or bad_nodes):
        # If no peer is left that waits for the hanging ranks, only the hang detector finds them.
        spec = structs.replace(spec, hang_timeout_s=8.0)
    apart = frozenset(dice.sample(names, 2)) if len(names) > 1 and dice.random() < 0.04 else frozenset()
    return replace(
        plan,
        spec=spec,
        ills=ills,
        bad_nodes=bad_nodes,
        bug=bug,
        stops=tuple(stops),
        bad_checks=bad_checks,
        stubborn=stubborn,
        unkillable=stuck,
        unreachable=apart,
    )
