"""Tracks which nodes of a job are present, and decides whether they are enough to begin an attempt."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import Phase, PhaseTrigger
from holdfast.decide.placement import fit, on_node
from holdfast.model import events as ev
from holdfast.model.evidence import GangShortfall, StopRequest, StopSource
from holdfast.model.human_format import with_address
from holdfast.model.job_spec import NodeInfo
from holdfast.model.phrases import Phrase

#: The owner prints the names of the first nodes that join, up to this many. Then it only prints the number from time to
#: time.
SAID = 32


class Assembly:
    """The present nodes of a job that may have several. Times are seconds on the clock of `now`."""

    def __init__(self, gang: GangState) -> None:
        self._gang = gang
        #: The nodes that can take part in an attempt. They are kept, because a scan of all nodes for each of thousands
        #: that join would be slow.
        self._able: set[str] = set()
        #: The number of avoided names and the number of the run for which `_able` was computed. If either has changed,
        #: `_able` must be computed again.
        self._judged_by = (-1, 0)

    # -------------------------------------------------------------------------------- which nodes are present

    def joined(self, event: ev.NodeJoined) -> bool:
        """Add the node of an admitted agent. Return False if the agent's hello (its first message) brings nothing
        new.
        """
        gang, node = self._gang, event.node
        names = on_node(node, (kept.device for kept in event.kept_out))
        fresh = [kept for kept, name in zip(event.kept_out, names, strict=True) if name not in gang.avoid]
        if gang.known.get(node.name) == node and node.name not in gang.absent and not fresh:
            return False
        back = " again" if node.name in gang.known else ""
        gang.join(node)
        gang.keep_out(fresh, names)
        where = f" ({node.address})" if node.address else ""
        if fit(gang.spec, [node], gang.avoid, ()):
            self._able.add(node.name)
        else:
            self._able.discard(node.name)
        plan, count = gang.spec.nodes, self.count()
        if plan.most <= SAID or count >= plan.least or count % (plan.most // SAID) == 0:
            gang.say(f"{node.name}{where} has joined{back}: {self._counted()}", cause=gang.this_event())
        for kept in fresh:
            gang.say(f"{kept.device} on {node.name} is {kept.standing} and gets no work: {kept.reason}")
        return True

    def missed(self, node: str, why: str) -> None:
        """Mark a node as lost. It takes part in no attempt until its agent reports again. `why`: the reason."""
        gang = self._gang
        if node in gang.absent or node not in gang.known:
            return
        gang.miss(node, why)
        self._able.discard(node)
        if node not in gang.attempt_state.nodes:
            gang.say(f"{node} is gone: {why}", cause=gang.this_event())

    def heard(self, node: str) -> bool:
        """Handle an agent's report. Return True if its node was lost and is now back."""
        gang = self._gang
        if node not in gang.absent or node in gang.left:
            return False
        gang.find_again(node)
        self._judged_by = (-1, 0)
        gang.say(f"{node} is back: {self._counted()}", cause=gang.this_event())
        return True

    def fit(self) -> list[NodeInfo]:
        """Return the nodes that can take part in an attempt, in their order."""
        gang = self._gang
        return fit(gang.spec, gang.nodes, gang.avoid, gang.absent.keys())

    def count(self) -> int:
        """Return how many nodes can take part in an attempt."""
        gang = self._gang
        if self._judged_by != (len(gang.avoid), gang.run):
            self._judged_by = (len(gang.avoid), gang.run)
            self._able = {node.name for node in self.fit()}
        return len(self._able)

    def _counted(self) -> str:
        plan, count = self._gang.spec.nodes, self.count()
        if count > plan.most:
            return f"{plan.most} of {plan.most} nodes and {_spares(count - plan.most)}"
        return f"{count} of {plan.most} nodes"

    # ---------------------------------------------------------------------- whether enough nodes are present

    def enough(self) -> bool:
        """Return whether the gang may begin at once.

        The first attempt waits for all requested nodes. A later attempt begins when every rank has a place; it may
        first wait a moment for a lost node's replacement (`refills`).
        """
        gang, plan = self._gang, self._gang.spec.nodes
        if self._first:
            return self.count() >= plan.most + plan.spares
        return gang.places() is not None and not self.refills()

    def refills(self) -> bool:
        """Return whether a gang that could run smaller waits for another node. It does not wait if the platform has no
        room for the missing nodes.
        """
        gang, plan, count = self._gang, self._gang.spec.nodes, self.count()
        missing = plan.most + plan.spares - count
        return plan.refill_s > 0 and not self._first and count < plan.most and missing > len(gang.no_room)

    def may_begin_smaller(self) -> bool:
        """Return whether an attempt begins with fewer nodes than requested, now that the wait for others is over."""
        gang = self._gang
        return self.at_least() and (self._first or (gang.spec.nodes.refill_s > 0 and gang.places() is not None))

    def at_least(self) -> bool:
        """Return whether enough nodes are present to begin an attempt, even if no more nodes join."""
        return self.count() >= self._gang.spec.nodes.least

    @property
    def _first(self) -> bool:
        return self._gang.spec.nodes.many and self._gang.attempt == self._gang.began_after

    def may_wait(self) -> bool:
        """Return whether to wait for more nodes. If the job lists its nodes from the start, the only nodes that can
        still come are lost ones.
        """
        return self._gang.spec.nodes.many or bool(self._gang.absent)

    def wait(self, now: float) -> None:
        """Wait for enough nodes, up to a time limit."""
        gang, plan = self._gang, self._gang.spec.nodes
        gang.move(PhaseTrigger.TOO_FEW_NODES, now, f"{self.count()} nodes are here")
        gang.arm(TimerKind.DEADLINE, now + (plan.join_s if self._first else plan.replace_s))
        gang.timers.disarm(TimerKind.LAST_CALL)
        self.call(now)
        if gang.armed(TimerKind.LAST_CALL) and not self._first:
            gang.say(
                f"{self.short()}; waiting up to {plan.refill_s:g} s for another node, then the job goes on without it"
            )
        elif not self._first:
            gang.say(f"{self.short()}; waiting up to {plan.replace_s:g} s for another node")

    def call(self, now: float) -> None:
        """Begin the short wait for further nodes, if enough are present. In a first attempt each node that joins
        restarts this wait. The wait for a lost node's replacement has a fixed limit.
        """
        gang, plan = self._gang, self._gang.spec.nodes
        if not self.may_begin_smaller():
            gang.timers.disarm(TimerKind.LAST_CALL)
        elif self._first:
            gang.arm(TimerKind.LAST_CALL, now + plan.last_call_s)
        elif not gang.armed(TimerKind.LAST_CALL):
            gang.arm(TimerKind.LAST_CALL, now + plan.refill_s)

    def growth(self, now: float) -> StopRequest | None:
        """Return a request to stop the running attempt, so that a larger attempt can use new nodes; None: go on."""
        gang, plan = self._gang, self._gang.spec.nodes
        before = len(gang.attempt_state.roster.nodes)
        if not plan.grow or gang.phase is not Phase.RUNNING or before >= plan.most:
            return None
        after = len(gang.line_up(gang.avoid))
        if after <= before:
            return None
        return StopRequest(
            reason=f"the gang grows from {before} to {after} nodes",
            source=StopSource.GROWTH,
            phrase=Phrase.RESIZED,
            at=now,
            save_s=plan.save_s,
            final=False,
        )

    # ---------------------------------------------------------------------- sentences about missing nodes

    def short(self) -> str:
        """Describe how many nodes are present: `1 of at least 2 nodes is here (a; gone: b; left out: c)`."""
        gang = self._gang
        names, least = [node.name for node in self.fit()], gang.spec.nodes.least
        gone, fit = [name for name in gang.known if name in gang.absent], {*names}
        out = [name for name in gang.known if name not in fit and name not in gang.absent]
        listed = [_some(names), gone and f"gone: {_some(gone)}", out and f"left out: {_some(out)}"]
        inside = "; ".join(part for part in listed if part)
        count = f"{len(names)} of at least {least} nodes {'is' if len(names) == 1 else 'are'} here"
        return f"{count} ({inside})" if inside else count

    def muster(self, now: float) -> GangShortfall:
        """Return the evidence about the nodes that did not join in time."""
        gang, plan = self._gang, self._gang.spec.nodes
        good = self.fit()
        names = {node.name for node in good}
        bad = [node for node in gang.nodes if node.name not in names]
        here = [node for node in gang.nodes if node.name not in gang.absent]
        ranks, called = {node.node_rank for node in here} - {None}, {node.name for node in here}
        return GangShortfall(
            least=plan.least,
            came=tuple(map(_with_address, (*good, *bad))),
            unfit=tuple(map(_with_address, bad)),
            missing_ranks=tuple(rank for rank in range(plan.most) if rank not in ranks)
            if ranks and not plan.names
            else (),
            missing=tuple(name for rank, name in enumerate(plan.names) if rank not in ranks and name not in called),
            waited_s=now - gang.entered_at,
            endpoint=plan.endpoint,
        )


def waits_for(gang: GangState) -> str:
    """Return in words which nodes a gang in ASSEMBLING waits for. `gang`: the job's state."""
    plan, assembly = gang.spec.nodes, Assembly(gang)
    names = [node.name for node in assembly.fit()]
    here = f"{', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}" or "none"
    if gang.armed(TimerKind.LAST_CALL) and gang.attempt != gang.began_after:
        return f"another node; it goes on without it after {plan.refill_s:g} s ({here})"
    if gang.armed(TimerKind.LAST_CALL):
        wanted = f"{plan.most} nodes" + (f" and {_spares(plan.spares)}" if plan.spares else "")
        return (
            f"further nodes, up to {wanted}; it begins without them when none comes for {plan.last_call_s:g} s ({here})"
        )
    missing = plan.least - len(names)
    return f"{missing} more node{'s'[: missing != 1]} (here: {here})" if missing > 0 else f"another node (here: {here})"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{', …' if len(names) > 8 else ''}"


def _spares(count: int) -> str:
    return f"{count} spare{'s'[: count != 1]}"


def _with_address(node: NodeInfo) -> str:
    return with_address(node.name, node.address)
