"""docs/how-to/nodes.md: its table of times is made from the defaults of the code.

Made anew: PYTHONPATH=tests python tests/main/test_nodes_docs.py
"""

from __future__ import annotations

from holdfast.decide.attempt_timers import timers_for
from holdfast.model.job_spec import JobSpec, NodePlan, Timers
from holdfast.platforms.kubernetes.kubernetes_launch import REFILL_S
from holdfast.platforms.kubernetes.kubernetes_launch import REPLACE_S as KUBERNETES_S
from holdfast.platforms.slurm.slurm_launch import REPLACE_S
from holdfast.platforms.ssh.ssh_starter import CHECK_S, LAST_S, PAUSES_S
from holdfast.settings.settings_table import BY_NAME
from holdfast.wire.owner_dialler import CONNECT_S, FIRST_S, LONGEST_S, SHAKE_S
from places import DOCS

NODES_PAGE = DOCS / "how-to" / "nodes.md"
TABLE_BEGIN, TABLE_END = "<!-- times: made by tests/main/test_nodes_docs.py -->\n", "<!-- end of times -->\n"


def _seconds(value: object) -> str:
    assert isinstance(value, int | float)
    return f"{value:g} s"


def _of_nodes(count: int) -> Timers:
    return timers_for(JobSpec(name="j", roles=(), nodes=NodePlan(least=count, most=count)))


def times() -> str:
    """The table, from the code's own numbers."""
    plan, timers = NodePlan(), _of_nodes(2)
    large = _of_nodes(5000)
    lost = timers.lease_s + timers.drift_s + timers.beat_s
    option = {name: BY_NAME[name].default for name in ("join-timeout", "last-call", "replace-wait", "owner-wait")}
    assert (option["join-timeout"], option["last-call"]) == (plan.join_s, plan.last_call_s)
    assert (option["replace-wait"], option["owner-wait"]) == (plan.replace_s, timers.owner_wait_s)
    rows = [
        (
            "the nodes come together",
            "`--join-timeout`",
            option["join-timeout"],
            "GangStartTimeout, with who is missing",
        ),
        (
            "further nodes come, when MIN are there",
            "`--last-call`",
            option["last-call"],
            "the gang begins without them",
        ),
        (
            "another node comes, when fewer than MIN are left",
            "`--replace-wait`",
            option["replace-wait"],
            f"the job ends; in Slurm after {REPLACE_S:g} s, or starts again; on Kubernetes after {KUBERNETES_S:g} s",
        ),
        (
            "a lost pod's successor comes, when MIN are left (Kubernetes)",
            "`--replace-wait`",
            REFILL_S,
            "the gang goes on smaller; at once if no other pod fits",
        ),
        ("the owner's node comes back", "`--owner-wait`", option["owner-wait"], "OwnerLost on each other node"),
        (
            "a beat of each agent",
            "–",
            timers.beat_s,
            f"with 5,000 nodes {large.beat_s:g} s; it proves that the node lives",
        ),
        (
            "a silent node: the lease",
            "–",
            timers.lease_s,
            f"the node ends its workers; with 5,000 nodes {large.lease_s:g} s",
        ),
        ("a silent node: lease, drift of clocks, one beat", "–", lost, "it counts as stopped: NodeFailed"),
        ("an agent connects to the owner", "–", CONNECT_S, "the next address is tried"),
        ("a connection proves that it has the key", "–", SHAKE_S, "it is closed"),
        ("before an agent dials again", "–", FIRST_S, f"doubling to {LONGEST_S:g} s"),
        ("ssh looks at a host before the start", "–", CHECK_S, "the host is in trouble"),
        (
            "before ssh dials a host again",
            "–",
            PAUSES_S[0],
            f"doubling to {PAUSES_S[-1]:g} s; then the host is left out",
        ),
        ("the last output of a host comes through ssh, when the job is over", "–", LAST_S, "ssh is ended"),
        ("checks before an attempt", "–", timers.check_s, "a check that is out of time is inconclusive"),
        ("all workers are made ready", "`--prepare-timeout`", timers.prepare_s, "the attempt ends: who never prepared"),
        ("all ranks are up", "–", timers.start_s, "the attempt ends: which rank is missing"),
        ("workers end after the first signal", "`--grace`", timers.grace_s, "SIGKILL"),
        ("a process ends after SIGKILL", "–", timers.kill_s, "it counts as lost"),
        ("late evidence from other nodes, after the last exit", "–", timers.settle_s, "the report is made without it"),
    ]
    lines = ["| what is waited for | option | unless given | then |", "|---|---|---|---|"]
    lines += [f"| {what} | {name} | {_seconds(value)} | {then} |" for what, name, value, then in rows]
    return "\n".join(lines) + "\n"


def _parts() -> tuple[str, str, str]:
    text = NODES_PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(TABLE_BEGIN)
    table, _, after = rest.partition(TABLE_END)
    return before, table, after


def test_the_table_of_times_is_what_the_code_waits() -> None:
    assert _parts()[1] == times(), "make it anew: PYTHONPATH=tests python tests/main/test_nodes_docs.py"


if __name__ == "__main__":
    before, _, after = _parts()
    NODES_PAGE.write_text(before + TABLE_BEGIN + times() + TABLE_END + after, encoding="utf-8")
