"""Four workers count together; rank 1 is killed once, half-way. Run it under holdfast:

    holdfast run --nproc-per-node 4 examples/lose_a_rank.py

Needs nothing but Python: the workers meet in a TCP server that rank 0 keeps, as torch.distributed does. When rank 1
dies, the others see only that a connection broke; holdfast says who it really was, and starts all four again from the
last saved step.
"""

import os
import pathlib
import signal
import socket
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
CHECKPOINT = pathlib.Path(os.environ["HOLDFAST_HOME"]) / "jobs" / os.environ["HOLDFAST_JOB"] / "checkpoint"
STEPS = 20


class Ring:
    """The smallest all-reduce there is: everyone sends a number to rank 0, and gets the sum back."""

    def __init__(self) -> None:
        if RANK == 0:
            server = socket.create_server(ADDRESS, backlog=WORLD)
            self.peers = [server.accept()[0] for _ in range(WORLD - 1)]
            server.close()
        else:
            self.peers = [self._connect()]

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection(ADDRESS, timeout=30)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # rank 0 is not listening yet

    def all_reduce(self, value: int) -> int:
        if RANK == 0:
            total = value + sum(self._receive(peer) for peer in self.peers)
            for peer in self.peers:
                peer.sendall(total.to_bytes(8, "big"))
            return total
        self.peers[0].sendall(value.to_bytes(8, "big"))
        return self._receive(self.peers[0])

    @staticmethod
    def _receive(peer: socket.socket) -> int:
        data = peer.recv(8)
        if not data:
            raise ConnectionResetError("Connection closed by peer")
        return int.from_bytes(data, "big")


def main() -> None:
    ring = Ring()
    start = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    if RANK == 0:
        print(f"attempt {ATTEMPT}: from step {start}", flush=True)
    for step in range(start, STEPS):
        time.sleep(0.1)
        if RANK == 1 and ATTEMPT == 1 and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        total = ring.all_reduce(step)
        if RANK == 0:
            CHECKPOINT.write_text(str(step + 1))
            if step % 5 == 4:
                print(f"step {step + 1} of {STEPS}: sum over {WORLD} ranks is {total}", flush=True)
        ring.all_reduce(0)  # a barrier: nobody goes on before rank 0 has saved the step


if __name__ == "__main__":
    sys.exit(main())
