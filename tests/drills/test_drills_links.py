"""The links between nodes are measured before a gang begins: real networks, with a route that leads nowhere."""

from __future__ import annotations

import pytest

from drilling import ClusterOf

pytestmark = [pytest.mark.real, pytest.mark.drill]


def test_a_link_that_carries_nothing_is_named_before_the_gang_begins(cluster: ClusterOf) -> None:
    job = cluster(3)
    for here, there in ((2, 3), (3, 2)):
        job.net[here]("ip", "route", "add", "unreachable", f"{job.net[there].address}/32")
    for number in (1, 2, 3):
        job.run(number, "--nnodes", "3", checks=True)
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    [finished, *_] = [event for _, event in job.journal() if event["type"] == "checks_finished"]
    [warning] = [text for text in finished["warnings"] if text.startswith("links: ")]
    assert all(f"node{number} ({job.net[number].address})" in warning for number in (2, 3))
    assert warning.endswith("each works with another node: the link between them: No route to host")
    assert warning in job.told()
    [line] = [line for line in finished["taken"]["checks"] if line["name"] == "links"]
    assert line["state"] == "passed with a warning"


def test_where_all_links_work_the_report_has_their_figures(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2, 3):
        job.run(number, "--nnodes", "3", "--port-range", "31000-31010", checks=True)
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    [line] = [line for line in job.report()["attempts"][0]["checks"]["checks"] if line["name"] == "links"]
    assert line["state"] == "passed" and line["message"].startswith("3 nodes, 3 exchanges: at most ")


RACK = """
import socket
from holdfast.checks import PreCheckOperator, PreCheckResult, ReplaceNode

class Rack(PreCheckOperator):
    def check(self, **context):
        bad = socket.gethostname() == "node2"
        return PreCheckResult(int(bad), "its switch port flaps" if bad else "", ["node2"] if bad else [])
    def failed_actions(self, **context):
        return [ReplaceNode("rack")]
"""


def test_the_links_of_a_spare_are_measured_too(cluster: ClusterOf) -> None:
    job = cluster(3)
    plugin = job.out / "rack.py"
    plugin.write_text(RACK)
    for number in (1, 2, 3):
        words = ("--nnodes", "2", "--spares", "1", "--plugin", plugin, "--checks", "disk,rack,links")
        job.run(number, *words, checks=True)
    job.common_step(1)
    job.finish()
    job.end()
    rounds = [event["taken"] for _, event in job.journal() if event["type"] == "checks_finished"]
    assert [taken["state"] for taken in rounds] == ["FAIL", "PASS"]
    [line] = [line for line in rounds[-1]["checks"] if line["name"] == "links"]
    assert line["state"] == "passed" and line["message"].startswith("2 nodes, 1 exchange")
