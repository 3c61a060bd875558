"""Deliberately broken gangs, agents and owners: they prove that the simulation notices faults.

Each is the real part with one fault; most of these faults were shipped in real systems. `simulate --mutants` runs each
until an invariant breaks, and prints the invariant and the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast_testing import broken_agents as agents
from holdfast_testing import broken_nodes as nodes
from holdfast_testing import broken_owners as owners
from holdfast_testing import broken_resumes as resumes
from holdfast_testing.search_state import Bounds
from holdfast_testing.simulation import Parts


@dataclass(frozen=True)
class Mutant:
    """One broken variant of a part, and the invariants of which the simulation must find at least one broken."""

    name: str
    wrong: str
    parts: Parts
    breaks: frozenset[str]
    #: The bounds in which the exhaustive search finds the fault; only for faults that random runs seldom meet.
    bounds: Bounds | None = None


def _owner(kind: Callable[[], Gang], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(gang=kind), frozenset(breaks), bounds)


def _part(name: str, wrong: str, parts: Parts, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, parts, frozenset(breaks), bounds)


def _agent(kind: Callable[..., Agent], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(agent=kind), frozenset(breaks), bounds)


SILENT = Bounds(crashes=0, suspicions=1, prompt=True)
RESTARTED = Bounds(crashes=0, expiries=0, suspicions=1, agent_restarts=1, prompt=True)

MUTANTS: tuple[Mutant, ...] = (
    _part(
        "no-attempt-check",
        "the owner takes reports of any attempt for the present one",
        Parts(gang=owners.NoAttemptCheck, owners=owners.HearsAll),
        "I2",
    ),
    _agent(
        partial(Agent, workers=agents.StopIsFailure),
        "stop-is-failure",
        "an intended stop is reported as a failure",
        "I2",
        "I5",
        "I11",
    ),
    _owner(
        partial(Gang, timers=owners.AnyPhase), "keyless-timers", "timers carry neither attempt nor phase", "I2", "bug"
    ),
    _owner(partial(Gang, roster=owners.OneIsReady), "no-barrier", "GO when the first is prepared", "I3"),
    _agent(agents.StatelessBeat, "stateless-beat", "the heartbeat carries no state", "I6"),
    _part(
        "no-fence-wait", "a silent node is fenced before its lease is over", Parts(liveness=owners.NoFenceWait), "I1"
    ),
    _agent(
        partial(Agent, lease=agents.LeaseFromReceipt),
        "lease-from-receipt",
        "the lease is counted from the receipt of the ACK",
        "I1",
        bounds=SILENT,
    ),
    _agent(
        agents.NoStopMemory, "no-stop-memory", "a STOP that comes before its PREPARE is forgotten", "I1", bounds=SILENT
    ),
    _agent(agents.PrepareGrantsLease, "prepare-grants-lease", "PREPARE grants a lease", "I1", bounds=SILENT),
    _part("no-floor", "the ACK carries no floor", Parts(acknowledge=owners.no_floor), "I1", bounds=SILENT),
    _owner(partial(Gang, roster=owners.OneIsGone), "running-too-soon", "RUNNING when the first is up", "I12"),
    _owner(
        partial(Gang, roster=owners.StoppedIsDone),
        "stopped-completes",
        "a rank that was stopped counts as finished",
        "I2",
    ),
    _owner(
        partial(Gang, agents=owners.NewBootIsAllStopped),
        "new-boot-is-stopped",
        "a new agent means: this attempt is over there",
        "I1",
    ),
    _owner(
        partial(Gang, agents=owners.NewBootUnnoticed),
        "new-boot-unnoticed",
        "a new agent is taken for the one before",
        "I2",
        "I6",
    ),
    _owner(
        partial(Gang, agents=owners.OneStoppedIsEnough),
        "one-stopped",
        "drained when the first node has stopped",
        "I1",
    ),
    _owner(owners.NoPause, "no-pause", "no back-off between attempts", "I10"),
    _owner(
        partial(Gang, judge=owners.OtherHistory()),
        "forgetful-budget",
        "each decision sees an empty history",
        "I4",
        "I10",
    ),
    _owner(
        partial(Gang, judge=owners.BudgetForNothing()),
        "budget-for-nothing",
        "every failed attempt restores the user's budget",
        "I4",
        "I10",
    ),
    _owner(
        partial(Gang, judge=owners.NeverTheSame()), "never-the-same", "the same failure is tried again and again", "I4"
    ),
    _owner(partial(Gang, judge=owners.NoWindow()), "no-window", "restarts within the window are not limited", "I4"),
    _owner(partial(Gang, judge=owners.StopIsCharged()), "stop-is-charged", "a stop on request is charged", "I4"),
    _owner(owners.AvoidsNothing, "avoids-nothing", "what is to be avoided is forgotten", "avoid"),
    _owner(owners.BelievesNobody, "believes-nobody", "an owner that comes back stops what runs", "I11"),
    _owner(owners.CauseReplaced, "cause-replaced", "running out of restarts replaces the cause", "report"),
    _owner(owners.RealDice, "real-dice", "jitter comes from a real random number", "I9"),
    _owner(partial(Gang, roster=owners.Deaf), "deaf-to-failures", "a failure stops nobody", "I6"),
    _part("amnesia", "the owner comes back without its journal", Parts(host=owners.Amnesia), "I7", "I9", "I1"),
    _agent(
        partial(Agent, lease=agents.TakesAnyAck),
        "takes-any-ack",
        "an ACK for the agent of before renews the lease",
        "I1",
        "I2",
        bounds=RESTARTED,
    ),
    _agent(agents.ObeysOldGo, "obeys-old-go", "an old attempt's GO is obeyed", "I3"),
    _agent(agents.SaysStoppedEarly, "stopped-early", "stopped is said before all is reaped", "I1"),
    _agent(agents.NeverKills, "never-kills", "no SIGKILL after the grace time", "I6"),
    _owner(
        owners.AnyEvidence, "any-evidence", "evidence of any attempt is taken for the one that is asked for", "report"
    ),
    _owner(owners.EvidenceAtAnyTime, "evidence-any-time", "evidence is taken in any phase", "bug", "report"),
    _owner(
        partial(Gang, draining=owners.WaitsForEvidence),
        "waits-for-evidence",
        "evidence that never comes is waited for without end",
        "I6",
    ),
    _agent(
        partial(Agent, stopping=agents.KilledKept),
        "killed-kept",
        "an agent that has killed once never ends a lease again",
        "I1",
    ),
    _agent(
        partial(Agent, stopping=agents.IntentKept),
        "intent-kept",
        "the intent to stop is kept over attempts",
        "I2",
        "I5",
        "I6",
        "I11",
    ),
    _agent(
        partial(Agent, stopping=agents.KillTimerKept),
        "kill-timer-kept",
        "the end of a grace time kills the next attempt",
        "I2",
        "I5",
    ),
    _agent(
        partial(Agent, workers=agents.DyingIgnored),
        "dying-ignored",
        "a rank that was dying before the stop counts as stopped",
        "I5",
    ),
    _agent(
        partial(Agent, workers=agents.StopUnmarked),
        "stop-unmarked",
        "the exit of a stopped rank is not marked as such",
        "I5",
    ),
    _agent(agents.StopRewrites, "stop-rewrites", "a stop makes stopped ranks of those that had failed before", "I5"),
    _owner(
        partial(Gang, numbers=owners.DeafToHigher),
        "deaf-to-higher",
        "an attempt that the owner does not know of counts as an old one",
        "I1",
        "I2",
        "I6",
        "I7",
        "I11",
    ),
    _part(
        "nodeless-kills", "a memory kill explains the same pid of another node", Parts(host=owners.NodelessKills), "I5"
    ),
    _owner(
        partial(Gang, numbers=owners.UsesUnsecured),
        "uses-unsecured",
        "an attempt begins while a power cut may take its number away",
        "I1",
        "I7",
    ),
    _owner(partial(Gang, draining=owners.FencesAll), "fences-all", "one node that is fenced counts for all", "I1"),
    _part(
        "boots-forgotten",
        "an owner that is back does not know whose silence it hears",
        Parts(liveness=owners.BootsForgotten),
        "boot",
    ),
    _owner(nodes.AnotherSeat, "spare-another-seat", "a promoted spare moves the ranks of the others", "seats"),
    _owner(nodes.RankZeroMoves, "rank-0-moves", "rank 0 leaves a node that is there", "seats", "meeting"),
    _owner(nodes.SparesStayIdle, "spares-stay-idle", "the gang closes up where a spare could take the place", "size"),
    _owner(nodes.BelowLeast, "below-least", "the gang goes on with fewer nodes than it may", "assembly", "size"),
    _owner(nodes.NoLastCall, "no-last-call", "the gang begins while further nodes are on their way", "assembly"),
    _owner(nodes.WaitsForNoNewcomer, "no-newcomer", "too few nodes are left, and no other is waited for", "assembly"),
    _owner(nodes.GoesOnAtOnce, "goes-on-at-once", "a replacement is on its way, and is not waited for", "refill"),
    _owner(nodes.WaitsForRoom, "waits-for-room", "the platform has no other node, and one is waited for", "refill"),
    _owner(partial(Gang, judge=nodes.LossIsCharged()), "loss-is-charged", "the user pays for a lost node", "I4"),
    _owner(partial(Gang, judge=nodes.GrowthIsCharged()), "growth-is-charged", "the user pays for a newcomer", "I4"),
    _owner(
        partial(Gang, judge=nodes.NoSecondChance()), "no-second-chance", "a node is avoided once it was lost", "seats"
    ),
    _owner(nodes.PortsKept, "ports-kept", "each attempt gets the ports that the first one had", "ports"),
    _owner(nodes.MeetingKept, "meeting-kept", "each attempt meets where the first did", "meeting"),
    _owner(
        nodes.NoNewTerm,
        "no-new-term",
        "an owner that is back has the term of the one before",
        "I1",
        "I2",
        "I3",
        "I6",
        "I7",
        "I11",
    ),
    _owner(resumes.BeginsAgain, "numbers-begin-again", "a job that is started again counts its attempts anew", "I7"),
    _owner(
        resumes.ForgetsHistory,
        "history-forgotten",
        "a job that is started again has its budgets back",
        "I4",
        "I9",
        "report",
        "bug",
    ),
    _owner(
        resumes.ForgetsAvoided, "avoided-forgotten", "a job that is started again uses what it was to avoid", "avoid"
    ),
    _owner(
        partial(Gang, judge=resumes.RequeueIsCharged()), "requeue-is-charged", "the user pays for another run", "I4"
    ),
    _owner(resumes.AsksAgain, "asks-again", "one cause has the platform start the job twice", "requeue"),
    _owner(
        partial(Gang, agents=resumes.HearsTheDead),
        "hears-the-dead",
        "an agent of the run before speaks for its node",
        "seats",
        "boot",
    ),
    _owner(
        partial(Gang, judge=resumes.UnlimitedRuns()),
        "unlimited-runs",
        "no budget, and no word of the platform, bounds the runs",
        "I4",
        "requeue",
    ),
    _agent(
        nodes.ObeysOldOwners,
        "obeys-old-owners",
        "the commands of an owner of before are obeyed",
        "I1",
        "I2",
        "I3",
        "I6",
        "I7",
        "I11",
    ),
)
