"""The lease: how long an agent may let its workers live without an acknowledgement from the owner."""

from __future__ import annotations

from holdfast.model.gang_protocol import Ack


class Lease:
    """One agent's lease. It counts from the sending time of the acknowledged heartbeat, by the agent's own clock."""

    def __init__(self, length_s: float | None) -> None:
        """`length_s`: seconds; None: owner and agent die together, so the lease never ends."""
        self.length_s = length_s
        self.until = float("inf") if length_s is None else float("-inf")
        #: When this agent sent its first heartbeat.
        self.first_sent: float | None = None

    def spoke(self, now: float) -> None:
        if self.first_sent is None:
            self.first_sent = now

    def is_over(self, now: float) -> bool:
        return now >= self.until

    def renew(self, ack: Ack, now: float) -> None:
        """Renew the lease by an acknowledgement that arrived at `now`."""
        if self.length_s is None or self.first_sent is None or not self.first_sent <= ack.sent <= now:
            return  # it answers the node's earlier agent, whose heartbeats grant this one no lease
        # Count from the sending, not from the receipt: the owner counts from its last report of this agent, which is
        # later.
        self.until = max(self.until, ack.sent + self.length_s)
