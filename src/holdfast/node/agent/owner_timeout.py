"""The time limits of a node without an owner: one before the owner admits the node, and one after the node's lease has
ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.explain.causes.lost_owner import explain_owner_absent, explain_owner_lost
from holdfast.model.exit_report import ExitReport

if TYPE_CHECKING:
    from holdfast.node.agent.admitted_node import AdmittedNode
    from holdfast.node.agent.owner_connection import OwnerConnection

#: Seconds until the first message about the missing owner, and seconds between later checks for a new reason.
NOTICE_S, NOTICE_EVERY_S = 2.0, 10.0


class OwnerTimeout:
    """Decides when a node without an owner leaves the job. Times are seconds on the node's clock.

    `dialling`: the connection to the owner. `say` prints a notice. `join_s`: time limit for the owner's first welcome.
    `owner_wait_s`: time limit after a lease's end.
    """

    def __init__(
        self, dialling: OwnerConnection, now: float, say: Callable[[str], None], *, join_s: float, owner_wait_s: float
    ) -> None:
        #: Whether the process that started this agent has exited or is unreachable. The node then leaves when its lease
        #: ends; if no owner has admitted it, it leaves at once.
        self.starter_gone = False
        self._dialling = dialling
        self._say = say
        self._join_by = now + join_s
        self._join_s = join_s
        #: Seconds to wait for a lost owner. After the admission the owner's setting replaces it.
        self.owner_wait_s = owner_wait_s
        self._notice_at = now + NOTICE_S
        self._noticed = ""
        #: The end of the lease after which the terminal last reported the missing owner.
        self._silent_from: float | None = None

    def next_wake(self, part: AdmittedNode | None) -> float:
        """Return when to check next whether the owner is lost. `part`: this node once the owner has admitted it; None
        before.
        """
        if part is not None:
            return part.lease_ends + (self._dials_on_s if part.lease_ends == self._silent_from else 0.0)
        return 0.0 if self.starter_gone else min(self._notice_at, self._join_by)

    def absent(self, now: float) -> ExitReport | None:
        """Return a report if no owner has admitted this node in time, so that the node leaves; else None."""
        if now < self._join_by:
            self._notice(now)
            return None
        return explain_owner_absent(self._dialling.place, waited_s=self._join_s, last=self._dialling.trouble)

    def is_over(self, part: AdmittedNode, now: float) -> bool:
        """Return whether the node leaves the job, because the owner has been silent for too long.

        Once per lease, print that the lease has ended and how long the node still tries to reach the owner.
        """
        left_s = part.lease_ends + self._dials_on_s - now
        if left_s > 0 and part.lease_ends != self._silent_from:
            self._silent_from = part.lease_ends
            silent_s = now - part.lease_ends + part.welcome.spec.timers.lease_s
            self._say(
                f"no word from the owner at {self._dialling.place} for {silent_s:.0f} s: this node ends its workers; "
                f"the owner is dialled for another {left_s:.0f} s"
            )
        return left_s <= 0

    def lost(self, part: AdmittedNode, now: float) -> ExitReport:
        """Return the report with which the node leaves, because the owner was silent for too long."""
        welcome = part.welcome
        return explain_owner_lost(
            welcome.job_id,
            welcome.node,
            welcome.owner,
            silent_s=now - part.lease_ends + welcome.spec.timers.lease_s,
            waited_s=self._dials_on_s,
            attempt=part.agent.attempt,
            workers=len(part.agent.workers.slots),
        )

    @property
    def _dials_on_s(self) -> float:
        return 0.0 if self.starter_gone else self.owner_wait_s

    def _notice(self, now: float) -> None:
        """Print why there is no owner yet, and print it again only if the reason has changed."""
        said = self._dialling.trouble or f"the owner at {self._dialling.place} has not answered so far"
        if said != self._noticed:
            self._noticed = said
            hint = f"\n  try: {self._dialling.hint}" if self._dialling.hint else ""
            self._say(f"{said}; it is dialled for another {self._join_by - now:.0f} s{hint}")
        self._notice_at = now + NOTICE_EVERY_S
