"""Random generators of libraries' own: made without a seed while they are imported, they must differ in each worker."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be one more module that the script finds imported
    from collections.abc import Iterator
    from typing import Any

#: Instances of `random.Random` whose seed came from the system, by their address.
_UNSEEDED: dict[int, Any] = {}
#: NumPy's new generators for which that is so.
_NUMPY: list[Any] = []
#: An entropy above this was not given by a person: NumPy draws 128 bits where none is given.
_BY_HAND = 1 << 64


class SeedWatch:
    """While it is on, who makes a `random.Random` without a seed is remembered."""

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
        """Be there the moment `random` has been imported."""
        if name != "random":
            return None
        sys.meta_path.remove(self)
        # By this name it is there already.
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
            return  # another module, which has this name
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
        # Not isinstance: it would ask the object, and some import things when they are asked.
        if issubclass(type(each), kind):
            entropy = getattr(getattr(each.bit_generator, "seed_seq", None), "entropy", 0)
            if isinstance(entropy, int) and entropy >= _BY_HAND:
                yield each


def sow() -> None:
    """In a fork: give each a seed of its own."""
    for generator in _UNSEEDED.values():
        generator.seed()
    for generator in _NUMPY:
        bits = generator.bit_generator
        bits.state = type(bits)().state
