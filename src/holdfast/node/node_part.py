"""One node's part of a job, and the places that its output goes to."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.launch.launch_spec import LaunchSpec
from holdfast.model.job_spec import NodeInfo
from holdfast.observe.output_pump import Logs, OutputScreen
from holdfast.record.job_directory import JobPlace


class NodePart(msgspec.Struct, frozen=True):
    """One node's part of a job."""

    #: The job as this node runs it.
    launch: LaunchSpec
    #: The job's directory on this node.
    place: JobPlace
    node: NodeInfo


class OutputPlaces(msgspec.Struct, frozen=True):
    """The terminal and the files that receive a node's output."""

    #: The terminal, which shows the workers' output.
    stdout: OutputScreen
    stderr: OutputScreen
    #: Prints a message from holdfast.
    say: Callable[[str], None]
    #: The process that writes the workers' log files, or None if this process writes them.
    logs: Logs | None = None
