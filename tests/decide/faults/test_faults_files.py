"""Files of codes and rules: the seed's own, ours, broken ones, and what lint says."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.catalogue import fault_codes, nvidia
from holdfast.decide.faults import ascend_format, holdfast_format
from holdfast.decide.faults.fault_policy import NEVER_S, FrequencyRule
from holdfast.decide.faults.shipped_policy import default_policy, shipped_levels, shipped_rules
from holdfast.errors import BadUsage
from holdfast.model.faults import Remedy
from holdfast.node.devices.policy_files import lint, load_policy

OUR_CODES = """
codes: {"79": HOLD, 80E18005: WATCH, 020001002: AVOID, "81078603": RESET_NOW, nonsense: SOMETIMES}
frequency:
  - {codes: [80E18005, "79"], times: 3, window_s: 86400, remedy: HOLD, release_s: 172800, dry_run: true}
  - {codes: [80E18005], times: 4, window_s: 60, remedy: ISOLATE}
  - {codes: ["1"], times: 101, window_s: 60, remedy: ISOLATE}
  - {codes: ["2"], times: 1, window_s: 60, remedy: OFTEN}
duration:
  - {codes: [81078603], remedy: RESET_NOW}
  - {codes: [8C204E00], fault_s: 30, recover_s: 60, remedy: HOLD}
  - {codes: [8C204E01], fault_s: 30, recover_s: 60, remedy: ISOLATE, colour: red}
grace: {save_s: 5, reset_s: 999}
"""


def test_our_own_format_is_read_and_its_mistakes_are_named() -> None:
    levels, rules = holdfast_format.read_levels(OUR_CODES.encode()), holdfast_format.read_rules(OUR_CODES.encode())
    assert levels.levels == {"80E18005": Remedy.WATCH, "20001002": Remedy.AVOID, "81078603": Remedy.NONE}
    assert levels.spelled["20001002"] == "020001002"
    assert {problem.where for problem in levels.problems} == {"codes.79", "codes.nonsense", "codes.81078603"}
    assert set(rules.frequency) == {"80E18005", "79"}
    first = rules.frequency["80E18005"]
    assert (first.times, first.release_s, first.dry_run) == (3, 172_800, True)
    assert (rules.duration["81078603"].fault_s, rules.duration["81078603"].recover_s) == (20, 60)
    assert rules.duration["81078603"].remedy is Remedy.NONE
    assert "8C204E00" not in rules.duration
    assert (rules.grace.save_s, rules.grace.reset_s) == (5, 150)
    said = " ".join(str(problem) for problem in rules.problems)
    for words in ("first valid one", "times 101", "OFTEN", "cannot ask for HOLD", "colour", "999", "NONE, AVOID or"):
        assert words in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('codes: {"79": WATCH, "79": AVOID}', "stands twice"),
        ('codes: {"79": WATCH, XID79: AVOID}', "a code has one"),
        ("codes: [79]", "mapping"),
        ("colours: {}", "`colours`"),
        ("codes: {", "not YAML"),
        ("frequency: [{codes: [a], times: 2.5, window_s: 60, remedy: HOLD}]", "whole number"),
        ('frequency: [{codes: [a], times: "2", window_s: 60, remedy: HOLD}]', "whole number"),
        ("frequency: [{codes: [a], times: 2, window_s: 60, remedy: HOLD, dry_run: perhaps}]", "true or false"),
        ("duration: {}", "list"),
    ],
)
def test_a_wrong_format_is_fatal(text: str, why: str) -> None:
    found = [*holdfast_format.read_levels(text.encode()).problems, *holdfast_format.read_rules(text.encode()).problems]
    assert any(problem.fatal and why in problem.what for problem in found), found


def test_keys_of_the_seeds_files_are_case_insensitive_as_they_are_there() -> None:
    text = (
        b'{"faultfrequency": [{"EVENTID": ["80e18005"], "timewindow": 60, "times": 1, "faulthandling": "SeparateNPU"}]}'
    )
    rule = FrequencyRule(window_s=60, times=1, remedy=Remedy.ISOLATE, release_s=NEVER_S, entry="FaultFrequency[0]")
    assert ascend_format.read_rules(text).frequency == {"80E18005": rule}


def test_what_is_built_in() -> None:
    assert len(shipped_levels().levels) == 802
    assert shipped_rules().frequency["80E18005"].times == 3
    assert not shipped_rules().problems
    policy = default_policy()
    assert (policy.levels["79"], policy.levels["NODE-DISK-READONLY"]) == (Remedy.ISOLATE, Remedy.ISOLATE)
    assert policy.frequency["79"].remedy is Remedy.HOLD
    assert set(fault_codes.vendors()) == {"ascend", "node", "nvidia"}


def test_codes_have_one_spelling() -> None:
    spelled = ["80e18005", "0x80E18005", " 80E18005 ", "XID79", "xid 79", "020001002", "0020001002", "00000003"]
    assert [fault_codes.canonical(code) for code in spelled] == [
        "80E18005", "80E18005", "80E18005", "79", "79", "20001002", "20001002", "00000003",
    ]  # fmt: skip
    assert fault_codes.describe("xid79") == "Xid 79 (GPU has fallen off the bus)"
    assert fault_codes.describe("nobody knows") == "nobody knows"


@pytest.mark.parametrize(
    ("xid", "unit", "intrinfo", "status", "fatal", "code"),
    [
        (145, "RLW_REMAP", 0x82, 0x40, True, "145.RESET"),
        (145, "RLW_REMAP", 0x04, 0x01, False, "145.EVAL"),
        (145, "RLW_CTRL", 0x03, 0x80000000, False, "145.IGNORE"),
        (144, "SAW_MVB", 0x01, 0x02, True, "144.RESET"),
        (149, "NETIR_LINK_EVT", 0b100110 << 20 | 0b10001, 0, True, "149.IGNORE"),
        (149, "NETIR_LINK_EVT", 0b100011 << 20 | 0b10001, 0, True, "149.RESET"),
        (149, "NEW_UNIT", 0xFFFFFFFF, 9, True, "149.RESET"),
        (149, "NEW_UNIT", 0xFFFFFFFF, 9, False, "149.EVAL"),
        (150, "NEW_UNIT", 0xFFFFFFFF, 9, None, "150"),
    ],
)
def test_nvlink5_errors_are_decoded(xid: int, unit: str, intrinfo: int, status: int, fatal: bool, code: str) -> None:
    assert nvidia.nvlink5_code(xid, unit, intrinfo, status, fatal) == code


def test_a_code_list_replaces_its_vendor_and_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "faultCode.json").write_text('{"SeparateNPUCodes": ["80E18005"]}')
    loaded = load_policy(str(tmp_path / "faultCode.json"), None)
    assert (loaded.policy.levels["80E18005"], loaded.policy.levels["79"]) == (Remedy.ISOLATE, Remedy.ISOLATE)
    assert "80E21007" not in loaded.policy.levels
    assert loaded.policy.frequency == default_policy().frequency
    assert not loaded.warnings


def test_one_file_of_ours_may_hold_both(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(
        'codes: {"79": AVOID}\nfrequency: [{codes: ["79"], times: 2, window_s: 60, remedy: HOLD}]'
    )
    for given in ((str(tmp_path / "faults.yaml"), None), (None, str(tmp_path / "faults.yaml"))):
        policy = load_policy(*given).policy
        assert (policy.levels["79"], policy.frequency["79"].times, len(policy.frequency)) == (Remedy.AVOID, 2, 1)


def test_durations_of_our_file_take_units(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        'frequency: [{codes: ["79"], times: 2, window_s: 1d, remedy: HOLD, release_s: 2d}]\n'
        'duration: [{codes: ["80"], fault_s: 30s, recover_s: 1m, remedy: AVOID}]\n'
        "grace: {reset_s: 2m}\n"
    )
    policy = load_policy(None, str(tmp_path / "rules.yaml")).policy
    assert (policy.frequency["79"].window_s, policy.frequency["79"].release_s) == (86_400, 172_800)
    assert (policy.duration["80"].fault_s, policy.duration["80"].recover_s, policy.grace.reset_s) == (30, 60, 120)
    (tmp_path / "rules.yaml").write_text('frequency: [{codes: ["79"], times: 2, window_s: 1y, remedy: HOLD}]\n')
    (warning, *_) = load_policy(None, str(tmp_path / "rules.yaml")).warnings
    assert "window_s: seconds, or a time such as 5m, 2h or 1d12h was expected, not `1y` (line 1)" in warning


def test_a_broken_file_is_said_loudly_and_the_default_applies(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text('{"FaultFrequency": [{"Times": "2"}]}')
    loaded = load_policy(None, str(tmp_path / "rules.json"))
    assert "IS NOT USED" in loaded.warnings[0]
    assert "FaultFrequency[0].Times" in loaded.warnings[0]
    assert loaded.policy == default_policy()


def test_a_missing_file_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="no such file"):
        load_policy(str(tmp_path / "gone.json"), None)
    with pytest.raises(BadUsage, match="directory"):
        lint([str(tmp_path)])


def test_lint_names_each_entry_that_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"SeparateNPUCodes": ["80E18005", "zz"], "Strange": []}')
    (tmp_path / "b.json").write_text('{"FaultFrequency": [{"EventId": ["80E18005"], "Times": 1}], "Other": 1}')
    (tmp_path / "c.json").write_text("[]")
    (tmp_path / "d.yaml").write_text("codes: {}")
    codes, rules, broken, ours = lint([str(tmp_path / name) for name in ("a.json", "b.json", "c.json", "d.yaml")])
    assert [problem.where for problem in codes.problems] == ["Strange", "SeparateNPUCodes[1]"]
    assert [problem.where for problem in rules.problems] == ["FaultFrequency[0]", "Other"]
    assert (broken.broken, ours.problems, ours.kind) == (True, (), "holdfast")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('{"FaultFreqency": []}', "FaultFreqency", "not a list of fault codes"),
        ('{"FaultDuration": [], "FaultFreqency": []}', "FaultFreqency", "is none of GraceTolerance"),
        ('{"GraceTolerance": {"WaitX": 1}}', "GraceTolerance.WaitX", "is none of WaitProcessReadCMTime"),
        ('{"FaultFrequency": [{"EventId": ["A1"], "ReleaseTimeWindows": 60}]}',
         "FaultFrequency[0].ReleaseTimeWindows", "is none of EventId, TimeWindow"),
        ('{"FaultDuration": [{"EventId": ["A1"], "Timeout": 5, "FaultHandling": "SeparateNPU"}]}',
         "FaultDuration[0].Timeout", "is none of EventId, FaultTimeout"),
        ('{"FaultFrequency": [{"EventId": ["A1"], "TimeWindow": 59, "Times": 101, "FaultHandling": "Hold"}]}',
         "FaultFrequency[0]", "A1: TimeWindow 59 is not 60 to 864000 seconds; Times 101 is not 1 to 100 occurrences"),
        ('{"FaultDuration": [{"EventId": ["A1"], "FaultHandling": "SeparateNPU"}], "faultduration": []}',
         "faultduration", "stands twice in one object (as FaultDuration before); the last one counts"),
        ('{"RestartNPUCodes": ["A1"], "RestartNPUCodes": ["A2"]}', "RestartNPUCodes", "stands twice in one object"),
    ],
)  # fmt: skip
def test_lint_names_what_is_lost_without_being_wrong(tmp_path: Path, text: str, where: str, what: str) -> None:
    (tmp_path / "file.json").write_text(text)
    (finding,) = lint([str(tmp_path / "file.json")])
    assert finding.loses
    assert any(problem.where == where and what in problem.what for problem in finding.problems), finding.problems


def test_lint_names_duration_rules_that_ask_for_no_more_than_their_code_does(tmp_path: Path) -> None:
    rules, codes = tmp_path / "rules.json", tmp_path / "codes.json"
    rules.write_text('{"FaultDuration": [{"EventId": ["80E3A201"], "FaultHandling": "RestartNPU"}]}')
    codes.write_text('{"SubHealthFaultCodes": ["80E3A201"]}')
    (alone,) = lint([str(rules)])
    (remark,) = alone.problems
    assert str(remark) == (
        "FaultDuration[0]: 80E3A201: RESET_NOW (RestartNPU) is not above its own level ISOLATE (SeparateNPU): it "
        "changes nothing while the fault lasts"
    )
    assert not alone.loses
    assert [finding.problems for finding in lint([str(rules), str(codes)])] == [(), ()]


def test_what_stands_twice_is_a_remark_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"SeparateNPUCodes": ["1A", "1a"], "RestartNPUCodes": ["1A"]}')
    (finding,) = lint([str(tmp_path / "a.json")])
    assert (len(finding.problems), finding.loses, finding.codes) == (2, False, 1)
    assert load_policy(str(tmp_path / "a.json"), None).warnings == ()


def test_every_rule_can_be_tried_dry(tmp_path: Path) -> None:
    policy = load_policy(None, None, dry_run=True).policy
    assert all(rule.dry_run for rule in policy.frequency.values())
    assert all(rule.dry_run for rule in policy.duration.values())
