"""One agent of a job on a node: it waits for the one before, and for no other user."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from holdfast.main import agent_main

HOLDS = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
held = socket.socket(socket.AF_UNIX); held.bind("\\0" + sys.argv[1]); held.listen(8)
print(flush=True); sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("uid", [0, 65534])
def test_the_address_of_another_user_holds_no_agent_up(uid: int) -> None:
    place = f"drill-{os.getpid()}-{uid}"
    words = [sys.executable, "-c", HOLDS, f"holdfast-agent-{os.getuid()}-{place}", str(uid)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    reader, writer = os.pipe()
    assert holder.stdin is not None and holder.stdout is not None
    holder.stdout.readline()
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(agent_main._alone(place, reader)), daemon=True)
    try:
        waiting.start()
        if uid == os.getuid():
            os.close(writer)  # the starter is gone first: this agent waited for the one before
        waiting.join(60)
        assert answers == [uid != os.getuid()]
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
        os.close(reader)
        if uid != os.getuid():
            os.close(writer)
