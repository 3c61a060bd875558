"""`dlrover-run --standalone`, for torch releases that dlrover 0.6.1 does not know.

Its own --standalone starts a local master with a helper of torch whose arguments have since changed, and fails. This
starts the same master by hand, waits until it listens, runs dlrover-run against it, and ends the master after it.

    python bench/_dlrover.py DLROVER-RUN [OPTION …] SCRIPT [ARGUMENT …]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

LIMIT_S = 30.0


def main() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = subprocess.Popen(
        [
            sys.executable,
            *("-m", "dlrover.python.master.main", "--platform", "local"),
            *("--node_num", "1", "--port", str(port), "--job_name", "bench"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + LIMIT_S
        while master.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        return subprocess.call(sys.argv[1:], env={**os.environ, "DLROVER_MASTER_ADDR": f"127.0.0.1:{port}"})
    finally:
        master.kill()
        master.wait()


if __name__ == "__main__":
    sys.exit(main())
