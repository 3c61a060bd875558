"""Describes the processes that ended ranks had left running, and that holdfast then ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.model.evidence import Leftover
from holdfast.model.exit_report import LEFT_RUNNING, Evidence, EvidenceKind, ExitReport
from holdfast.model.human_format import duration

#: Maximum number of commands in one sentence of the report, and of such sentences about one attempt.
MOST_COMMANDS = 3
MOST_SENTENCES = 4


def left_running(leftovers: Sequence[Leftover]) -> Iterator[str]:
    """Yield a sentence for each rank that left processes running.

    If there are many ranks, the last sentence is about all remaining ranks.
    """
    by_rank: dict[tuple[int | None, str], list[Leftover]] = {}
    for one in leftovers:
        by_rank.setdefault((one.rank, one.node), []).append(one)
    groups = list(by_rank.values())
    for group in groups[:MOST_SENTENCES]:
        yield _sentence(group)
    if rest := groups[MOST_SENTENCES:]:
        yield f"killed what {len(rest)} more ranks had left running: {sum(map(len, rest))} processes"


def waits_for(leftovers: Sequence[Leftover], wait_s: float) -> str:
    """Return a sentence about processes that ended ranks left running and that holdfast still waits for."""
    first = leftovers[0]
    who = f"rank {first.rank}" if first.rank is not None else "a rank"
    more = f" and {len(leftovers) - 1} more" if len(leftovers) > 1 else ""
    return (
        f"waiting up to {duration(wait_s)} (--leftover-wait) for what {who} has left running: "
        f"{first.command} (pid {first.pid}){more}; Ctrl-C ends it"
    )


def with_left_running(report: ExitReport, leftovers: Sequence[Leftover]) -> ExitReport:
    """Return the report with sentences about the processes that ended ranks left running, as its last evidence."""
    kind = EvidenceKind.COLLATERAL
    found = [Evidence(kind=kind, text=text, source=LEFT_RUNNING) for text in left_running(leftovers)]
    return replace(report, evidence=(*report.evidence, *found)) if found else report


def _sentence(group: Sequence[Leftover]) -> str:
    first = group[0]
    who = f"rank {first.rank}" if first.rank is not None else "a rank"
    where = f" on {first.node}" if first.node else ""
    named = [f"{one.command} (pid {one.pid}{', by SIGKILL' if one.killed else ''})" for one in group[:MOST_COMMANDS]]
    commands = ", ".join(named)
    more = f" and {len(group) - MOST_COMMANDS} more processes" if len(group) > MOST_COMMANDS else ""
    late = f", {duration(first.after_s)} after its end" if first.after_s is not None else ""
    return f"killed what {who}{where} had left running: {commands}{more}{late} (--leftover-wait waits longer)"
