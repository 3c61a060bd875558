"""Describes one node's part of a job, and where the node's output goes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.launch.launch_spec import LaunchSpec
from holdfast.model.job_spec import NodeInfo
from holdfast.observe.output_pump import Logs, OutputScreen
from holdfast.record.job_directory import JobPlace


class NodePart(msgspec.Struct, frozen=True):
    """The launch specification, the job's directory and the node, for one node of a job."""

    #: The job's launch specification on this node.
    launch: LaunchSpec
    #: The job's directory on this node.
    place: JobPlace
    node: NodeInfo


class OutputPlaces(msgspec.Struct, frozen=True):
    """Where a node's output goes: the terminal and the log files."""

    #: The terminal, which shows the workers' output.
    stdout: OutputScreen
    stderr: OutputScreen
    #: Prints a message from holdfast.
    say: Callable[[str], None]
    #: The process that writes the workers' log files, or None if this node's own process writes them.
    logs: Logs | None = None
