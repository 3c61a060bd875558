"""A worker that waits for its go holds nothing of ours: what its agent lets go of is free at once."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from holdfast.act.spawn import spawn

pytestmark = pytest.mark.real


def test_a_port_that_was_held_when_a_worker_was_made_ready_is_free_before_it_runs(tmp_path: Path) -> None:
    kept = socket.socket()
    kept.bind(("", 0))
    port = kept.getsockname()[1]
    nowhere = os.open(os.devnull, os.O_RDWR)
    worker = spawn([sys.executable, "-c", ""], {}, cwd=tmp_path, stdin_fd=nowhere, stdout_fd=nowhere, stderr_fd=nowhere)
    os.set_blocking(worker.status_fd, True)
    try:
        assert os.read(worker.status_fd, 1) == b"+", "it waits"
        kept.close()
        socket.create_server(("", port)).close()
    finally:
        os.close(worker.go_fd)
        os.waitpid(worker.pid, 0)
        for fd in (worker.pidfd, worker.status_fd, nowhere):
            os.close(fd)
