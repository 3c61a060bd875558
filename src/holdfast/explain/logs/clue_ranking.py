"""Weighs the catalogue matches in a log, and ranks the resulting clues by strength.

The weight of a match depends on its wording (pattern), its line, and the exception to which it belongs.
"""

# ruff: noqa: E501 - one alternative of a pattern per line, even if long
from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.catalogue.exit_rows import Catalogue, Strength, Where, Wording
from holdfast.explain.logs.log_lines import Line
from holdfast.explain.logs.peer_errors import speaks_of_peers
from holdfast.explain.logs.row_matcher import Hit, Matcher
from holdfast.explain.logs.tracebacks import Chain, Raised
from holdfast.lazy_pattern import Lazy
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, LinePlace, Weight

#: Failure classes about the communication between workers. Classes about one worker rank before them.
ABOUT_PEERS = frozenset({
    Phrase.PEER_LOST, Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.COLLECTIVE_TIMEOUT, Phrase.COLLECTIVE_SYSTEM_ERROR,
    Phrase.COLLECTIVE_CONNECT_FAILED, Phrase.NETWORK_LOST, Phrase.COLLECTIVE_MISMATCH,
})  # fmt: skip

#: Device faults after which the device refuses all further work of the process, so that no process survives them.
FATAL = frozenset({
    Phrase.DEVICE_SIDE_ASSERT, Phrase.ILLEGAL_MEMORY_ACCESS, Phrase.ILLEGAL_INSTRUCTION, Phrase.KERNEL_LAUNCH_FAILED,
})  # fmt: skip

_WRAPPERS = Lazy(
    r"(?:^|\.)(?:ChildFailedError|CalledProcessError|ProcessExitedException|ProcessRaisedException|RayTaskError|SystemExit"
    r"|EngineDeadError|EngineGenerateError|BrokenProcessPool|WorkerCrashedError|ActorDiedError|ActorUnavailableError|SignalException"
    r"|BrokenPipeError|ConnectionResetError|ConnectionAbortedError|EOFError|RemoteException|TrialFailed\w*|TuneError"
    r"|TrainingFailedError|AsyncEngineDeadError|MQEngineDeadError|WorkerGroupError|HorovodInternalError|RayActorError"
    r"|UserDefinedError|KeyboardInterrupt|CancelledError|BrokenExecutor|RetryError|ChildProcessError|GeneratorExit)\b"
)
_WRAPPING = Lazy(
    r"(?i)(?:see|check) (?:root cause|(?:the )?stack trace|the (?:logs?|error|exception|traceback)s?)\b.{0,40}(?:above|below|details)|root cause above"
    r"|exited unexpectedly|failed to start|initialization failed|worker.{0,30}(?:died|dead)|(?:sub)?process.{0,20}(?:died|failed|exited)"
    r"|one of the (?:sub)?processes|(?:worker|actor|task|engine|rank) \S{0,40} ?failed with (?:the )?(?:error|exception)|caught .{1,40} in (?:DataLoader worker|replica)"
)
_LAUNCHER_FILES = Lazy(
    r"torch/distributed/(?:elastic|launcher|run\.py)|/bin/(?:torchrun|accelerate|deepspeed)|deepspeed/launcher"
)
_LAUNCHERS_OWN = Lazy(
    r"^(?:RuntimeError|ValueError|AssertionError|KeyError|TypeError|OSError|FileNotFoundError|ImportError): "
)
_STRENGTH = {Strength.FIRST_HAND: 0, Strength.ADVICE: 0, Strength.HINT: 1, Strength.CONSEQUENCE: 3}
#: Failure classes that state how a process exited but not why. Classes with a cause rank before them.
SIGNALLED = frozenset({Phrase.KILLED_BY_SIGNAL, Phrase.NATIVE_CRASH})


#: The most general failure classes. Any other class of equal weight ranks before them.
BROADEST = frozenset({Phrase.COLLECTIVE_SYSTEM_ERROR, Phrase.USER_EXCEPTION})


def weakness(hit: Hit) -> float:
    rank: float = _STRENGTH[hit.wording.strength]
    if hit.row.phrase in SIGNALLED:
        rank = max(rank, 2)
    if hit.row.phrase in BROADEST:
        rank += 0.25
    return rank - 0.5 if hit.chosen else rank


def strongest(hits: Sequence[Hit], *, exception: bool) -> Hit | None:
    """Return the strongest of these catalogue matches.

    `exception`: the line is the last line of an exception, so rows that only match such lines count too. Rows for
    UserException never count.
    """
    usable = [
        hit
        for hit in hits
        if (exception or hit.wording.where is not Where.EXCEPTION) and hit.row.phrase != Phrase.USER_EXCEPTION
    ]
    return min(usable, key=lambda hit: (weakness(hit), -hit.span), default=None)


def of_chain(chain: Chain, number: dict[int, int], hits: Sequence[list[Hit]]) -> tuple[Raised, int, Hit] | None:
    """Return the exception that explains the chain, with its line and its catalogue match.

    It is the innermost exception with the strongest match; None if no catalogue row matches.
    """
    per: list[tuple[Raised, int, Hit]] = []
    for raised in chain.raised:
        options = []
        for line in raised.lines:
            index = number[id(line)]
            if hit := strongest(hits[index], exception=True):
                options.append((raised, index, hit))
        if options:
            # The exception's first line takes precedence over the rest of its message, unless the first line's
            # catalogue match is weaker.
            per.append(min(options, key=lambda option: weakness(option[2])))
    if not per:
        return None
    best = min(weakness(hit) for _, _, hit in per)
    equal = [option for option in per if weakness(option[2]) == best]
    chosen = equal[0]
    if len(equal) > 1 and best == 0 and _is_probe(chain, chosen[0]):
        chosen = equal[-1]
    if best >= 3 and not is_wrapper(chain.outer):
        inner = original(chain)
        if inner is not chosen[0] and not speaks_of_peers(f"{inner.type}: {inner.message}") and not is_wrapper(inner):
            return None
    return chosen


def _is_probe(chain: Chain, raised: Raised) -> bool:
    """Return whether the program handled the exception, and programs often raise this kind on purpose (cache miss,
    optional module)."""
    position = chain.raised.index(raised)
    handled = position < len(chain.during) and chain.during[position]
    probes = (
        "ModuleNotFoundError",
        "ImportError",
        "KeyError",
        "AttributeError",
        "FileNotFoundError",
        "StopIteration",
        "Empty",
    )
    return handled and raised.short in probes


def original(chain: Chain) -> Raised:
    """Return the innermost exception of the chain, but skip exceptions that only wrap another exception."""
    return next((raised for raised in chain.raised if not is_wrapper(raised)), chain.outer)


def is_wrapper(raised: Raised) -> bool:
    return bool(_WRAPPERS.search(raised.type.split("(")[0]) or _WRAPPING.search(raised.message[:400]))


def from_launcher(chain: Chain) -> bool:
    """Return whether a launcher raised the chain's outer exception because a worker had failed, not because of an
    error in the launcher."""
    frames = chain.outer.frames
    if not frames or _LAUNCHER_FILES.search(frames[-1][0]) is None:
        return False
    return _LAUNCHERS_OWN.search(f"{chain.outer.type}: {chain.outer.message[:400]}") is None


_ABORTS = Lazy(r"(?i)\babort(?:ed)?\b|SIGABRT|terminate called|\bsignal:? 6\b|-6\b|\*\*\* process received signal")


_KILLS = Lazy(r"(?i)\bSIG(?!ABRT)[A-Z]{3,}\b|\bsignal:? ?\(?\d|\bkilled\b|-9\b|-15\b|\b137\b|\b143\b|\bterminated\b")


def weight_of_signal(phrase: str, text: str) -> Weight:
    """Return the weight of a line that states how a process exited: a crash counts most, then a kill, then an
    abort."""
    if phrase != Phrase.NATIVE_CRASH:
        # A line without a signal ("died unexpectedly") only states that the process exited.
        return Weight.WARNED if _KILLS.search(text) else Weight.ABORT
    return Weight.ABORT if _ABORTS.search(text) else Weight.CRASH


def weight_of_exception(hit: Hit, line: Line) -> Weight:
    if hit.row.phrase in SIGNALLED and hit.wording.strength is not Strength.CONSEQUENCE:
        return weight_of_signal(hit.row.phrase, line.text)
    match hit.wording.strength:
        case Strength.FIRST_HAND | Strength.ADVICE:
            return Weight.PEERS if hit.row.phrase in ABOUT_PEERS else Weight.DEATH
        case Strength.HINT:
            return Weight.PEERS if hit.row.phrase in ABOUT_PEERS else Weight.BROAD
        case Strength.CONSEQUENCE:
            return Weight.CONSEQUENCE


def weight_of_line(hit: Hit, line: Line, gone_on: bool, past: bool) -> Weight | None:
    """Return the weight (strength as evidence) of a line outside of exceptions; None: the program survived the line, so
    it is no evidence.
    """
    outside = hit.wording.where in (Where.KERNEL, Where.SCHEDULER) or (line.kernel and hit.wording.where is Where.ANY)
    if (gone_on or past) and not outside:
        return None
    if hit.row.phrase in SIGNALLED and hit.wording.strength is not Strength.CONSEQUENCE:
        return weight_of_signal(hit.row.phrase, line.text)
    match hit.wording.strength:
        case Strength.CONSEQUENCE:
            return Weight.CONSEQUENCE
        case Strength.HINT:
            if hit.row.phrase == Phrase.STOPPED_BY_OPERATOR:
                return Weight.ABORT  # a scheduler also reports "cancelled" when it only cleans up
            return Weight.PEERS if hit.row.phrase in ABOUT_PEERS else Weight.WARNED
        case Strength.FIRST_HAND | Strength.ADVICE:
            if hit.row.phrase in ABOUT_PEERS:
                return Weight.PEERS
            if outside:
                # If the program itself is at fault, the program's message explains more than the driver's.
                return Weight.ENDING if hit.row.phrase == Phrase.ACCELERATOR_APPLICATION_FAULT else Weight.EVENT
            return Weight.WARNED if line.level in ("D", "I", "W") else Weight.ENDING


# -------------------------------------------------------------------------------------------- functions that rank clues

Key = tuple[float, int, bool, LinePlace]


def key(clue: Clue) -> Key:
    """Return the sort key of a clue; the strongest clue sorts first.

    Clues about peers sort in this order: a failed connection or group start; a wait that timed out; the most general
    rows. In each of these three, hints come last. A doubtful clue comes after every other clue of its weight.
    """
    weight = Weight.OWN + 0.5 if clue.doubtful and clue.weight <= Weight.OWN else clue.weight
    if clue.weight is Weight.CONSEQUENCE:
        # Among clues that only report the failure of another process or library, a lost peer comes first, a library's
        # general error next, and a launcher's line last.
        tier = 2 if clue.phrase == Phrase.UNEXPLAINED else 1 if clue.phrase in BROADEST else 0
        return (weight, tier, False, clue.place)
    if clue.weight is not Weight.PEERS:
        return (weight, 0, False, clue.place)
    if clue.phrase in BROADEST:
        tier = 2 if clue.hint else 1
    else:
        tier = (
            1 if clue.phrase == Phrase.COLLECTIVE_TIMEOUT or (clue.hint and clue.phrase == Phrase.NETWORK_LOST) else 0
        )
    return (weight, tier, clue.hint, clue.place)


def specific_first(clues: list[Clue], catalogue: Catalogue) -> list[Clue]:
    """Return the sorted clues with the most specific one first, by the catalogue's order of failure classes.

    A clue takes the place of the strongest one if it is the cause or a narrower kind of what that one states.
    """
    best = clues[0] if clues else None
    while best is not None:
        better = (each for each in clues if each.weight <= Weight.PEERS)
        found = next((each for each in better if catalogue.comes_before(each.phrase, best.phrase)), None)
        if found is None:
            return clues if best is clues[0] else [best, *(each for each in clues if each is not best)]
        best = found
    return clues


def gave_up_on_a_peer(clues: Iterable[Clue]) -> bool:
    """Return whether a lost peer is the only explanation that the clues give for the exit."""
    all_of_them = list(clues)
    return all(clue.weight >= Weight.ABORT for clue in all_of_them) and any(
        clue.weight is Weight.CONSEQUENCE and clue.phrase in ABOUT_PEERS for clue in all_of_them
    )


def wording_of(clue: Clue, matcher: Matcher) -> Wording | None:
    """Return the catalogue pattern (`Wording`) that matched the clue's line.

    None if none did, or if this catalogue lacks it.
    """
    if not clue.wording:
        return None
    return next((each for each in matcher.catalogue.row(clue.phrase).wordings if each.id == clue.wording), None)
