"""The catalogue's loader, its stored copy, and `holdfast exits` with rows of a user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from catalogue_builders import broken_rules
from click.testing import CliRunner, Result

from holdfast.catalogue import exit_rows
from holdfast.catalogue.pattern_atoms import atoms
from holdfast.cli.exits import command
from holdfast.cli.explain import command as explain_command
from holdfast.errors import BadUsage
from holdfast.explain.logs.row_matcher import Matcher, built_in
from holdfast.explain.row_lint import Grade, lint

LICENCE_ROW = """
- phrase: LicenceServerDown
  code: 195
  blame: external
  rerun: later
  what: the licence server did not answer
  reason: "{who}: the licence server {server} did not answer"
  solution: "Ask the tools team."
  wordings:
    - id: licence-down
      pattern: 'licence server (?P<server>[\\w.]+) (?:down|silent)'
      samples: ["fatal: licence server lic1 down"]
"""


def exits_command(*args: str) -> Result:
    return CliRunner().invoke(command, list(args))


def test_rows_that_are_not_stored_or_are_older_than_their_files_load_from_the_yaml_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rows.json").write_bytes(exit_rows.snapshot().replace(b'"key":"', b'"key":"old-', 1))
    for place in (tmp_path / "none.json", tmp_path / "rows.json"):
        monkeypatch.setattr(
            exit_rows, "_stored_places", lambda key, place=place: [place, tmp_path / "h" / f"{key}.json"]
        )
        exit_rows.load.cache_clear()
        assert exit_rows.load().rows == tuple(exit_rows.stored(row) for row in exit_rows.read_rows())
    exit_rows.load.cache_clear()


def test_a_read_only_home_costs_speed_not_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(exit_rows, "_read_stored", lambda place, key: ())
    exit_rows.load.cache_clear()
    assert len(exit_rows.load().rows) == len(exit_rows.read_rows())
    exit_rows.load.cache_clear()


def test_rows_are_stored_where_they_can_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = [exit_rows.stored(row) for row in exit_rows.parse_rows(LICENCE_ROW)]
    place = exit_rows._stored_places("k")[-1]
    exit_rows._store(place, "k", rows)
    assert exit_rows._read_stored(place, "k") == tuple(rows)
    assert exit_rows._read_stored(place, "other") == ()
    place.write_bytes(b"broken")
    assert exit_rows._read_stored(place, "k") == ()


def test_atoms_are_in_every_sample() -> None:
    for row in exit_rows.read_rows():
        for wording in row.wordings:
            found = atoms(wording.pattern)
            matcher = Matcher(exit_rows.Catalogue(()))
            for sample in wording.samples:
                lines = [line for line in sample.split("\n") if matcher.has(wording.pattern, [line])]
                assert not found or all(any(atom in line.lower() for atom in found) for line in lines), wording.id


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("CUDA out of memory", ("cuda out of memory",)),
        (r"(?:abc|def)x+ghijk\d", ("ghijk",)),
        (r"foo|barbaz", ("barbaz", "foo")),
        (r"\d+", ()),
        (r"(?:a|bc)?", ()),
        (r'"reason": "OOMKilled"', ("oomkilled",)),
    ],
)
def test_atoms(pattern: str, found: tuple[str, ...]) -> None:
    assert atoms(pattern) == found


def test_list_code_phrase_and_search() -> None:
    everything = json.loads(exits_command("--json").stdout)
    assert everything["schema"] == "holdfast.exits/1"
    assert len(everything["exits"]) == len(exit_rows.load().rows)
    (one,) = json.loads(exits_command("HostOutOfMemoryKilled", "--json").stdout)["exits"]
    assert one["phrase"] == "HostOutOfMemoryKilled"
    assert all(row["code"] == 226 for row in json.loads(exits_command("226", "--json").stdout)["exits"])
    assert "ModuleNotFound" in exits_command("module").stdout
    assert "solution" in exits_command("ModuleNotFound").stdout


def test_an_unknown_exit_is_bad_usage_with_a_near_one() -> None:
    result = exits_command("ModuleNotFnd")
    assert isinstance(result.exception, BadUsage)
    assert "ModuleNotFound" in result.exception.hint


def test_a_users_rows_come_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(LICENCE_ROW)
    text = "Traceback (most recent call last):\nRuntimeError: licence server lic7 silent\n"
    result = CliRunner().invoke(explain_command, ["--json", "--exits", str(file), "-"], input=text)
    report = json.loads(result.stdout)
    assert (report["phrase"], report["code"], report["blame"]) == ("LicenceServerDown", 195, "external")
    assert "lic7" in report["reason"]
    assert "LicenceServerDown" in exits_command("--exits", str(file), "LicenceServerDown").stdout


def test_a_broken_row_is_skipped_and_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    worse = (
        LICENCE_ROW.replace("LicenceServerDown", "Worse")
        .replace("licence-down", "w")
        .replace("licence server", "a(?=b)")
    )
    file.write_text(f"{LICENCE_ROW}- phrase: Bad\n  code: x\n{worse}")
    result = CliRunner().invoke(explain_command, ["--exits", str(file), "-"], input="licence server a down\n")
    assert result.exit_code == 0
    assert "LicenceServerDown" in result.stdout
    assert "row 2 (Bad) is skipped" in result.stderr
    assert "wording w is skipped" in result.stderr
    assert "re2" in result.stderr


def test_openpai_rows_by_openpais_rules(tmp_path: Path) -> None:
    spec = [
        {"code": 221, "phrase": "First", "type": "USER_FAILURE", "behavior": "PERMANENT", "solution": ["a", "b"],
         "pattern": {"runtimeContainerPatterns": [
             {"exitCode": 7, "userLogRegex": "(?i)never here"}, {"userLogRegex": "needle (\\d+)"}]}},
        {"code": 222, "phrase": "Second", "type": "PLATFORM_FAILURE", "behavior": "TRANSIENT",
         "pattern": {"runtimeContainerPatterns": [{"userLogRegex": "needle"}]}},
        {"code": 223, "phrase": "ByCode", "type": "UNKNOWN_FAILURE", "reaction": "ALWAYS_BACKOFF_RETRY",
         "pattern": {"runtimeContainerPatterns": [{"exitCode": 9}]}},
    ]  # fmt: skip
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"spec": spec}))

    def asked(text: str, *args: str) -> dict[str, Any]:
        result = CliRunner().invoke(explain_command, ["--json", "--exits", str(file), "-", *args], input=text)
        assert result.exit_code == 0, result.output
        loaded: dict[str, Any] = json.loads(result.stdout)
        return loaded

    first = asked("a needle 7 here\n")
    assert (first["code"], first["phrase"], first["blame"], first["rerun"]) == (236, "First", "workload", "never")
    assert any("exit code 221" in item["text"] for item in first["evidence"]), "their number is evidence, no status"
    assert first["solution"] == "a b"
    assert asked("a needle here\n")["phrase"] == "Second", "all fields of a pattern, any pattern of a row"
    by_code = asked("nothing\n", "--exit-code", "9")
    assert (by_code["phrase"], by_code["rerun"]) == ("ByCode", "later")
    steps = "".join(f"step {number} loss 2.3\n" for number in range(50))
    assert asked(f"a needle 7 here\n{steps}KeyError: 'x'\n")["phrase"] == "UserException", "it was lived through"


def test_lint_finds_nothing_in_good_rows(tmp_path: Path) -> None:
    assert lint(LICENCE_ROW, "mine.yaml") == []
    file = tmp_path / "mine.yaml"
    file.write_text(LICENCE_ROW)
    assert exits_command("lint", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("licence server (?P<server>[\\w.]+) (?:down|silent)", "a(?=b)"), "bad-regex"),
        (("licence server (?P<server>[\\w.]+) (?:down|silent)", "(?:x)?"), "matches-everything"),
        (("licence server (?P<server>[\\w.]+) (?:down|silent)", ".+"), "matches-everything"),
        (("licence server (?P<server>[\\w.]+) (?:down|silent)", "down$x"), "matches-nothing"),
        (("licence server (?P<server>[\\w.]+) (?:down|silent)", "one\\ntwo"), "matches-nothing"),
        (('samples: ["fatal: licence server lic1 down"]', "samples: []"), "missing-sample"),
        (("lic1 down", "lic1 up"), "sample-differs"),
        (
            (
                "fatal: licence server lic1 down",
                "licence server lic1 down CUDA out of memory. Tried to allocate 1.00 GiB",
            ),
            "",
        ),
        (("code: 195", "code: many"), "bad-row"),
        (("  what:", "  waht: x\n  what:"), "unknown-key"),
        (("      samples", "      strength: advice\n      samples"), "advice-alone"),
    ],
)
def test_lint(change: tuple[str, str], rule: str) -> None:
    assert change[0] in LICENCE_ROW
    found = broken_rules(LICENCE_ROW.replace(*change))
    assert (rule in found) if rule else not found


def test_lint_duplicates_and_shadows() -> None:
    assert {"duplicate-phrase", "duplicate-id"} <= broken_rules(LICENCE_ROW + LICENCE_ROW)
    later = (
        LICENCE_ROW.replace("LicenceServerDown", "Other")
        .replace("licence-down", "other")
        .replace("rerun: later", "rerun: now")
    )
    assert "shadowed" in broken_rules(LICENCE_ROW + later)


def test_lint_of_openpais_schema() -> None:
    spec = """
- {code: 1, phrase: A, type: USER_FAILURE, pattern: {runtimeContainerPatterns: [{userLogRegex: '(?i)error (2) : out'}]}}
- {code: 2, phrase: B, type: USER_FAILURE, pattern: {runtimeContainerPatterns: [{userLogRegex: '(?i)boom'}]}}
- {code: 3, phrase: C, type: USER_FAILURE, pattern: {runtimeContainerPatterns: [{userLogRegex: 'a boom b'}]}}
- {code: 4, phrase: D, type: USER_FAILURE, pattern: {runtimeContainerPatterns: [{userLogRegex: 'a(?!b)'}]}}
- {code: 5, phrase: E, type: USER_FAILURE, pattern: {runtimeContainerPatterns: [{}]}}
- {code: x, phrase: F, type: USER_FAILURE}
"""
    problems = lint(spec, "spec.yaml")
    found = {(problem.where.split(",")[0], problem.rule) for problem in problems}
    assert ("row 1 (A)", "matches-nothing") in found
    assert ("row 3 (C)", "shadowed") in found
    assert ("row 4 (D)", "bad-regex") in found
    assert ("row 5 (E)", "matches-everything") in found
    assert ("row 6 (F)", "bad-row") in found
    assert not any(where == "row 2 (B)" for where, _ in found)


@pytest.mark.parametrize("text", ["{", "just words", "- - -\n: :", "\x00", "5"])
def test_lint_of_no_rows_at_all(text: str, tmp_path: Path) -> None:
    problems = lint(text, "mine.yaml")
    assert problems
    assert problems[0].grade is Grade.ERROR
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    assert exits_command("lint", str(file)).exit_code == 2


def test_lint_json(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(LICENCE_ROW.replace("code: 195", "code: x"))
    result = exits_command("lint", str(file), "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"][0]["rule"] == "bad-row"


def test_lint_of_a_missing_file_is_bad_usage() -> None:
    assert isinstance(exits_command("lint", "/no/such.yaml").exception, BadUsage)


def test_ruling_out_by_atoms_loses_no_wording() -> None:
    lines = [w.samples[0].split("\n")[-1] for row in exit_rows.read_rows() for w in row.wordings[:1]]
    matcher = built_in()
    for line in lines:
        every = [w.id for _, w in matcher.catalogue.wordings if matcher.has(w.pattern, [line])]
        assert [hit.wording.id for hit in matcher.line(line)] == every
