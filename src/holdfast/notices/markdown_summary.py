"""The program `python -m holdfast.notices.markdown_summary FILE` appends the report on standard input to FILE.

The summary is in Markdown.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from holdfast.safe_text import harmless
from holdfast.untrusted import json_value

_MOST_EVIDENCE = 10
_MOST_ATTEMPTS = 20
_MOST_LINE = 300


def main() -> int:
    """Append the summary of the report to FILE. Return the exit status, which is 0 if FILE was written."""
    whole = json_value(sys.stdin.buffer.read())
    data = markdown(whole["report"]).encode("utf-8", "replace")
    try:
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: not written: {error.strerror}\n")
        return 1
    return 0


def markdown(report: dict[str, Any]) -> str:
    """Return a job's report (`holdfast.report/1`) as Markdown.

    Texts from users and programs are escaped for Markdown and HTML.
    """
    job = report["job"]
    lines = [f"## {_word(str(report['outcome']).upper())}: {_word(str(job['name']))}", "", "| | |", "|---|---|"]
    rows = [("job", job["id"]), ("class", f"{report['phrase']} (exit code {report['code']})")]
    if report["code"]:
        rows += [("blame", report["blame"]), ("reason", report["reason"]), ("what to do", report["solution"])]
    if first := report.get("first"):
        rows.append(("rank", f"{first['rank']} on {first['node']}" if first["node"] else str(first["rank"])))
    attempts = report.get("attempts") or []
    if report["code"] and attempts:
        rows.append(("decision", _decided(attempts[-1])))
    lines += [f"| {name} | {_word(str(text))} |" for name, text in rows]
    if report["code"] and (evidence := report.get("evidence")):
        lines += ["", *_fenced([str(item["text"]) for item in evidence[:_MOST_EVIDENCE]])]
    if len(attempts) > 1:
        lines += ["", "| attempt | class | decision |", "|---|---|---|"]
        for record in attempts[-_MOST_ATTEMPTS:]:
            phrase = _word(str(record["report"]["phrase"]))
            lines.append(f"| {record['attempt']} | {phrase} | {_word(_decided(record))} |")
    return "\n".join(["", *lines, "", f"`holdfast show {job['id']}`", ""])


def _decided(attempt: dict[str, Any]) -> str:
    return f"{attempt['decision']['kind']}: {attempt['decision']['reason']}"


def _word(text: str) -> str:
    """Escape the text for a table cell."""
    text = " ".join(harmless(text).split())
    for letter, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, instead)
    return "".join(f"\\{letter}" if letter in "\\`*_[]|~#!@$" else letter for letter in text)


def _fenced(texts: list[str]) -> list[str]:
    lines = [line[:_MOST_LINE] for text in texts for line in harmless(text).splitlines()]
    fence = "```"
    while any(fence in line for line in lines):
        fence += "`"
    return [f"{fence}text", *lines, fence]


if __name__ == "__main__":
    sys.exit(main())
