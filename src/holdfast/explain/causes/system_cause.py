"""Explains exits whose cause holdfast or the system observed directly.

These are success, failed checks, device faults, hangs, failed starts, a lost rendezvous store, and missed deadlines.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.catalogue.fault_codes import describe
from holdfast.explain.causes.attribution import Attribution, EvidenceStrength, Suspect
from holdfast.explain.causes.device_fault_cause import phrase_of, rerun_of
from holdfast.explain.causes.diagnosis import Diagnosis, named, who_of
from holdfast.explain.causes.plain_success import success_sentence
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    Deadline,
    HangEvidence,
    RankSnapshot,
    StopSource,
    ThreadState,
    WorkerEvidence,
)
from holdfast.model.exit_report import (
    Blame,
    DecidingLine,
    Evidence,
    EvidenceKind,
    Original,
    Rerun,
    Trigger,
    signal_name,
)
from holdfast.model.faults import ActiveFault
from holdfast.model.phrases import Phrase
from holdfast.model.runtime_plan import HookMoment
from holdfast.model.sidecar_ends import SideFailure, SideKind

#: Maximum number of late workers whose last line the report's reason quotes.
LATE_TOLD = 2
#: Maximum number of nodes that the report's reason names.
_NODES = 6


def success_diagnosis(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    row = matcher.catalogue.row(Phrase.SUCCEEDED)
    reason = success_sentence(len(evidence.workers))
    return Diagnosis(
        Phrase.SUCCEEDED, row, None, reason=reason, solution="Nothing to do.", original=Original(exit_code=0), code=0
    )


def check_failed(check: CheckFailure, matcher: Matcher, job: str = "") -> Diagnosis:
    """Diagnose a failed check. If the check failed before the start, there are no workers' logs, so the
    hint names the job.
    """
    phrase = check.phrase if matcher.catalogue.knows(check.phrase) else Phrase.CHECK_FAILED
    row = matcher.catalogue.row(phrase)
    unnamed = [node for node in check.nodes if node not in check.message]
    where = f" on {', '.join(unnamed)}" if unnamed else ""
    how = "could not decide" if check.inconclusive else "failed"
    during = " during the job" if check.running else ""
    reason = f"{'check' if check.running else 'pre-check'} {check.check} {how}{during}{where}: {check.message}"
    blame: Blame | None
    try:
        blame = Blame(check.blame)
    except ValueError:
        blame = Blame.UNKNOWN
    rerun = _rerun_of(check, blame)
    if phrase != Phrase.CHECK_FAILED:
        # The row of the class says who is to blame. If the cause is on the node (a full disk), another node may help.
        blame, rerun = None, Rerun.ELSEWHERE if check.elsewhere else None
        if check.blame:
            reason = f"{check.message}; the pre-check `{check.check}` found this, so no worker was started"
        else:  # the check is a prerequisite, for which the row has the blame
            reason = f"{check.check} could not be had on {check.message}"
    return Diagnosis(
        phrase,
        row,
        Trigger.CHECK,
        blame=blame,
        rerun=rerun,
        reason=reason,
        solution=check.solution
        or row.solution
        or f"Repair what the check names, then try it alone: holdfast check {check.check}",
        evidence=[Evidence(kind=EvidenceKind.CHECK, text=check.message, source=check.check)],
        hint=f"holdfast show {job}" if job else "",
        devices=check.devices or check.nodes,
    )


def _rerun_of(check: CheckFailure, blame: Blame) -> Rerun | None:
    """Return whether a rerun helps after this failed check; None: the catalogue's row decides."""
    if check.ends_job:
        return Rerun.NEVER
    # Another machine only helps if the check blames the machine.
    return None if check.elsewhere or blame in _ELSEWHERE_HELPS else Rerun.UNKNOWN


_ELSEWHERE_HELPS = frozenset({Blame.HARDWARE, Blame.NETWORK, Blame.STORAGE, Blame.PLATFORM})


def faulted(fault: ActiveFault, evidence: AttemptEvidence, fell: Sequence[Suspect], matcher: Matcher) -> Diagnosis:
    """Diagnose a device fault that ended ranks.

    `fell`: the ranks that died first. The report's victim is the first of them that used the device.
    """
    event = fault.event
    phrase = phrase_of(fault)
    row = matcher.catalogue.row(phrase)
    where = f"{event.device} on {event.node}" if event.node and event.node != event.device else event.device
    used = f", used by {sentences.ranks(fault.ranks)}" if fault.ranks else ""
    moment = sentences.clock(event.at, evidence.zone)
    when = f" at {moment}" if moment else ""
    reason = f"{where}{used}: {describe(event.code)}{when}"
    if event.text and event.text.strip() not in reason:
        reason += f" ({sentences.one_line(event.text, 200)})"
    diagnosis = Diagnosis(
        phrase,
        row,
        Trigger.FAULT,
        reason=reason,
        evidence=[
            Evidence(
                kind=EvidenceKind.FAULT,
                text=event.text or f"{event.code} on {event.device}",
                source=event.source or event.device,
                at=event.at,
                node=event.node,
            )
        ],
        devices=(event.device,) if event.device else (),
        rerun=rerun_of(fault),
        line=DecidingLine(text=event.text, source=event.source) if event.text else None,
        fields={"gpu": event.device, "device": event.device, "code": event.code, "node": event.node},
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
    )
    suspect = next((each for each in fell if not fault.ranks or each.rank in fault.ranks), None)
    if suspect is not None and suspect.exit is not None:
        diagnosis.exit, diagnosis.worker = suspect.exit, suspect.reading.worker
        diagnosis.collateral = tuple(rank for rank in diagnosis.collateral if rank != suspect.rank)
    return diagnosis


_WITHOUT_STACKS = (
    "Install py-spy for holdfast's Python (pip install py-spy): the next report then has every rank's Python line. Look"
    " for a rank that waits for a lock, a file system or a collective that others never enter. Set --hang-timeout above"
    " the slowest step."
)


#: Maximum number of further culprits that a report lists after the first.
MOST_ALSO = 16


def hung(hang: HangEvidence, evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    row = matcher.catalogue.row(Phrase.HUNG_WORKER)
    who = sentences.ranks(hang.culprits) if hang.culprits else "no rank stands out"
    why = hang.why or (f"{who} differ{'s' if len(hang.culprits) == 1 else ''} from the rest" if hang.culprits else who)
    last = hang.looks[-1] if hang.looks else ()
    # If every rank may have caused the hang, the report names none as the culprit.
    stands_out = len(hang.culprits) == 1 or any(shot.rank not in hang.culprits for shot in last)
    blind = bool(last) and all(shot.stack_source.startswith("py-spy is not installed") for shot in last)
    return Diagnosis(
        Phrase.HUNG_WORKER,
        row,
        Trigger.HANG,
        reason=f"nothing moved for {sentences.seconds(hang.silent_s)}: {why}",
        evidence=[Evidence(kind=EvidenceKind.HANG, text=why, source="hang detector", at=hang.at), *stacks(hang)[:8]],
        solution=_WITHOUT_STACKS if blind else "",
        rank=hang.culprits[0] if stands_out else None,
        also=[named(rank, evidence) for rank in hang.culprits[1 if stands_out else 0 :][:MOST_ALSO]],
        confidence=1.0 if len(hang.culprits) == 1 else 0.5,
        fields={"silent": sentences.seconds(hang.silent_s)},
    )


def stacks(hang: HangEvidence) -> list[Evidence]:
    """Return one evidence item for each different stack in the hang, with the ranks that have it.

    The culprits' stacks come first.
    """
    places: dict[tuple[str, str, str, str], list[tuple[RankSnapshot, ThreadState]]] = {}
    last = hang.looks[-1] if hang.looks else ()
    for shot in sorted(last, key=lambda shot: shot.rank not in hang.culprits):
        differs = shot.rank in hang.culprits or not hang.culprits
        told = shot.stack_source in ("", "py-spy", "faulthandler")
        source = shot.stack_source if told else f"/proc, no stack: {shot.stack_source}"
        for thread in shot.threads[: 2 if differs else 1]:
            stack = "\n".join(thread.frames[:12]) or thread.waits_in
            if stack or differs:
                key = (stack or "no stack", thread.state or "?", source, thread.name)
                places.setdefault(key, []).append((shot, thread))
    items = []
    for (stack, state, source, name), seen in places.items():
        shot, thread = seen[0]
        label = name or (str(thread.tid) if len(seen) == 1 else "")
        who = sentences.ranks([each.rank for each, _ in seen]) + (f" thread {label}" if label else "")
        items.append(Evidence(kind=EvidenceKind.HANG, text=f"{who} state {state}\n{stack}", source=source, at=shot.at))
    return items


_NOT_THERE = Lazy(r"(?i)no such file or directory|not found|errno 2\b|enoent")
_MISSING = "names an interpreter that does not exist"
_FIRST_LINE = Lazy(r": its first line\b.*?; (?P<fix>.*)")
_FORMAT = Lazy(r"(?i)exec format error|errno 8\b|enoexec|bad interpreter")
_DENIED = Lazy(r"(?i)permission denied|errno 13\b|eacces|operation not permitted")
#: Matches the error about a wrong `{name}` in the command's template, which holdfast fills in when the worker starts.
_NO_NAME = Lazy(r"line [0-9]+, column [0-9]+: ")
_PLACE = Lazy(r"(?i)chdir|working directory|\.py\b|can't open file")


def start_failed(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis | None:
    """Diagnose a worker that could not be started, with the system's error; None: there is none."""
    worker: WorkerEvidence | None = next((w for w in evidence.workers if w.start_failed), None)
    if worker is None:
        return None
    phrase: str
    wording = ""
    said = worker.start_failed
    hits = matcher.line(said)
    script = _FIRST_LINE.search(said)
    reason = said[: script.start("fix") - 2] if script is not None else said
    if _NO_NAME.search(said):
        phrase = Phrase.CONFIG_INVALID
    elif script is not None and _MISSING in said:
        phrase = Phrase.COMMAND_NOT_FOUND
    elif script is not None or _FORMAT.search(said):
        phrase = Phrase.EXEC_FORMAT_ERROR
    elif _DENIED.search(said):
        phrase = Phrase.PERMISSION_DENIED
    elif _NOT_THERE.search(said):
        phrase = Phrase.CODE_NOT_FOUND if _PLACE.search(said) else Phrase.COMMAND_NOT_FOUND
    elif hits:
        phrase, wording = hits[0].row.phrase, hits[0].wording.id
    else:
        phrase = Phrase.GANG_START_TIMEOUT if evidence.deadline else Phrase.SCHEDULER_ERROR
    row = matcher.catalogue.row(phrase)
    others = [w.rank for w in evidence.workers if w.start_failed and w is not worker]
    also = f" ({sentences.ranks(others)} the same)" if others else ""
    source = f"{worker.role}-{worker.rank} start"
    return Diagnosis(
        phrase,
        row,
        Trigger.RUNTIME,
        reason=f"{who_of(worker.role, worker.rank, worker.node)} could not be started: {reason}{also}",
        solution=_start_solution(phrase, script["fix"] if script is not None else ""),
        worker=worker,
        rank=worker.rank,
        evidence=[Evidence(kind=EvidenceKind.LOG, text=said, source=source)],
        line=DecidingLine(text=said, source=source),
        line_wording=wording,
    )


def _start_solution(phrase: str, fix: str) -> str:
    if fix:
        return f"Correct the script's first line: {fix}."
    return "Correct that name in the command." if phrase == Phrase.CONFIG_INVALID else ""


def store_lost(evidence: AttemptEvidence, who: Attribution, matcher: Matcher) -> Diagnosis | None:
    """Diagnose a rendezvous store that ended before the workers that used it.

    None if a failed worker shows another cause than a lost peer.
    """
    if not evidence.store or who.culprit is None or who.culprit.kind is not EvidenceStrength.PEERS:
        return None
    row = matcher.catalogue.row(Phrase.RENDEZVOUS_FAILED)
    failed = tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok))
    return Diagnosis(
        Phrase.RENDEZVOUS_FAILED,
        row,
        Trigger.RUNTIME,
        blame=Blame.PLATFORM,
        rerun=Rerun.NOW,
        reason=f"{evidence.store}; {sentences.ranks(failed)} needed it and failed",
        solution="See what ended it: the kernel log names memory kills (dmesg -T | grep -i kill). "
        "TORCHELASTIC_USE_AGENT_STORE=False lets rank 0 host the store.",
        worker=who.culprit.reading.worker,
        evidence=[Evidence(kind=EvidenceKind.CHECK, text=evidence.store, source="holdfast")],
        collateral=failed,
    )


def _with_nodes(workers: Sequence[WorkerEvidence], evidence: AttemptEvidence, did: str) -> str:
    """Return a clause such as `ranks 2 and 3 on gpu-2 were not started in time`, for these workers and the predicate
    `did`.

    It names the nodes if the gang has several.
    """
    nodes: dict[str, list[int]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker.rank)
    if not evidence.addresses:
        named = f" ({', '.join(sorted(nodes)[:_NODES])})" if all(nodes) else ""
        return f"{sentences.ranks([worker.rank for worker in workers])} {did}{named}"
    said = [f"{sentences.ranks(ranks)} on {node}" for node, ranks in nodes.items()]
    more = f" and those of {len(said) - _NODES} more nodes" if len(said) > _NODES else ""
    return f"{', '.join(said[:_NODES])}{more} {did}"


def _logs_of(worker: WorkerEvidence, evidence: AttemptEvidence) -> str:
    """Return the command that shows the worker's logs."""
    return f"holdfast logs {evidence.job} --attempt {evidence.attempt} --rank {worker.rank}"


def too_late(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    row = matcher.catalogue.row(Phrase.GANG_START_TIMEOUT)
    # Use `late`, the list of late workers from before the stop: after the stop every worker has an exit.
    unstarted = (w.rank for w in evidence.workers if w.exit is None or w.exit.started_at is None)
    late = set(evidence.late or unstarted)
    missing = [w for w in evidence.workers if w.rank in late]
    ready = len(evidence.workers) - len(missing)
    step = "made ready" if evidence.deadline is Deadline.PREPARE else "started"
    if missing and ready:
        late_ones = f"{'was' if len(missing) == 1 else 'were'} not {step} in time"
        reason = f"{_with_nodes(missing, evidence, late_ones)}; {ready} of {len(evidence.workers)} were"
    else:
        reason = f"not all of {len(evidence.workers)} workers could be {step} before the deadline"
    if evidence.late_words:
        # The report's reason quotes the last lines of only the first late workers. The evidence lists all late workers.
        reason += ": " + "; ".join(evidence.late_words[:LATE_TOLD])
    return Diagnosis(
        Phrase.GANG_START_TIMEOUT,
        row,
        Trigger.RUNTIME,
        reason=reason,
        rank=missing[0].rank if missing and ready else None,
        hint=_logs_of(missing[0], evidence) if missing and ready and evidence.addresses else None,
        evidence=[
            Evidence(
                kind=EvidenceKind.CHECK,
                text=f"deadline `{evidence.deadline}` passed in {evidence.phase}",
                source="gang",
            ),
            *(Evidence(kind=EvidenceKind.CHECK, text=text, source="gang") for text in evidence.late_words),
        ],
    )


#: Maximum number of lines that are kept from the end of a sidecar's output.
LAST_LINES = 10


def failed_beside(evidence: AttemptEvidence, matcher: Matcher, *, finished: bool) -> Diagnosis | None:
    """Diagnose the first sidecar (hook, daemon, sshd) whose failure ended the attempt; None: there is none.

    finished: whether every worker exited with status 0.
    """
    failure = next((one for one in evidence.beside if _counts(one, evidence, finished=finished)), None)
    if failure is None:
        return None
    phrase = Phrase.HOOK_FAILED if failure.kind is SideKind.HOOK else Phrase.DAEMON_FAILED
    others = [one.title for one in evidence.beside if one is not failure]
    also = f"; {', '.join(others)} failed too" if others else ""
    log = f"{failure.log} on {failure.node}" if failure.node and evidence.addresses else failure.log
    signal = signal_name(failure.signal) if failure.signal is not None else None
    after = "All workers had succeeded. " if finished else ""
    # A sidecar that could not be started has no output.
    read = f"Read its output ({log}) and run its command by hand" if log else "Run its command by hand"
    return Diagnosis(
        phrase,
        matcher.catalogue.row(phrase),
        Trigger.RUNTIME,
        reason=f"{failure.sentence}{also}",
        solution=f"{after}{read} with the environment of the job."
        + (" A longer `limit` gives it more time." if failure.limit_s is not None else "")
        + (" `on_failure: ignore` lets the attempt go on without it." if failure.kind is SideKind.HOOK else ""),
        original=Original(exit_code=failure.exit_code, signal=signal),
        evidence=[
            Evidence(
                kind=EvidenceKind.SIGNAL if signal else EvidenceKind.EXIT_CODE,
                text=f"{failure.title} {failure.fate}",
                source=failure.log or failure.title,
                node=failure.node,
            ),
            *(
                Evidence(kind=EvidenceKind.LOG, text=end, source=failure.log, node=failure.node)
                for end in ["\n".join(failure.last_words.splitlines()[-LAST_LINES:])]
                if end.strip()
            ),
        ],
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
    )


def _counts(failure: SideFailure, evidence: AttemptEvidence, *, finished: bool) -> bool:
    """Return whether the sidecar's failure explains the attempt's end.

    A hook that runs after the workers explains it only if all workers succeeded. Any other sidecar explains it, unless
    something else requested a stop.
    """
    if failure.kind is SideKind.HOOK and failure.when is not HookMoment.BEFORE:
        return finished
    return evidence.stop is None or evidence.stop.source is StopSource.DAEMON
