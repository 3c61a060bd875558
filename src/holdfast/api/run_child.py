"""`python -m holdfast.api.run_child PID WORDS…`: runs `holdfast WORDS…` and ends it when the process PID ends.

If a notebook's kernel is killed, no job may stay behind and hold its devices.
"""

from __future__ import annotations

import signal
import sys

from holdfast.act.linux import die_with_parent
from holdfast.cli import main

if __name__ == "__main__":
    # The guard forwards SIGTERM to the workers, which get their grace time.
    die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    main(sys.argv[2:])
