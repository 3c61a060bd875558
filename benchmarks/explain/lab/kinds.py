# ruff: noqa: E501 - what a culprit does stands on one line
"""Kinds of failure that the lab provokes: what a rank does, and the truth about it.

A kind is a few lines of Python that the culprit runs in the middle of a training step. `where` says in which programs:
`plain` (no torch: ranks that talk over sockets), `torch` (a gloo group). `alike`: all ranks do it, none is the culprit.
`retry`: whether trying again, with nothing changed, may help: no, now, later, elsewhere, unknown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Kind:
    name: str
    phrase: str
    code: str
    also_right: tuple[str, ...] = ()
    retry: str = "no"
    where: tuple[str, ...] = ("plain", "torch")
    alike: bool = False
    #: What stands in the lines that decide; empty: no line does.
    decisive: tuple[str, ...] = ()
    #: What each rank does before it meets the others.
    setup: str = ""
    files: dict[str, str] = field(default_factory=dict)
    #: Where it is another than the class's.
    blame: str = ""
    #: The kernel's lines about it are part of the case.
    kernel: bool = False
    #: `memory`: a memory control group of 96 MiB ($LAB_CGROUP); `disk`: an ext4 file system of its own ($LAB_DISK).
    needs: str = ""


KINDS: list[Kind] = []


def kind(name: str, phrase: str, code: str, *decisive: str, also: Sequence[str] = (), **more: object) -> None:
    KINDS.append(
        Kind(
            name,
            phrase,
            textwrap.dedent(code).strip(),
            also_right=tuple(also),
            decisive=decisive,
            **more,  # type: ignore[arg-type]  # the fields of Kind, checked by it
        )
    )


# ------------------------------------------------------------------------------------------------ Python's own
kind("import-late", "ModuleNotFound", "import flash_attention_that_is_not_here", "ModuleNotFoundError: No module named")
kind("import-name", "ImportFailed", "from json import JSONStreamer", "ImportError: cannot import name")
kind(
    "import-plugin-syntax", "SyntaxError", "import plugin_v2", "SyntaxError:",
    files={"plugin_v2.py": "def forward(x):\n    return x +\n"},
)  # fmt: skip
kind(
    "key-of-batch",
    "UserException",
    "batch = {'input_ids': [1]}; batch['labels']",
    "KeyError: 'labels'",
    also=["ConfigInvalid"],
)
kind(
    "index-of-list",
    "UserException",
    "shards = list(range(8)); shards[8 + rank]",
    "IndexError:",
    also=["IndexOutOfRange"],
)
kind(
    "assert-loss", "UserException", "assert step > 1000, f'step {step}: the schedule has no warm-up'", "AssertionError:"
)
kind("zero-division", "UserException", "tokens = 0; print(1.0 / tokens)", "ZeroDivisionError")
kind("none-attribute", "UserException", "scheduler = None; scheduler.step()", "AttributeError: 'NoneType'")
kind(
    "own-exception",
    "UserException",
    "class TokenizerDrift(Exception): pass\nraise TokenizerDrift('vocab 50257 became 50304 after resume')",
    "TokenizerDrift: vocab",
)
kind("recursion", "UserException", "def walk(n): return walk(n + 1)\nwalk(0)", "RecursionError:")
kind("stop-iteration", "UserException", "batches = iter(()); next(batches)", "StopIteration")
kind("unicode", "DataCorrupt", "bytes([0x80, 0x81]).decode('utf-8')", "UnicodeDecodeError:", also=["UserException"])
kind("type-error", "UserException", "def collate(rows, pad): return rows\ncollate([1])", "TypeError: ")
kind(
    "thread-exception",
    "UserException",
    """
    import threading
    failed = []
    def prefetch():
        try:
            {}['shard-0007']
        except KeyError as error:
            failed.append(error)
    t = threading.Thread(target=prefetch, name='prefetch'); t.start(); t.join()
    raise RuntimeError('prefetch thread died') from failed[0]
    """,
    "RuntimeError: prefetch thread died",
    "KeyError: 'shard-0007'",
    also=["DataNotFound"],
)
kind(
    "config-chain",
    "ConfigInvalid",
    """
    import json
    open(f'conf-{rank}.json', 'w').write('{"lr": 3e-4,, "steps": 10}')
    try:
        json.load(open(f'conf-{rank}.json'))
    except ValueError as error:
        raise RuntimeError(f'cannot read config conf-{rank}.json') from error
    """,
    "RuntimeError: cannot read config",
    "JSONDecodeError",
    also=["DataCorrupt"],
)
kind("pickling", "PicklingFailed", "import pickle; pickle.dumps(lambda batch: batch)", "Can't pickle", "PicklingError")
kind(
    "loss-nan",
    "NanLoss",
    """
    loss = float('nan')
    print(f'step {step} loss {loss} grad_norm nan', flush=True)
    if loss != loss: raise FloatingPointError(f'loss is nan at step {step}')
    """,
    "FloatingPointError: loss is nan",
)
kind(
    "args",
    "InvalidArguments",
    """
    import argparse
    p = argparse.ArgumentParser(prog='train.py'); p.add_argument('--lr', type=float); p.parse_args(['--lr', 'fast'])
    """,
    "error: argument --lr: invalid float value",
)
# ------------------------------------------------------------------------------------------------ files and disks
kind("data-missing", "DataNotFound", "open(f'/data/tokens/train-{rank:05d}.bin', 'rb')", "FileNotFoundError:")
kind(
    "output-parent",
    "OutputPathMissing",
    "open('/results/run-7/metrics.csv', 'w')",
    "FileNotFoundError:",
    also=["DataNotFound"],
)
kind(
    "disk-full",
    "DiskFull",
    "f = open('/dev/full', 'w', buffering=1); f.write('checkpoint\\n' * 10)",
    "No space left on device",
    retry="no",
)
kind("not-permitted", "PermissionDenied", "os.setuid(65534); open('/root/.cache/tokens')", "PermissionError:")
kind(
    "json-cut",
    "DataCorrupt",
    """
    import json
    open(f'row-{rank}.jsonl', 'w').write('{"text": "hello", "tok')
    [json.loads(line) for line in open(f'row-{rank}.jsonl')]
    """,
    "JSONDecodeError",
)
kind(
    "gzip-cut",
    "DataCorrupt",
    """
    import gzip
    open(f's-{rank}.gz', 'wb').write(gzip.compress(os.urandom(5000))[:2000])
    gzip.open(f's-{rank}.gz').read()
    """,
    "EOFError: Compressed file ended",
)
kind(
    "zip-bad",
    "DataCorrupt",
    """
    import zipfile
    open(f'shard-{rank}.zip', 'wb').write(b'PK' + os.urandom(400))
    zipfile.ZipFile(f'shard-{rank}.zip')
    """,
    "BadZipFile",
)
kind(
    "files-limit",
    "TooManyOpenFiles",
    """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = [open('/dev/null') for _ in range(100)]
    """,
    "Too many open files",
)
kind(
    "stale-checkpoint-link",
    "CheckpointNotFound",
    "open('checkpoints/global_step4000/mp_rank_00_model_states.pt', 'rb')",
    "FileNotFoundError:",
    also=["DataNotFound"],
)
# ------------------------------------------------------------------------------------------------ memory, threads, signals
kind(
    "memory-error",
    "HostAllocationFailed",
    """
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    cache = [bytearray(1 << 30) for _ in range(8)]
    """,
    "MemoryError",
)
kind(
    "threads",
    "ThreadLimit",
    """
    import resource, threading
    os.setuid(64999); resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    threading.Thread(target=print).start()
    """,
    "can't start new thread",
    retry="unknown",
)
kind("segv", "NativeCrash", "import ctypes; ctypes.string_at(8)", retry="unknown")
kind(
    "segv-traced",
    "NativeCrash",
    "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(8)",
    "Fatal Python error: Segmentation fault",
    retry="unknown",
)
kind(
    "free-invalid",
    "NativeCrash",
    "import ctypes; libc = ctypes.CDLL(None); libc.free(ctypes.c_void_p(0x1234560))",
    also=["KilledBySignal"],
    retry="unknown",
)
kind(
    "abort",
    "NativeCrash",
    "os.write(2, b\"terminate called after throwing an instance of 'std::out_of_range'\\n  what():  vector::_M_range_check: __n (which is 8) >= this->size() (which is 8)\\n\"); os.abort()",
    "terminate called after",
    retry="unknown",
    also=["UserException", "IndexOutOfRange"],
)
kind(
    "bus",
    "NativeCrash",
    """
    import mmap
    f = open(f'map-{rank}', 'w+b'); f.truncate(1 << 16); m = mmap.mmap(f.fileno(), 1 << 16); f.truncate(0); print(m[40000])
    """,
    retry="unknown",
    also=["StorageIoError", "SharedMemoryExhausted"],
)
kind("fpe", "NativeCrash", "import signal; os.kill(os.getpid(), signal.SIGFPE)", retry="unknown")
kind("killed", "KilledBySignal", "os.kill(os.getpid(), 9)", retry="unknown", also=["HostOutOfMemoryKilled"])
kind(
    "terminated",
    "KilledBySignal",
    "import signal; os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)",
    retry="unknown",
    also=["StoppedByOperator", "Preempted"],
)
# ------------------------------------------------------------------------------------------------ silent
kind("exit-3", "Unexplained", "sys.exit(3)", retry="unknown")
kind("exit-in-c", "Unexplained", "print('flushing 3 writers', flush=True); os._exit(17)", retry="unknown")
kind(
    "exit-with-decoys",
    "Unexplained",
    """
    print('ERROR telemetry: could not reach collector, will retry (non-fatal)', file=sys.stderr)
    print('WARNING: NaN in metric grad_noise, skipped', file=sys.stderr)
    print('Exception ignored in: <function Writer.__del__>', file=sys.stderr, flush=True)
    os._exit(1)
    """,
    retry="unknown",
)
# ------------------------------------------------------------------------------------------------ network
kind(
    "dns",
    "DnsFailed",
    "import urllib.request; urllib.request.urlopen('http://tokens.storage.invalid/a', timeout=5)",
    "Name or service not known",
    retry="later",
    also=["NetworkUnreachable"],
)
kind(
    "refused",
    "NetworkUnreachable",
    "import socket; socket.create_connection(('127.0.0.1', 9), timeout=3)",
    "ConnectionRefusedError",
    retry="unknown",
    also=["ObjectStoreUnreachable", "HubUnreachable", "RendezvousFailed"],
)
kind(
    "port-taken",
    "AddressInUse",
    """
    import socket
    a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()
    b = socket.socket(); b.bind(a.getsockname())
    """,
    "Address already in use",
    retry="later",
)
kind(
    "http-404",
    "DownloadFailed",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_URL'] + '/status/404')",
    "HTTP Error 404",
    also=["DataNotFound"],
    retry="unknown",
)
kind(
    "http-403",
    "DownloadFailed",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_URL'] + '/status/403')",
    "HTTP Error 403",
    also=["ObjectStoreAuthFailed", "HubAuthFailed", "PermissionDenied"],
    retry="unknown",
)
kind(
    "http-503",
    "HubUnavailable",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_URL'] + '/status/503')",
    "HTTP Error 503",
    also=["DownloadFailed", "ObjectStoreThrottled"],
    retry="later",
)
kind(
    "http-429",
    "HubRateLimited",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_URL'] + '/status/429')",
    "HTTP Error 429",
    also=["ObjectStoreThrottled", "DownloadFailed"],
    retry="later",
)
kind(
    "cut-download",
    "DownloadFailed",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_URL'] + '/short').read()",
    "IncompleteRead",
    also=["NetworkLost"],
    retry="unknown",
)
kind(
    "tls",
    "TlsVerifyFailed",
    "import urllib.request; urllib.request.urlopen(os.environ['LAB_TLS_URL'] + '/x')",
    "CERTIFICATE_VERIFY_FAILED",
    retry="no",
)
kind(
    "no-route",
    "NetworkUnreachable",
    "import ctypes, socket; ctypes.CDLL(None).unshare(0x40000000)  # a network without routes\n"
    "socket.create_connection(('203.0.113.7', 443), timeout=2)",
    "Network is unreachable",
    also=["NetworkLost", "RendezvousFailed", "CollectiveConnectFailed", "DownloadFailed"],
    retry="elsewhere",
)
# ------------------------------------------------------------------------------------------------ native libraries and commands
kind(
    "library-missing",
    "SharedLibraryMissing",
    "import ctypes; ctypes.CDLL('libnccl_ofi.so.7')",
    "cannot open shared object file",
)
kind(
    "symbol",
    "AbiMismatch",
    """
    import ctypes
    ctypes.CDLL(None).torch_ext_rotary_v3
    """,
    "undefined symbol: torch_ext_rotary_v3",
)
kind(
    "command-missing",
    "CommandNotFound",
    "import subprocess; subprocess.run(['aws-s3-sync', 's3://b/x', '.'], check=True)",
    "FileNotFoundError: [Errno 2] No such file or directory: 'aws-s3-sync'",
)
kind(
    "exec-format",
    "ExecFormatError",
    """
    import subprocess
    open(f'./tool-{rank}', 'wb').write(b'\\x7fELF\\x02\\x01\\x01' + bytes(60)); os.chmod(f'tool-{rank}', 0o755)
    subprocess.run([f'./tool-{rank}'], check=True)
    """,
    "Exec format error",
)
kind(
    "child-fails",
    "UserException",
    "import subprocess; subprocess.run(['sh', '-c', 'echo ninja: build stopped: subcommand failed. >&2; exit 2'], check=True)",
    "CalledProcessError",
    also=["Unexplained", "CommandNotFound"],
)
# ------------------------------------------------------------------------------------------------ with the kernel's lines
MACHINE = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7); page.write({code})
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
JOIN = "open(os.environ['LAB_CGROUP'] + '/cgroup.procs', 'w').write(str(os.getpid()))"
kind(
    "memory-limit",
    "HostOutOfMemoryKilled",
    f"{JOIN}\nrows = []\nwhile True: rows.append(bytearray(4 << 20))",
    kernel=True,
    needs="memory",
)
kind("null-read", "NativeCrash", "import ctypes; ctypes.string_at(8)", kernel=True, retry="unknown")
kind(
    "native-divide",
    "NativeCrash",
    MACHINE.format(code=r"b'\x31\xc0\x31\xd2\x31\xc9\xf7\xf9\xc3'"),
    kernel=True,
    retry="unknown",
)
kind("native-opcode", "NativeCrash", MACHINE.format(code=r"b'\x0f\x0b'"), kernel=True, retry="unknown")
kind(
    "wild-jump",
    "NativeCrash",
    MACHINE.format(code=r"b'\x48\xb8AAAAAAAA\xff\xe0'"),
    kernel=True,
    retry="unknown",
)
kind(
    "disk-turns-read-only",
    "ReadOnlyFilesystem",
    """
    name = os.environ['LAB_DEVICE']
    open(f'/sys/fs/ext4/{name}/trigger_fs_error', 'w').write('bad block bitmap checksum')
    open(os.environ['LAB_DISK'] + f'/step-{step}.pt', 'wb').write(bytes(1 << 20))
    """,
    "Read-only file system",
    kernel=True,
    needs="disk",
    retry="elsewhere",
)
kind(
    "disk-reads-fail",
    "StorageIoError",
    """
    os.truncate(os.environ['LAB_IMAGE'], 4 << 20)
    shard = open(os.environ['LAB_DISK'] + '/shard.bin', 'rb')
    os.posix_fadvise(shard.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    shard.read()
    """,
    "Input/output error",
    kernel=True,
    needs="disk",
    retry="elsewhere",
)
kind(
    "killed-beside-another-crash",
    "KilledBySignal",
    """
    import subprocess
    other = subprocess.Popen([sys.executable, '-c', 'import ctypes; ctypes.string_at(8)'], stderr=subprocess.DEVNULL)
    open(os.environ['LAB_PIDS'], 'a').write(f'{other.pid} '); other.wait()
    os.kill(os.getpid(), 9)
    """,
    kernel=True,
    retry="unknown",
)
kind(
    "loader-memory-limit",
    "HostOutOfMemoryKilled",
    f"""
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, i):
            {JOIN}
            open(os.environ['LAB_PIDS'], 'a').write(f'{{os.getpid()}} ')
            rows = []
            while True: rows.append(bytearray(4 << 20))
    next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
    """,
    "is killed by signal: Killed",
    kernel=True,
    needs="memory",
    where=("torch",),
)
# ------------------------------------------------------------------------------------------------ torch
T = ("torch",)
kind(
    "matmul",
    "ShapeMismatch",
    "torch.randn(4, 10) @ torch.randn(8, 2)",
    "mat1 and mat2 shapes cannot be multiplied",
    where=T,
)
kind(
    "dtype",
    "DtypeMismatch",
    "torch.nn.Linear(4, 2)(torch.randn(3, 4, dtype=torch.float64))",
    "must have the same dtype",
    where=T,
    also=["ShapeMismatch"],
)
kind(
    "gather-range",
    "IndexOutOfRange",
    "torch.nn.Embedding(10, 4)(torch.tensor([3, 12]))",
    "index out of range in self",
    where=T,
)
kind(
    "load-cut",
    "CheckpointCorrupt",
    """
    torch.save({'w': torch.randn(1000)}, f'step-{rank}.pt')
    os.truncate(f'step-{rank}.pt', 1500); torch.load(f'step-{rank}.pt')
    """,
    "PytorchStreamReader",
    where=T,
)
kind(
    "load-missing",
    "CheckpointNotFound",
    "torch.load('checkpoints/step_4000.pt')",
    "FileNotFoundError",
    where=T,
    also=["DataNotFound"],
)
kind(
    "load-other-model",
    "CheckpointIncompatible",
    """
    torch.nn.Linear(4, 2).load_state_dict(torch.nn.Linear(8, 2).state_dict())
    """,
    "Error(s) in loading state_dict",
    where=T,
)
kind(
    "no-cuda",
    "AcceleratorNotAvailable",
    "torch.randn(2, device='cuda')",
    "Torch not compiled with CUDA enabled",
    where=T,
    retry="elsewhere",
    also=["AcceleratorArchUnsupported"],
)
kind("alloc", "HostAllocationFailed", "torch.empty(1 << 47)", "can't allocate memory", where=T)
kind(
    "loader-raises",
    "UserException",
    """
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): raise ValueError(f'row {i}: 3 channels expected, got 1')
    next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
    """,
    "ValueError: row",
    where=T,
    also=["DataCorrupt"],
)
kind(
    "loader-killed",
    "KilledBySignal",
    """
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): os.kill(os.getpid(), 9)
    next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
    """,
    "DataLoader worker (pid",
    "is killed by signal: Killed",
    where=T,
    retry="unknown",
    also=["HostOutOfMemoryKilled"],
)
kind(
    "leaves-early",
    "CollectiveMismatch",
    "print('no more data', flush=True); sys.exit(0)",
    where=T,
    also=["PeerLost"],
    blame="workload",
)
kind(
    "sizes-differ",
    "CollectiveMismatch",
    """
    dist.all_reduce(torch.randn(7))
    """,
    where=T,
    also=["NetworkLost", "CollectiveSystemError"],
)
kind(
    "grad-twice",
    "UserException",
    "x = torch.randn(2, requires_grad=True); y = (x * x).sum(); y.backward(); y.backward()",
    "second time",
    where=T,
)
# ------------------------------------------------------------------------------------------------ all ranks alike
ALIKE = {
    "plain": "import-late import-name key-of-batch own-exception config-chain args data-missing disk-full dns http-404 "
    "http-429 http-503 library-missing symbol command-missing type-error json-cut stale-checkpoint-link not-permitted "
    "refused tls exit-3 memory-error assert-loss",
    "torch": "matmul load-missing load-other-model no-cuda dtype load-cut",
}
KINDS += [
    replace(one, name=f"{one.name}-alike", alike=True, where=(program,))
    for program, names in ALIKE.items()
    for one in tuple(KINDS)
    if one.name in names.split()
]
