"""The program `python -m holdfast.api.run_child PID WORDS…` runs `holdfast WORDS…`, and ends it when process PID ends.

A job therefore ends when its notebook's kernel is killed, and keeps no device busy.
"""

from __future__ import annotations

import signal
import sys

from holdfast.act.linux import die_with_parent
from holdfast.cli import main

if __name__ == "__main__":
    # At SIGTERM the guard stops the workers, which get their grace period.
    die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    main(sys.argv[2:])
