"""The diagnosis of an attempt's end (failure class, culprit, cause), and how a report is made from it with sentences,
evidence and masking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.catalogue.exit_rows import ExitRow, Where, Wording
from holdfast.explain.causes import grace_kills
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.text import sentences
from holdfast.explain.text.secret_masking import mask
from holdfast.model.evidence import AttemptEvidence, HostFacts, WorkerEvidence
from holdfast.model.exit_report import (
    Because,
    Blame,
    Culprit,
    DecidingLine,
    Evidence,
    EvidenceKind,
    ExitReport,
    Original,
    Rerun,
    SourceLines,
    Trigger,
    WorkerExit,
    signal_name,
)
from holdfast.model.human_format import Zone, linked, utc
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, QuotedLine, RaisedException, UncaughtException, Weight

MOST_ITEMS = 12
#: Limit on the text of one evidence item, in characters. Masking may lengthen the text, but it stays below 2 KiB.
MOST_TEXT = 2000
MOST_UNANSWERED = 4
#: Limit on the ranks that a report names as failed in the same way.
MOST_ALIKE = 4096
#: Exit code of a failure whose catalogue row has no valid exit code.
UNEXPLAINED = 255


class Diagnosis(msgspec.Struct):
    """The decision about an attempt's end (cause, culprit, failure class), from which `finish` makes the report.

    If `reason`, `solution`, `code`, `blame` or `rerun` is not set, `finish` takes the value from `wording` or `row`.
    """

    phrase: str
    row: ExitRow
    trigger: Trigger | None
    reason: str = ""
    solution: str = ""
    code: int | None = None
    blame: Blame | None = None
    rerun: Rerun | None = None
    cause: Clue | None = None
    #: The catalogue wording (a pattern and its sentences) that matched the cause's line.
    wording: Wording | None = None
    #: The culprit's evidence, if one worker is the culprit.
    worker: WorkerEvidence | None = None
    exit: WorkerExit | None = None
    #: The culprit's rank, for a culprit without an exit.
    rank: int | None = None
    original: Original | None = None
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    collateral: tuple[int, ...] = ()
    also: list[Culprit] = msgspec.field(default_factory=list)
    confidence: float = 1.0
    devices: tuple[str, ...] = ()
    hint: str | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    #: A clause that is added to the report's reason, such as why this rank was chosen as the culprit.
    remark: str = ""
    #: The usual meaning of the status, as a clause: `as timeout(1) gives when its time is over`.
    meaning: str = ""
    #: Ranks that failed in the same way at the same time, so that they are neither culprits nor collateral.
    alike: tuple[int, ...] = ()
    #: The name of the rule that made this diagnosis; empty: the rule is the function of
    #: `holdfast.explain.explanation_rules` that returned it.
    rule: str = ""
    #: The log line that decided the report, if there is no deciding clue (`cause` is None).
    line: DecidingLine | None = None
    #: The id of the catalogue pattern that matches `line`; empty: none does.
    line_wording: str = ""


_UNSURE = (Weight.WARNED, Weight.ABORT, Weight.CONSEQUENCE)


def who_of(role: str, rank: int | None, node: str) -> str:
    """Return the words for a worker in a sentence: `rank 3 on node7`; `the program` if the rank is unknown."""
    if rank is None:
        return "the program"
    name = f"rank {rank}" if role in ("", "worker") else f"{role} {rank}"
    return f"{name} on {node}" if node else name


def culprit_of(ended: WorkerExit) -> Culprit:
    return Culprit(role=ended.role, rank=ended.rank, node=ended.node, pid=ended.pid, at=ended.ended_at)


def named(rank: int, evidence: AttemptEvidence, node: str = "") -> Culprit:
    """Return the report's culprit for a rank that did not exit by itself (it hung, or never started).

    Its time is taken only from its exit. A log line may belong to another rank and another clock.
    """
    for worker in evidence.workers:
        if worker.rank == rank:
            pid, at = (worker.exit.pid, worker.exit.ended_at) if worker.exit is not None else (None, None)
            return Culprit(role=worker.role, rank=rank, node=worker.node or node, pid=pid, at=at)
    return Culprit(role="worker", rank=rank, node=node)


def quoted_line(line: QuotedLine) -> DecidingLine:
    return DecidingLine(text=line.raw, source=line.source, number=line.number)


def because_of(diagnosis: Diagnosis) -> Because:
    """Return what decided the report: the rule, the failure class, the id of the matching pattern, and the log line
    with masked secrets."""
    line, wording = diagnosis.line, diagnosis.line_wording
    if diagnosis.cause is not None:
        line = quoted_line(diagnosis.cause.line)
        wording = diagnosis.wording.id if diagnosis.wording is not None else ""
    if line is not None:
        text = mask(sentences.shortened(line.text, MOST_TEXT))
        line = DecidingLine(text=text, source=mask(line.source)[:300], number=line.number)
    return Because(rule=diagnosis.rule, row=diagnosis.row.phrase, wording=wording, line=line)


def fields_of(diagnosis: Diagnosis, zone: Zone = utc) -> dict[str, str]:
    """Return the fields that the catalogue's templates may use: rank, time, line, the groups of the pattern, the row's
    further fields."""
    worker, ended, cause = diagnosis.worker, diagnosis.exit, diagnosis.cause
    rank: int | None = diagnosis.rank
    node = ""
    role = "worker"
    at: float | None = None
    if worker is not None:
        node, role = worker.node, worker.role
    if ended is not None:
        rank, node, role, at = ended.rank, ended.node or node, ended.role, ended.ended_at
    known: dict[str, str] = {}
    if cause is not None:
        if rank is None:
            rank = cause.rank
        at = at if at is not None else cause.line.moment
        known["line"] = sentences.one_line(cause.line.text)
        known["source"] = cause.line.source
        if cause.raised is not None:
            known["exception"] = _as_raised(cause.raised)
            known["message"] = sentences.one_line(cause.raised.words or cause.raised.type)
        known.update(cause.fields)
        if cause.note is not None and cause.note.host:
            node = node or cause.note.host
    known["who"] = who_of(role, rank, node)
    if rank is not None:
        known["rank"] = str(rank)
    if node:
        known["node"] = node
    if when := sentences.clock(at, zone):
        known["time"] = when
    if ended is not None:
        known["exit"] = ended.how
        if ended.signal is not None:
            known["signal"] = signal_name(ended.signal)
    return known | diagnosis.fields


def finish(diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading]) -> ExitReport:
    """Make the report from the diagnosis: fill in sentences and evidence, and mask secrets.

    The caller adds the fingerprint.
    """
    fields = fields_of(diagnosis, evidence.zone)
    wording = diagnosis.wording
    row = diagnosis.row
    reason = diagnosis.reason or _reason(diagnosis, fields)
    raised = diagnosis.cause.raised if diagnosis.cause is not None else None
    if raised is not None and not raised.message:
        # An exception without a message would be named twice.
        reason = reason.replace(f"{raised.type}: {raised.type}", raised.type)
    if diagnosis.remark:
        reason = f"{reason.rstrip('.')}; {diagnosis.remark}"
    solution = diagnosis.solution
    if not solution and wording is not None and wording.solution:
        solution = sentences.fill_template(wording.solution, fields) or ""
    solution = (
        solution
        or sentences.fill_template(row.solution, fields)
        or _SOLUTIONS.get(diagnosis.phrase, _SOLUTIONS[Phrase.UNEXPLAINED])
    )
    more, better = machine_advice(diagnosis.phrase, evidence.surroundings)
    if wording is not None and wording.id == "debugger-left":
        more, better = _terminal(diagnosis, evidence.surroundings)
    reason = f"{reason.rstrip('.')}; {more}" if more else reason
    solution = better or solution
    if diagnosis.phrase != Phrase.SUCCEEDED and (advice := grace_kills.advice(evidence)):
        solution = f"{solution.rstrip('. ')}. {advice}"
    blame = diagnosis.blame or (wording.blame if wording else None) or row.blame
    rerun = diagnosis.rerun or (wording.rerun if wording else None) or row.rerun
    code = diagnosis.code if diagnosis.code is not None else row.code
    if diagnosis.phrase != Phrase.SUCCEEDED and not 0 < code < 256:
        # A failure must never look like success to a script, even if a user's catalogue row has a wrong code.
        code = UNEXPLAINED
    if (
        rerun is Rerun.NEVER
        and diagnosis.rerun is None
        and diagnosis.cause is not None
        and diagnosis.cause.weight in _UNSURE
    ):
        rerun = Rerun.UNKNOWN  # if the cause is uncertain, a rerun may still help
    exception = raised.type.split("(")[0] if raised is not None else ""
    if raised is None and (uncaught := _uncaught(diagnosis, readings)) is not None:
        exception = uncaught.type
        diagnosis.evidence.insert(0, Evidence(kind=EvidenceKind.EXCEPTION, text=uncaught.text, source=uncaught.source))
    items = [
        Evidence(
            kind=item.kind,
            text=mask(sentences.shortened(item.text, MOST_TEXT)),
            source=mask(item.source)[:300],
            at=item.at,
            node=item.node if evidence.addresses else "",
        )
        for item in (*_items(diagnosis, readings), *evidence.platform, *_unanswered(evidence))
    ]
    first = culprit_of(diagnosis.exit) if diagnosis.exit is not None else None
    if first is None and diagnosis.rank is not None:
        first = named(diagnosis.rank, evidence, fields.get("node", ""))
    return ExitReport(
        code=code,
        phrase=diagnosis.phrase,
        blame=blame,
        rerun=rerun,
        reason=mask(sentences.shortened(_sentence(reason), 1200)),
        solution=mask(sentences.shortened(solution, 1200)),
        trigger=diagnosis.trigger,
        hint=mask(diagnosis.hint) if diagnosis.hint else _hint(diagnosis, evidence),
        original=_with_signal(diagnosis.original or _original(diagnosis.exit), diagnosis),
        first=first,
        evidence=tuple(items),
        collateral=diagnosis.collateral,
        attempt=evidence.attempt,
        exception=exception,
        chain=tuple(mask(sentences.shortened(text, MOST_TEXT)) for text in _chain(diagnosis)),
        alike=diagnosis.alike[:MOST_ALIKE],
        also=tuple(diagnosis.also),
        confidence=diagnosis.confidence,
        devices=diagnosis.devices or _devices(diagnosis, rerun),
        because=because_of(diagnosis),
        source_lines=_source_lines(diagnosis, first, evidence),
    )


def _source_lines(diagnosis: Diagnosis, first: Culprit | None, evidence: AttemptEvidence) -> SourceLines | None:
    """Return the source lines of the deciding exception's place, or else of the place in which the culprit stood."""
    raised = diagnosis.cause.raised if diagnosis.cause is not None else None
    for worker in evidence.workers:
        source = worker.source
        if source is None:
            continue
        if raised is not None and raised.frame is not None:
            if (source.path, source.line) == raised.frame[:2]:
                return _masked(source)
        elif first is not None and worker.rank == first.rank:
            return _masked(source)
    return None


def _masked(source: SourceLines) -> SourceLines:
    return msgspec.structs.replace(source, path=mask(source.path), lines=tuple(map(mask, source.lines)))


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _reason(diagnosis: Diagnosis, fields: dict[str, str]) -> str:
    wording = diagnosis.wording
    if wording is not None and wording.reason and (text := sentences.fill_template(wording.reason, fields)):
        raised = diagnosis.cause.raised if diagnosis.cause is not None else None
        return _with_outer(text, raised, fields["who"]) if raised is not None and raised.above else text
    text = sentences.fill_template(diagnosis.row.reason, fields) or f"{fields['who']}: {diagnosis.row.what}"
    quoted = ""
    if diagnosis.cause is not None:
        raised = diagnosis.cause.raised
        if raised is not None and diagnosis.cause.naming:
            name = _as_raised(raised)
            quoted = sentences.one_line(f"{name}: {raised.words}" if raised.words else name, 240)
        else:
            quoted = sentences.one_line(diagnosis.cause.line.text, 240)
    return f"{text} ({quoted})" if quoted and quoted not in text else text


def _as_raised(raised: RaisedException) -> str:
    """Return the type of the exception; with an outer one: `RuntimeError: bad config, because JSONDecodeError`."""
    outer = [sentences.one_line(text, 160) for text in raised.above]
    return linked((*outer, f"{raised.link} {raised.type}")) if outer else raised.type


def _with_outer(text: str, raised: RaisedException, who: str) -> str:
    """Put the outer exceptions before the text, as in `rank 0: RuntimeError: bad config, because a line is not valid
    JSON`."""
    if raised.message and raised.message in raised.above[0]:
        return text  # the outer exception only quotes the inner one
    begin = f"{who}: " if text.startswith(f"{who}: ") else ""
    because = "because" if raised.link == "because" else f"{raised.link} {raised.type}:"
    outer = [sentences.one_line(text, 160) for text in raised.above]
    return f"{begin}{linked((*outer, because))} {text.removeprefix(begin)}"


def _chain(diagnosis: Diagnosis) -> tuple[str, ...]:
    raised = diagnosis.cause.raised if diagnosis.cause is not None else None
    if raised is None or not (raised.above or raised.below):
        return ()
    own = f"{raised.type}: {raised.message}" if raised.message else raised.type
    return (*raised.above, f"{raised.link} {own}".lstrip(), *raised.below)


def _items(diagnosis: Diagnosis, readings: Sequence[Reading]) -> Iterator[Evidence]:
    """Yield at most `MOST_ITEMS` items of evidence: the cause, the diagnosis's items, the culprit's exit, other ranks,
    further lines."""
    items: list[Evidence] = []
    cause = diagnosis.cause
    if cause is not None:
        source = f"{cause.line.source}:{cause.line.number}"
        of_kernel = diagnosis.wording is not None and diagnosis.wording.where is Where.KERNEL
        kind = EvidenceKind.KERNEL if of_kernel else EvidenceKind.LOG
        text = cause.line.raw
        if cause.raised is not None:
            kind = EvidenceKind.EXCEPTION if diagnosis.wording is None else kind
            text = cause.raised.told
            if not cause.naming and cause.line.text not in text:
                text = f"{text}\n{cause.line.text}"
            if frame := cause.raised.frame:
                text = f"{text}\n  at {frame[0]}:{frame[1]}{f' in {frame[2]}' if frame[2] else ''}"
            if cause.raised.above:
                text = "\n".join((*cause.raised.above, f"{cause.raised.link} {text}"))
            text = "\n".join((text, *cause.raised.below))
        items.append(Evidence(kind=kind, text=text, source=source, at=cause.line.moment))
    items += diagnosis.evidence
    if diagnosis.exit is not None and not diagnosis.exit.ok:
        ended = diagnosis.exit
        kind = EvidenceKind.SIGNAL if ended.signal is not None else EvidenceKind.EXIT_CODE
        text = f"{ended.how}{', core dumped' if ended.core_dumped else ''}"
        items.append(Evidence(kind=kind, text=text, source=f"{ended.role}-{ended.rank}", at=ended.ended_at))
    alone = sum(reading.worker.exit is not None for reading in readings) == 1
    for reading in readings:
        if len(items) >= MOST_ITEMS:
            break
        if reading.worker is diagnosis.worker or reading.worker.exit is None or reading.worker.exit.ok:
            continue
        if reading.worker.rank in diagnosis.alike:
            continue
        other = reading.best
        ended = reading.worker.exit
        if alone and ended.pid is None and ended.ended_at is None:
            items.append(Evidence(kind=EvidenceKind.EXIT_CODE, text=ended.how, source="command line"))
            continue
        text = sentences.one_line(other.line.text, 300) if other is not None else ended.how
        items.append(
            Evidence(kind=EvidenceKind.COLLATERAL, text=text, source=f"{ended.role}-{ended.rank}", at=ended.ended_at)
        )
    if diagnosis.worker is not None or not any(reading.worker.exit for reading in readings):
        shown = {cause.line.raw} if cause is not None else set()
        for reading in readings:
            if diagnosis.worker is not None and reading.worker is not diagnosis.worker:
                continue
            for other in (*reading.said.clues, *reading.said.weaker):
                if len(items) >= min(MOST_ITEMS, 6) or other.line.raw in shown:
                    continue
                shown.add(other.line.raw)
                where = f"{other.line.source}:{other.line.number}"
                items.append(
                    Evidence(
                        kind=EvidenceKind.LOG,
                        text=sentences.one_line(other.line.raw, 300),
                        source=where,
                        at=other.line.moment,
                    )
                )
    yield from items[:MOST_ITEMS]


def _unanswered(evidence: AttemptEvidence) -> Iterator[Evidence]:
    """Yield evidence items that name the workers whose logs were not read, so that only their exits are known."""
    for lost in evidence.unanswered[:MOST_UNANSWERED]:
        only = "the exit is known" if len(lost.ranks) == 1 else "the exits are known"
        text = (
            f"{lost.node} gave no evidence within {lost.silent_s:.0f} s: of {sentences.ranks(lost.ranks)} only {only}"
        )
        yield Evidence(kind=EvidenceKind.COLLATERAL, text=text, source="owner", node=lost.node)


def _uncaught(diagnosis: Diagnosis, readings: Sequence[Reading]) -> UncaughtException | None:
    """Return the uncaught C++ exception of the culprit, if the culprit aborted."""
    aborted = diagnosis.exit is not None and (diagnosis.exit.signal == 6 or diagnosis.exit.exit_code == 134)
    if not aborted and diagnosis.phrase != Phrase.NATIVE_CRASH:
        return None
    own = [reading for reading in readings if diagnosis.worker is None or reading.worker is diagnosis.worker]
    return next((reading.said.uncaught for reading in own if reading.said.uncaught is not None), None)


def _with_signal(original: Original, diagnosis: Diagnosis) -> Original:
    """Return the exit `original`. Add the signal that only a launcher or a shell reported, if it decided the report."""
    if diagnosis.trigger is not Trigger.SIGNAL or original.signal is not None or original.exit_code is not None:
        return original
    note = diagnosis.cause.note if diagnosis.cause is not None else None
    number = note.signal if note is not None and note.signal is not None else None
    if number is None and diagnosis.phrase in (Phrase.HOST_OUT_OF_MEMORY_KILLED, Phrase.KILLED_BY_SIGNAL):
        number = 9  # the log's plain "Killed" means SIGKILL
    return original if number is None else Original(signal=signal_name(number))


def _original(ended: WorkerExit | None) -> Original:
    if ended is None:
        return Original()
    return Original(exit_code=ended.exit_code, signal=signal_name(ended.signal) if ended.signal is not None else None)


def _hint(diagnosis: Diagnosis, evidence: AttemptEvidence) -> str | None:
    if not evidence.job:
        return None
    rank = f" --rank {diagnosis.exit.rank}" if diagnosis.exit is not None else ""
    if evidence.attempt == 0 or evidence.muster is not None:
        return f"holdfast show {evidence.job}"  # no worker was started, so the job has no logs to show
    return f"holdfast logs {evidence.job} --attempt {evidence.attempt}{rank}"


def _devices(diagnosis: Diagnosis, rerun: Rerun) -> tuple[str, ...]:
    if rerun is not Rerun.ELSEWHERE or diagnosis.exit is None or not diagnosis.exit.node:
        return ()
    return (diagnosis.exit.node,)


_SOLUTIONS: dict[str, str] = {
    Phrase.UNEXPLAINED: (
        "Nothing recognised says why. Collect next: the first failing rank's whole log, the kernel log of its node"
        " (dmesg -T) and the scheduler's events of that minute, and explain them together:"
        " holdfast explain rank*.log dmesg.txt"
    ),
    Phrase.SUCCEEDED: "Nothing to do.",
    Phrase.USER_EXCEPTION: "Read the exception and the line of your own code that it names; fix that, then run again.",
    Phrase.KILLED_BY_SIGNAL: (
        "Find out who sent the signal: dmesg -T on the node shows memory kills, the scheduler's log shows"
        " cancellations and limits."
    ),
    Phrase.NATIVE_CRASH: (
        "Run once more with PYTHONFAULTHANDLER=1 and core dumps on (ulimit -c unlimited) to see the native stack; look"
        " at the newest native extension first."
    ),
    Phrase.HOST_OUT_OF_MEMORY_KILLED: (
        "Give the worker more host memory, or make it need less: fewer data-loader workers, smaller prefetch, no second"
        " copy of the data."
    ),
    Phrase.HUNG_WORKER: (
        "Look at the stack of the rank that differs, below: what it waits for is why the others wait for it."
    ),
    Phrase.PEER_LOST: "Look for the worker that went away first, and explain its log together with this one.",
}


def machine_advice(phrase: str, known: HostFacts | None) -> tuple[str, str]:
    """Return two texts: facts about the machine that are added to the report's reason, and a solution that replaces the
    catalogue's.

    Either may be empty. The facts are the Python, the process that holds the port, and the disks. They are known only
    if holdfast ran the job.
    """
    if known is None:
        return "", ""
    if phrase == Phrase.MODULE_NOT_FOUND and known.python:
        return f"workers run with {known.python}", _module(known)
    if phrase == Phrase.ADDRESS_IN_USE:
        return _port(known)
    if phrase in (Phrase.DISK_FULL, Phrase.QUOTA_EXCEEDED) and known.disks:
        return "; ".join(known.disks), ""
    if phrase == Phrase.SHARED_MEMORY_EXHAUSTED and known.shared_memory:
        return "; ".join(known.shared_memory), ""
    return "", ""


def _terminal(diagnosis: Diagnosis, known: HostFacts | None) -> tuple[str, str]:
    """Return the reason and the solution for a rank that was left in the debugger, because it has no terminal."""
    rank = diagnosis.exit.rank if diagnosis.exit is not None else None
    if known is None or not known.debugger or (rank is not None and rank == known.terminal_rank):
        return "", ""
    own = known.terminal_rank
    if rank is None or own is None:
        who = "the ranks have" if rank is None else f"rank {rank} has"
        return f"{who} no terminal, which a debugger reads", (
            'Start the job from a terminal, which rank 0 reads, and write `if os.environ["RANK"] == "0": breakpoint()`.'
        )
    return f"rank {rank} has no terminal: rank {own} reads that of the job", (
        f'Write `if os.environ["RANK"] == "{own}": breakpoint()`, or give rank {rank} the terminal: `--stdin {rank}`.'
    )


def _module(known: HostFacts) -> str:
    name = known.module or "it"
    if known.found_in:
        other = known.found_in[0]
        if known.by_command:
            return f"{other} has {name}: have the command begin with it, or install it for {known.python}."
        return f"{other} has {name}: run with `holdfast run --python {other} …`, or install it for {known.python}."
    install = f"`{known.python} -m pip install {known.module.partition('.')[0] or 'MODULE'}`"
    other = "name another one in the command" if known.by_command else "run with another one (`--python PATH`)"
    return (
        f"Install {name} for the Python that runs the workers ({install}; a package may have another name), "
        f"{other}, or add the module's directory to PYTHONPATH."
    )


def _port(known: HostFacts) -> tuple[str, str]:
    which = f"port {known.port}" if known.port is not None else "the port"
    held = f"{which} is held by {known.holder}" if known.holder else ""
    if known.port is not None and known.port == known.asked_port:
        return held, "Give another --master-port, or none: holdfast takes a free one in each attempt."
    return held, (
        "Have the program take a free port (port 0), or the job's own, os.environ['MASTER_PORT'], which is new in each "
        f"attempt: no option of holdfast changes {which}, which the program chose. `ss -ltnp` lists who listens."
    )
