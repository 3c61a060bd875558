"""Provoke the lab's failures for real, and write each one down as a case.

    python benchmarks/explain/lab/provoke.py [--jobs 2] [KIND…]      # writes cases/lab-*.json

Each kind runs once without torch (four ranks over sockets, started by a plain loop: each exit status is known) and
once with it (three ranks of a gloo group under torchrun, which states what it saw). A kind is `dev` or `test` by its
name, in all its programs: what an explainer is tuned on never holds what it is judged on. Needs root and torch.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import http.server
import json
import os
import platform
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kinds import KINDS, Kind

HERE = Path(__file__).parent
CASES = HERE.parent / "cases"
#: A case takes no longer; and so long the others may take to notice, then they are ended as launchers do it.
LIMIT_S, PATIENCE_S = 120.0, 6.0
TEST_SHARE = 0.5
#: A case does not say on whose machine it was provoked.
PLACES = (
    (r"/tmp/lab-[^/\s\"']+", "/workspace"),
    (re.escape(sys.prefix), "/opt/venv"),
    (re.escape(sys.base_prefix), "/usr/local"),
)


def public(text: str) -> str:
    for pattern, shown in PLACES:
        text = re.sub(pattern, shown, text)
    return text.replace(platform.node(), "node-1") if len(platform.node()) > 4 else text


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as a file server in trouble would."""

    def do_GET(self) -> None:
        if self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"x" * 1000)
            return
        self.send_error(int(self.path.rpartition("/")[2]))

    def log_message(self, *_: object) -> None:
        pass


def servers(place: Path) -> dict[str, str]:
    """A plain one, and one whose certificate has no authority."""
    key, certificate = place / "key.pem", place / "cert.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", *request, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    found = {}
    for name, secure in (("LAB_URL", False), ("LAB_TLS_URL", True)):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        if secure:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]  # clients hang up on purpose
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found[name] = f"http{'s' if secure else ''}://localhost:{server.server_address[1]}"
    return found


def provoke(kind: Kind, program: str, around: dict[str, str]) -> dict[str, Any]:
    """Run it, and make a case of what it left."""
    number = int(hashlib.sha256(f"{kind.name} {program}".encode()).hexdigest()[:8], 16)
    ranks = 4 if program == "plain" else 3
    culprits = list(range(ranks)) if kind.alike else [number % ranks]
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        place = Path(name)
        place.chmod(0o777)
        (place / "train_step.py").write_text(kind.code + "\n")
        for file, text in kind.files.items():
            (place / file).write_text(text)
        shutil.copy(HERE / f"program_{program}.py", place / "train.py")
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "PYTHON", "LC_"))},
            **around,
            "LAB_KIND": kind.name,
            "LAB_CODE": str(place / "train_step.py"),
            "LAB_CULPRITS": ",".join(map(str, culprits)),
            "LAB_STEP": str(1 if kind.alike else 2 + number % 4),
            "LAB_STYLE": str(number // 7 % 3),
            "LAB_PIDS": str(place / "pids"),
            "PYTHONPATH": str(place),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "localhost,127.0.0.1",
        }
        run = by_loop if program == "plain" else by_torchrun
        with around_it(kind, place) as given:
            env |= given
            began = kernel_lines()
            logs, exits, launcher = run(place, ranks, env)
            kernel = told_by_kernel(began, place, given) if kind.kernel else []
    split = (
        "test" if int(hashlib.sha256(kind.name.removesuffix("-alike").encode()).hexdigest(), 16) % 100 < 50 else "dev"
    )
    return {
        "id": f"lab-{kind.name}-{program}",
        "split": split,
        "logs": [{"rank": rank, "name": name, "text": public(text)} for rank, name, text in logs],
        "exits": exits,
        "launcher": public(launcher),
        "kernel": kernel,
        "truth": {
            "phrase": kind.phrase,
            "also_right": list(kind.also_right),
            "blame": kind.blame,
            "culprits": culprits,
            "retry": kind.retry,
            "decisive": list(kind.decisive),
        },
        "provenance": {
            "how": "provoked",
            "kind": kind.name,
            "program": program,
            "launcher": "a loop" if program == "plain" else f"torchrun {version('torch')}",
            "python": platform.python_version(),
            "kernel": platform.release().split("-")[0],
            "date": datetime.now(UTC).date().isoformat(),
        },
    }


@contextlib.contextmanager
def around_it(kind: Kind, place: Path) -> Iterator[dict[str, str]]:
    """A memory control group, or a disk of its own (a loop device), where the kind needs one. Needs root."""
    if kind.needs == "memory":
        group = Path("/sys/fs/cgroup/memory") / place.name
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(512 << 20 if "torch" in kind.where[:1] else 96 << 20))
        try:
            yield {"LAB_CGROUP": str(group)}
        finally:
            group.rmdir()
    elif kind.needs == "disk":
        image, disk = place / "disk.img", place / "scratch"
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(32 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, disk], check=True)
        device = next(line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if str(disk) in line)
        (disk / "shard.bin").write_bytes(os.urandom(8 << 20))
        os.sync()
        try:
            yield {"LAB_DISK": str(disk), "LAB_IMAGE": str(image), "LAB_DEVICE": device.removeprefix("/dev/")}
        finally:
            subprocess.run(["umount", disk], check=False)
    else:
        yield {}


def kernel_lines() -> list[str]:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()


def told_by_kernel(began: list[str], place: Path, given: dict[str, str]) -> list[str]:
    """The new lines about this case: of its processes, its device and its control group."""
    pids = (place / "pids").read_text().split() if (place / "pids").exists() else []
    ours = [rf"\[{pid}\]|\b(?:pid=|process ){pid}\b" for pid in pids]
    ours += [re.escape(given[key].rpartition("/")[2]) + r"\b" for key in ("LAB_DEVICE", "LAB_CGROUP") if key in given]
    new = [line for line in kernel_lines() if line not in set(began)]
    return [line.replace(place.name, "job-7041") for line in new if re.search("|".join(ours), line)][:12]


def version(name: str) -> str:
    from importlib.metadata import version as found

    return found(name)


Ran = tuple[list[tuple[int, str, str]], list[dict[str, Any]], str]


def by_loop(place: Path, ranks: int, env: dict[str, str]) -> Ran:
    """Each rank is started at once; when one has failed, the others get some seconds, then SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = []
    for rank in range(ranks):
        own = {**env, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)}
        with (place / f"rank-{rank}.log").open("w") as out:
            words = [sys.executable, "train.py"]
            started.append(
                subprocess.Popen(words, cwd=place, env=own, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        ended = [process for process in started if process.poll() is not None]
        if len(ended) == ranks:
            break
        if ended:
            until = min(until, time.monotonic() + PATIENCE_S)
        time.sleep(0.05)
        if ended and time.monotonic() >= until:
            break
    by_launcher = [rank for rank, process in enumerate(started) if process.poll() is None]
    for process in started:
        process.poll() is None and process.send_signal(signal.SIGTERM)
    exits = []
    for rank, process in enumerate(started):
        status = process.wait(10)
        exits.append(
            {"rank": rank, "code": status if status >= 0 else None, "signal": -status if status < 0 else None}
            | ({"by_launcher": True} if rank in by_launcher else {})
        )
    logs = [
        (rank, f"rank-{rank}.log", (place / f"rank-{rank}.log").read_text(errors="replace")) for rank in range(ranks)
    ]
    return logs, exits, ""


def by_torchrun(place: Path, ranks: int, env: dict[str, str]) -> Ran:
    """torchrun's own words, and the files that it keeps for each rank."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    words += ["--redirects", "3", "--log-dir", str(place / "logs"), "train.py"]
    done = subprocess.run(
        words,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    logs = [
        (rank, f"{rank}/{stream}.log", text)
        for rank in range(ranks)
        for stream in ("stdout", "stderr")
        for file in sorted((place / "logs").glob(f"*/attempt_0/{rank}/{stream}.log"))
        if (text := file.read_text(errors="replace"))
    ]
    return logs, [], done.stderr + done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Provoke the lab's failures, and write them down as cases.")
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    asked = parser.parse_args()
    chosen = [(k, program) for k in KINDS for program in k.where if not asked.kinds or k.name in asked.kinds]
    CASES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="lab-tls-") as name,
        concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool,
    ):
        around = servers(Path(name))
        for case in pool.map(lambda one: provoke(*one, around), chosen):
            said = "".join(log["text"] for log in case["logs"]) + case["launcher"]
            ended = [one for one in case["exits"] if one["code"] or one["signal"]]
            if not (ended or case["launcher"]) or any(word not in said for word in case["truth"]["decisive"]):
                sys.exit(f"{case['id']}: nothing failed, or not as the kind says")
            (CASES / f"{case['id']}.json").write_text(json.dumps(case, indent=1, ensure_ascii=False) + "\n")
            print(case["id"], case["exits"] or case["launcher"].strip().splitlines()[-1:], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
