"""Rules, alerts and dashboard of contrib/, in a real Prometheus that scrapes what real runs have written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Holdfast, free_port
from holdfast.metrics.metric_table import METRICS, MetricKind
from places import ROOT

CONTRIB = ROOT / "contrib"
RULES_FILE = CONTRIB / "prometheus" / "holdfast.rules.yml"
DASHBOARD = CONTRIB / "grafana" / "holdfast.json"
SCRAPE_WAIT_S = 60.0
SERIES = {
    f"{metric.name}{end}"
    for metric in METRICS
    for end in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
}
FAILS_FIRST = """
import os
from holdfast.worker import progress
for step in range(3):
    progress(step)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    raise ValueError("no such shard: 17")
"""
WORKS_ON = """
import itertools, os, time
from holdfast.worker import progress
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    raise ValueError("no such shard: 18")
for step in itertools.count():
    progress(step)
    if step == 1:
        print("works", flush=True)
    time.sleep(0.05)
"""
#: Expressions that have no result here, each with the reason.
MAY_BE_EMPTY = {
    "holdfast_check_up == 0": "every check of the runs passes",
    "holdfast:ettr:ratio_1w": "it takes a series that rises while it is scraped",
}


def alerts_and_records() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = [
        rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
    ]
    return rules


def panels() -> list[tuple[str, str]]:
    """Title and expression, with Grafana's variables as Grafana would fill them in."""
    return [
        (panel["title"], target["expr"].replace("$job", ".*").replace("$__rate_interval", "1m"))
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]


class Prometheus:
    """A real one, which scrapes the file that `python -m holdfast.metrics` writes."""

    def __init__(self, place: Path, target: int) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES_FILE)],
            "scrape_configs": [
                {"job_name": "node", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
            ],
        }
        (place / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.log = place / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={place / 'prometheus.yml'}",
                    f"--storage.tsdb.path={place / 'tsdb'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=90) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def values(self, expression: str) -> list[Any]:
        result: list[Any] = self.get("query", query=expression)["result"]
        return result

    def until(self, what: Callable[[], Any]) -> Any:
        """What it answers as soon as that is something."""
        ends = time.monotonic() + SCRAPE_WAIT_S
        while time.monotonic() < ends:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if found := what():
                    return found
            except OSError:
                pass  # it is not up yet
            time.sleep(0.1)
        raise AssertionError(f"not within {SCRAPE_WAIT_S:g} s; Prometheus said:\n{self.log.read_text()[-3000:]}")


@pytest.fixture
def scraped(holdfast: Holdfast, tmp_path: Path) -> Iterator[Prometheus]:
    """One job that restarted and succeeded, one that failed, one that has spent its budget and works; a fault."""
    assert holdfast("run", "--nproc-per-node", "2", "--name", "one", holdfast.script(FAILS_FIRST)).status == 0
    assert (
        holdfast("run", "--nproc-per-node", "2", "--max-restarts", "0", holdfast.script(FAILS_FIRST, "two.py")).status
        != 0
    )
    assert holdfast("faults", "report", "--device", "gpu3", "--code", "79").status == 0
    works = holdfast.start("run", "--nproc-per-node", "2", "--max-restarts", "1", holdfast.script(WORKS_ON, "three.py"))
    assert works.stdout is not None
    while works.stdout.readline() != "[worker-0] works\n":
        assert works.poll() is None, works.communicate()
    file = tmp_path / "holdfast.prom"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            subprocess.run([sys.executable, "-m", "holdfast.metrics", str(holdfast.home), str(file)], check=True)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(file.read_bytes())

        def log_message(self, *_: object) -> None:
            """The test's output stays what the test says."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    prometheus = Prometheus(tmp_path, server.server_port)
    try:
        yield prometheus
    finally:
        prometheus.process.terminate()
        prometheus.process.wait()
        server.shutdown()
        server.server_close()
        works.send_signal(signal.SIGTERM)
        holdfast.finish(works)


def test_rules_and_alerts_are_what_promtool_takes_and_fire_when_they_should() -> None:
    for words in (["check", "rules", "--lint-fatal", RULES_FILE.name], ["test", "rules", "holdfast.tests.yml"]):
        env = {**os.environ, "GOGC": "off", "GOMAXPROCS": "1"}  # it ends before there is much to collect
        done = subprocess.run(
            ["promtool", *words], cwd=RULES_FILE.parent, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_of_its_own() -> None:
    tested = (RULES_FILE.parent / "holdfast.tests.yml").read_text()
    assert [rule["alert"] for rule in alerts_and_records() if "alert" in rule and rule["alert"] not in tested] == []


def test_dashboard_and_rules_ask_for_series_that_there_are() -> None:
    records = {rule["record"] for rule in alerts_and_records() if "record" in rule}
    asked = {
        name
        for text in (*(rule["expr"] for rule in alerts_and_records()), *(expression for _, expression in panels()))
        for name in re.findall(r"holdfast[_:][a-z_:0-9]+", text)
    }
    assert asked - SERIES - records == set()


@pytest.mark.real
def test_every_expression_has_a_result_in_a_prometheus_that_scrapes_real_runs(scraped: Prometheus) -> None:
    scraped.until(lambda: scraped.values('holdfast_restart_budget_remaining{job="three", budget="user"} == 0'))
    # Two scrapes further there are rates, too.
    scraped.until(lambda: scraped.values('deriv(holdfast_step{job="three"}[1m]) > 0'))
    scraped.until(lambda: scraped.values("holdfast:step_duration:seconds"))
    scraped.until(lambda: scraped.values("increase(holdfast_restarts_total[1m]) >= 0"))
    records = [(rule["record"], rule["record"]) for rule in alerts_and_records() if "record" in rule]
    asked = [(title, expression) for title, expression in [*panels(), *records] if expression not in MAY_BE_EMPTY]

    def empty() -> dict[str, str]:
        return {title: expression for title, expression in asked if not scraped.values(expression)}

    # A scrape that takes longer than its time-out leaves everything without a value until the next one.
    scraped.until(lambda: empty() == {})
    rules = [rule for group in scraped.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(alerts_and_records())
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}

    def firing() -> dict[str, str]:
        labels = [alert["labels"] for alert in scraped.get("alerts")["alerts"]]
        return {each["alertname"]: each.get("job", "") for each in labels}

    due = {"HoldfastRestartBudgetSpent": "three", "HoldfastJobFailed": "two"}
    scraped.until(lambda: due.keys() <= firing().keys())
    assert due.items() <= firing().items()
    assert "HoldfastNoProgress" not in firing() and "HoldfastCheckFails" not in firing()
    # What a label is called here is what it is called there.
    for series, jobs in (("holdfast_jobs_ended_total", {"one", "two"}), ("holdfast_build_info", {"node"})):
        found = scraped.until(partial(scraped.values, series))
        assert {each["metric"]["job"] for each in found} == jobs
    assert "HoldfastLabelsRenamed" not in firing()
    [held] = scraped.until(lambda: scraped.values('holdfast_device_standing{device="gpu3"} == 1'))
    assert held["metric"]["standing"] == "ISOLATED"
