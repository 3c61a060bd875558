"""`python -m holdfast_testing.queue_simulation`: thousands of queues of machines that do not exist, each from a seed.

    --histories N            N histories, each plan of which is judged by the invariants Q1 to Q12
    --seed S                one of them again, exactly, with its story

Exit status 0: every invariant held; 1: not.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Sequence

from holdfast_testing.queue_history import draw_history
from holdfast_testing.queue_witness import Witness
from holdfast_testing.queue_world import QueueWorld
from holdfast_testing.simulated_world import Violation

PROGRAM = "python -m holdfast_testing.queue_simulation"
#: Maximum number of failures that are printed in full.
SHOWN = 5


def run_history(seed: int, *, tracing: bool = False) -> QueueWorld:
    """Run one history to its end. Raises `Violation`."""
    world = QueueWorld(draw_history(seed), Witness(), tracing=tracing)
    world.run()
    return world


def story_of(seed: int) -> str:
    """Return everything that happens in a history, with the invariant that it breaks at the end."""
    world = QueueWorld(draw_history(seed), Witness(), tracing=True)
    try:
        world.run()
    except Violation as violation:
        world.story.append(f"{world.now:8.1f} s  {violation}")
    return "\n".join(world.story)


def run_many(seeds: range) -> int:
    """Run all histories, print a summary, and return how many broke an invariant."""
    failures, looks, ends = 0, 0, Counter[str]()
    gc.disable()  # a history leaves no circles; looking for them takes a tenth of the time
    began = time.process_time()
    for seed in seeds:
        try:
            world = run_history(seed)
        except Violation as violation:
            failures += 1
            if failures <= SHOWN:
                again = f"{PROGRAM} --seed {seed}"
                print(f"{story_of(seed)}\nseed {seed}: {violation}\n    again: {again}\n", flush=True)
            continue
        looks += world.looks
        ends.update(world.ended.values())
    gc.enable()
    spent = time.process_time() - began
    jobs = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    print(f"{len(seeds)} histories: {jobs}; {failures} broke an invariant; {looks} plans, {spent:.1f} s of CPU")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=2000, metavar="N", help="how many histories (2000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed of them (0)")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one, with its story")
    options = parser.parse_args(arguments)
    if options.histories < 1:
        parser.error("--histories is at least 1")
    if options.seed is not None:
        story = story_of(options.seed)
        print(story)
        return int(" s  Q" in story.splitlines()[-1])
    return int(run_many(range(options.first, options.first + options.histories)) > 0)


if __name__ == "__main__":
    sys.exit(main())
