"""The lazy door of modules that few runs need."""

from __future__ import annotations

from holdfast.node import rare_parts


def test_each_name_is_a_module_in_the_package_that_the_table_names() -> None:
    assert all(getattr(rare_parts, name).__name__.endswith(f".{name}") for name in rare_parts.__all__)
