"""Describes one node's part of a job."""

from __future__ import annotations

import msgspec

from holdfast.launch.launch_spec import LaunchSpec
from holdfast.model.job_spec import NodeInfo
from holdfast.record.job_directory import JobPlace


class NodePart(msgspec.Struct, frozen=True):
    """One node's part of a job: the launch specification, the job's directory and the node."""

    #: The job's launch specification on this node.
    launch: LaunchSpec
    #: The job's directory on this node.
    place: JobPlace
    node: NodeInfo
