"""Makes this copy of holdfast importable in another Python: workers there need `progress`, `draining` and `on_drain`.

If the workers' Python is not holdfast's, the parent directory is on their PYTHONPATH. It contains only this package, so
that workers import nothing else from holdfast's environment.
"""

import os

_PLACE = os.path.abspath(__file__)
for _ in range(4):
    _PLACE = os.path.dirname(_PLACE)
__path__ = [_PLACE]
with open(os.path.join(_PLACE, "__init__.py"), encoding="utf-8") as _file:
    exec(compile(_file.read(), _file.name, "exec"))
