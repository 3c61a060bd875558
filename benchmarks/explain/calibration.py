"""How often each confidence is right on the open texts.

    python benchmarks/explain/calibration.py            # the table
    python benchmarks/explain/calibration.py --write    # into docs/internals/explaining.md

The catalogue was written with these texts in view: with all its wordings nearly every answer is right, whatever its
confidence. So each text is also explained by a catalogue that lacks a fifth of the wordings, among them the one that
decided the text, as if nobody had seen it. Its column is what a confidence means: 0.8 is right 8 times of 10.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue, load
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence
from holdfast_testing.labelled_logs import CHECKOUT, evidence_of_case, evidence_of_record

DOCS = CHECKOUT / "docs" / "internals" / "explaining.md"
BEGIN, END = "<!-- calibration -->\n", "<!-- end of calibration -->"
FOLDS = 5
#: Fewer texts than this say nothing about a confidence.
FEW = 10

Text = tuple[str, AttemptEvidence, frozenset[str]]


def texts() -> Iterator[Text]:
    """Yield the id, the evidence and the right classes of each text that is open to all."""
    for path in sorted((Path(__file__).parent / "cases").glob("*.json")):
        case = json.loads(path.read_text())
        truth = case["truth"]
        yield path.stem, evidence_of_case(case), frozenset({truth["phrase"], *truth["also_right"]})
    for path in sorted((CHECKOUT / "tests" / "data").glob("explain_*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            right = frozenset({record["phrase"], *(record.get("also_right") or ())})
            yield f"{path.stem}/{record['id']}", evidence_of_record(record), right


def fold_of(wording: str) -> int:
    return zlib.crc32(wording.encode()) % FOLDS


def without(fold: int) -> Catalogue:
    """Return the built-in catalogue without the wordings of one fold."""
    return Catalogue(
        [replace(row, wordings=tuple(each for each in row.wordings if fold_of(each.id) != fold)) for row in load().rows]
    )


def measured(chosen: Sequence[Text]) -> tuple[Counter[float], Counter[float], Counter[float], Counter[float]]:
    """Return by confidence: the texts, those explained right, and both for the catalogues without a fold."""
    less = [without(fold) for fold in range(FOLDS)]
    all_of, right_of, blind, right_blind = Counter[float](), Counter[float](), Counter[float](), Counter[float]()
    for _, evidence, right in chosen:
        report = explain(evidence)
        if report.because.rule != "only_logs":
            continue  # where exits are known too, the confidence is about the rank that failed first
        all_of[report.confidence] += 1
        right_of[report.confidence] += report.phrase in right
        if report.because.wording:
            report = explain(evidence, less[fold_of(report.because.wording)])
            if report.because.rule != "only_logs":
                continue  # only the exit status is left, which the report states without a cause
        blind[report.confidence] += 1
        right_blind[report.confidence] += report.phrase in right
    return all_of, right_of, blind, right_blind


def table(chosen: Sequence[Text]) -> str:
    all_of, right_of, blind, right_blind = measured(chosen)
    lines = [
        "| confidence | right, with all wordings | right, without the wording that decided | share |",
        "| --- | --- | --- | --- |",
    ]
    for level in sorted({*all_of, *blind}, reverse=True):
        share = f"{right_blind[level] / blind[level]:.2f}" if blind[level] >= FEW else "(few)"
        known = f"{right_of[level]} of {all_of[level]}"
        lines.append(f"| {level:.2f} | {known} | {right_blind[level]} of {blind[level]} | {share} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    found = table(list(texts()))
    print(found)
    if "--write" in arguments:
        text = DOCS.read_text()
        DOCS.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{found}\n\n{END}", text, flags=re.S))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
