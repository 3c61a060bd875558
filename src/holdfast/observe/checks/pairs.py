"""Finds worker groups that cannot exchange data with the others, are slow at it, or corrupt it.

A failed exchange does not show which of the two groups is bad. `model/pair_search.py` finds that: a first round pairs
neighbours, and a second pairs every suspect with a good group. On one machine the groups are processes on separate
cores that exchange data over TCP.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.model.pair_search import Pair, PairSearch, search
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good
from holdfast.observe.checks.worker_groups import cores, run_groups


class PairsParams(Params, frozen=True, kw_only=True):
    groups: Annotated[int, Meta(ge=0, le=4096, description="worker groups; 0: one a core, 3 to 16")] = 0
    message: Annotated[Bytes, Meta(description="what the two of a pair send each other, in each of the repeats")] = (
        Bytes(4 << 20)
    )
    repeats: Annotated[int, Meta(ge=1, le=1000, description="exchanges of a pair; the best counts")] = 8
    slow_factor: Annotated[float, Meta(gt=1, description="times the fast quarter at which a pair is slow")] = 4.0
    slack_s: Annotated[float, Meta(ge=0, description="seconds that a pair may take besides, on a busy machine")] = 0.02
    wait_s: Annotated[float, Meta(gt=0, description="how long one pair may take")] = 5.0


class Pairs(BuiltIn):
    name = "pairs"
    question = "Which group cannot exchange data with the others, is slow at it, or garbles it?"
    cost = "0.2 s for each 4 groups"
    blame = "network"
    Params = PairsParams
    needs_gang = True
    independent = False
    lane = ""
    retries = 1
    time_limit_s = 120.0

    def look(self, context: Context) -> Verdict:
        count = self.params.groups or max(3, min(len(cores()), 16))
        if count < 2:
            return self.unsure(context, "one group has no other group to exchange with")
        self._errors: dict[Pair, str] = {}
        found = search(count, self._wave, slow_factor=self.params.slow_factor, slack_s=self.params.slack_s)
        worked = [time for time in found.times.values() if time is not None]
        figures: dict[str, Any] = {"groups": count, "exchanges": len(found.times)}
        if found.reference_s is not None:
            figures |= {"reference_s": round(found.reference_s, 6), "slowest_s": round(max(worked), 6)}
        problems = [self._why(node, found) for node in sorted(found.bad)]
        if unknown := found.suspects:
            named = ", ".join(map(str, unknown))
            first = next(iter(self._errors.values()), "")
            problems.append(f"groups {named}: no two of them work together, so which one is bad is not known ({first})")
        problems += [
            f"groups {pair[0]} and {pair[1]} work with others, but not with each other: the link between them"
            for pair in found.links
        ]
        if problems:
            return self.bad(
                context,
                problems,
                "Take the named group's node, adapter or cable out of service and run the check again.",
                figures=figures,
                devices=[f"group {node}" for node in sorted(found.bad)],
            )
        return good(f"{count} groups, {len(found.times)} exchanges", figures)

    def _why(self, node: int, found: PairSearch) -> str:
        """Return a sentence about a failed or slow exchange of this bad group with a good one."""
        for pair, seconds in found.times.items():
            if node in pair and not found.works(pair) and found.cleared.intersection(pair):
                other = pair[0] if pair[1] == node else pair[1]
                if seconds is None:
                    how = self._errors.get(pair, "failed")
                else:
                    how = f"took {1000 * seconds:.1f} ms, good pairs take {1000 * (found.reference_s or 0):.1f} ms"
                return f"group {node}: the exchange with group {other} {how}"
        return f"group {node} does not work with groups that work"

    def _wave(self, wave: Sequence[Pair]) -> list[float | None]:
        """Run the exchanges of one round, at most one pair per two cores at a time. Return each pair's seconds; None:
        it failed.
        """
        answers: list[float | None] = []
        at_once = max(1, len(cores()) // 2)
        for start in range(0, len(wave), at_once):
            answers += self._some(wave[start : start + at_once])
        return answers

    def _some(self, pairs: Sequence[Pair]) -> list[float | None]:
        ports: dict[int, tuple[socket.socket, int]] = {}
        partner: dict[int, int] = {}
        for left, right in pairs:
            listener = socket.create_server(("127.0.0.1", 0))
            ports[left] = (listener, listener.getsockname()[1])
            partner |= {left: right, right: left}

        def work(node: int) -> float:
            if node in ports:
                listener = ports[node][0]
                listener.settimeout(self.params.wait_s)
                link, _ = listener.accept()
            else:
                link = socket.create_connection(("127.0.0.1", ports[partner[node]][1]), self.params.wait_s)
            with link:
                link.settimeout(self.params.wait_s)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return min(self.exchange(node, partner[node], link, number) for number in range(self.params.repeats))

        answers = {answer.index: answer for answer in run_groups(list(partner), work, self.params.wait_s + 1)}
        for listener, _ in ports.values():
            listener.close()
        times: list[float | None] = []
        for pair in pairs:
            errors = [answers[node].error for node in pair if answers[node].error]
            if errors:
                # Report a time-out only without any other error, because the partner of a group with an error may only
                # time out.
                errors.sort(key=lambda error: "timed out" in error or "no answer" in error or "Connection" in error)
                self._errors[pair] = f"failed: {errors[0]}"
                times.append(None)
            else:
                times.append(max(float(answers[node].value) for node in pair))
        return times

    def exchange(self, node: int, other: int, link: socket.socket, number: int) -> float:
        """Do one exchange in the process of the group `node`: send a block, receive the block of the group `other`, and
        compare it. `number`: the number of the exchange. Return seconds. Raises on failure.
        """
        mine, expected = block(node, number, self.params.message), block(other, number, self.params.message)
        link.sendall(b"!")
        if link.recv(1) != b"!":
            raise ConnectionError("Connection closed by the partner")
        began = time.perf_counter()
        if node < other:
            link.sendall(self.disturb(node, mine))
            got = receive(link, len(expected))
        else:
            got = receive(link, len(expected))
            link.sendall(self.disturb(node, mine))
            # The last bytes may be in transit. The other group's time includes their arrival.
        took = time.perf_counter() - began
        if hashlib.blake2b(got).digest() != hashlib.blake2b(expected).digest():
            raise ValueError(f"what came from group {other} is not what was sent")
        return took

    def disturb(self, node: int, data: bytes) -> bytes:
        """Return the data to send. Tests override this to send wrong data."""
        return data


def block(node: int, number: int, size: int) -> bytes:
    """Return the bytes that a group sends. They differ in each group, and follow a pattern that the partner can
    compute.
    """
    seed = hashlib.blake2b(f"{node}/{number}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def receive(link: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes. Raises ConnectionError if the partner closes early."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = link.recv_into(view[done:])
        if not count:
            raise ConnectionError("Connection closed by the partner")
        done += count
    return bytes(data)


class Links(BuiltIn):
    """Gives the test of links between nodes a name, so that users can choose it.

    One machine cannot measure such a link. The owner tests the links after all nodes have passed their checks.
    """

    name = "links"
    question = "Can each node of the job exchange data with two others?"
    cost = "0.1 s for any number of nodes; on one machine nothing"
    blame = "network"

    def look(self, context: Context) -> Verdict:
        if len(context.nodes) < 2:
            return good("there is one node, and no link between nodes")
        return good("the owner measures the links when every node has passed its checks")
