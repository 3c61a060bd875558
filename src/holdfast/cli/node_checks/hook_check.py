"""`holdfast check --slurm`: checks a node from a hook of the platform (prolog, health check), and drains the node if
requested."""

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

from holdfast.cli.node_checks.checks_table import FAILED, as_object, print_round, state_of
from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState, Site
from holdfast.node.check_entry import CheckRound, run_round
from holdfast.platforms.node_hooks import CheckBusy, NodeHooks, NodeTreatment
from holdfast.platforms.platform_registry import access_to, node_called, unknown

if TYPE_CHECKING:
    from holdfast.node.check_entry import CheckPlan


def hooks_of(platform: str) -> NodeHooks:
    """Return the hooks (prolog, health check) with which a platform checks its nodes.

    Raise `BadUsage` if it has none.
    """
    access = access_to(platform)
    if access is None:
        raise unknown(platform, "the platform")
    found = access.node_hooks()
    if found is None:
        raise BadUsage(f"{platform} has no hooks for a check of its nodes")
    return found


@contextmanager
def for_hooks(hooks: NodeHooks, conf: str | None) -> Iterator[None]:
    """Set up the environment variables for a check that a platform's hook starts, because a hook has almost none.

    In a hook, print an error of the check itself (a broken configuration, a bug of holdfast) and exit with status 0: a
    failing prolog would drain every node.
    """
    by_hand = hooks.by_hand(os.environ)
    hooks.furnish(os.environ, conf)
    try:
        yield
    except Exception as trouble:  # a bug of holdfast must not drain all nodes of a cluster
        if by_hand:
            raise
        if not isinstance(trouble, HoldfastError):
            traceback.print_exc()
        say(f"the check itself failed, which shows nothing about the node: {trouble}")
        raise SystemExit(0) from None


@dataclass(frozen=True, kw_only=True)
class NodeCheckOptions:
    """The options of `holdfast check --slurm`.

    `as_json`: print JSON. `drains`: drain the node if a check fails. `gives_back`: if all checks pass, end a drain that
    holdfast began.
    """

    as_json: bool
    drains: bool
    gives_back: bool
    #: User ids whose jobs' reports about devices are trusted; None: every user's jobs are trusted.
    believes: Collection[int] | None


def believes(users: str | None) -> Collection[int] | None:
    """Return the user ids that `--believe` names. Raise BadUsage for a user that this machine does not know."""
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


def check_node(plan: CheckPlan, home: str, platform: str, asked: NodeCheckOptions) -> int:
    """Check the node, drain it if the options say so, and print the result.

    Return the exit status: 0, or 252 if a check failed. In a prolog, any status but 0 drains the node and requeues its
    job. Therefore the status is also 0 in three cases: a check cannot decide, the platform does not answer, or another
    check is running.
    """
    # The running checks must not outlive their caller, so SIGTERM leads to the same clean-up as any other exit.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    hooks = hooks_of(platform)
    node = node_called(os.environ) or socket.gethostname().partition(".")[0]
    try:
        with hooks.alone(node, waits=hooks.waits(os.environ)):
            return _check(plan, node, home, platform, hooks, asked)
    except CheckBusy:
        say(f"another check of {node} is running, so this one does nothing")
        return 0


def _check(plan: CheckPlan, node: str, home: str, platform: str, hooks: NodeHooks, asked: NodeCheckOptions) -> int:
    began = time.monotonic()
    site = Site(node=node, cwd="/", home=home)
    order = RunChecks(attempt=1, round=1, nodes=(node,), checks=None, deadline_s=hooks.limit_s)
    current = CheckRound(plan, site=site, now=began, order=order, keep_going=True)
    answer = run_round(current, time.monotonic)
    failed = answer.state == CheckState.FAIL
    told = hooks.told_by_jobs(node, asked.believes)
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
    tended = hooks.tend(node, troubles, drains=asked.drains, gives_back=asked.gives_back)
    if asked.as_json:
        from holdfast.report.report_json import pretty

        shown = as_object(current, answer, node, code, took_s)
        print_line(pretty({**shown, platform: {**_object(tended), "told_by_jobs": told}}))
    elif tended.said:
        print_line(tended.said)
    return code


def _object(tended: NodeTreatment) -> dict[str, object]:
    return {"action": tended.doing, "done": tended.done, "said": tended.said, "command": tended.command}
