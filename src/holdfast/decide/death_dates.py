"""Dates the deaths that an agent reports, on the owner's clock; `wire/message_ages.py` dates everything else.

The clocks of two machines are never compared. A report has its sending time on the agent's own clock, and how long ago
each worker ended. The network's delay makes a death look later than it was. So the owner assumes the smallest delay of
all reports of the agent for each report: a slow report does not look like a late death.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.model.gang_protocol import Member, Report

#: The assumed difference in speed of two clocks (1 %): far more than any two clocks differ.
CREEP = 0.01


class AgentClocks:
    """The difference between the owner's clock and each agent's, learned from every report, heartbeats included."""

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], tuple[float, float]] = {}

    def learn(self, report: Report, now: float) -> None:
        """Learn from a report that arrived at `now` (seconds).

        The smallest difference may grow slowly, because no two clocks run at exactly the same speed.
        """
        key, seen = (report.node, report.boot), now - report.sent
        least, at = self._ahead.get(key, (seen, now))
        self._ahead[key] = (min(seen, least + CREEP * (now - at)), now)

    def dated(self, report: Report, now: float) -> Report:
        """Return the report with every death on the owner's clock. Call `learn` with it first."""
        if all(member.exit is None for member in report.members):
            return report
        ahead, _ = self._ahead[report.node, report.boot]
        return replace(report, members=tuple(_dated(member, report.sent + ahead, now) for member in report.members))


def _dated(member: Member, sent_at: float, now: float) -> Member:
    ended = member.exit
    if ended is None:
        return member
    died_at = min(now, sent_at) - member.age_s
    lasted_s = (
        None if ended.started_at is None or ended.ended_at is None else max(0.0, ended.ended_at - ended.started_at)
    )
    dated = replace(ended, ended_at=died_at, started_at=None if lasted_s is None else died_at - lasted_s)
    return replace(member, exit=dated, died_at=died_at)
