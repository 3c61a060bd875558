"""Makes a node's report if the job's owner never answered, or has stopped answering."""

from __future__ import annotations

from holdfast.catalogue.exit_rows import load
from holdfast.model.exit_report import Because, Evidence, EvidenceKind, ExitReport, Original, OtherRule
from holdfast.model.phrases import Phrase


def explain_owner_lost(
    job: str, node: str, owner: str, *, silent_s: float, waited_s: float, attempt: int, workers: int
) -> ExitReport:
    """Return the report of a node whose job has lost its owner.

    job: the job's id.
    node: the name of this node.
    owner: the host name of the owner's machine.
    silent_s: seconds since the owner's last answer.
    waited_s: seconds for which the node waited for an owner.
    attempt: the number of the attempt.
    workers: number of workers that the node has ended.
    """
    row = load().row(Phrase.OWNER_LOST)
    ended = f"its {workers} worker{'s'[: workers != 1]} ended with its lease, and " if workers else ""
    return ExitReport(
        code=row.code,
        phrase=row.phrase,
        blame=row.blame,
        rerun=row.rerun,
        reason=f"the owner of job {job} on {owner} has not answered for {silent_s:.0f} s: {node} waited for it, "
        f"{ended}no owner came back within {waited_s:g} s",
        solution=f"Look at {owner}: power, network, kernel log (journalctl -k -b -1), the scheduler's records. Then "
        "start the job again on all nodes.",
        hint=f"holdfast show {job} (on {owner})",
        original=Original(),
        evidence=(
            Evidence(
                kind=EvidenceKind.CHECK, text=f"no acknowledgement from {owner} for {silent_s:.0f} s", source=node
            ),
        ),
        attempt=max(attempt, 1),
        fingerprint=row.phrase,
        because=Because(rule=OtherRule.OWNER_SILENT, row=row.phrase),
    )


def explain_owner_absent(place: str, *, waited_s: float, last: str) -> ExitReport:
    """Return the report of a node that found no owner.

    place: the address that the node dialled.
    waited_s: seconds for which it tried.
    last: the error of its last try.
    """
    row = load().row(Phrase.GANG_START_TIMEOUT)
    host, _, port = place.rpartition(":")
    last = last.removeprefix(f"no owner answers at {place}: ")
    return ExitReport(
        code=row.code,
        phrase=row.phrase,
        blame=row.blame,
        rerun=row.rerun,
        reason=f"no owner of this job has answered at {place} within {waited_s:g} s" + (f": {last}" if last else ""),
        solution=f"Start the run on the node that hosts the owner ({host}), with the same --rdzv-endpoint, and see "
        f"that port {port} is open from here.",
        hint=f"nc -vz {host.strip('[]')} {port}",
        original=Original(),
        evidence=(Evidence(kind=EvidenceKind.CHECK, text=last or "no answer", source=place),),
        attempt=1,
        fingerprint=row.phrase,
        because=Because(rule=OtherRule.OWNER_ABSENT, row=row.phrase),
    )
