"""Explains failures that were caused by nodes which were lost, or never joined."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.explain.text.sentences import kill_words
from holdfast.model.evidence import TURNED_AWAY, AttemptEvidence, GangShortfall, LeftBehind, MemoryKill
from holdfast.model.exit_report import Blame, DecidingLine, Evidence, EvidenceKind, Rerun, Trigger
from holdfast.model.human_format import everyone
from holdfast.model.phrases import Phrase

#: Maximum number of lost or missing nodes that the report's reason names.
NAMED = 8
#: Maximum number of nodes that the owner turned away and that the report's reason names.
TURNED = 3
#: `_DOWN`: words in messages of Slurm or Kubernetes about a node that is down. `_ONLY_SILENT`: words about a node that
#: only does not answer Slurm or Kubernetes. Lower case.
_DOWN = ("reboot", "power", "fail", "panic", "deleted", "no longer exists", "terminated")
_ONLY_SILENT = ("not responding", "not_responding")


def node_lost(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Diagnose a lost node: the node is silent, or has left, or its agent has restarted and the job's
    processes are gone.
    """
    if evidence.cut_off:
        return _link_lost(evidence, matcher)
    row = matcher.catalogue.row(Phrase.NODE_FAILED)
    gone = [lost for lost in evidence.lost if not lost.back] or list(evidence.lost)
    first = max(gone, key=lambda lost: lost.silent_s)
    others = len(gone) - 1
    more = f"; {others} more node{' is' if others == 1 else 's are'} gone" if others else ""
    with_ranks = f" with {sentences.ranks(first.ranks)}" if first.ranks else ""
    diagnosis = Diagnosis(
        Phrase.NODE_FAILED,
        row,
        Trigger.RUNTIME,
        reason=f"{first.node}{with_ranks} {_fate(first)}{more}",
        evidence=[
            Evidence(kind=EvidenceKind.CHECK, text=f"{lost.node} {_fate(lost)}", source=lost.node)
            for lost in gone[:NAMED]
        ],
        rank=first.ranks[0] if first.ranks else None,
        fields={"node": first.node},
        devices=() if first.back else tuple(lost.node for lost in gone),
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
    )
    if (kill := first.memory_kill) is not None:
        return _agent_out_of_memory(first, kill, diagnosis, matcher)
    if not (first.back or first.why or _is_known_to_be_down(first.node, evidence)):
        diagnosis.blame = Blame.NETWORK
        diagnosis.solution = (
            f"See whether {first.node} is up (ping, its console): if so, look at its link and switch port, else at its "
            "BMC event log (ipmitool sel list) and the kernel log of the boot before (journalctl -k -b -1)."
        )
    if first.back:
        diagnosis.blame, diagnosis.rerun = Blame.PLATFORM, Rerun.NOW
        diagnosis.solution = "Nothing to do: the node takes part again. "
        diagnosis.solution += (
            "The owner stood still, or its link did: see the load and the disk of its machine (uptime, dmesg -T)."
            if first.why
            else f"See what ended its agent: dmesg -T on {first.node} names memory kills."
        )
    return diagnosis


def _is_known_to_be_down(node: str, evidence: AttemptEvidence) -> bool:
    """Return whether something other than its silence shows that a silent node is down.

    The evidence is a message of the platform (Slurm, Kubernetes), or a device fault of the node.
    """
    named = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")
    said = [item.text.lower() for item in evidence.platform if item.node == node or named.search(item.text)]
    ended = any(word in text for text in said for word in _DOWN)
    down = any("down" in text and not any(word in text for word in _ONLY_SILENT) for text in said)
    return ended or down or any(fault.event.device == node for fault in evidence.faults)


def _agent_out_of_memory(lost: LeftBehind, kill: MemoryKill, diagnosis: Diagnosis, matcher: Matcher) -> Diagnosis:
    """Diagnose an agent that the kernel's memory killer ended, whose workers were killed with it."""
    return Diagnosis(
        Phrase.HOST_OUT_OF_MEMORY_KILLED,
        matcher.catalogue.row(Phrase.HOST_OUT_OF_MEMORY_KILLED),
        Trigger.KERNEL,
        reason=f"{diagnosis.reason}: its agent was {kill_words(kill)}",
        evidence=[Evidence(kind=EvidenceKind.MEMORY, text=kill.text, source=kill.source, node=lost.node)],
        rank=diagnosis.rank,
        fields=diagnosis.fields,
        collateral=diagnosis.collateral,
        line=DecidingLine(text=kill.text, source=kill.source),
    )


def _link_lost(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Diagnose a failed link of the owner's node: all other nodes fell silent at once."""
    names = [lost.node for lost in evidence.lost]
    silent_s = max(lost.silent_s for lost in evidence.lost)
    return Diagnosis(
        Phrase.NETWORK_LOST,
        matcher.catalogue.row(Phrase.NETWORK_LOST),
        Trigger.RUNTIME,
        rerun=Rerun.NOW,
        reason=f"{everyone(len(names), 'other node')} ({_named(names)}) fell silent at once, for "
        f"{sentences.seconds(silent_s)}: the link of {evidence.cut_off} failed, and none of them is blamed",
        solution=f"Look at the link of {evidence.cut_off}: ip -statistics link, dmesg -T, its switch port.",
        evidence=[
            Evidence(kind=EvidenceKind.CHECK, text=f"{each.node} {_fate(each)}", source=each.node)
            for each in evidence.lost[:NAMED]
        ],
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
    )


def _fate(lost: LeftBehind) -> str:
    if lost.back:
        return "lost its workers" if lost.memory_kill else f"lost its workers: {lost.why or 'its agent started anew'}"
    if lost.why:
        return f"is gone: {lost.why}"
    said = f"has not answered for {sentences.seconds(lost.silent_s)}"
    if not lost.words_s:
        return said
    ages = ", ".join(f"{age:g}" for age in lost.words_s)
    return f"{said} (its last words came {ages} s before)"


def not_assembled(muster: GangShortfall, said: Sequence[Evidence], matcher: Matcher) -> Diagnosis:
    """Diagnose too few nodes: how many joined, which nodes and ranks are missing, and a command to try.

    `muster`: the nodes that joined, and those that are missing. `said`: messages of the platform, and messages of the
    owner about nodes that it turned away.
    """
    row = matcher.catalogue.row(Phrase.GANG_START_TIMEOUT)
    good = [node for node in muster.came if node not in muster.unfit]
    came = f": {_named(good)}" if good else ""
    verb = "node" if muster.least == 1 else "nodes"
    reason = f"{len(good)} of {muster.least} {verb} joined within {sentences.seconds(muster.waited_s)}{came}"
    if muster.unfit:
        reason += f"; {_named(muster.unfit)} joined and cannot be used: a device or the node is left out"
    if muster.missing_ranks:
        missing = ", ".join(map(str, muster.missing_ranks[:NAMED])) + (
            ", …" if len(muster.missing_ranks) > NAMED else ""
        )
        reason += f"; no node came with --node-rank {missing}"
    if muster.missing:
        reason += f"; never said hello: {_named(muster.missing)}"
    turned = [item for item in said if item.text.startswith(f"{TURNED_AWAY}: ")]
    reason += "".join(f"; {item.text}" for item in turned[:TURNED])
    typed = next((item.source for item in turned if item.source), "")
    return Diagnosis(
        Phrase.GANG_START_TIMEOUT,
        row,
        Trigger.RUNTIME,
        reason=reason,
        solution=f"Try: {typed}" if typed else _test_of(muster),
        evidence=[
            Evidence(kind=EvidenceKind.CHECK, text=f"{node} joined", source="gang") for node in muster.came[:NAMED]
        ],
    )


def _test_of(muster: GangShortfall) -> str:
    """Return advice with a command that tests why a node did not join."""
    if muster.missing:
        return (
            f"Try: ssh -o BatchMode=yes {muster.missing[0]} true (in Slurm: srun --overlap -w {muster.missing[0]} "
            f"hostname). Where that works, see that the owner's port can be "
            "reached from there (--port-range and one rule of a firewall); --join-timeout gives them longer."
        )
    again = "See that the same command runs on every node; --join-timeout gives them longer."
    host, _, port = muster.endpoint.rpartition(":")
    if not host:
        return again
    test = f"timeout 5 bash -c '</dev/tcp/{host.strip('[]')}/{port}' && echo reached"
    return f"On a node that did not come, try: {test}. {again}"


def _named(names: list[str] | tuple[str, ...]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
