"""`holdfast check --slurm`: the checks of a node for Slurm's hooks, and the drain that may follow."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli._checks_table import FAILED, as_object, print_round, state_of
from holdfast.cli._printing import print_line
from holdfast.cli._shared_options import say
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.check_results import CheckState, Site
from holdfast.node.check_entry import CheckRound, run_round
from holdfast.platforms.slurm import node_health

if TYPE_CHECKING:
    from holdfast.node.check_entry import CheckPlan
    from holdfast.platforms.slurm.node_health import NodeTreatment

NODE_CHECKS = node_health.NODE_CHECKS


@contextmanager
def for_slurm(slurm_conf: str | None) -> Iterator[None]:
    """Around the whole check: slurmd's environment is almost empty; and errors of the check itself (a broken
    configuration, a bug of holdfast) are printed and end with status 0 there: as a prolog's failure they would drain
    every node."""
    use = node_health.use_of(os.environ)
    node_health.furnish(os.environ, slurm_conf)
    try:
        yield
    except Exception as trouble:  # a bug of ours must not take a cluster out of work
        if use is node_health.CheckCaller.PERSON:
            raise
        if not isinstance(trouble, HoldfastError):
            traceback.print_exc()
        say(f"the check of this node did not work, which says nothing of the node: {trouble}")
        raise SystemExit(0) from None


@dataclass(frozen=True, kw_only=True)
class NodeCheckOptions:
    """The options of the check."""

    as_json: bool
    drains: bool
    gives_back: bool
    believes: Collection[int] | None
    """User ids whose jobs' reports about devices count; None: every user's."""


def believes(users: str | None) -> Collection[int] | None:
    """The users of `--believe`. Raises BadUsage for one that this machine does not know."""
    if users == "all":
        return None
    found = []
    for name in filter(None, (users or "").split(",")):
        try:
            found.append(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise BadUsage(
                f"--believe: no user `{name}` is known here", hint="holdfast check --slurm --believe all"
            ) from None
    return found


def check_node(plan: CheckPlan, home: str, asked: NodeCheckOptions) -> int:
    """Check, drain where the options ask for it, print; returns the exit status: 0, or 252 where a check failed.

    A check that cannot decide, a Slurm that does not answer and a check that runs already are no failure of the node:
    in a prolog any status but 0 drains the node and requeues its job.
    """
    # A check must not outlive its caller: an end by signal goes through the same clean-up as any other.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    waits = node_health.use_of(os.environ) in (node_health.CheckCaller.PROLOG, node_health.CheckCaller.EPILOG)
    try:
        with node_health.alone(node, waits=waits):
            return _check(plan, node, home, asked)
    except node_health.CheckBusy:
        say(f"another check of {node} runs: this one is left to it")
        return 0


def _check(plan: CheckPlan, node: str, home: str, asked: NodeCheckOptions) -> int:
    began = time.monotonic()
    site = Site(node=node, cwd="/", home=home)
    current = CheckRound(plan, site=site, now=began, keep_going=True, deadline_s=node_health.ALL_S)
    answer = run_round(current, time.monotonic)
    failed = answer.state == CheckState.FAIL
    told = node_health.told_by_jobs(node, asked.believes)
    code, took_s = FAILED if failed or told else 0, time.monotonic() - began
    troubles = [
        f"{step.name}: {finding.message.removeprefix(f'{node}: ')}"
        for step, progress, _, finding in current.progress()
        if finding is not None and state_of(progress, finding) == "FAIL"
    ]
    if failed and not troubles:
        troubles = ["checks cannot tell whether the node works"]
    troubles += told
    if not asked.as_json:
        print_round(current, answer, node, took_s)
        for text in told:
            print_line(text)
    tended = node_health.tend(node, troubles, drains=asked.drains, gives_back=asked.gives_back)
    if asked.as_json:
        from holdfast.report.report_json import pretty

        shown = as_object(current, answer, node, code, took_s)
        print_line(pretty({**shown, "slurm": {**_object(tended), "told_by_jobs": told}}))
    elif tended.said:
        print_line(tended.said)
    return code


def _object(tended: NodeTreatment) -> dict[str, object]:
    return {"action": tended.doing, "done": tended.done, "said": tended.said, "command": tended.command}
