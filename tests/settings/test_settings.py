"""Settings: which place wins, what each kind accepts, and the message about the rest."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.options.shared_options import setting_options
from holdfast.errors import BadUsage
from holdfast.settings.resolved_settings import Settings, SettingSource, resolve
from holdfast.settings.settings_table import SETTINGS
from holdfast.settings.value_kinds import DiskLimit, Value, ValueKind, disk_limit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def _resolve(home: Path, cli: dict[str, object | None] | None = None, env: dict[str, str] | None = None) -> Settings:
    return resolve(cli or {}, env or {}, home, system_file=home.parent / "etc.yaml")


def test_the_stronger_place_wins_one_by_one(home: Path) -> None:
    system = home.parent / "etc.yaml"
    seen = [(_resolve(home).value("grace"), _resolve(home).origin("grace"))]
    system.write_text("grace: 1\n")
    seen.append((_resolve(home).value("grace"), _resolve(home).origin("grace")))
    (home / "config.yaml").write_text("grace: 2\n")
    seen.append((_resolve(home).value("grace"), _resolve(home).origin("grace")))
    env = {"HOLDFAST_GRACE": "3"}
    seen.append((_resolve(home, env=env).value("grace"), _resolve(home, env=env).origin("grace")))
    last = _resolve(home, {"grace": "4"}, env)
    seen.append((last.value("grace"), last.origin("grace")))
    assert seen == [
        (30.0, "built-in default"),
        (1.0, str(system)),
        (2.0, str(home / "config.yaml")),
        (3.0, "HOLDFAST_GRACE"),
        (4.0, "--grace"),
    ]
    assert last.source("grace") is SettingSource.OPTION and last.number("grace") == 4.0


def test_every_option_of_the_contract_is_a_setting() -> None:
    names = {setting.name for setting in SETTINGS}
    assert names >= {
        "name", "report", "json", "grace", "checks", "no-checks", "check-timeout", "plugin", "hang-timeout",
        "fault-codes", "fault-rules", "exits", "preload", "warm", "max-restarts",
    }  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_defaults_pass_their_own_rules_and_have_words(home: Path, setting: object) -> None:
    from holdfast.settings.resolved_settings import parse
    from holdfast.settings.settings_table import Setting

    assert isinstance(setting, Setting) and setting.help.endswith(".")
    if setting.default not in (None, ()):
        assert parse(setting, setting.default, "here") == setting.default


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("grace", "2.5", 2.5),
        ("grace", 0, 0.0),
        ("max-restarts", "0", 0),
        ("no-checks", "yes", True),
        ("no-checks", "0", False),
        ("checks", "a, b,", ("a", "b")),
        ("checks", ["a", "b"], ("a", "b")),
        ("plugin", "x.py:y.py", ("x.py", "y.py")),
        ("plugin", ("x.py", "y:z.py"), ("x.py", "y:z.py")),
        ("disk-limit", "90%", "90%"),
        ("redirects", 3, "3"),
        ("redirects", "0:1,1:2", "0:1,1:2"),
        ("warm", False, False),
    ],
)
def test_what_each_kind_accepts(home: Path, name: str, raw: object, value: Value) -> None:
    assert _resolve(home, {name: raw}).value(name) == value


TIMES = [setting.name for setting in SETTINGS if setting.kind is ValueKind.SECONDS]
SIZES = [setting.name for setting in SETTINGS if setting.kind is ValueKind.SIZE]


@pytest.mark.parametrize("name", TIMES)
def test_each_duration_takes_units_in_each_place(home: Path, name: str) -> None:
    assert _resolve(home, {name: "1h30m"}).number(name) == 5400.0
    assert _resolve(home, env={f"HOLDFAST_{name.replace('-', '_').upper()}": "90s"}).number(name) == 90.0
    (home / "config.yaml").write_text(f"{name}: 1d12h\n")
    assert _resolve(home).number(name) == 129_600.0


@pytest.mark.parametrize("name", SIZES)
def test_each_size_takes_units_in_each_place(home: Path, name: str) -> None:
    assert _resolve(home, {name: "1.5G"}).size_bytes(name) == 3 << 29
    assert _resolve(home, env={f"HOLDFAST_{name.replace('-', '_').upper()}": "20MiB"}).size_bytes(name) == 20 << 20
    (home / "config.yaml").write_text(f"{name}: 4096\n")
    assert _resolve(home).size_bytes(name) == 4096


@pytest.mark.parametrize(
    ("raw", "limit"),
    [
        ("90%", DiskLimit(percent=90.0)),
        ("20G", DiskLimit(size_bytes=20 << 30)),
        ("1.5 TiB", DiskLimit(size_bytes=3 << 39)),
        (4096, DiskLimit(size_bytes=4096)),
        ("5000 inodes", DiskLimit(inodes=5000)),
        ("101%", None),
        ("0", None),
        ("G", None),
        ("-1 inodes", None),
        (True, None),
    ],
)
def test_a_limit_is_a_share_a_size_or_inodes(home: Path, raw: object, limit: DiskLimit | None) -> None:
    assert disk_limit(raw) == limit
    if limit is not None:
        assert _resolve(home, {"disk_limit": raw}).limit("disk-limit") == limit
    assert _resolve(home).limit("disk-limit") is None


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("grace", "abc", "--grace: expected seconds, or a time such as 5m, 2h or 1d12h, got 'abc'"),
        ("grace", "nan", "--grace: expected seconds, or a time such as 5m, 2h or 1d12h, got 'nan'"),
        ("grace", "-1", "--grace: expected seconds, or a time such as 5m, 2h or 1d12h, 0 or more, got '-1'"),
        ("grace", True, "--grace: expected seconds, or a time such as 5m, 2h or 1d12h, got True"),
        (
            "hang-timeout",
            "0",
            "--hang-timeout: expected seconds, or a time such as 5m, 2h or 1d12h, more than 0, got '0'",
        ),
        ("grace", "30G", "--grace: expected seconds, or a time such as 5m, 2h or 1d12h, got '30G'"),
        ("log-size", "5h", "--log-size: expected bytes, or a size such as 500M, 16GiB or 1.5T, got '5h'"),
        ("keep-size", "90%", "--keep-size: expected bytes, or a size such as 500M, 16GiB or 1.5T, got '90%'"),
        ("max-restarts", "2.5", "--max-restarts: expected a whole number, 0 or more, got '2.5'"),
        ("max-restarts", "-1", "--max-restarts: expected a whole number, 0 or more, got '-1'"),
        ("no-checks", "maybe", "--no-checks: expected true or false, got 'maybe'"),
        ("checks", ",", "--checks: expected names separated by commas, or a list of names, got ','"),
        (
            "disk-limit",
            "lots",
            f"--disk-limit: expected {ValueKind.LIMIT.value}, got 'lots'",
        ),
        ("name", "", "--name: expected text, got ''"),
    ],
)
def test_what_is_said_about_a_wrong_value(home: Path, name: str, raw: object, expected: str) -> None:
    with pytest.raises(BadUsage) as caught:
        _resolve(home, {name: raw})
    assert caught.value.message == expected and caught.value.exit_status == 2


def test_a_wrong_value_in_a_file_names_file_and_key_also_when_hidden(home: Path) -> None:
    path = home / "config.yaml"
    path.write_text("grace: abc\n")
    with pytest.raises(BadUsage) as caught:
        _resolve(home, {"grace": "4"})
    assert caught.value.message == f"{path}: `grace`: expected seconds, or a time such as 5m, 2h or 1d12h, got 'abc'"


def test_a_wrong_variable_names_it(home: Path) -> None:
    with pytest.raises(BadUsage) as caught:
        _resolve(home, env={"HOLDFAST_MAX_RESTARTS": "x"})
    assert caught.value.message.startswith("HOLDFAST_MAX_RESTARTS: expected a whole number")
    assert caught.value.hint == "unset HOLDFAST_MAX_RESTARTS"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gracee: 3\n", "`gracee`: there is no such setting; did you mean `grace`?"),
        ("- grace\n", "expected `setting: value` lines, got ['grace']"),
        ("grace: [\n", ", line 1: expected YAML: a value was expected here"),
        ("grace: \x00\n", "expected YAML"),
    ],
)
def test_a_wrong_file(home: Path, text: str, expected: str) -> None:
    path = home / "config.yaml"
    path.write_text(text)
    with pytest.raises(BadUsage) as caught:
        _resolve(home)
    assert str(path) in caught.value.message and expected in caught.value.message


def test_a_directory_in_place_of_the_file(home: Path) -> None:
    (home / "config.yaml").mkdir()
    with pytest.raises(BadUsage, match="cannot be read: is a directory"):
        _resolve(home)


def test_empty_and_null_are_absent_and_underscores_do(home: Path) -> None:
    (home / "config.yaml").write_text("grace:\nmax_restarts: 7\n")
    settings = _resolve(home, {"checks": None, "plugin": ()}, {"HOLDFAST_NAME": ""})
    assert settings.origin("grace") == settings.origin("name") == settings.origin("plugin") == "built-in default"
    assert settings.count("max-restarts") == 7
    (home / "config.yaml").write_text("")
    assert _resolve(home).count("max-restarts") == 3


def test_no_checks_and_checks(home: Path) -> None:
    (home / "config.yaml").write_text("no-checks: true\n")
    assert _resolve(home).chosen_checks() == ()
    assert _resolve(home, {"checks": "disk"}).chosen_checks() == ("disk",)
    assert _resolve(home, {"no_checks": True}, {"HOLDFAST_CHECKS": "disk"}).chosen_checks() == ()
    assert _resolve(home, {"no_checks": False}).chosen_checks() is None
    with pytest.raises(BadUsage, match="--checks and --no-checks contradict"):
        _resolve(home, {"checks": "disk", "no_checks": True}).chosen_checks()


def test_options_made_from_the_table_say_only_what_was_typed() -> None:
    @click.command(params=list(setting_options()))
    def verb(**values: object) -> None:
        given = {name: value for name, value in values.items() if value not in (None, ())}
        click.echo(repr(sorted(given.items())))

    run = CliRunner().invoke
    assert run(verb, []).output == "[]\n"
    assert run(verb, ["--no-warm", "--grace", "x", "--plugin", "a", "--plugin", "b", "--no-checks"]).output == (
        "[('grace', 'x'), ('no_checks', True), ('plugin', ('a', 'b')), ('warm', False)]\n"
    )
    text = run(verb, ["--help"]).output
    assert all(f"--{setting.name}" in text for setting in SETTINGS)
