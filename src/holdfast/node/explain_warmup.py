"""Loads the code that explains failures while a job runs well. A restart then needs no time for imports.

Explaining needs a catalogue, its patterns and re2. Loading them takes a tenth of a second, and a successful job never
needs them. When a gang has run for a moment, the supervisor is idle. It then imports them in small steps, one per pass
of the loop, so an event waits for at most one step.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator

from holdfast.explain import explain, first_hand, read_workers
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.node import rare_parts
from holdfast.observe.step_counter import counts_in

#: Seconds that a gang must have run before the first import step. Imports must not delay the gang's start.
AFTER_S = 0.5

#: The modules that explain a failure. Each comes after the modules that it imports, so that each step is short.
_PARTS = (
    "holdfast.node.evidence_collector", "holdfast.record.report_file", "hashlib",
    "json", "re2",
    "holdfast.catalogue.pattern_atoms", "holdfast.catalogue.exit_rows", "holdfast.catalogue.fault_codes",
    "holdfast.explain.logs.log_lines", "holdfast.explain.logs.tracebacks",
    "holdfast.explain.logs.signal_sentences", "holdfast.explain.logs.launcher_notes",
    "holdfast.explain.logs.row_matcher",
    "holdfast.explain.logs.clue_ranking", "holdfast.explain.logs.job_flow", "holdfast.explain.logs.line_roles",
    "holdfast.explain.logs.line_reader", "holdfast.explain.logs.orderly_ends", "holdfast.explain.logs.log_reader",
    "holdfast.observe.step_counter",
    "holdfast.explain.causes.fingerprint", "holdfast.explain.causes.diagnosis",
    "holdfast.explain.causes.attribution", "holdfast.explain.causes.device_fault_cause",
    "holdfast.explain.causes.requested_stops",
    "holdfast.explain.causes.worker_cause",
    "holdfast.explain.causes.system_cause", "holdfast.explain.openpai_rows",
    "holdfast.explain.explanation_rules", "holdfast.explain.log_selection",
    "holdfast.explain.funnel", "holdfast.explain.funnel", "holdfast.explain.node_reader",
    "holdfast.explain.node_reader", "holdfast.explain.logs.log_scanner",
    "holdfast.explain.row_lint", "holdfast.node.explain_files",
    "holdfast.observe.checks.port_holder", "holdfast.observe.full_disks",
    "holdfast.node.missing_resources", "holdfast.node.report_writer",
    "holdfast.explain.openpai_exit_file", "holdfast.report.text_report", "holdfast.report.failure_place",
    "holdfast.report.brief_report",
)  # fmt: skip

_WORDS = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
    main()
RuntimeError: [pair.cc:525] Connection closed by peer [127.0.0.1]:33333
"""


class ExplainWarmup:
    """Imports the modules in steps. `idle()`: returns whether all workers are up, so that the supervisor has little to
    do.

    `first(now)`: yields steps before the imports, for work that a job needs soon but not at its start. `say`: prints a
    message.
    """

    def __init__(
        self, idle: Callable[[], bool], first: Callable[[float], Iterator[object]], say: Callable[[str], None]
    ) -> None:
        self._idle = idle
        self._first = first
        self._say = say
        self._now = 0.0
        self._steps: Iterator[object] | None = self._all_steps()
        self._due: float | None = None

    def begin(self, now: float) -> None:
        """Schedule the first import step, because all workers are up."""
        if self._steps is not None:
            self._due = now + AFTER_S

    def next_wake(self) -> float | None:
        return self._due

    def tick(self, now: float) -> None:
        if self._steps is None or not self._idle():
            self._due = None
            return
        self._now = now
        try:
            next(self._steps)
            self._due = now
        except StopIteration:
            self._over()
        except Exception as error:  # catch every exception, because a failed import must not end the job
            self._say(f"a bug of holdfast, met while nothing was wrong: {type(error).__name__}: {error}")
            self._over()

    def _all_steps(self) -> Iterator[object]:
        yield from self._first(self._now)
        yield from _steps()

    def _over(self) -> None:
        self._steps = self._due = None
        gc.freeze()


def _steps() -> Iterator[object]:
    for part in _PARTS:
        yield importlib.import_module(part)
    yield counts_in(
        "Train: 1 [ 5/10]\nEpoch 1: step 5\n 50%|#####     | 5/10 [00:01\n5it [00:01\n5/10 [==>..]\n━━━━ 5/10\n"
    )
    yield rare_parts.row_matcher.built_in()
    killed = WorkerExit(role="worker", rank=1, node="here", attempt=1, signal=9, started_at=0.0, ended_at=1.0)
    fallen = WorkerExit(role="worker", rank=0, node="here", attempt=1, exit_code=1, last_words=_WORDS, ended_at=1.0)
    yield first_hand(fallen)
    yield explain(AttemptEvidence(workers=(WorkerEvidence(rank=1, exit=killed),)))
    told = WorkerEvidence(rank=0, exit=fallen, stderr=LogExcerpt(source="worker-0 stderr", text=_WORDS))
    evidence = AttemptEvidence(workers=(told,))
    read = read_workers(evidence)
    yield read
    report = explain(read)
    yield report
    yield rare_parts.openpai_exit_file.agg_error_file(report, evidence)
