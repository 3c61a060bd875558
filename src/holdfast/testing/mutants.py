"""Deliberately broken gangs, agents and owners: proof that the simulation would notice.

Each is the real part with one thing wrong, most of them mistakes that real systems have shipped. `simulate --mutants`
runs each until an invariant breaks, and says which, with the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.testing.broken_agents import (
    DyingIgnored,
    IntentKept,
    KilledKept,
    KillTimerKept,
    LeaseFromReceipt,
    NeverKills,
    NoStopMemory,
    ObeysOldGo,
    PrepareGrantsLease,
    SaysStoppedEarly,
    StatelessBeat,
    StopIsFailure,
    StopRewrites,
    StopUnmarked,
    TakesAnyAck,
)
from holdfast.testing.broken_owners import (
    Amnesia,
    AnyEvidence,
    AvoidsNothing,
    BelievesNobody,
    BootsForgotten,
    BudgetForNothing,
    CauseReplaced,
    DeafToFailures,
    DeafToHigher,
    EvidenceAtAnyTime,
    FencesAll,
    ForgetfulBudget,
    HearsAll,
    KeylessTimers,
    NeverTheSame,
    NewBootIsAllStopped,
    NewBootUnnoticed,
    NoAttemptCheck,
    NoBarrier,
    NodelessKills,
    NoFenceWait,
    NoPause,
    NoWindow,
    OneStoppedIsEnough,
    RealDice,
    RunningTooSoon,
    StopIsCharged,
    StoppedCompletes,
    UsesUnsecured,
    WaitsForEvidence,
    no_floor,
)
from holdfast.testing.searched import Bounds
from holdfast.testing.simulation import Parts


@dataclass(frozen=True)
class Mutant:
    """One broken variant, and the invariants of which one must break."""

    name: str
    wrong: str
    parts: Parts
    breaks: frozenset[str]
    bounds: Bounds | None = None
    """For mistakes so seldom met by chance that the exhaustive search is the tool: within these bounds it finds it."""


def _owner(kind: type[Gang], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(gang=kind), frozenset(breaks), bounds)


def _part(name: str, wrong: str, parts: Parts, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, parts, frozenset(breaks), bounds)


def _agent(kind: type[Agent], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(agent=kind), frozenset(breaks), bounds)


SILENT = Bounds(crashes=0, suspicions=1, prompt=True)
RESTARTED = Bounds(crashes=0, expiries=0, suspicions=1, agent_restarts=1, prompt=True)

MUTANTS: tuple[Mutant, ...] = (
    _part(
        "no-attempt-check",
        "the owner takes reports of any attempt for the present one",
        Parts(gang=NoAttemptCheck, owners=HearsAll),
        "I2",
    ),
    _agent(StopIsFailure, "stop-is-failure", "an intended stop is reported as a failure", "I2", "I5", "I11"),
    _owner(KeylessTimers, "keyless-timers", "timers carry neither attempt nor phase", "I2", "bug"),
    _owner(NoBarrier, "no-barrier", "GO when the first is prepared", "I3"),
    _agent(StatelessBeat, "stateless-beat", "the heartbeat carries no state", "I6"),
    _part("no-fence-wait", "a silent node is fenced before its lease is over", Parts(liveness=NoFenceWait), "I1"),
    _agent(
        LeaseFromReceipt, "lease-from-receipt", "the lease is counted from the receipt of the ACK", "I1", bounds=SILENT
    ),
    _agent(NoStopMemory, "no-stop-memory", "a STOP that comes before its PREPARE is forgotten", "I1", bounds=SILENT),
    _agent(PrepareGrantsLease, "prepare-grants-lease", "PREPARE grants a lease", "I1", bounds=SILENT),
    _part("no-floor", "the ACK carries no floor", Parts(acknowledge=no_floor), "I1", bounds=SILENT),
    _owner(RunningTooSoon, "running-too-soon", "RUNNING when the first is up", "I12"),
    _owner(StoppedCompletes, "stopped-completes", "a rank that was stopped counts as finished", "I2"),
    _owner(NewBootIsAllStopped, "new-boot-is-stopped", "a new agent means: this attempt is over there", "I1"),
    _owner(NewBootUnnoticed, "new-boot-unnoticed", "a new agent is taken for the one before", "I2", "I6"),
    _owner(OneStoppedIsEnough, "one-stopped", "drained when the first node has stopped", "I1"),
    _owner(NoPause, "no-pause", "no back-off between attempts", "I10"),
    _owner(ForgetfulBudget, "forgetful-budget", "each decision sees an empty history", "I4", "I10"),
    _owner(BudgetForNothing, "budget-for-nothing", "every failed attempt restores the user's budget", "I4", "I10"),
    _owner(NeverTheSame, "never-the-same", "the same failure is tried again and again", "I4"),
    _owner(NoWindow, "no-window", "restarts within the window are not limited", "I4"),
    _owner(StopIsCharged, "stop-is-charged", "a stop on request is charged", "I4"),
    _owner(AvoidsNothing, "avoids-nothing", "what is to be avoided is forgotten", "avoid"),
    _owner(BelievesNobody, "believes-nobody", "an owner that comes back stops what runs", "I11"),
    _owner(CauseReplaced, "cause-replaced", "running out of restarts replaces the cause", "report"),
    _owner(RealDice, "real-dice", "jitter comes from a real random number", "I9"),
    _owner(DeafToFailures, "deaf-to-failures", "a failure stops nobody", "I6"),
    _part("amnesia", "the owner comes back without its journal", Parts(host=Amnesia), "I7", "I9", "I1"),
    _agent(
        TakesAnyAck, "takes-any-ack", "an ACK for the agent of before renews the lease", "I1", "I2", bounds=RESTARTED
    ),
    _agent(ObeysOldGo, "obeys-old-go", "an old attempt's GO is obeyed", "I3"),
    _agent(SaysStoppedEarly, "stopped-early", "stopped is said before all is reaped", "I1"),
    _agent(NeverKills, "never-kills", "no SIGKILL after the grace time", "I6"),
    _owner(AnyEvidence, "any-evidence", "evidence of any attempt is taken for the one that is asked for", "report"),
    _owner(EvidenceAtAnyTime, "evidence-any-time", "evidence is taken in any phase", "bug", "report"),
    _owner(WaitsForEvidence, "waits-for-evidence", "evidence that never comes is waited for without end", "I6"),
    _agent(KilledKept, "killed-kept", "an agent that has killed once never ends a lease again", "I1"),
    _agent(IntentKept, "intent-kept", "the intent to stop is kept over attempts", "I2", "I5", "I6", "I11"),
    _agent(KillTimerKept, "kill-timer-kept", "the end of a grace time kills the next attempt", "I2", "I5"),
    _agent(DyingIgnored, "dying-ignored", "a rank that was dying before the stop counts as stopped", "I5"),
    _agent(StopUnmarked, "stop-unmarked", "the exit of a stopped rank is not marked as such", "I5"),
    _agent(StopRewrites, "stop-rewrites", "a stop makes stopped ranks of those that had failed before", "I5"),
    _owner(
        DeafToHigher,
        "deaf-to-higher",
        "an attempt that the owner does not know of counts as an old one",
        "I1",
        "I2",
        "I6",
        "I7",
        "I11",
    ),
    _part("nodeless-kills", "a memory kill explains the same pid of another node", Parts(host=NodelessKills), "I5"),
    _owner(UsesUnsecured, "uses-unsecured", "an attempt begins while a power cut may take its number away", "I1", "I7"),
    _owner(FencesAll, "fences-all", "one node that is fenced counts for all", "I1"),
    _part(
        "boots-forgotten",
        "an owner that is back does not know whose silence it hears",
        Parts(liveness=BootsForgotten),
        "boot",
    ),
)
