"""The job of the drills: ranks that step together over plain sockets, and do what the test asks of them.

`drill_trainer.py OUT [STEP_S [apart|drains]]`. It knows nothing of any launcher: RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are all that it needs; with `apart` a rank steps alone and never hears of the others; with `drains` it
listens to holdfast's notice, and saves and leaves in place of being stopped. OUT is a directory that all nodes and the
test see:

- `rank-R.jsonl`: what happens to rank R, a line each, with the time of day (one clock for all nodes) and the attempt.
- `order-R`: what rank R shall do at its next step, in one word, or `WORD@TIME`; the file is gone when it begins.
- `finish`: all ranks end well after their next step.
- `saved`: the last step that all ranks have finished; the next attempt goes on behind it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

PEER_WAIT_S = 60.0
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
out, step_s = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.03
apart, drains = sys.argv[3:] == ["apart"], sys.argv[3:] == ["drains"]
noticed = threading.Event()
diary = os.open(out / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
BY_NODE = {name: os.environ.get(name) for name in ("LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR")}


def happened(what: str, **more: object) -> None:
    told = {"at": time.time(), "what": what, "attempt": attempt, "pid": os.getpid(), "host": socket.gethostname()}
    os.write(diary, (json.dumps({**told, **more}) + "\n").encode())


def stopped(number: int, _frame: FrameType | None) -> None:
    happened("stopped", signal=number)
    os._exit(128 + number)


def save_and_leave(notice: dict[str, object]) -> None:
    noticed.set()
    happened("notice", seconds=notice["seconds"], reason=notice["reason"])
    (out / f"checkpoint-{rank}").write_text(str(step))
    happened("saved", step=step)
    os._exit(0)


#: Rank 0's connections to all others, in their order; another rank's to rank 0.
peers: list[socket.socket] = []


def meet() -> None:
    if not apart:
        peers[:] = connections()


def connections() -> list[socket.socket]:
    port = int(os.environ["MASTER_PORT"])
    if rank == 0:
        family = socket.AF_INET6 if ":" in os.environ["MASTER_ADDR"] else socket.AF_INET
        with socket.create_server(("", port), family=family, backlog=ranks) as server:
            server.settimeout(PEER_WAIT_S)
            came: dict[int, socket.socket] = {}
            while len(came) < ranks - 1:
                peer, _ = server.accept()
                if word := peer.recv(4):  # else a check only tries whether the port is open
                    came[int.from_bytes(word, "big")] = peer
        return [came[number] for number in sorted(came)]
    until = time.monotonic() + PEER_WAIT_S
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=PEER_WAIT_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            peer.settimeout(None)
            peer.sendall(rank.to_bytes(4, "big"))
            return [peer]


def heard(peer: socket.socket) -> bytes:
    if not (word := peer.recv(1)):
        raise ConnectionResetError("Connection closed by peer")
    return word


def keep() -> None:
    """The checkpoint of each step, by rank 0."""
    (out / "saved.new").write_text(str(step))
    (out / "saved.new").rename(out / "saved")


def all_reduce() -> bool:
    """One step of all; whether it was the last."""
    if apart:
        return (out / "finish").exists()
    if rank:
        peers[0].sendall(b".")
        return heard(peers[0]) == b"!"
    for peer in peers:
        heard(peer)
    keep()
    last = (out / "finish").exists()
    for peer in peers:
        peer.sendall(b"!" if last else b".")
    return last


def read_a_batch() -> None:
    time.sleep(600)


def obey(word: str) -> None:
    word, _, moment = word.partition("@")
    if moment:  # of two ranks that shall die so close to each other that no step lies between
        time.sleep(max(0.0, float(moment) - time.time()))
    happened("ordered", word=word)
    match word:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("the loss is not a number")
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "hang":
            read_a_batch()
        case "write":  # until the disk of its log is full, and on
            for _ in range(200):
                print("x" * 65_000, flush=True)
        case _:
            raise SystemExit(f"no such order: {word}")


attempt = int(os.environ.get("HOLDFAST_ATTEMPT") or int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1)
step = 0


def train(meet: Callable[[], None], all_reduce: Callable[[], bool]) -> None:
    global step
    if not drains:
        signal.signal(signal.SIGTERM, stopped)
    happened("start", ranks=ranks, **BY_NODE)
    try:
        from holdfast import on_drain, progress
    except ImportError:  # under another launcher

        def progress(step: int, saved: bool = False) -> None: ...

    if drains:
        on_drain(save_and_leave)
    meet()
    saved = out / "saved"
    step = int(saved.read_text()) + 1 if saved.exists() else 0
    order = out / f"order-{rank}"
    if order.exists() and float(order.read_text().partition("@")[2] or "inf") < time.time():
        order.unlink()  # of an attempt that ended before its moment
    last = False
    while not last:
        time.sleep(step_s)
        if order.exists():
            word = order.read_text()
            order.unlink()
            obey(word)
        try:
            last = all_reduce()
        except (OSError, RuntimeError) as error:
            if drains and noticed.wait(5):
                time.sleep(600)  # this rank's own notice ends it
            happened("peer lost", error=str(error))
            raise
        happened("step", step=step)
        progress(step)
        if rank == 0:
            print(f"step {step}", flush=True)
        step += 1
    happened("done")


if __name__ == "__main__":
    train(meet, all_reduce)
