"""Can the nodes of a job exchange data? The owner tests that in pairs of nodes, once all nodes have passed their
checks.

One machine cannot measure a link between two: this check only provides the name by which users choose the test.
"""

from __future__ import annotations

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, good


class Links(BuiltIn):
    name = "links"
    question = "Can each node of the job exchange data with two others?"
    cost = "0.1 s for any number of nodes; on one machine nothing"
    blame = "network"

    def look(self, context: Context) -> Verdict:
        if len(context.nodes) < 2:
            return good("there is one node, and no link between nodes")
        return good("the owner measures the links when every node has passed its checks")
