"""holdfast in a Python that does not have it: the functions for workers (`progress`, `draining`, `on_drain`), from this
copy.

The directory above is on the workers' PYTHONPATH where they run with another Python than holdfast itself. It has this
package alone, so that workers find no other package of holdfast's environment there.
"""

import os

_PLACE = os.path.abspath(__file__)
for _ in range(4):
    _PLACE = os.path.dirname(_PLACE)
__path__ = [_PLACE]
with open(os.path.join(_PLACE, "__init__.py"), encoding="utf-8") as _file:
    exec(compile(_file.read(), _file.name, "exec"))
