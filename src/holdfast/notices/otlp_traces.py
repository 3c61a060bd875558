"""The program `python -m holdfast.notices.otlp_traces HOME JOB` exports one trace of an ended job over OTLP/HTTP.

The job is a span. Each attempt is a child of this span, and each phase of an attempt is the attempt's child. Exits,
stops, faults and decisions are events of the attempt. All data come from the journal. The standard OTEL_* variables
define the destination.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.record.job_views import JobDetail, detail, events, look
from holdfast.report.swimlane import Band, Mark, MarkKind, Swimlane, swimlane_of
from holdfast.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

#: Kinds of marks that are not exported as events, because the spans contain the same facts.
_NO_EVENTS = frozenset({MarkKind.PROGRESS, MarkKind.FINISHED})
_MISSING = "the OpenTelemetry SDK is not installed: pip install 'holdfast-run[otel]'"


def main() -> int:
    """Export the trace. Return the exit status: 0 if the collector accepted it. Otherwise print one line to stderr."""
    if (protocol := _variable("PROTOCOL")) not in ("", "http/protobuf"):
        return _failed(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: only http/protobuf is spoken")
    try:
        # Imported late: the package is optional.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        return _failed(_MISSING)
    home, job = Path(sys.argv[1]), sys.argv[2]
    found = look(home)
    view = next((view for view in found.jobs if view.id == job), None)
    if view is None:
        return _failed(f"the journal of {home} does not have job {job}")
    known = detail(found, view)
    swimlane = swimlane_of(events(home, job), known.attempts, now=None)
    logging.disable(logging.CRITICAL)  # this program prints its own line to stderr
    try:
        result = OTLPSpanExporter().export(spans(known, swimlane))
    except Exception as error:  # the exception classes of the exporter differ between its versions
        return _failed(f"not exported: {type(error).__name__}: {error}")
    return 0 if result is SpanExportResult.SUCCESS else _failed("the collector did not take the trace")


def _variable(name: str) -> str:
    """Return the value of the variable for traces, or else of the variable for all signals."""
    return os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _failed(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


def spans(known: JobDetail, swimlane: Swimlane) -> tuple[ReadableSpan, ...]:
    """Return the spans of the whole trace. Phases come first, and the job comes last."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = _provider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("holdfast", __version__)
    view = known.view
    begin = min(view.created, swimlane.start) if swimlane.bands else view.created
    end = max(view.ended or 0.0, swimlane.end, begin)
    about: dict[str, str | int] = {
        "holdfast.job.id": view.id,
        "holdfast.job.name": view.name,
        "holdfast.attempts": view.attempts,
    }
    if known.report is not None:
        last = known.report.report
        about |= {"holdfast.outcome": known.report.outcome.value, "holdfast.exit_code": last.code}
        about |= {"holdfast.phrase": last.phrase, "holdfast.blame": last.blame.value}
    if swimlane.left_out:
        about["holdfast.attempts_left_out"] = swimlane.left_out
    # Ignore a parent span in this process's environment, because each job is a trace of its own.
    job = tracer.start_span(f"job {view.name}", trace.set_span_in_context(trace.INVALID_SPAN), start_time=_ns(begin))
    job.set_attributes(about)
    records = {record.attempt: record for record in known.attempts}
    for band in swimlane.bands:
        around = trace.set_span_in_context(job)
        start = min([band.start, *(part.start for part in band.parts)])
        attempt = tracer.start_span(f"attempt {band.attempt}", around, start_time=_ns(start))
        attempt.set_attribute("holdfast.attempt", band.attempt)
        for part in band.parts:
            inner = tracer.start_span(part.name, trace.set_span_in_context(attempt), start_time=_ns(part.start))
            inner.end(_ns(max(part.end, part.start)))
        for mark, rank, node in _marks(swimlane, band.attempt):
            more: dict[str, str | int] = {"holdfast.text": mark.text, "holdfast.count": mark.count}
            more |= {"holdfast.ranks": rank} if rank else {}
            more |= {"holdfast.node": node} if node else {}
            attempt.add_event(mark.kind.value, more, _ns(mark.at))
        if (record := records.get(band.attempt)) is not None:
            decided = {"holdfast.decision": record.decision.kind.value, "holdfast.reason": record.decision.reason}
            attempt.add_event("decision", decided, _ns(band.end))
            attempt.set_attributes({"holdfast.phrase": band.phrase, "holdfast.blame": record.report.blame.value})
            if record.report.code:
                attempt.set_status(trace.StatusCode.ERROR, f"{band.phrase}: {record.report.reason}")
        attempt.end(_ns(_end(band)))
    for mark, _, _ in _marks(swimlane, 0):
        job.add_event(mark.kind.value, {"holdfast.text": mark.text}, _ns(mark.at))
    if known.report is not None and known.report.report.code:
        job.set_status(trace.StatusCode.ERROR, f"{known.report.report.phrase}: {known.report.report.reason}")
    job.end(_ns(end))
    whole: tuple[ReadableSpan, ...] = kept.get_finished_spans()
    return whole


def _provider() -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider, sampling

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override holdfast's service name.
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    about = {"holdfast.version": __version__} | ({} if named else {"service.name": "holdfast"})
    return TracerProvider(sampling.ALWAYS_ON, Resource.create(about), shutdown_on_exit=False)


def _marks(swimlane: Swimlane, attempt: int) -> Iterator[tuple[Mark, str, str]]:
    """Yield the marks (moments on the swimlane, such as a kill) of one attempt, each with its ranks and its node.

    Ranks or node are "" if the mark has none. Attempt 0: the marks that belong to no attempt.
    """
    rows: list[tuple[tuple[Mark, ...], str, str]] = [(swimlane.marks, "", "")]
    for nodes in swimlane.nodes:
        node = ",".join(nodes.nodes)
        rows.append((nodes.marks, "", node))
        rows += [(row.marks, ",".join(map(str, row.ranks)), node) for row in nodes.lanes]
    found = [(mark, rank, node) for marks, rank, node in rows for mark in marks]
    for mark, rank, node in sorted(found, key=lambda each: each[0].at):
        if mark.attempt == attempt and mark.kind not in _NO_EVENTS:
            yield mark, rank, node


def _end(band: Band) -> float:
    return max([band.end, *(part.end for part in band.parts)])


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


if __name__ == "__main__":
    sys.exit(main())
