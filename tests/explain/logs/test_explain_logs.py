"""Ugly logs, decoys and consequences: whole logs go in, one phrase comes out."""

# ruff: noqa: E501 - a log's line stays one line
from __future__ import annotations

import json
import zlib
from collections.abc import Callable

import pytest
from explain_builders import of_texts

from holdfast.catalogue.exit_rows import ExitRow, Wording, read_rows
from holdfast.explain import explain
from holdfast.explain.logs.log_lines import parse
from holdfast.explain.logs.tracebacks import chains
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit

SIXTY_STEPS = "\n".join(
    f"2026-11-20 22:{i // 60:02d}:{i % 60:02d},123 [INFO] trainer: step {i} loss {2.3 - i / 1000:.4f} (0.02s)"
    for i in range(60)
)


def torchrun_box(r: int, c: int, p: int = 1000, sig: str = "") -> str:
    return f"""E1120 22:11:00.417000 14895 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {c}) local_rank: {r} (pid: {p}) of binary: /opt/venv/bin/python3
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_22:11:00
  host      : localhost
  rank      : {r} (local_rank: {r})
  exitcode  : {c} (pid: {p}){sig}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""


def tb(line: str, r: int | None = None, frame: str = "/app/train.py") -> str:
    p = "" if r is None else f"[rank{r}]: "
    return "\n".join(
        p + line
        for line in [
            "Traceback (most recent call last):",
            f'  File "{frame}", line 88, in <module>',
            "    main()",
            *line.split("\n"),
        ]
    )


OOM_OF_GPU_1 = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 4.06 GiB is free. Process 3012 has 75.08 GiB memory in use."
PEER_CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:41211. This is typically caused by a remote worker crashing."
NCCLTO = "[rank2]:[E1120 22:10:59.104 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
CASES: dict[str, tuple[str, ...]] = {}
CASES["decoy invalid argument"] = (
    "CollectiveSystemError|NetworkLost|PeerLost|CollectiveConnectFailed",
    "ls: invalid argument: --foo\n"
    + SIXTY_STEPS
    + "\n"
    + tb(
        "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1331, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.0.0.9<41000> failed : Software caused connection abort",
        0,
    ),
)
CASES["hub 503 early then oom"] = (
    "AcceleratorOutOfMemory",
    "HTTP Error 503 thrown while requesting HEAD https://huggingface.co/x/resolve/main/config.json\nRetrying in 1s [Retry 1/5].\n"
    + SIXTY_STEPS
    + "\n"
    + tb(OOM_OF_GPU_1),
)
CASES["rank1 oom, box blames 0"] = (
    "AcceleratorOutOfMemory",
    SIXTY_STEPS + "\n" + tb(PEER_CLOSED, 0) + "\n" + tb(OOM_OF_GPU_1, 1) + "\n" + torchrun_box(0, 1),
)
CASES["interleaved"] = (
    "AcceleratorOutOfMemory",
    "\n".join(x for p in zip(tb(PEER_CLOSED, 0).split("\n"), tb(OOM_OF_GPU_1, 1).split("\n"), strict=True) for x in p)
    + "\n"
    + torchrun_box(0, 1),
)
CASES["group"] = (
    "AcceleratorOutOfMemory",
    """  + Exception Group Traceback (most recent call last):
  |   File "/app/a.py", line 9, in <module>
  |     asyncio.run(main())
  |   File "/app/a.py", line 5, in main
  |     async with asyncio.TaskGroup() as tg:
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/a.py", line 3, in work
    |     load()
    | """
    + OOM_OF_GPU_1
    + """
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/app/a.py", line 4, in work2
    |     x()
    | asyncio.exceptions.CancelledError
    +------------------------------------""",
)
CASES["newest first"] = (
    "AcceleratorOutOfMemory",
    "\n".join(
        (
            SIXTY_STEPS
            + "\n"
            + "\n".join(
                f"2026-11-20 22:05:00,1{i:02d} [ERROR] {line}" for i, line in enumerate(tb(OOM_OF_GPU_1).split("\n"))
            )
        ).split("\n")[::-1]
    ),
)
CASES["handled, went on, then killed"] = (
    "KilledBySignal",
    SIXTY_STEPS[:900]
    + "\n"
    + tb("ConnectionRefusedError: [Errno 111] Connection refused")
    + "\n"
    + "\n".join(
        f"2026-11-20 22:{i // 60:02d}:{i % 60:02d},123 [INFO] trainer: step {i} loss 2.0000 (0.02s)"
        for i in range(100, 160)
    )
    + "\nrun.sh: line 4: 1234 Killed                  python train.py",
)
CASES["xid + app"] = (
    "AcceleratorLost",
    "[98123.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
    tb(
        "RuntimeError: CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    ),
)
CASES["advice alone"] = (
    "UserException|HostOutOfMemoryKilled|KilledBySignal|Unexplained|NativeCrash",
    tb(
        "RuntimeError: DataLoader worker (pid 77) exited unexpectedly with exit code 1. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
    ),
)
CASES["advice with bus error"] = (
    "SharedMemoryExhausted",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    + tb(
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
    ),
)
CASES["slurm time"] = (
    "TimeLimitReached",
    SIXTY_STEPS
    + "\nslurmstepd: error: *** JOB 812 ON node3 CANCELLED AT 2026-11-20T22:12:00 DUE TO TIME LIMIT ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nslurmstepd: error: *** STEP 812.0 ON node3 CANCELLED AT 2026-11-20T22:12:00 DUE TO TIME LIMIT ***\nsrun: error: node3: tasks 0-7: Terminated",
)
CASES["slurm oom"] = (
    "HostOutOfMemoryKilled",
    SIXTY_STEPS
    + "\nslurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.\nsrun: error: node3: task 2: Out Of Memory",
)
CASES["k8s oom"] = (
    "HostOutOfMemoryKilled",
    '{"kind":"Pod","status":{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}',
)
CASES["k8s evicted"] = (
    "Evicted",
    '{"kind": "Pod", "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi."}}',
)
CASES["k8s evicted descr"] = (
    "Evicted",
    "Status:           Failed\nReason:           Evicted\nMessage:          The node was low on resource: memory. Container main was using 120Gi, request is 64Gi.",
)
CASES["k8s image"] = (
    "ImagePullFailed",
    'LAST SEEN   TYPE      REASON    OBJECT      MESSAGE\n2m  Normal  Pulling  pod/train-0  Pulling image "reg.example/x:1"\n2m Warning Failed pod/train-0 Failed to pull image "reg.example/x:1": rpc error: code = NotFound desc = failed to pull and unpack image: not found\n1m Warning Failed pod/train-0 Error: ErrImagePull\n1m Warning BackOff pod/train-0 Back-off pulling image',
)
CASES["k8s unsched"] = (
    "ResourcesInsufficient",
    "Warning  FailedScheduling  2m  default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 12 No preemption victims found for incoming pod.",
)
CASES["vllm kv"] = (
    "KvCacheTooSmall",
    "\n".join(
        "(EngineCore_DP0 pid=99) ERROR 11-20 22:10:11 [core.py:718] " + line
        for line in [
            "EngineCore failed to start.",
            *tb(
                "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.42 GiB). Based on the available memory, the estimated maximum model length is 77136. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
            ).split("\n"),
        ]
    )
    + "\n"
    + "\n".join(
        "(APIServer pid=1) " + line
        for line in tb(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        ).split("\n")
    ),
)
CASES["nccl timeout while rank 3 raised"] = (
    "UserException",
    SIXTY_STEPS
    + "\n"
    + tb("KeyError: 'label'", 3)
    + "\n"
    + NCCLTO
    + "\n[rank2]:[E1120 22:11:00.104 ProcessGroupNCCL.cpp:630] [Rank 2] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[rank2]: To avoid data inconsistency, we are taking the entire process down.\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
    + torchrun_box(2, -6, sig="  (SIGABRT)"),
)
CASES["nccl timeout only"] = (
    "CollectiveTimeout",
    SIXTY_STEPS
    + "\n"
    + NCCLTO
    + "\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
    + torchrun_box(2, -6, sig="  (SIGABRT)"),
)
CASES["cut cause"] = ("Unexplained", SIXTY_STEPS + "\n" + torchrun_box(0, 1).split("\n", 1)[1])
CASES["healthy"] = ("Unexplained", SIXTY_STEPS)
CASES["warn early"] = (
    "UserException",
    "2026-11-20 22:00:00,000 WARNING No space left on device, falling back to memory cache\n"
    + SIXTY_STEPS
    + "\n"
    + tb("ValueError: boom"),
)
CASES["ckpt corrupted handled"] = (
    "AcceleratorOutOfMemory",
    tb("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory")
    + "\n2026-11-20 22:00:00,000 [WARNING] checkpoint step_90 unreadable, falling back to step_80\n"
    + SIXTY_STEPS
    + "\n"
    + tb(OOM_OF_GPU_1),
)
CASES["hccl"] = (
    "CollectiveTimeout",
    "[ERROR] HCCL(4242,python3.9):2026-11-20-22:11:00.123.456 [task_exception_handler.cc:911][4242][TaskExceptionHandler][Callback]Task from HCCL run failed. [ErrCode:EI0002] The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [3]",
)
CASES["segv cpp"] = (
    "NativeCrash",
    'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "/app/train.py", line 3 in main\nSegmentation fault (core dumped)',
)
CASES["ctrl-c"] = ("StoppedByOperator", SIXTY_STEPS + "\n^C" + tb("KeyboardInterrupt"))
CASES["preempt slurm"] = (
    "Preempted",
    SIXTY_STEPS + "\nslurmstepd: error: *** JOB 812 ON node3 CANCELLED AT 2026-11-20T22:12:00 DUE TO PREEMPTION ***",
)
CASES["node fail"] = (
    "NodeFailed",
    "srun: error: Node failure on node7\nslurmstepd: error: *** JOB 91 ON node7 CANCELLED AT 2026-11-20T22:12:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
)
CASES["xid13+43"] = (
    "AcceleratorApplicationFault|IllegalMemoryAccess|DeviceSideAssert",
    "[1.100000] NVRM: Xid (PCI:0000:3b:00): 13, pid=42, name=python, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address\n[1.200000] NVRM: Xid (PCI:0000:3b:00): 43, pid=42, name=python, Ch 00000008",
)
CASES["xid13+app"] = (
    "IllegalMemoryAccess|AcceleratorApplicationFault",
    "[1.100000] NVRM: Xid (PCI:0000:3b:00): 13, pid=42, Graphics SM Warp Exception",
    tb("RuntimeError: CUDA error: an illegal memory access was encountered"),
)
CASES["stdout flushed late"] = (
    "ShapeMismatch",
    tb("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)")
    + "\n"
    + "\n".join(f"step {i} loss 2.3" for i in range(30)),
)
CASES["raise from retry"] = (
    "HubUnavailable|HubUnreachable|UserException",
    tb(
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/x/resolve/main/config.json"
    )
    + "\n\nThe above exception was the direct cause of the following exception:\n\n"
    + tb(
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files."
    ),
)
CASES["probe import"] = (
    "AcceleratorOutOfMemory",
    tb("ModuleNotFoundError: No module named 'apex'")
    + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    + tb(OOM_OF_GPU_1),
)
CASES["empty"] = ("Unexplained", "")
CASES["binary"] = ("Unexplained", "\x00\x01\x02\xff" * 500)


CASES["a second attempt in one log"] = (
    "UserException",
    tb(OOM_OF_GPU_1, 1)
    + "\n"
    + "\n".join(f"[rank{r}]: step {i} loss 2.31" for i in range(20) for r in (0, 1))
    + "\n"
    + tb("KeyError: 'x'", 0),
)
CASES["the box tells whose signal"] = (
    "KilledBySignal",
    SIXTY_STEPS + "\n" + tb(PEER_CLOSED, 0) + "\n" + torchrun_box(3, -9, sig="  (SIGKILL)"),
)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_a_whole_log(name: str) -> None:
    wanted, *texts = CASES[name]
    report = of_texts(*texts)
    assert report.phrase in wanted.split("|"), report.reason


def each(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(index, line) for index, line in enumerate(text.split("\n")))


CHANGES: dict[str, Callable[[str], str]] = {
    "torchrun": each(lambda i, line: f"[default0]:{line}"),
    "rank": each(lambda i, line: f"[rank3]: {line}"),
    "stacked": each(lambda i, line: f"1129:[default0]:[rank0]:{line}"),
    "mpi": each(lambda i, line: f"[1,1]<stderr>:{line}"),
    "ray": each(lambda i, line: f"(RayWorkerWrapper pid=4242, ip=10.0.0.7) {line}"),
    "ray coloured": each(lambda i, line: f"\x1b[36m(train_fn pid=4242)\x1b[0m {line}"),
    "srun": each(lambda i, line: f" 3: {line}"),
    "iso time": each(lambda i, line: f"2026-11-20T22:10:{i % 60:02d}.123456789Z {line}"),
    "cri": each(lambda i, line: f"2026-11-20T22:10:{i % 60:02d}.123456789Z stderr F {line}"),
    "logging": each(lambda i, line: f"2026-11-20 22:10:{i % 60:02d},123 ERROR {line}"),
    "bracketed time": each(lambda i, line: f"[2026-11-20 22:10:{i % 60:02d}] {line}"),
    "syslog": each(lambda i, line: f"Nov 20 22:10:{i % 60:02d} node7 train[123]: {line}"),
    "vllm": each(lambda i, line: f"(EngineCore_DP0 pid=99) ERROR 11-20 22:10:{i % 60:02d} [core.py:396] {line}"),
    "epoch": each(lambda i, line: f"1700000000.{i:03d} {line}"),
    "slashes": each(lambda i, line: f"2026/11/20 22:10:{i % 60:02d} {line}"),
    "compose": each(lambda i, line: f"worker-1  | {line}"),
    "docker json": each(
        lambda i, line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-20T22:10:00.1Z"})
    ),
    "colour": each(lambda i, line: f"\x1b[31m{line}\x1b[0m"),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "progress before": lambda text: f"{SIXTY_STEPS}\n{text}",
    "bar before": lambda text: f"  3%|▎         | 31/1000 [00:01<00:40, 24.1it/s]\r{text}",
    "pod": each(lambda i, line: f"[pod/train-0/main] {line}"),
}

#: A fixed twelfth of all rows: the rows' own test runs every sample, this one every kind of prefix.
SAMPLES = [
    (row, wording)
    for row in read_rows()
    for wording in row.wordings
    if wording.samples and zlib.crc32(wording.id.encode()) % 12 == 0
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_launcher_puts_in_front_changes_nothing(change: str) -> None:
    """One kind of prefix before one half of the samples, the next before the other."""

    def differs(row: ExitRow, wording: Wording) -> bool:
        sample = wording.samples[0]
        return of_texts(CHANGES[change](sample)).phrase != row.phrase and of_texts(sample).phrase == row.phrase

    chosen = SAMPLES[[*CHANGES].index(change) % 2 :: 2]
    assert len(chosen) > 10
    assert [wording.id for row, wording in chosen if differs(row, wording)] == []


def test_whose_signal_it_was_is_read_from_the_launchers_box() -> None:
    report = of_texts(CASES["the box tells whose signal"][1])
    assert report.first is not None
    assert (report.first.rank, report.code, report.original.signal) == (3, 137, "SIGKILL")


def test_two_ranks_on_one_stderr_are_read_apart() -> None:
    report = of_texts(CASES["interleaved"][1])
    assert report.first is not None
    assert report.first.rank == 1
    assert report.collateral == (0,)


def test_the_end_of_the_log_is_enough_and_the_cause_gone_is_unexplained() -> None:
    text = f"{SIXTY_STEPS}\n{tb(OOM_OF_GPU_1)}"
    assert of_texts(text[-4096:]).phrase == "AcceleratorOutOfMemory"
    assert of_texts(SIXTY_STEPS + "\n" + torchrun_box(0, 1).split("\n", 1)[1]).phrase == "Unexplained"


def test_evidence_names_file_and_line() -> None:
    report = of_texts(f"{SIXTY_STEPS}\n{tb(OOM_OF_GPU_1)}")
    number = len(SIXTY_STEPS.split("\n")) + 4
    assert report.evidence[0].source == f"f0.log:{number}"


def test_numbers_of_the_line_are_in_the_reason() -> None:
    reason = of_texts(tb(OOM_OF_GPU_1, 1)).reason
    for part in ("rank 1", "20.00 GiB", "4.06 GiB", "79.15 GiB", "GPU 1"):
        assert part in reason


def test_a_chain_is_one_chain_and_the_original_comes_first() -> None:
    text = (
        tb("KeyError: 'a'")
        + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + tb("ValueError: b")
    )
    (chain,) = chains(parse(text))
    assert [raised.type for raised in chain.raised] == ["KeyError", "ValueError"]
    assert chain.raised[0].user_frame == ("/app/train.py", 88, "<module>")


@pytest.mark.parametrize(
    ("raw", "text", "rank", "level"),
    [
        ("1129:[default0]:[rank0]:[W1120 21:56:12.8 socket.cpp:764] [c10d] x", "[c10d] x", 0, "W"),
        ("(VllmWorker TP2 pid=12) ERROR 11-20 21:51:19 [a.py:3] boom", "boom", 2, "E"),
        ("Nov 20 21:51:19 node7 kernel: [12345.678901] NVRM: Xid 79", "NVRM: Xid 79", None, ""),
        ("ERROR: Could not find a version", "ERROR: Could not find a version", None, "E"),
        ("2026-11-20 22:02:30,443 [INFO] trainer: go", "trainer: go", None, "I"),
    ],
)
def test_bare_lines(raw: str, text: str, rank: int | None, level: str) -> None:
    (line,) = parse(raw)
    assert (line.text, line.rank, line.level) == (text, rank, level)


def test_a_memory_kill_is_guessed_only_where_memory_was_growing() -> None:
    killed = "\nrun.sh: line 6: 17586 Killed                  python hog.py\nexit status 137"
    growing = "\n".join(f"cached shard {i} ({size} MiB)" for i, size in enumerate((16, 96, 176, 400)))
    steady = "\n".join(f"wrote part {i}" for i in range(4))
    assert of_texts(growing + killed).phrase == "HostOutOfMemoryKilled"
    assert of_texts(steady + killed).phrase == "KilledBySignal"


HOLDFASTS_LOG = """holdfast: job 20261122-1256-krk7 (exc): 4 workers, logs in /state/jobs/20261122-1256-krk7
holdfast: attempt 1: all 4 workers are up
{words}holdfast: attempt 1: worker rank 2 (pid 4089) on vm: {how} (rank 3 alike); stopping all workers
holdfast: job 20261122-1256-krk7 (exc) FAILED: FileNotFoundError: [Errno 2] No such file or directory: '/data/other'
    rank 2 of 4 on vm (exit status 1) · attempt 1 · 1.0 s, until 2026-11-22 12:56:07 UTC
  reason   the input file /data/other does not exist
  evidence {role}-2 stderr:7:
             | FileNotFoundError: [Errno 2] No such file or directory: '/data/other'
           {role}-0, 2026-11-22 12:56:07:
             | SIGTERM
  next     holdfast logs 20261122-1256-krk7 --attempt 1 --rank 2
"""
RAISED = """[{role}-0] start
[{role}-2] Traceback (most recent call last):
[{role}-2]   File "/jobs/exc.py", line 7, in <module>
[{role}-2]     {{}}["lr"]
[{role}-2] KeyError: 'lr'
"""


@pytest.mark.parametrize("role", ["worker", "trainer.a"])
def test_what_holdfast_showed_is_read_as_its_workers_words(role: str) -> None:
    """Its own report of the job is not explained once more."""
    report = of_texts(HOLDFASTS_LOG.format(words=RAISED.format(role=role), how="exit status 1", role=role))
    assert (report.phrase, report.reason) == ("UserException", "rank 2 raised KeyError: 'lr'")
    assert report.first is not None
    assert (report.first.rank, report.evidence[0].source) == (2, "f0.log:7")
    assert [item.text for item in report.evidence if "holdfast" in item.text or "/data/other" in item.text] == []


FOLDED = """[{role}-0, 1, 3] ConnectionResetError: Connection closed by peer (after the exit of rank 2; whole text in the logs)
[{role}-4 to 6] KeyError: 'lr' (the same traceback as rank 2; whole text in the logs)
"""


@pytest.mark.parametrize("role", ["worker", "trainer.a"])
def test_a_line_of_several_ranks_in_holdfast_s_output_is_each_rank_s(role: str) -> None:
    words = (RAISED + FOLDED).format(role=role)
    report = of_texts(HOLDFASTS_LOG.format(words=words, how="exit status 1", role=role))
    assert (report.phrase, report.reason) == ("UserException", "rank 2 raised KeyError: 'lr'")
    assert {0, 1, 3} <= set(report.collateral)
    lines = parse(HOLDFASTS_LOG.format(words=words, how="exit status 1", role=role))
    assert [(line.rank, line.text) for line in lines if line.text.startswith("Connection")] == [
        (rank, "ConnectionResetError: Connection closed by peer") for rank in (0, 1, 3)
    ]
    assert [line.rank for line in lines if line.text == "KeyError: 'lr'"] == [2, 4, 5, 6]


def test_a_worker_of_holdfast_that_printed_nothing_is_named_with_its_end() -> None:
    report = of_texts(HOLDFASTS_LOG.format(words="", how="exit status 7", role="worker"))
    assert (report.phrase, report.original.exit_code) == ("Unexplained", 7)
    assert report.first is not None
    assert report.first.rank == 2
    crashed = of_texts(HOLDFASTS_LOG.format(words="", how="SIGSEGV", role="worker"))
    assert (crashed.phrase, crashed.original.signal) == ("NativeCrash", "SIGSEGV")


def test_a_line_of_a_rank_alone_names_it() -> None:
    report = of_texts(RAISED.format(role="worker"))
    assert (report.reason, report.exception) == ("rank 2 raised KeyError: 'lr'", "KeyError")


def ended_with(status: int, said: str) -> ExitReport:
    exit_ = WorkerExit(role="worker", rank=0, node="", attempt=1, exit_code=status)
    log = LogExcerpt(source="f.log", text=said)
    return explain(AttemptEvidence(workers=(WorkerEvidence(log=log, exit=exit_),)))


def test_bash_has_one_sentence_for_files_and_commands_and_the_status_tells_them_apart() -> None:
    said = "epoch 1\nrun.sh: line 2: ./nosuch: No such file or directory\n"
    command = ended_with(127, said)
    assert (command.phrase, command.reason) == (
        "CommandNotFound",
        "the command ./nosuch does not exist where the job runs",
    )
    assert (command.original.exit_code, command.evidence[0].source) == (127, "f.log:2")
    assert ended_with(1, said).phrase == "DataNotFound"
    assert ended_with(127, "cat: /nowhere/file: No such file or directory\n").phrase == "DataNotFound"


@pytest.mark.parametrize("said", ["run.sh: line 2: DATA: must be set", "run.sh: 2: DATA: parameter not set or null"])
def test_a_variable_that_a_shell_script_demands_is_no_missing_command(said: str) -> None:
    report = ended_with(1, said + "\n")
    assert (report.phrase, "DATA" in report.reason) == ("InvalidArguments", True)
