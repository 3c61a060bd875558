"""Verbs for jobs over several nodes, typed on a node that is not the owner's. They reach the owner over the network."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.options.shared_options import survey
from holdfast.cli.output.printing import say
from holdfast.errors import BadUsage, HoldfastError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.owner.nodes.operator_client import Verb
    from holdfast.record.job_views import JobView, Survey
    from holdfast.record.owner_address import OwnerAddress


V = TypeVar("V", bound=Callable[..., None])


def job_options(verb: V) -> V:
    """Add `--job` and `--on` to a verb that can run on a node of a job over several nodes."""
    verb = click.option("--on", "on_node", default="", metavar="NODE", help="With --job: only on this node.")(verb)
    return click.option("--job", metavar="JOB", help="Run on the nodes of this job, which has several.")(verb)


class RemoteRefusal(HoldfastError):
    """Raised if the owner or a node has refused a request."""


def located(job: str) -> tuple[Survey, JobView, OwnerAddress | None]:
    """Return all jobs, the job that the word `job` names, and its owner's address (None if the job has one node).

    Raise BadUsage if there is no such job.
    """
    from holdfast.record.job_lookup import find, of_id
    from holdfast.record.job_views import JobState
    from holdfast.record.owner_address import read_owner_address

    found = survey()
    view = find(found, job)
    if view.state is JobState.QUEUED:
        from holdfast.cli.job_access.queued_jobs import queues

        found = queues().survey  # `queues` records the job's end if its platform no longer has it
        view = find(found, view.id)
    if of_platform := [other for other in of_id(found.jobs, job) if other.id != view.id and view.name == job]:
        other = of_platform[0]
        platform = other.platform.platform if other.platform else ""
        say(f"{job} is the name of job {view.id}, which is meant here, and {platform}'s id of job {other.id}")
    return found, view, read_owner_address(found.home, view.id)


def is_elsewhere(view: JobView) -> bool:
    """Return whether the owner is on another node and the job may still run."""
    from holdfast.record.job_views import JobState

    return view.state is JobState.OUT_OF_SIGHT or (view.state is JobState.RUNNING and view.host != socket.gethostname())


def run_verb(note: OwnerAddress, home: Path, verb: Verb, words: Sequence[str] = (), *, node: str = "") -> str:
    """Run a verb of holdfast on the owner's machine or on a node, and return its output.

    Raise HoldfastError if the verb fails.
    """
    from holdfast.owner.nodes.operator_client import OperatorClient, VerbLine

    with OperatorClient(note, os.environ, home) as owner:
        answer = owner.ask(VerbLine(verb=verb, words=tuple(words), node=node))
    if not answer.ok:
        raise RemoteRefusal(answer.message.removeprefix("holdfast: ").rstrip() or f"job {note.job_id}: no answer")
    return answer.message


def node_of_job(job: str) -> tuple[OwnerAddress, Path]:
    """Return the owner's address and the state directory for a job over several nodes.

    Raise BadUsage for any other job.
    """
    found, view, note = located(job)
    if note is None:
        raise BadUsage(f"--job {job}: job {view.id} does not run over several nodes", hint="without --job")
    return note, found.home
