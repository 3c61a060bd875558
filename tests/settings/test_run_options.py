"""Typed options: every row of the tables has a field of its type, and there is no other field."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.cli.options.run_option_table import TORCHRUN, ignored
from holdfast.settings.run_options import RunOptions
from holdfast.settings.settings_table import SETTINGS, Setting
from holdfast.settings.value_kinds import ValueKind

#: Of a setting as it is typed; every other kind is a text, which nothing has judged so far.
TYPES: dict[ValueKind, object] = {ValueKind.FLAG: bool | None, ValueKind.FILES: tuple[str, ...]}
FIELDS = {field.name: field for field in msgspec.structs.fields(RunOptions)}


def test_every_row_of_the_tables_has_a_field_and_no_field_is_without_a_row() -> None:
    of_torchrun = {typed.param for typed in (*TORCHRUN, *ignored())}
    settings = {setting.param for setting in SETTINGS}
    assert set(FIELDS) == {"words", "origins"} | of_torchrun | settings


def test_settings_stand_in_the_order_of_their_table() -> None:
    settings = [setting.param for setting in SETTINGS]
    assert [name for name in FIELDS if name in settings] == settings


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_settings_field_has_the_type_of_its_kind(setting: Setting) -> None:
    assert FIELDS[setting.param].type == TYPES.get(setting.kind, str | None)


def test_an_option_of_torchrun_has_the_type_and_the_default_of_its_row() -> None:
    for typed in (*TORCHRUN, *ignored()):
        field = FIELDS[typed.param]
        assert (field.type, field.default) == ((bool, False) if typed.flag else (str | None, None)), typed.param
        assert field.default is typed.unset, typed.param


def test_unset_is_no_value_of_any_setting() -> None:
    """Also a flag that was typed off, and a default that was typed, differ from what nobody has typed."""
    unset = RunOptions()
    assert set(unset.settings().values()) == {None, ()}
    typed = RunOptions(warm=False, grace="30")
    assert (typed.settings()["warm"], typed.settings()["grace"]) == (False, "30")
