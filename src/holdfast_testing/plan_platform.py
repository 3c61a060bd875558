"""Plans of jobs on a platform that ends runs and starts others, drawn from a seed and based on any other plan."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.job_spec import Requeuing
from holdfast.model.phrases import Phrase
from holdfast_testing.trouble_plan import Plan, Platform

SHARE = 0.2


def on_platform(plan: Plan, seed: int) -> Plan:
    """Return a plan with the same troubles on a platform that may restart the job; or, by chance, the plan as it is."""
    dice = random.Random(f"platform {seed}")
    if plan.quiet or plan.lying_disk or plan.unkillable or len(plan.nodes) > 8 or dice.random() >= SHARE:
        return plan
    possible = dice.random() < 0.85
    requeue = Requeuing(possible=possible, at_time_limit=dice.random() < 0.5, why_not="" if possible else "Requeue=0")
    ends = tuple(dice.uniform(0.0, 100.0) for _ in range(dice.choice((0, 1, 1, 2, 3))))
    stops = plan.stops
    if dice.random() < 0.4:
        when = dice.uniform(0.0, 80.0)
        asked = StopRequest(
            reason=f"the platform wants the nodes at {when:.3f}",
            source=StopSource.PLATFORM,
            phrase=Phrase.PREEMPTED,
            requeue=True,
        )
        times = random.Random(f"platform stop {seed}")
        within_s = times.choice((None, 2.0, 20.0))
        asked = structs.replace(asked, within_s=within_s, save_s=0.75 * (within_s or times.choice((0.0, 10.0))))
        stops = (*stops, (when, asked))
        if times.random() < 0.5:
            # The platform grants less time to leave than it announced, or it sends the same signal again.
            again = structs.replace(asked, reason=f"{asked.reason}, now", within_s=1.0, save_s=0.5)
            stops = (*stops, (when + times.uniform(0.0, 10.0), again))
    platform = Platform(
        ends=ends,
        kill_s=dice.choice((0.1, 5.0)),
        away_s=dice.choice((1.0, 30.0)),
        refuses=dice.random() < 0.15,
        fewer=dice.random() < 0.5,
    )
    return replace(plan, spec=structs.replace(plan.spec, requeue=requeue), platform=platform, stops=stops)
