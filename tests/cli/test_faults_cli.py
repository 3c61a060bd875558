"""`holdfast faults`, `devices` and `release`, as scripts use them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import cli
from holdfast.errors import BadUsage

HOLD_RULES = """
codes: {"79": RESTART_WORKERS}
frequency: [{codes: ["79"], times: 2, window_s: 3600, remedy: HOLD}]
"""


class Tool:
    """`holdfast` in this process, with a state directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *args: str, **env: str) -> Result:
        variables = {"HOLDFAST_HOME": str(self.home), "HOLDFAST_FAULT_CODES": "", "HOLDFAST_FAULT_RULES": "", **env}
        return CliRunner().invoke(cli, args, env=variables)

    def devices(self, *args: str, **env: str) -> dict[str, dict[str, object]]:
        out = json.loads(self("devices", "--json", *args, **env).stdout)
        assert set(out) == {"schema", "devices"}
        return {entry["device"]: entry for entry in out["devices"]}


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path / "home")


def test_a_fault_reported_thrice_holds_until_a_person_releases(tool: Tool) -> None:
    for expected in ("SUSPECT", "SUSPECT", "HELD"):
        result = tool("faults", "report", "--device", "npu0", "--code", "80E18005", "--once", "--node", "n1")
        assert (result.exit_code, f"npu0: {expected}" in result.stdout) == (0, True), result.output
    entry = tool.devices()["npu0"]
    assert list(entry) == ["device", "node", "standing", "codes", "since", "reason"]
    assert (entry["node"], entry["standing"], entry["codes"]) == ("n1", "HELD", ["80E18005"])
    assert isinstance(entry["since"], float)
    shown = tool("devices").stdout
    assert "HELD" in shown
    assert "holdfast release npu0" in shown
    result = tool("release", "npu0", "--reason", "memory replaced")
    assert (result.exit_code, "HELD → " in result.stdout) == (0, True)
    assert tool.devices()["npu0"]["standing"] == "HEALTHY", "what the last event still showed is gone with the hold"
    result = tool("faults", "report", "--device", "npu0", "--code", "80E18005", "--once")
    assert "HELD" not in result.stdout, "counting began again from zero"


def test_the_release_of_a_moment_says_that_nothing_lasts(tool: Tool) -> None:
    (tool.home.parent / "rules.yaml").write_text("frequency: [{codes: ['48'], times: 1, window_s: 60, remedy: HOLD}]\n")
    rules = ("--rules", str(tool.home.parent / "rules.yaml"))
    tool("faults", "report", "--device", "gpu0", "--code", "48", "--once", *rules)
    result = tool("release", "gpu0", "--reason", "swapped", *rules)
    assert "gpu0: HELD → HEALTHY" in result.stdout
    assert "not over" not in result.stdout
    assert "momentary" in result.stdout
    assert tool.devices()["gpu0"]["standing"] == "HEALTHY", "the list says what the release said"
    tool("faults", "report", "--device", "gpu0", "--code", "48", "--once", "--at", str(time.time() + 0.5), *rules)
    assert tool.devices()["gpu0"]["standing"] == "HELD", "a release ends what was, and not what comes"


def test_the_release_of_what_was_not_held_says_what_it_does(tool: Tool) -> None:
    now = time.time()
    tool("faults", "report", "--device", "gpu0", "--code", "48", "--at", str(now - 60))
    tool("faults", "report", "--device", "gpu0", "--code", "48", "--recover", "--at", str(now - 30))
    result = tool("release", "gpu0", "--reason", "looked at")
    assert "was not HELD; its counting begins again from zero" in result.stdout
    tool("faults", "report", "--device", "gpu1", "--code", "79")
    result = tool("release", "gpu1", "--reason", "hope")
    assert "gpu1: ISOLATED → ISOLATED" in result.stdout
    assert "its fault is not over" in result.stdout


def test_whoever_only_reports_does_not_change_the_rules(tool: Tool) -> None:
    """A run has rules of its own; a report from another terminal names none."""
    (tool.home.parent / "rules.yaml").write_text(
        "codes: {'48': WATCH}\nfrequency: [{codes: ['48'], times: 2, window_s: 600, remedy: AVOID}]\n"
    )
    rules = ("--codes", str(tool.home.parent / "rules.yaml"), "--rules", str(tool.home.parent / "rules.yaml"))
    tool("faults", "report", "--device", "gpu0", "--code", "48", *rules)
    result = tool("faults", "report", "--device", "gpu1", "--code", "48")
    assert "asks for WATCH" in result.stdout
    assert "gpu1: HEALTHY" in result.stdout
    assert "before AVOID" in tool("devices").stdout
    tool("release", "gpu1", "--reason", "looked at")
    result = tool("faults", "report", "--device", "gpu0", "--code", "48", "--once")
    assert "2 times within 10 min, so AVOID" in result.stdout, "what was counted is still there"
    (tool.home.parent / "none.yaml").write_text("codes: {'48': RESET_NOW}\n")
    result = tool("devices", "--rules", str(tool.home.parent / "none.yaml"))
    assert "AVOID" not in result.stdout, "named rules judge"


def test_occur_and_recover(tool: Tool) -> None:
    tool("faults", "report", "--device", "gpu3", "--code", "79")
    entry = tool.devices()["gpu3"]
    assert (entry["standing"], entry["codes"]) == ("ISOLATED", ["79"])
    assert "fallen off the bus" in str(entry["reason"])
    assert "gpu3: ISOLATED → ISOLATED" in tool("release", "gpu3", "--reason", "x").stdout, "the fault itself goes on"
    assert "gpu3 is ISOLATED, not HELD: " in tool("release", "gpu3", "--reason", "x").stdout
    tool("faults", "report", "--device", "gpu3", "--code", "79", "--recover")
    entry = tool.devices()["gpu3"]
    assert (entry["standing"], entry["codes"], entry["since"]) == ("HEALTHY", [], None)
    assert "nothing to release" in tool("release", "gpu3", "--reason", "x").stdout


def test_unknown_codes_go_by_severity(tool: Tool) -> None:
    for device, severity in (("npu0", "minor"), ("npu1", "critical")):
        tool("faults", "report", "--device", device, "--code", "80FFFFF1", "--severity", severity)
    found = tool.devices()
    assert (found["npu0"]["standing"], found["npu1"]["standing"]) == ("HEALTHY", "ISOLATED")


def test_options_settings_and_what_they_rule(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(HOLD_RULES)
    rules = str(tmp_path / "faults.yaml")
    for _ in range(2):
        tool("faults", "report", "--device", "gpu0", "--code", "79", "--once", "--fault-rules", rules)
    assert tool.devices()["gpu0"]["standing"] == "HELD", "a hold stays under other rules"
    for _ in range(2):
        tool("faults", "report", "--device", "gpu1", "--code", "79", "--once", HOLDFAST_FAULT_CODES=rules)
    assert tool.devices(HOLDFAST_FAULT_CODES=rules)["gpu1"]["standing"] == "HELD"
    (tool.home / "config.yaml").write_text(f"fault-codes: {rules}\n")
    listed = json.loads(tool("faults", "list", "--json").stdout)["codes"]
    (row,) = [row for row in listed if row["code"] == "79"]
    assert (row["remedy"], row["level"], row["frequency"]["times"]) == ("RESTART_WORKERS", "RestartBusiness", 2)
    assert row["frequency"]["remedy"] == "HOLD"
    assert (
        "79                   RESTART_WORKERS   GPU has fallen off the bus  [2 in 3600 s: HOLD]"
        in tool("faults", "list").stdout.splitlines()
    )


def test_a_broken_rule_file_is_loud_and_not_fatal(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text("{")
    result = tool("devices", "--json", "--fault-rules", str(tmp_path / "rules.json"))
    assert (result.exit_code, "IS NOT USED" in result.stderr) == (0, True)
    assert json.loads(result.stdout) == {"schema": "holdfast.devices/1", "devices": []}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("faults", "report", "--device", "a b", "--code", "79"), "device's name"),
        (("faults", "report", "--device", "gpu0", "--code", "7 9"), "fault code"),
        (("faults", "report", "--device", "gpu0", "--code", "79", "--at", "5"), "days old"),
        (("faults", "report", "--device", "gpu0", "--code", "79", "--at", "9e9"), "future"),
        (("faults", "report", "--device", "gpu0", "--code", "79", "--at", "nan"), "not a number"),
        (("faults", "report", "--device", "gpu0", "--code", "79", "--once", "--recover"), "--recover and --once were"),
        (("release", "gpu9", "--reason", "x"), "gpu9"),
        (("release", "gpu9", "--reason", "  "), "--reason"),
        (("faults", "replay", "nowhere.json"), "no such file"),
        (("faults", "lint", "nowhere.json"), "no such file"),
        (("devices", "--fault-codes", "nowhere.json"), "no such file"),
    ],
)
def test_bad_usage(tool: Tool, args: tuple[str, ...], words: str) -> None:
    tool.home.mkdir()
    result = tool(*args)
    assert isinstance(result.exception, BadUsage), result.output
    assert words in str(result.exception)
    assert tool.devices() == {}


@pytest.mark.parametrize("args", [("faults", "report"), ("release", "gpu0"), ("faults", "report", "--severity", "bad")])
def test_missing_words_are_click_errors(tool: Tool, args: tuple[str, ...]) -> None:
    assert tool(*args).exit_code == 2


def test_a_dry_run_judges_and_notes_nothing(tool: Tool) -> None:
    result = tool("faults", "report", "--device", "gpu0", "--code", "79", "--dry-run")
    assert "would be: Xid 79" in result.stdout
    assert "ISOLATED" in result.stdout
    assert tool.devices() == {}


def test_lint_has_its_status(tool: Tool, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.json"
    good.write_text(HOLD_RULES)
    bad.write_text(
        '{"FaultDuration": [{"EventId": ["80E18005"], "FaultTimeout": 601, "FaultHandling": "SeparateNPU"}]}'
    )
    result = tool("faults", "lint", str(good))
    assert (result.exit_code, "all of it is used" in result.stdout) == (0, True)
    result = tool("faults", "lint", str(good), str(bad))
    assert result.exit_code == 1
    assert "FaultDuration[0]: 80E18005: FaultTimeout 601 is not 0 to 600 seconds" in result.stdout


def test_replay_of_a_case_prints_one_object_a_check(tool: Tool, tmp_path: Path) -> None:
    case = {
        "id": "x",
        "config": {"faultCode": "default", "faultCustomization_raw": "{"},
        "timeline": [{"t": 1, "op": "event", "device": 0, "code": "80E3A201", "assertion": "occur"}],
        "checks": [{"t": 0, "device": 0}, {"t": 2, "device": 0, "expect": {"level": "SeparateNPU"}}],
    }
    (tmp_path / "case.json").write_text(json.dumps(case))
    result = tool("faults", "replay", str(tmp_path / "case.json"))
    before, after = (json.loads(line) for line in result.stdout.splitlines())
    assert (before["level"], after["level"], after["health"]) == ("NormalNPU", "SeparateNPU", "Unhealthy")
    assert after["config"]["FaultFrequency.80E18005.Times"] == 3
    assert "default configuration applies" in result.stderr
    (tmp_path / "cases.json").write_text(json.dumps([case, case]))
    lines = tool("faults", "replay", str(tmp_path / "cases.json")).stdout.splitlines()
    assert [json.loads(line)["case"] for line in lines] == ["x"] * 4
    (tmp_path / "case.json").write_text('{"timeline": [{"op": "event"}], "checks": [{"t": 1, "device": 0}]}')
    assert isinstance(tool("faults", "replay", str(tmp_path / "case.json")).exception, BadUsage)


def test_replay_of_events_prints_the_timeline(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(HOLD_RULES)
    lines = [{"at": 1000 + n, "device": "gpu0", "code": "79", "assertion": "once"} for n in range(2)]
    text = "\n".join([*map(json.dumps, lines), "rubbish", '{"at": 1}', json.dumps({**lines[0], "device": "a b"})])
    (tmp_path / "events.jsonl").write_text(text)
    args = ("faults", "replay", str(tmp_path / "events.jsonl"), "--codes", str(tmp_path / "faults.yaml"))
    result = tool(*args)
    assert "healthy → RESTART_WORKERS" in result.stdout
    assert "healthy → HOLD" in result.stdout
    assert [words in result.stderr for words in ("line 3", "line 4", "line 5")] == [True] * 3
    told = [json.loads(line) for line in tool(*args, "--json").stdout.splitlines()]
    assert (told[-1]["after"], told[-1]["device"]) == ("HOLD", "gpu0")
    dry = tool(*args, "--dry-run").stdout
    assert "would have made it HOLD" in dry
    assert "→ HOLD" not in dry
    # Who wrote the rules with the seed's names reads those.
    (tmp_path / "faultCode.json").write_text('{"SeparateNPUCodes": [], "RestartBusinessCodes": ["79"]}')
    seed = tool("faults", "replay", str(tmp_path / "events.jsonl"), "--codes", str(tmp_path / "faultCode.json"))
    assert "NormalNPU → RestartBusiness" in seed.stdout


def test_a_damaged_state_is_one_message(tool: Tool) -> None:
    tool.home.mkdir()
    (tool.home / "holdfast.db").write_bytes(b"rubbish" * 1000)
    result = tool("devices")
    assert "holdfast.db" in str(result.exception)


def test_words_that_say_what_to_type(tool: Tool) -> None:
    lasting = tool("faults", "report", "--device", "gpu3", "--code", "79").stdout
    assert "or `holdfast faults report --device gpu3 --code 79 --recover`" in lasting
    assert "nothing of it lasts" in tool("faults", "report", "--device", "gpu2", "--code", "95", "--once").stdout
    assert "a reset clears" in tool("faults", "report", "--device", "gpu1", "--code", "48").stdout
    over = tool("faults", "report", "--device", "gpu3", "--code", "79", "--recover").stdout
    assert "Xid 79 (GPU has fallen off the bus) is over" in over
    typo = tool("faults", "report", "--device", "gpu3", "--code", "7P", "--yes").stdout
    assert "7P is in no list of codes: by its severity (major) it asks for ISOLATE" in typo
    counted = tool("devices").stdout
    assert "counted so far: 79: 1 of " in counted
    tool("faults", "report", "--device", "gpu 3", "--code", "79")
    assert "1 event was refused so far: 1 malformed" in tool("devices").stderr
    assert "it was not HELD" in tool("release", "gpu3", "--reason", "x").stdout


def test_a_code_that_no_list_names_is_refused_with_the_nearest(tool: Tool) -> None:
    refused = tool("faults", "report", "--device", "npu0", "--code", "80E1800S")
    assert isinstance(refused.exception, BadUsage)
    assert refused.exception.message.startswith("--code 80E1800S: no list names this fault code")
    assert "did you mean 80E18" in refused.exception.message
    assert "holdfast faults report --device npu0 --code 80E18" in refused.exception.hint
    assert "--code 80E1800S --severity major --yes" in refused.exception.hint
    assert "npu0" not in tool.devices(), "nothing was noted"


@pytest.mark.parametrize("insists", [("--severity", "minor"), ("--yes",), ("--recover",), ("--dry-run",)])
def test_a_code_that_no_list_names_is_taken_from_one_who_insists(tool: Tool, insists: tuple[str, ...]) -> None:
    result = tool("faults", "report", "--device", "npu0", "--code", "RACK-9", *insists)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("code", ["0x80E18005", "80e18005", "XID79", "xid-79", "79"])
def test_a_listed_code_is_known_in_any_spelling(tool: Tool, code: str) -> None:
    assert tool("faults", "report", "--device", "npu0", "--code", code, "--once").exit_code == 0


def test_a_code_of_the_users_own_list_is_known(tool: Tool, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text('codes: {"RACK-9": WATCH}\n')
    result = tool("faults", "report", "--device", "npu0", "--code", "RACK-9", "--codes", str(rules))
    assert result.exit_code == 0, result.output


def test_one_vocabulary_says_how_a_device_is_kept_out(tool: Tool) -> None:
    tool("faults", "report", "--device", "npu0", "--code", "80E1800S", "--severity", "major")
    assert tool.devices()["npu0"]["standing"] == "ISOLATED"
    said = tool("release", "npu0", "--reason", "looked at it").stdout
    assert said.startswith("npu0 is ISOLATED, not HELD: only a person's release ends HELD")
    assert "holdfast faults report --device npu0 --code 80E1800S --recover" in said
    tool("faults", "report", "--device", "npu0", "--code", "80E1800S", "--recover")
    assert tool.devices()["npu0"]["standing"] == "HEALTHY"
