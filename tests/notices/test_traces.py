"""`--traces`: a real job, the real exporter, and a receiver that reads OTLP/HTTP with OpenTelemetry's own schema."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytestmark = [pytest.mark.real, pytest.mark.extras]


class Collector:
    """What came, and to which path."""

    def __init__(self, status: int = 200) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.got: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
                collector.got.append(ExportTraceServiceRequest.FromString(data))
                collector.paths.append(self.path)
                collector.headers.append(dict(self.headers))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    Path("bad.py").write_text("import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(7)\ntime.sleep(600)\n")
    receiver = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    yield receiver
    receiver.close()


def ran_bad(**options: Any) -> tuple[holdfast.Report, str]:
    said = io.StringIO()
    with redirect_stderr(said):
        report = holdfast.run("bad.py", nproc_per_node=2, max_restarts=1, no_checks=True, **options)
    return report, said.getvalue()


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def test_a_job_is_one_trace_of_attempts_and_phases_with_deaths_and_decisions(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=ml")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    report, said = ran_bad(traces=True)
    assert "--traces" not in said
    [whole] = collector.got
    assert collector.paths == ["/v1/traces"] and collector.headers[0]["x-tenant"] == "ml"
    [of_resource] = whole.resource_spans
    about = plain(of_resource.resource.attributes)
    assert (about["service.name"], about["deployment.environment"]) == ("holdfast", "test")
    found = [span for scope in of_resource.scope_spans for span in scope.spans]
    assert len({span.trace_id for span in found}) == 1
    [job] = [span for span in found if not span.parent_span_id]
    attempts = [span for span in found if span.parent_span_id == job.span_id]
    assert job.name == "job bad" and [span.name for span in attempts] == ["attempt 1", "attempt 2"]
    facts = plain(job.attributes)
    assert facts["holdfast.job.id"] == report.job_id and facts["holdfast.phrase"] == report.phrase
    assert (facts["holdfast.outcome"], facts["holdfast.exit_code"]) == ("failed", report.code)
    records = report.to_dict()["attempts"]
    for span, record in zip(attempts, records, strict=True):
        phases = {each.name: each for each in found if each.parent_span_id == span.span_id}
        assert {"starting", "running", "draining"} <= set(phases)
        took_s = (phases["running"].end_time_unix_nano - phases["running"].start_time_unix_nano) / 1e9
        assert took_s == pytest.approx(record["parts"]["running"], abs=1e-3)
        events = {each.name: plain(each.attributes) for each in span.events}
        assert events["own death"]["holdfast.ranks"] == "1"
        assert events["decision"]["holdfast.decision"] == record["decision"]["kind"]
        for inner in [*phases.values(), *span.events]:
            at = getattr(inner, "start_time_unix_nano", 0) or inner.time_unix_nano
            assert span.start_time_unix_nano <= at <= span.end_time_unix_nano
        assert job.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= job.end_time_unix_nano
        assert span.status.code == 2 and report.phrase in span.status.message


def test_nothing_is_exported_unless_asked_for(collector: Collector) -> None:
    ran_bad()
    assert collector.got == []


def test_a_collector_that_refuses_is_one_line_and_the_exit_stays(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Collector(status=400)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.url)
    report, said = ran_bad(traces=True)
    refusing.close()
    assert report.code == 255 and len(refusing.got) == 1
    assert said.count("--traces: exit status 1: the collector did not take the trace; the job is not affected") == 1


def test_another_protocol_and_a_missing_extra_are_told(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert "only http/protobuf is spoken" in ran_bad(traces=True)[1]
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "opentelemetry.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "gone"))
    assert "pip install 'holdfast-run[otel]'" in ran_bad(traces=True)[1]
    assert collector.got == []
