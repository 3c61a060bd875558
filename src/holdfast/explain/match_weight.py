"""Weighs a match: by its wording, by the line it is in, and by the exception it belongs to."""

# ruff: noqa: E501 - an alternative stays on its line
from __future__ import annotations

from collections.abc import Sequence

from holdfast.catalogue.exit_rows import Strength, Where
from holdfast.explain.log_lines import Line
from holdfast.explain.peer_errors import speaks_of_peers
from holdfast.explain.row_matcher import Hit
from holdfast.explain.tracebacks import Chain, Raised
from holdfast.lazy_pattern import Lazy
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Weight

#: Phrases about what is between workers: one worker's own trouble comes before them.
ABOUT_PEERS = frozenset({
    Phrase.PEER_LOST, Phrase.RENDEZVOUS_TIMEOUT, Phrase.RENDEZVOUS_FAILED, Phrase.COLLECTIVE_TIMEOUT, Phrase.COLLECTIVE_SYSTEM_ERROR,
    Phrase.COLLECTIVE_CONNECT_FAILED, Phrase.NETWORK_LOST, Phrase.COLLECTIVE_MISMATCH,
})  # fmt: skip

#: Faults that no process survives: the device refuses all further work from it.
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
#: Phrases that state how a process ended, not why: a phrase with a cause comes before them.
SIGNALLED = frozenset({Phrase.KILLED_BY_SIGNAL, Phrase.NATIVE_CRASH})


#: Phrases that only name the library that failed: any other phrase of equal standing is better.
BROADEST = frozenset({Phrase.COLLECTIVE_SYSTEM_ERROR, Phrase.USER_EXCEPTION})


def weakness(hit: Hit) -> float:
    rank: float = _STRENGTH[hit.wording.strength]
    if hit.row.phrase in SIGNALLED:
        rank = max(rank, 2)
    if hit.row.phrase in BROADEST:
        rank += 0.25
    return rank - 0.5 if hit.chosen else rank


def strongest(hits: Sequence[Hit], *, exception: bool) -> Hit | None:
    """The best hit. An exception that no narrow row covers is judged as an exception, not by its row's wordings."""
    usable = [
        hit
        for hit in hits
        if (exception or hit.wording.where is not Where.EXCEPTION) and hit.row.phrase != Phrase.USER_EXCEPTION
    ]
    return min(usable, key=lambda hit: (weakness(hit), -hit.span), default=None)


def of_chain(chain: Chain, number: dict[int, int], hits: Sequence[list[Hit]]) -> tuple[Raised, int, Hit] | None:
    """The exception of the chain that explains it: the innermost that a narrow row matches, else a broad one's."""
    per: list[tuple[Raised, int, Hit]] = []
    for raised in chain.raised:
        options = []
        for line in raised.lines:
            index = number[id(line)]
            if hit := strongest(hits[index], exception=True):
                options.append((raised, index, hit))
        if options:
            # The naming line speaks first; the rest of a message only where that is silent or weaker.
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
    """An exception that programs raise and handle every day (a cache miss, an optional module)."""
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
    """The innermost exception that is the program's own."""
    return next((raised for raised in chain.raised if not is_wrapper(raised)), chain.outer)


def is_wrapper(raised: Raised) -> bool:
    return bool(_WRAPPERS.search(raised.type.split("(")[0]) or _WRAPPING.search(raised.message[:400]))


def from_launcher(chain: Chain) -> bool:
    """Whether a launcher raised it because a worker had failed; any other exception of a launcher counts normally."""
    frames = chain.outer.frames
    if not frames or _LAUNCHER_FILES.search(frames[-1][0]) is None:
        return False
    return _LAUNCHERS_OWN.search(f"{chain.outer.type}: {chain.outer.message[:400]}") is None


_ABORTS = Lazy(r"(?i)\babort(?:ed)?\b|SIGABRT|terminate called|\bsignal:? 6\b|-6\b|\*\*\* process received signal")


_KILLS = Lazy(r"(?i)\bSIG(?!ABRT)[A-Z]{3,}\b|\bsignal:? ?\(?\d|\bkilled\b|-9\b|-15\b|\b137\b|\b143\b|\bterminated\b")


def weight_of_signal(phrase: str, text: str) -> Weight:
    """The rank of a line that states how a process ended: a crash is best, then a kill, and an abort is weakest."""
    if phrase != Phrase.NATIVE_CRASH:
        # "Died unexpectedly" names no signal: it only says that there was an end.
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
    """None: the clue is not believed here."""
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
                return Weight.ABORT  # a scheduler says "cancelled" of its own cleaning up, too
            return Weight.PEERS if hit.row.phrase in ABOUT_PEERS else Weight.WARNED
        case Strength.FIRST_HAND | Strength.ADVICE:
            if hit.row.phrase in ABOUT_PEERS:
                return Weight.PEERS
            if outside:
                # What the driver says of a program's own fault, the program says better.
                return Weight.ENDING if hit.row.phrase == Phrase.ACCELERATOR_APPLICATION_FAULT else Weight.EVENT
            return Weight.WARNED if line.level in ("D", "I", "W") else Weight.ENDING
