"""Patterns that are compiled when first used; see `holdfast.model.lazy`."""

from __future__ import annotations

from holdfast.model.lazy import Lazy

__all__ = ["Lazy"]
