"""The verbs `jobs`, `show`, `logs` and `stop` with `--platform kubernetes`, outside the cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage
from holdfast.report.terminal_text import harmless

if TYPE_CHECKING:
    from holdfast.platforms.remote_jobs import RemoteJob, RemoteJobs, RemoteJobView, RemoteLine
    from holdfast.report.merged_logs import LogLineFilter

F = TypeVar("F", bound=Callable[..., Any])


def of_a_cluster(*, short: bool = True) -> Callable[[F], F]:
    """Add `--platform` and `--namespace` to a verb that can read a cluster's jobs.

    `short`: whether `-n` means `--namespace` too.
    """
    forms = (*(["-n"] if short else []), "--namespace")
    namespace = click.option(*forms, metavar="NAME", help="With --platform kubernetes: the namespace.")
    platform = click.option("--platform", metavar="NAME", help="kubernetes: jobs of a cluster instead of this machine.")
    return lambda verb: platform(namespace(verb))


def in_cluster(platform: str | None, namespace: str | None, job: str | None = None) -> RemoteJobs | None:
    """Return access to the cluster whose jobs the user means; None if the user means jobs of this machine.

    Raise `BadUsage` for options that do not match.

    `job`: the job as the user typed it; empty: the user typed no job, which is an error for a cluster; None: the verb
    takes no job.
    """
    if platform is None:
        if namespace is not None:
            raise BadUsage(
                "-n is for jobs in a cluster: expected --platform kubernetes with it",
                hint=f"--platform kubernetes -n {namespace}",
            )
        return None
    from holdfast.platforms.platform_registry import access_to  # imported here, because few calls concern a cluster

    found = access_to(platform)
    cluster = found.remote() if found is not None else None
    if cluster is None:
        raise BadUsage(
            f"--platform {platform}: expected kubernetes; jobs under Slurm are seen without the option",
            hint="holdfast jobs --platform kubernetes",
        )
    if job == "":
        raise BadUsage("a job in a cluster has to be named: expected JOB", hint="holdfast jobs --platform kubernetes")
    return cluster


def jobs(cluster: RemoteJobs, namespace: str | None, as_json: bool) -> None:
    """Print a table of the jobs in a namespace."""
    found, where = cluster.jobs(namespace)
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(
            pretty({"schema": "holdfast.cluster_jobs/1", "namespace": where, "jobs": [_plain(each) for each in found]})
        )
        return
    if not found:
        print_line(f"namespace {where} has no job of holdfast")
        return
    from holdfast.cli.output.table import table

    print_line(table([("JOB", "STATE", "PODS", "ATTEMPT", "CODE", "WHAT", "STARTED", "TOOK"), *map(_row, found)]))


def _row(job: RemoteJob) -> tuple[str, ...]:
    from holdfast.model.human_format import duration
    from holdfast.record.local_time import clock

    until = time.time() if job.ended is None else job.ended
    return (
        job.name,
        str(job.state),
        str(job.nodes or "") if job.ended is not None else f"{job.running}/{job.nodes or '?'}",
        str(job.attempt or ""),
        "" if job.code is None else str(job.code),
        harmless(job.phrase or job.said)[:60],
        clock(job.created),
        duration(max(until - job.created, 0.0)),
    )


def _plain(job: RemoteJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "state": str(job.state),
        "code": job.code,
        "phrase": job.phrase,
        "said": job.said,
        "created": job.created,
        "ended": job.ended,
        "nodes": job.nodes,
        "attempt": job.attempt or None,
        "running": job.running,
        "owner": job.owner.name if job.owner is not None else None,
        "pods": [{"name": pod.name, "node": pod.node, "phase": str(pod.phase)} for pod in job.pods],
    }


def show(cluster: RemoteJobs, namespace: str | None, name: str, as_json: bool, verbose: bool) -> None:
    """Print one job in a cluster."""
    found = cluster.look(namespace, name)
    if as_json:
        from holdfast.report.report_json import pretty, to_json_object

        report = None if found.report is None else to_json_object(found.report)
        placed = found.placement
        events = [{"at": each.at, "reason": each.reason, "message": each.message} for each in found.events]
        whole = {**_plain(found.job), "placement": placed, "events": events, "report": report}
        print_line(pretty({"schema": "holdfast.cluster_job/1", **whole}))
        return
    if found.report is not None:
        from holdfast.platforms.remote_jobs import typed_outside
        from holdfast.report.brief_report import render_brief
        from holdfast.report.failure_place import scene_of
        from holdfast.report.terminal_text import columns, wants_colour

        colour, width = wants_colour(sys.stdout, os.environ), columns(os.environ)
        scene = scene_of(found.report.report, None)
        job = found.job
        retyped = partial(
            typed_outside, job=found.report.job_id, name=job.name, where=f"--platform kubernetes -n {job.namespace}"
        )
        text = render_brief(found.report, scene, width=width, colour=colour, verbose=verbose, retyped=retyped)
        print_line(text, nl=False)
    print_line("\n".join(_lines(found)))


def _lines(found: RemoteJobView) -> list[str]:
    from holdfast.model.human_format import duration
    from holdfast.record.local_time import clock

    job = found.job
    until = time.time() if job.ended is None else job.ended
    since = f"since {clock(job.created)} ({duration(max(until - job.created, 0.0))})"
    called = f" ({harmless(found.title)})" if found.title and found.title != job.name else ""
    state = job.state if found.report is None else found.report.outcome
    lines = [f"holdfast: job {job.name}{called} {state.upper()} {since}, in namespace {job.namespace}"]
    if (job.said or job.phrase) and found.report is None:
        code = f" (exit code {job.code})" if job.code else ""
        lines.append(f"  why        {harmless(': '.join(filter(None, (job.phrase, job.said))))}{code}")
    if job.owner is not None:
        lines.append(f"  owner      {harmless(job.owner.name)}{_on(job.owner.node)}")
    if found.placement:
        lines.append(f"  placement  {found.placement}")
    if job.nodes and not found.over:
        attempt = f", attempt {job.attempt}" if job.attempt else ""
        lines.append(f"  pods       {job.running} of {job.nodes} run{attempt}")
    lines += [f"    {harmless(name)}{_on(node)}: {harmless(words)}" for name, node, words in found.pods]
    lines += [f"  {clock(each.at)}  {harmless(each.reason)}: {harmless(each.message)}" for each in found.events]
    options = f"--platform kubernetes -n {job.namespace}"
    lines.append(f"  logs       holdfast logs {job.name} {options}{'' if found.over else ' --follow'}")
    if found.over:
        lines.append(f"  to delete  {found.delete_command}")
    else:
        lines.append(f"  to stop    holdfast stop {job.name} {options} --reason TEXT")
    return lines


def _on(node: str) -> str:
    return f" on {harmless(node)}" if node else ""


def logs(
    cluster: RemoteJobs,
    namespace: str | None,
    name: str,
    lines: LogLineFilter,
    *,
    rank: int | None,
    timestamps: bool,
    as_json: bool,
    following: bool,
    refused: Sequence[str],
) -> None:
    """Print the logs of a job's pods. `refused`: typed options that have no effect for a cluster. `following`: also
    print later lines, until the job ends.
    """
    if refused:
        raise BadUsage(
            f"{refused[0]}: a pod has one log, of all attempts and both streams, which lies on its node: expected "
            "--rank, --since, --until, --grep, --tail, --timestamps, --json or --follow",
            hint=f"holdfast logs {name} --platform kubernetes{f' -n {namespace}' if namespace else ''} "
            f"--rank {rank or 0}",
        )
    from holdfast.platforms.remote_jobs import RemoteLineFilter
    from holdfast.report.merged_logs import pod_line, stamp

    out = sys.stdout.buffer
    wanted = RemoteLineFilter(
        rank=rank,
        since=lines.since,
        until=lines.until,
        fits=lines.pattern.in_line.search if lines.pattern is not None else None,
        tail=lines.tail,
    )

    def put(line: RemoteLine) -> None:
        if as_json:
            out.write(pod_line(line.pod, line.at, line.role, line.rank, line.text))
        else:
            moment = f"{stamp(line.at)} ".encode() if timestamps else b""
            body = line.whole.removesuffix(b"\n") if rank is None else line.text
            out.write(moment + (f"{line.pod}: ".encode() if rank is None else b"") + body + b"\n")
        if following:
            out.flush()

    cluster.logs(namespace, name, wanted, out=put, say=say, following=following)
    out.flush()
