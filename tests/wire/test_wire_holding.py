"""Over all connections no more than a bounded part of unfinished messages is kept, and one of them always goes on."""

from __future__ import annotations

import random

from holdfast.model import events as ev
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.wire.message_frames import frame
from holdfast.wire.receive_limits import ReceiveLimits
from wire_ends import JOB_KEY, AgentsEnd, OwnersEnd, hello, turn_until


class Sender:
    """A connection that has `left` bytes of one message to come."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.held = 0
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


def test_many_messages_at_once_are_read_within_the_limit_and_all_of_them() -> None:
    rng = random.Random(1)
    holding, most = ReceiveLimits(100), 0
    senders = [Sender(rng.randint(1, 60)) for _ in range(50)]
    while going := [sender for sender in senders if sender.left and not sender.paused]:
        sender = rng.choice(going)
        piece = min(5, sender.left)
        sender.left -= piece
        sender.held = sender.held + piece if sender.left else 0
        holding.note(sender, sender.held)
        most = max(most, holding.total)
    assert [sender for sender in senders if sender.left] == []
    assert holding.total == 0
    assert most <= 100 + 60 + 5 * 50, "one that goes on, and the piece at which each of the others was stopped"


def test_one_that_ends_in_the_middle_lets_another_go_on() -> None:
    holding = ReceiveLimits(10)
    first, second = Sender(1), Sender(1)
    holding.note(first, 8)
    holding.note(second, 8)
    assert (first.paused, second.paused) == (False, True)
    holding.note(first, 0)
    assert not second.paused


def test_long_messages_of_several_agents_all_arrive() -> None:
    owner = OwnersEnd(JOB_KEY)
    owner.listener.holding = holding = ReceiveLimits(300_000)
    workers = tuple(WorkerEvidence(rank=rank, start_failed="x" * 10_000) for rank in range(200))
    collected = ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence(workers=workers))
    agents = [AgentsEnd(owner.port, word=hello(f"a{number}")) for number in range(6)]
    turn_until(lambda: len(owner.heard) == 6, owner, *agents)
    size, most = len(frame(collected, 0.0)), 0

    def all_there() -> bool:
        nonlocal most
        most = max(most, holding.total)
        return len(owner.heard) == 12

    assert all(agent.dialler.send(collected) for agent in agents)
    turn_until(all_there, owner, *agents)
    assert most < 300_000 + size + 6 * 40_000
    assert holding.total == 0
    assert owner.gone == []
    owner.close()
    for agent in agents:
        agent.close()
