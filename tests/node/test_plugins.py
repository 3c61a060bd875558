"""The doors that checks come in by, and the message where one of them does not open."""

from __future__ import annotations

import stat
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.check_registry import BUILT_IN, COMMON, DEFAULT, CheckKind
from holdfast.errors import BadUsage
from holdfast.model.check_results import CheckChoice, InconclusivePolicy
from holdfast.node.check_entry import catalogue, choices_from_text, plan_checks


def plugin_file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


RACK_PLUGIN = """
    from holdfast.checks import PreCheckOperator, PreCheckResult

    class RackDoor(PreCheckOperator):
        '''Is the door of the rack closed?'''

        @classmethod
        def get_retry_interval_secs(cls) -> int:
            return 7

        def check(self, *args, **kwargs) -> PreCheckResult:
            return PreCheckResult()

        def failed_actions(self, *args, **kwargs):
            return []
"""


def test_every_built_in_check_loads_and_says_what_it_asks() -> None:
    listed = {info.name: info for info in catalogue(names=tuple(BUILT_IN))}
    assert set(listed) == set(BUILT_IN)
    for info in listed.values():
        assert info.question.endswith("?")
        assert info.cost != "unknown"
        assert info.limit_s > 0
        assert all(param.about and param.type for param in info.params), info.name
    assert [name for name, info in listed.items() if info.by_default] == [
        name for name in BUILT_IN if name in {choice.name for choice in DEFAULT}
    ]


def test_the_default_set_is_cheap_and_side_by_side() -> None:
    plan = plan_checks(None)
    assert [check.name for check in plan.checks] == [choice.name for choice in DEFAULT]
    assert not any(check.step.alone or check.profile.info.needs_gang for check in plan.checks)


def test_none_chosen_is_disabled() -> None:
    assert plan_checks(()).disabled


def test_a_class_of_a_file_is_named_in_lower_case(tmp_path: Path) -> None:
    path = plugin_file(tmp_path, RACK_PLUGIN)
    plan = plan_checks((CheckChoice(name="rackdoor"),), plugins=[path])
    [check] = plan.checks
    assert check.profile.info.question == "Is the door of the rack closed?"
    assert check.profile.ref.kind is CheckKind.FILE
    assert (check.step.interval_s, check.step.retries, check.step.alone) == (7.0, 3, True)


def test_a_plugin_comes_on_top_of_the_default_set_unless_checks_are_named(tmp_path: Path) -> None:
    path = plugin_file(tmp_path, RACK_PLUGIN)
    assert [check.name for check in plan_checks(None, plugins=[path]).checks][-1] == "rackdoor"
    assert len(plan_checks(None, plugins=[path]).checks) == len(DEFAULT) + 1


def test_an_executable_is_named_after_its_file(tmp_path: Path) -> None:
    path = plugin_file(tmp_path, "#!/bin/sh\nexit 0\n", "Prolog.sh")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    plan = plan_checks(choices_from_text("prolog"), plugins=[path])
    assert plan.checks[0].profile.ref.kind is CheckKind.EXECUTABLE
    by_path = plan_checks((CheckChoice(name=str(path), params={"depth": 3}),))
    assert by_path.checks[0].params == {"depth": 3}


def test_an_entry_point_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rackpkg.py").write_text(textwrap.dedent(RACK_PLUGIN))
    info = tmp_path / "rackpkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rackpkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[holdfast.checks]\nrack = rackpkg:RackDoor\nbroken = rackpkg:Nothing\ndisk = rackpkg:RackDoor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    [check] = plan_checks((CheckChoice(name="rack"),)).checks
    assert check.profile.ref.kind is CheckKind.ENTRY_POINT
    assert plan_checks((CheckChoice(name="disk"),)).checks[0].profile.ref.kind is CheckKind.BUILT_IN
    with pytest.raises(BadUsage, match="Nothing"):
        plan_checks((CheckChoice(name="broken"),))
    listed = {each.name: each for each in catalogue()}
    assert listed["rack"].source == "entry point rackpkg:RackDoor"
    assert "cannot be loaded" in listed["broken"].question
    assert "rackpkg" not in sys.modules, "foreign code is loaded in another process only"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", "class A(:\n", r"a\.py line 1: SyntaxError"),
        ("a.py", "import not_there_at_all\n", r"a\.py line 1: ModuleNotFoundError: .*not_there_at_all"),
        ("a.py", "x = 1\n", r"a\.py: no class derives from PreCheckOperator"),
        ("a.py", "import os\nos._exit(3)\n", r"could not be loaded: its process ended with exit status 3"),
        ("a.py", "raise SystemExit(1)\n", r"a\.py.*SystemExit"),
        (
            "a.py",
            "from holdfast.checks import PreCheckOperator\nclass A(PreCheckOperator):\n    def check(self): ...\n",
            r"a\.py: A lacks failed_actions",
        ),
        ("a.txt", "hello\n", r"a\.txt: expected a Python file \(\.py\) or an executable"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_bad_usage(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadUsage, match=expected) as caught:
        plan_checks(None, plugins=[path])
    assert str(path) in caught.value.message


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="no such file"):
        plan_checks(None, plugins=[tmp_path / "gone.py"])
    with pytest.raises(BadUsage, match="is a directory"):
        plan_checks(None, plugins=[tmp_path])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dsk", "there is no check `dsk`; did you mean `disk`?"),
        ("Memory", "there is no check `Memory`; did you mean `memory`?"),
        ("zzzzzz", "there is no check `zzzzzz`; there are files, disk"),
        ("disk:minfree=3", "check `disk` has no parameter `minfree`; did you mean `min_free`?"),
        (
            "disk:min_free=much",
            "check `disk`, parameter `min_free`: expected a size such as 50GB or 512MiB, found 'much'",
        ),
        ("disk:min_free=-1", "found '-1'"),
        ("disk:min_inodes=1.5", "check `disk`, parameter `min_inodes`"),
        ("clock:wait_s=soon", "check `clock`, parameter `wait_s`: expected seconds, or a time such as 5m"),
        ("disk:interval=-5m", "`interval` is '-5m'; expected seconds, or a time such as 5m, 2h or 1d12h, 0 or more"),
        ("disk:retries=-1", "`retries` is '-1'; expected a number of 0 or more"),
        ("disk:timeout=soon", "`timeout` is 'soon'; expected seconds, or a time such as 5m"),
        ("disk:inconclusive=maybe", "`inconclusive` is 'maybe'; expected warn or fail"),
        ("disk:failure=no", "`failure` is 'no'; expected warn or fail"),
        ("matmul:device=tpu", "check `matmul`, parameter `device`"),
        ("disk:min_free", "expected NAME:PARAMETER=VALUE"),
        (" , ", "expected names of checks, found nothing"),
        ("no/such/file", "no such file"),
    ],
)
def test_a_wrong_name_or_parameter_is_told_with_the_nearest(text: str, expected: str) -> None:
    with pytest.raises(BadUsage) as caught:
        plan_checks(choices_from_text(text))
    assert expected in caught.value.message
    assert caught.value.exit_status == 2


def test_the_place_of_a_wrong_name_is_told() -> None:
    with pytest.raises(BadUsage, match=r"^job\.yaml: checks: there is no check `dsk`"):
        plan_checks((CheckChoice(name="dsk"),), where="job.yaml: checks")
    with pytest.raises(BadUsage, match=r"^job\.yaml: checks: check `disk` has no parameter `a`"):
        plan_checks((CheckChoice(name="disk", params={"a": 1}),), where="job.yaml: checks")


def test_common_parameters_settle_the_step() -> None:
    given = {
        "timeout": 4,
        "retries": 2,
        "interval": 0.5,
        "inconclusive": "fail",
        "failure": "warn",
        "min_free": "1GiB",
        "paths": "/:/tmp",
    }
    assert set(given) > set(COMMON)
    [check] = plan_checks((CheckChoice(name="disk", params=given),), timeout_s=99).checks
    assert (check.step.limit_s, check.step.retries, check.step.interval_s) == (4.0, 2, 0.5)
    assert check.step.inconclusive is InconclusivePolicy.FAIL
    assert check.step.only_warn
    assert check.params == {"min_free": "1GiB", "paths": "/:/tmp"}
    [bounded] = plan_checks((CheckChoice(name="disk"),), timeout_s=99).checks
    assert bounded.step.limit_s == 99.0


def test_names_in_check_s_signature_are_its_parameters(tmp_path: Path) -> None:
    path = plugin_file(
        tmp_path,
        """
        from holdfast.checks import PreCheckOperator, PreCheckResult

        class Narrow(PreCheckOperator):
            def check(self, nodes, depth=3):
                return PreCheckResult(0 if int(depth) == 4 else 1, f"depth {depth}", nodes)

            def failed_actions(self):
                return []
        """,
    )
    assert plan_checks(choices_from_text("narrow:depth=4"), plugins=[path]).checks[0].params == {"depth": "4"}
    with pytest.raises(BadUsage, match="has no parameter `dept`; did you mean `depth`"):
        plan_checks(choices_from_text("narrow:dept=4"), plugins=[path])
