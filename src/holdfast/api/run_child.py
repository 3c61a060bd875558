"""`python -m holdfast.api.run_child PID WORDS…`: `holdfast WORDS…`, which ends when the process PID ends.

A notebook's kernel that is killed must not leave a job behind that holds its devices.
"""

from __future__ import annotations

import signal
import sys

from holdfast.act.linux import die_with_parent
from holdfast.cli import main

if __name__ == "__main__":
    # The guard passes SIGTERM on: the workers get their grace time.
    die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    main(sys.argv[2:])
