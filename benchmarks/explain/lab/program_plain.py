"""Ranks that meet over sockets and step together; the culprit fails at its step. No torch."""

import os
import random
import socket
import struct
import sys
import time
from pathlib import Path

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprits = [int(word) for word in os.environ["LAB_CULPRITS"].split(",")]
fail_at, style = int(os.environ["LAB_STEP"]), int(os.environ["LAB_STYLE"])
dice = random.Random(f"{os.environ['LAB_KIND']} {rank}")
DECOYS = (
    "WARNING tracker: upload took 4.1 s",
    "ERROR: sync of TensorBoard events failed, will be tried again in 30 s",
    "UserWarning: the given buffer is not writable",
    "INFO retrying after ConnectionResetError (attempt 1 of 5): ok",
    "[dataloader] 2 corrupt rows skipped",
)


def log(text: str) -> None:
    """As three kinds of loggers write."""
    if style == 0:
        print(text, flush=True)
    elif style == 1:
        print(time.strftime("%Y-%m-%d %H:%M:%S,000"), f"[INFO] trainer[{rank}]: {text}", file=sys.stderr, flush=True)
    else:
        print(f"[rank{rank}] {text}", flush=True)


def meet() -> list[socket.socket]:
    """Rank 0 is connected with each other rank."""
    port = int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(("127.0.0.1", port), timeout=60)]
        except ConnectionRefusedError:
            time.sleep(0.02)


def read(peer: socket.socket) -> float:
    data = peer.recv(8)
    if len(data) < 8:
        raise ConnectionError("peer closed the connection during all_reduce")
    return struct.unpack("d", data)[0]


def all_reduce(peers: list[socket.socket], value: float) -> float:
    if rank:
        peers[0].sendall(struct.pack("d", value))
        return read(peers[0])
    total = value + sum(read(peer) for peer in peers)
    for peer in peers:
        peer.sendall(struct.pack("d", total))
    return total


def fail(step: int) -> None:
    with Path(os.environ["LAB_PIDS"]).open("a") as pids:
        pids.write(f"{os.getpid()} ")
    code = Path(os.environ["LAB_CODE"]).read_text()
    exec(compile(code, "train_step.py", "exec"), globals() | {"step": step})


def main() -> None:
    log(f"world size {world}, seed {1234 + rank}")
    peers = meet()
    for step in range(1, 50):
        if step == fail_at and rank in culprits:
            fail(step)
        loss = all_reduce(peers, dice.random()) / world
        log(f"step {step} loss {loss + 2:.4f} lr 3.0e-04 tokens/s {dice.randint(9000, 11000)}")
        if dice.random() < 0.3:
            log(dice.choice(DECOYS))


if __name__ == "__main__":
    main()
