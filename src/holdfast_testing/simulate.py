"""`python -m holdfast_testing.simulate`: thousands of jobs on machines that do not exist, each from a seed.

    --seeds N --nodes M      N simulations of at most M nodes (above 8: of exactly M), each judged after every step
    --seed S [--trace]       one of them again, exactly, with its story
    --mutants                broken gangs, agents and owners: each has to be caught
    --mutants --all          the bugs planted in the source of all parts too, by their nearest tests
    --search                 every order of messages between one owner and two agents, within small bounds

Exit status 0: every invariant held (or every mutant was caught); 1: not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from holdfast_testing.attribution_score import Score
from holdfast_testing.exhaustive_search import Found, Search
from holdfast_testing.mutants import MUTANTS, RESTARTED, SILENT, Mutant
from holdfast_testing.plan_generator import draw
from holdfast_testing.planted_bug_runs import run_planted, tell_equivalent
from holdfast_testing.planted_bugs import PLANTED_BUGS
from holdfast_testing.search_state import Bounds
from holdfast_testing.simulated_world import Violation
from holdfast_testing.simulation import Parts, Simulation, warm

#: Maximum number of failures that are printed in full.
SHOWN = 10
#: The bounds of the searches that `--search` runs. Each is searched completely.
BOUNDS = (
    SILENT,
    RESTARTED,
    Bounds(prompt=True),
    replace(SILENT, owner_crashes=1),
    replace(SILENT, expiries=2),
    Bounds(expiries=0, agent_restarts=1),
)


def again(seed: int, nodes: int, mutant: str = "") -> str:
    """Return the command that reproduces a failure."""
    broken = f" --mutant {mutant}" if mutant else ""
    return f"python -m holdfast_testing.simulate --seed {seed} --nodes {nodes}{broken} --trace"


def run_many(seeds: range, nodes: int) -> int:
    """Simulate every seed, print a summary, and return the number of seeds that broke an invariant."""
    score, outcomes, events, simulated, failures = Score(), Counter[str](), 0, 0.0, 0
    attempts = 0
    began = time.process_time()
    for seed in seeds:
        simulation = Simulation(draw(seed, nodes))
        try:
            ran = simulation.run()
        except Violation as violation:
            failures += 1
            if failures <= SHOWN:
                print(f"seed {seed}: {violation}\n    again: {again(seed, nodes)}", flush=True)
            continue
        outcomes[str(ran.report.outcome) if ran.report else str(ran.phase)] += 1
        events += ran.events
        attempts += ran.attempts
        simulated += ran.simulated_s
        score.add(ran.witness)
    spent = time.process_time() - began
    ends = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"{len(seeds)} simulations of up to {nodes} nodes: {ends}; {failures} broke an invariant")
    print(
        f"{attempts} attempts, {events} events in {simulated / 3600:.1f} simulated hours; "
        f"{spent:.1f} s of CPU, {events / max(spent, 1e-9):,.0f} events a second"
    )
    print(score.text())
    return failures


def run_one(seed: int, nodes: int, parts: Parts, *, trace: bool) -> int:
    """Simulate one seed. With `trace`, print everything that happened. Return 1 if the seed broke an invariant."""
    simulation = Simulation(draw(seed, nodes), parts, tracing=trace)
    try:
        ran = simulation.run()
    except Violation as violation:
        print("\n".join(simulation.world.story))
        print(f"seed {seed}: {violation}")
        return 1
    print("\n".join(ran.story))
    if ran.report is None:
        print(f"seed {seed}: {ran.phase} after {ran.simulated_s:.0f} s")
    else:
        report = ran.report.report
        print(f"seed {seed}: {ran.report.outcome} after {ran.attempts} attempts: {report.phrase}: {report.reason}")
    return 0


def catch(mutant: Mutant, seeds: range, nodes: int) -> str:
    """Run a mutant. Return a text on how the simulation caught it; empty if it did not."""
    if mutant.bounds is not None:
        found = Search(mutant.parts, mutant.bounds).run()
        if found.violation is None or found.violation.name not in mutant.breaks:
            return ""
        return f"{found.violation.name} by search, {len(found.steps)} steps, {found.states} states"
    for seed in seeds:
        try:
            Simulation(draw(seed, nodes), mutant.parts).run()
        except Violation as violation:
            if violation.name in mutant.breaks:
                return f"{violation.name} by seed {seed}: {violation.text[:90]}"
    return ""


def run_mutants(seeds: range, nodes: int) -> int:
    """Run all mutants; return the number that were not caught."""
    missed = 0
    for mutant in MUTANTS:
        how = catch(mutant, seeds, nodes)
        missed += not how
        print(f"{mutant.name:22} {mutant.wrong:68} {how or 'NOT CAUGHT'}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants caught")
    return missed


def run_all_mutants(seeds: range, nodes: int) -> int:
    """Run the simulation's mutants, then the bugs planted in the source. Returns the number that were not caught."""
    missed = run_mutants(seeds, nodes) + run_planted()
    tell_equivalent()
    planted = len(MUTANTS) + len(PLANTED_BUGS)
    print(f"{planted - missed} / {planted} planted bugs caught")
    return missed


def run_search(limit: int) -> int:
    """Run all searches; return the number that found a violation or did not see every state."""
    bad = 0
    for bounds in BOUNDS:
        found: Found = Search(bounds=bounds).run(limit)
        bad += found.violation is not None or not found.complete
        seen = "all of it" if found.complete else "not all"
        print(f"{bounds}\n    {found.states} states, {seen}: {found.violation or 'every invariant held'}", flush=True)
        for step in found.steps:
            print(f"        {step}")
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_testing.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many simulations (2000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed of them (0)")
    parser.add_argument("--nodes", type=int, default=4, metavar="M", help="at most so many nodes; above 8 exactly (4)")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the story")
    parser.add_argument("--mutants", action="store_true", help="show that each planted bug is caught")
    parser.add_argument("--all", action="store_true", help="with --mutants: the planted bugs of all parts")
    parser.add_argument("--mutant", choices=[mutant.name for mutant in MUTANTS], help="with --seed: this planted bug")
    parser.add_argument("--search", action="store_true", help="every order of messages at two nodes")
    parser.add_argument("--limit", type=int, default=200_000, metavar="N", help="states a search may see (200000)")
    options = parser.parse_args(arguments)
    if options.nodes < 1 or options.seeds < 1:
        parser.error("--nodes and --seeds are at least 1")
    warm()
    seeds = range(options.first, options.first + options.seeds)
    if options.search:
        return int(run_search(options.limit) > 0)
    if options.all and not options.mutants:
        parser.error("--all is for --mutants")
    if options.mutants:
        run = run_all_mutants if options.all else run_mutants
        return int(run(seeds, options.nodes) > 0)
    if options.seed is not None:
        parts = next((mutant.parts for mutant in MUTANTS if mutant.name == options.mutant), Parts())
        return run_one(options.seed, options.nodes, parts, trace=options.trace)
    return int(run_many(seeds, options.nodes) > 0)


if __name__ == "__main__":
    sys.exit(main())
