"""Adds the address of a node to a report that names the node, where the job has several nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.model.exit_report import Culprit, ExitReport
from holdfast.model.human_format import with_address


def addressed(report: ExitReport, addresses: Mapping[str, str]) -> ExitReport:
    """The report with the address behind the first mention of each node in its reason: `rank 12 on gpu-07
    (10.1.2.7)`."""
    if not addresses:
        return report
    reason = report.reason
    # A longer name first: `gpu-1` stands in `gpu-10`, too.
    for node in sorted(addresses, key=len, reverse=True):
        if node in reason:
            reason = _named(reason, node, addresses[node])
    return replace(
        report,
        reason=reason,
        first=_at(report.first, addresses) if report.first is not None else None,
        also=tuple(_at(other, addresses) for other in report.also),
    )


def _named(text: str, node: str, address: str) -> str:
    place = re.compile(rf"(?<=\bon ){re.escape(node)}(?![\w@-]|[.:]\w| \()")
    return place.sub(lambda _: with_address(node, address), text, count=1)


def _at(culprit: Culprit, addresses: Mapping[str, str]) -> Culprit:
    return replace(culprit, address=addresses.get(culprit.node, ""))
