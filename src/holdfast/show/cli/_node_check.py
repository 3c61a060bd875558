"""`holdfast check --slurm`: the checks of a node for Slurm's hooks, and the drain that may follow."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from holdfast.loop.check import CheckRound, run_round
from holdfast.loop.slurm import node_health
from holdfast.model.checks import CheckState, Site
from holdfast.show.cli._checks_shown import FAILED, as_object, print_round, state_of
from holdfast.show.cli._options import say
from holdfast.show.cli._out import tell

if TYPE_CHECKING:
    from holdfast.loop.check import CheckPlan
    from holdfast.loop.slurm.node_health import Tended

NODE_CHECKS = node_health.NODE_CHECKS


def begin(slurm_conf: str | None) -> None:
    """Before anything is read: slurmd's environment is almost empty."""
    node_health.furnish(os.environ, slurm_conf)


def check_node(plan: CheckPlan, home: str, *, as_json: bool, drains: bool, gives_back: bool) -> int:
    """Check, drain where that was asked for, print; the exit status: 0, or 252 where a check failed.

    A check that cannot tell, a Slurm that does not answer and a check that runs already are no failure of the node: in
    a prolog any other status than 0 drains the node and sends its job back to the queue.
    """
    # A check must not outlive its caller: an end by signal goes through the same clean-up as any other.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    waits = node_health.use_of(os.environ) in (node_health.Use.PROLOG, node_health.Use.EPILOG)
    try:
        with node_health.alone(node, waits=waits):
            return _check(plan, node, home, as_json=as_json, drains=drains, gives_back=gives_back)
    except node_health.Busy:
        say(f"another check of {node} runs: this one is left to it")
        return 0


def _check(plan: CheckPlan, node: str, home: str, *, as_json: bool, drains: bool, gives_back: bool) -> int:
    began = time.monotonic()
    site = Site(node=node, cwd="/", home=home)
    current = CheckRound(plan, site=site, now=began, keep_going=True, deadline_s=node_health.ALL_S)
    answer = run_round(current, time.monotonic)
    failed = answer.state == CheckState.FAIL
    code, took_s = FAILED if failed else 0, time.monotonic() - began
    troubles = [
        f"{step.name}: {finding.message.removeprefix(f'{node}: ')}"
        for step, progress, _, finding in current.progress()
        if finding is not None and state_of(progress, finding) == "FAIL"
    ]
    if failed and not troubles:
        troubles = ["checks cannot tell whether the node works"]
    if not as_json:
        print_round(current, answer, node, took_s)
    tended = node_health.tend(node, troubles, drains=drains, gives_back=gives_back)
    if as_json:
        from holdfast.show.report_json import pretty

        told = as_object(current, answer, node, code, took_s)
        tell(pretty({**told, "slurm": _told(tended)}))
    elif tended.said:
        tell(tended.said)
    return code


def _told(tended: Tended) -> dict[str, object]:
    return {"action": tended.doing, "done": tended.done, "said": tended.said, "command": tended.command}
