"""The report as JSON (`holdfast.report/1`). The functions that write and read it are in `holdfast.record`."""

from __future__ import annotations

import msgspec

from holdfast.model.codec import encode
from holdfast.model.exit_report import ExitReport
from holdfast.record.report_file import SCHEMA, exit_report_object, from_json_object, to_json_object
from holdfast.safe_text import json_text

__all__ = ["SCHEMA", "exit_report_object", "exit_text", "from_json_object", "to_json_object"]


def exit_text(report: ExitReport) -> str:
    """Return the report of one exit as JSON text, indented, without a line end."""
    return pretty(exit_report_object(report))


def pretty(value: object) -> str:
    """Return any value as JSON, indented by one blank.

    Characters that could control a terminal are written as `\\uXXXX`.
    """
    return json_text(msgspec.json.format(encode(value), indent=1).decode())
