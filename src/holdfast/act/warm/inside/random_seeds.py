"""Reseeds the random generators that libraries create without a seed at import. Each worker then gets different
numbers.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: The `random.Random` objects whose seed came from the system's entropy, by their id().
_UNSEEDED: dict[int, Any] = {}
#: The `numpy.random.Generator` objects whose seed came from the system's entropy.
_NUMPY: list[Any] = []
#: Without a seed NumPy draws 128 bits, so no person has chosen a seed of at least this size.
_BY_HAND = 1 << 64


class SeedWatch:
    """While active, records each `random.Random` that is created without a seed."""

    def __enter__(self) -> None:
        self._given_back: Any = None
        if "random" in sys.modules:
            self._patch(sys.modules["random"])
        else:
            sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._given_back is not None:
            self._given_back()
        if "numpy.random" in sys.modules:
            _NUMPY[:] = _numpy_generators()

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Patch `random` after its import. The import system calls this method, because this object is in
        `sys.meta_path`.
        """
        if name != "random":
            return None
        sys.meta_path.remove(self)
        # Use the PathFinder of the module that Python itself has imported under this name.
        spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return None

        def exec_module(module: Any) -> None:
            del loader.exec_module
            loader.exec_module(module)
            self._patch(module)

        loader.exec_module = exec_module
        return spec

    def _patch(self, module: Any) -> None:
        kind = getattr(module, "Random", None)
        if kind is None or "seed" not in vars(kind):
            return  # ignore another module with the name `random`
        original = kind.seed

        def seed(self: Any, a: Any = None, *more: Any, **named: Any) -> Any:
            if a is None:
                _UNSEEDED[id(self)] = self
            else:
                _UNSEEDED.pop(id(self), None)
            return original(self, a, *more, **named)

        kind.seed = seed

        def give_back() -> None:
            kind.seed = original

        self._given_back = give_back


def _numpy_generators() -> Iterator[Any]:
    kind = getattr(sys.modules["numpy.random"], "Generator", ())
    for each in gc.get_objects():
        # Do not use isinstance: it reads the object's `__class__`, and some lazy objects then import modules.
        if issubclass(type(each), kind):
            entropy = getattr(getattr(each.bit_generator, "seed_seq", None), "entropy", 0)
            if isinstance(entropy, int) and entropy >= _BY_HAND:
                yield each


def sow() -> None:
    """Set a new seed in each recorded generator. A fork calls this."""
    for generator in _UNSEEDED.values():
        generator.seed()
    for generator in _NUMPY:
        bits = generator.bit_generator
        bits.state = type(bits)().state
