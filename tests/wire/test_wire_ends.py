"""Owner and agent over real connections: who gets in, what arrives, and how each end learns why it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.wire.node_messages import Answered, Asked, Refused
from holdfast.wire.peer_identity import Identity
from holdfast.wire.tls_channel import ChannelEndKind
from wire_ends import OTHER_KEY, AgentsEnd, OwnersEnd, beat, hello, owner, turn_until

__all__ = ["owner"]  # fixtures

Agents = Callable[..., AgentsEnd]
REFUSED_WORD = Refused(reason="r", hint="h", code=2)


@pytest.fixture
def agents() -> Iterator[Agents]:
    made: list[AgentsEnd] = []

    def make(*args: object, **more: object) -> AgentsEnd:
        made.append(AgentsEnd(*args, **more))  # type: ignore[arg-type]  # passed on as they are
        return made[-1]

    yield make
    for end in made:
        end.close()


def test_an_agent_says_hello_and_both_are_heard(owner: OwnersEnd, agents: Agents) -> None:
    owner.answer = lambda peer, message: peer.send(REFUSED_WORD)
    agent = agents(owner.port)
    turn_until(lambda: agent.heard, owner, agent)
    assert owner.heard == [hello()]
    assert agent.heard == [REFUSED_WORD]
    (peer,) = owner.listener.peers
    assert (peer.identity, peer.address, peer.greeted) == (Identity.AGENT, "127.0.0.1", True)
    assert agent.addresses == [("127.0.0.1", "127.0.0.1")]


def test_a_report_travels_as_it_is(owner: OwnersEnd, agents: Agents) -> None:
    agent = agents(owner.port)
    turn_until(lambda: agent.dialler.connected, owner, agent)
    assert agent.dialler.send(beat(5.0))
    turn_until(lambda: len(owner.heard) == 2, owner, agent)
    assert owner.heard[1] == beat(5.0)


def test_another_key_is_known_at_both_ends(owner: OwnersEnd, agents: Agents) -> None:
    agent = agents(owner.port, OTHER_KEY)
    turn_until(lambda: agent.lost and owner.listener.refused, owner, agent)
    assert agent.lost[0].why is ChannelEndKind.OTHER_KEY
    assert owner.listener.refused.keys() == {ChannelEndKind.OTHER_KEY}
    assert owner.listener.strangers["127.0.0.1"].end.why is ChannelEndKind.OTHER_KEY
    assert owner.heard == []


def test_an_operator_is_known_by_its_certificate(owner: OwnersEnd, agents: Agents) -> None:
    asked = Asked(protocol=1, version="1", user="u", host="h", line="{}")
    owner.answer = lambda peer, message: peer.dismiss(Answered(ok=True, message="done"))
    operator = agents(owner.port, identity=Identity.OPERATOR, word=asked)
    turn_until(lambda: operator.heard, owner, operator)
    assert (owner.heard, owner.peers[0].identity) == ([asked], Identity.OPERATOR)


def test_last_words_arrive_though_the_peer_goes_on_talking(owner: OwnersEnd, agents: Agents) -> None:
    owner.answer = lambda peer, message: peer.dismiss(REFUSED_WORD)
    agent = agents(owner.port)
    turn_until(lambda: agent.dialler.connected, owner, agent)
    for _ in range(100):
        agent.dialler.send(beat())
    turn_until(lambda: agent.lost and owner.gone, owner, agent)
    assert agent.heard[0] == REFUSED_WORD
    assert all(message == hello() for message in owner.heard), "what comes after the last words is not heard"


def test_an_agent_dials_again_when_its_connection_is_lost(owner: OwnersEnd, agents: Agents) -> None:
    agent = agents(owner.port)
    turn_until(lambda: owner.peers, owner, agent)
    owner.peers[0].close()
    turn_until(lambda: len(owner.peers) == 2, owner, agent)
    assert [end.why for end in agent.lost] == [ChannelEndKind.LEFT]


def test_a_name_is_looked_up_in_a_process_of_its_own(owner: OwnersEnd, agents: Agents) -> None:
    agent = agents(owner.port, host="localhost")
    turn_until(lambda: owner.heard, owner, agent)
    nowhere = agents(owner.port, host="no-such-host.invalid")
    turn_until(lambda: nowhere.lost, nowhere)
    assert nowhere.lost[0].why is ChannelEndKind.UNRESOLVED


def test_ipv6(agents: Agents) -> None:
    try:
        owner = OwnersEnd(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    agent = agents(owner.port, host="::1")
    turn_until(lambda: owner.heard, owner, agent)
    assert owner.peers[0].address == "::1"
    owner.close()
