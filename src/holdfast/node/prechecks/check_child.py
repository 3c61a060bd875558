"""The process of one check. It is a fork of the loaded supervisor, keeps only its own descriptors, and never returns.

It writes its answer, a JSON `Finding`, to a pipe. If the check raises, exits, prints or hangs, only this process is
affected. Before the answer is sent, processes that the check has left are killed.
"""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from holdfast.act.linux import descendants
from holdfast.check_profiles import CheckKind, CheckRef, Profile, profile
from holdfast.check_registry import classes_in, load_check
from holdfast.model.check_interface import DiagnosisAction, Node, PreCheckOperator, PreCheckResult, Verdict
from holdfast.model.check_results import ActionKind, CheckOutcome, FailedAction, Finding, Site
from holdfast.model.codec import encode
from holdfast.model.exit_report import Blame
from holdfast.model.job_spec import JobSpec
from holdfast.node.devices.excluded_devices import kept_out
from holdfast.untrusted import json_as

_MESSAGE_CHARS = 2000
_SCHED_IDLE = 5

_WORDS = {
    "note": ActionKind.NOTE,
    "retry": ActionKind.RETRY,
    "avoid": ActionKind.AVOID,
    "replace": ActionKind.REPLACE,
    "stop": ActionKind.STOP,
}


def run(
    work: Sequence[tuple[CheckRef, Mapping[str, Any]]],
    *,
    job: JobSpec | None,
    nodes: Sequence[str],
    attempt: int,
    site: Site,
    fd: int,
) -> NoReturn:
    """Run the checks one after another. Write one line with each check's result to `fd`. `work`: the checks with their
    parameters. `nodes`: the job's nodes. `site`: facts about this node.
    """
    if site.running:
        _step_aside()
    for ref, params in work:
        started = time.monotonic()
        try:
            finding = _finding(ref, params, job, nodes, attempt, site)
        except BaseException as error:  # catch SystemExit and KeyboardInterrupt too: a check that exits has no result
            finding = Finding(
                check=ref.name,
                answer=CheckOutcome.INCONCLUSIVE,
                node=site.node,
                nodes=(site.node,),
                message=f"{site.node}: the check itself failed: {_where(error)}",
                blame="unknown",
            )
        _answer(fd, msgspec.structs.replace(finding, took_s=time.monotonic() - started))
    os._exit(0)


def describe_in_child(ref: CheckRef, fd: int) -> NoReturn:
    """Load the checks of a plugin (`ref`), and send their profiles or an error message."""
    try:
        if ref.kind is CheckKind.FILE:
            found = classes_in(Path(ref.target))
            profiles = [profile(msgspec.structs.replace(ref, name=name), cls) for name, cls in found.items()]
        else:
            profiles = [profile(ref, load_check(ref))]
    except BaseException as error:  # foreign code may raise anything, so report it as one message
        _answer(fd, str(getattr(error, "message", "")) or f"{ref.source}: {_where(error)}")
    else:
        _answer(fd, profiles)
    os._exit(0)


def decode_profiles(data: bytes) -> list[Profile] | str:
    """Decode the answer of `describe_in_child`. Raises `Malformed` if the answer is incomplete."""
    found: list[Profile] | str = json_as(data, list[Profile] | str)
    return found


def _step_aside() -> None:
    """Lower this process's priority during the job, so that it uses only CPU time that no worker needs."""
    try:
        os.sched_setscheduler(0, _SCHED_IDLE, os.sched_param(0))
    except OSError:
        os.nice(19)


def _finding(
    ref: CheckRef, params: Mapping[str, Any], job: JobSpec | None, nodes: Sequence[str], attempt: int, site: Site
) -> Finding:
    operator: PreCheckOperator = load_check(ref)()
    if getattr(operator, "wants_standings", False) and ref.kind is CheckKind.BUILT_IN and site.kept_out is None:
        site = msgspec.structs.replace(site, kept_out=kept_out(site.home, site.node, time.time()))
    objects = [Node("worker", number, name=name) for number, name in enumerate(nodes)]
    context: dict[str, Any] = {"job": job, "nodes": objects, "attempt": attempt, "now": time.time(), "site": site}
    result = operator.check(**_accepted(operator.check, context), **params)
    if not isinstance(result, PreCheckResult):
        raise TypeError(f"check() returned {type(result).__name__}, expected a PreCheckResult")
    good = bool(result.is_success())
    unsure = isinstance(result, Verdict) and result.inconclusive and not good
    message = str(result.result_msg)
    names = () if good else tuple(dict.fromkeys(_name(node, objects) for node in _listed(result.abnormal_nodes)))
    if not good and not message:
        message = f"the check's result is {result.result}"
    if not good and not any(name in message for name in (site.node, *names)):
        message = f"{', '.join(names) or site.node}: {message}"
    blame = str(getattr(result, "blame", "") or operator.blame)
    actions: tuple[FailedAction, ...] = ()
    if not good and not unsure:
        context |= {"result": result, "result_msg": message, "abnormal_nodes": result.abnormal_nodes}
        try:
            asked = operator.failed_actions(**_accepted(operator.failed_actions, context))
            actions = tuple(made for action in asked or () if (made := _action(action, objects)) is not None)
        except Exception as error:  # the finding is valid without the actions too
            message += f" (and its failed_actions() failed: {_where(error)})"
    return Finding(
        check=ref.name,
        answer=CheckOutcome.GOOD if good else CheckOutcome.INCONCLUSIVE if unsure else CheckOutcome.BAD,
        node=site.node,
        result=int(result.result),
        message=message[:_MESSAGE_CHARS],
        solution=str(getattr(result, "solution", "") or operator.solution)[:_MESSAGE_CHARS],
        blame=blame if blame in tuple(Blame) else Blame.UNKNOWN.value,
        nodes=names,
        actions=actions,
        figures=dict(getattr(result, "figures", {})),
        devices=tuple(str(device) for device in getattr(result, "devices", ())),
        phrase=str(getattr(result, "phrase", "")),
    )


def _accepted(method: Any, context: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the context that the method's signature accepts."""
    params = inspect.signature(method).parameters.values()
    if any(param.kind is inspect.Parameter.VAR_KEYWORD for param in params):
        return context
    names = {param.name for param in params if param.kind is not inspect.Parameter.POSITIONAL_ONLY}
    return {key: value for key, value in context.items() if key in names}


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int | Node) else list(value or ())


def _name(node: Any, nodes: Sequence[Node]) -> str:
    """Return a node's name. A check may name the node by a name, a number or an object."""
    if isinstance(node, str):
        return node
    if isinstance(node, int):
        return nodes[node].name if 0 <= node < len(nodes) else f"worker-{node}"
    if isinstance(node, Node):
        return node.name if node.named else _name(node.id, nodes)
    return str(getattr(node, "name", None) or node)


def _action(action: Any, nodes: Sequence[Node]) -> FailedAction | None:
    """Convert a check's action; None if it does not change how the failure is handled."""
    if isinstance(action, str) and action.lower() in _WORDS:
        return FailedAction(kind=_WORDS[action.lower()])
    if isinstance(action, ActionKind):
        return FailedAction(kind=action)
    if isinstance(action, type) and issubclass(action, DiagnosisAction):
        action = action()
    if not isinstance(action, DiagnosisAction):
        raise TypeError(f"expected actions of holdfast.checks, found {action!r}")
    if action.kind is None:
        return None
    names = tuple(_name(node, nodes) for node in action.nodes)
    return FailedAction(kind=action.kind, reason=str(action.reason), nodes=names, times=action.times)


def _where(error: BaseException) -> str:
    """Describe an error with its innermost frame, as in `ZeroDivisionError: division by zero (probe.py:12)`."""
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f" ({Path(code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}" if str(error) else f"{type(error).__name__}{place}"


def _answer(fd: int, value: Any) -> None:
    """Kill all processes of the check, then write one line of JSON."""
    kill_children(os.getpid())
    try:
        data = encode(value)
    except (TypeError, ValueError):
        # Leave out the check's figures, because they may have values that JSON cannot express. All other fields come
        # from holdfast.
        data = encode(msgspec.structs.replace(value, figures={}))
    data += b"\n"
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        os._exit(0)  # exit, because the reader of the answer has gone


def kill_children(pid: int) -> None:
    """Send SIGKILL to every descendant of `pid`, also to new ones. Do not wait for their exits."""
    for _ in range(50):
        alive = _alive(pid)
        if not alive:
            return
        for child in alive:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass  # ignore a process that exited by itself
        if pid == os.getpid():
            _reap()


def kill_tree(pid: int) -> None:
    """Send SIGKILL to `pid` and all its descendants. First stop `pid`, so that it cannot fork meanwhile."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return
    kill_children(pid)
    os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    try:
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
            pass
    except ChildProcessError:
        pass  # ignore the error: `pid` has no children left


def _alive(pid: int) -> list[int]:
    """Return the descendants of `pid` that are not zombies."""
    return [child for child in descendants(pid) if _state(child) not in "ZX"]


def _state(pid: int) -> str:
    """Return the state letter of /proc/PID/stat, or X if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
