"""docs/reference/settings.md: its table is made from the table of settings.

Made anew: python tests/settings/test_settings_docs.py
"""

from __future__ import annotations

from pathlib import Path

from holdfast.settings.settings_table import SETTINGS, Scope, Setting

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
BEGIN, END = "<!-- settings: made by tests/settings/test_settings_docs.py -->\n", "<!-- end of settings -->\n"


def _default(setting: Setting) -> str:
    match setting.default:
        case None | ():
            return "–"
        case bool():
            return f"`{str(setting.default).lower()}`"
        case int() | float():
            return f"`{setting.number_shown}`"
        case _:
            return f"`{setting.default}`"


def _row(setting: Setting) -> str:
    off = f" `--no-{setting.name}`" if setting.no_option else ""
    also = "".join(f" Also `{name}`." for name in setting.also)
    words = setting.help.replace("|", r"\|")
    return f"| `--{setting.name}`{off} | {setting.scope.value} | {_default(setting)} | {words}{also} |"


def table() -> str:
    lines = ["| option | scope | default | what it does |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, SETTINGS)]) + "\n"


def _parts() -> tuple[str, str, str]:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    made, _, after = rest.partition(END)
    return before, made, after


def test_the_page_has_every_setting_with_its_scope() -> None:
    assert _parts()[1] == table(), "make it anew: python tests/settings/test_settings_docs.py"


def test_the_page_explains_each_scope() -> None:
    assert all(f"\n- **{scope.value}**: " in _parts()[0] for scope in Scope)


if __name__ == "__main__":
    before, _, after = _parts()
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
