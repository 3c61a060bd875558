"""What a gang of thousands costs on the wire: a command must not grow with the gang."""

from __future__ import annotations

from gang_play import spec
from holdfast.decide.gang import Gang
from holdfast.model import events as ev
from holdfast.model.actions import Action, Send
from holdfast.model.check_results import CheckState
from holdfast.model.codec import encode
from holdfast.model.gang_protocol import Go, Member, MemberState, Prepare, Report
from holdfast.model.job_spec import GangShape, NodeInfo

NODE_COUNT, SLOT_COUNT = 1000, 8


def gang_of(nodes: int) -> tuple[Gang, list[Action]]:
    gang = Gang()
    infos = tuple(NodeInfo(name=f"node-{index:05}", slots=SLOT_COUNT) for index in range(nodes))
    gang.handle(ev.JobSubmitted(job_id="j", spec=spec(count=nodes * SLOT_COUNT), nodes=infos, seed=7), 0.0)
    gang.handle(ev.ChecksFinished(attempt=1, round=1, state=CheckState.PASS), 0.0)
    return gang, gang.handle(ev.JournalSecured(attempt=1), 0.0)


def agent_report(node: str, state: MemberState, ranks: range, at: float) -> ev.AgentReported:
    members = tuple(Member(rank=rank, state=state) for rank in ranks)
    return ev.AgentReported(report=Report(node=node, boot=1, attempt=1, stopped=0, sent=at, members=members))


def test_to_prepare_a_thousand_nodes_takes_a_kilobyte_each() -> None:
    _, actions = gang_of(NODE_COUNT)
    sent = [action.command for action in actions if isinstance(action, Send)]
    assert len(sent) == NODE_COUNT
    assert sum(len(encode(command)) for command in sent) < 1.2e3 * NODE_COUNT
    last = sent[-1]
    assert isinstance(last, Prepare)
    assert last.shape == GangShape(
        world_size=NODE_COUNT * SLOT_COUNT,
        nodes=NODE_COUNT,
        index=NODE_COUNT - 1,
        local=SLOT_COUNT,
        roles={"worker": NODE_COUNT * SLOT_COUNT},
    )
    assert [placement.rank for placement in last.placements] == list(
        range((NODE_COUNT - 1) * SLOT_COUNT, NODE_COUNT * SLOT_COUNT)
    )


def test_a_command_is_sent_again_only_to_nodes_that_have_not_begun_to_obey_it() -> None:
    gang, _ = gang_of(3)
    for node in range(2):
        ranks = range(node * SLOT_COUNT, (node + 1) * SLOT_COUNT)
        gang.handle(agent_report(f"node-{node:05}", MemberState.BOOTING, ranks, 0.5), 0.5)
    again = [action for action in gang.handle(ev.Tick(), 1.0) if isinstance(action, Send)]
    assert [(action.node, type(action.command)) for action in again] == [("node-00002", Prepare)]
    for node in range(3):
        ranks = range(node * SLOT_COUNT, (node + 1) * SLOT_COUNT)
        gang.handle(agent_report(f"node-{node:05}", MemberState.PREPARED, ranks, 2.0), 2.0)
    gang.handle(agent_report("node-00001", MemberState.GOING, range(SLOT_COUNT, 2 * SLOT_COUNT), 2.5), 2.5)
    again = [action for action in gang.handle(ev.Tick(), 3.0) if isinstance(action, Send)]
    assert [(action.node, type(action.command)) for action in again] == [("node-00000", Go), ("node-00002", Go)]
