"""What a stack waits for: recorded stacks, innermost frame first, and what the kernel says."""

from __future__ import annotations

import re

import pytest

from holdfast.explain.hangs.rank_motion import Manner, view
from holdfast.explain.hangs.wait_rules import (
    CALLS,
    CHANNELS,
    DEPTH,
    ROWS,
    WaitTarget,
    call_of,
    channel_of,
    rows,
    wait_of,
)
from holdfast.model.evidence import RankSnapshot, ThreadState

SITE = "/v/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"
BACKWARD = (
    f"_engine_run_backward ({SITE}torch/autograd/graph.py:979)",
    f"backward ({SITE}torch/autograd/__init__.py:395)",
    f"Tensor.backward ({SITE}torch/_tensor.py:623)",
    "main (/home/me/ddp.py:21)",
)
REDUCER = (
    "pthread_cond_wait (libc.so.6)",
    "std::condition_variable::wait (libstdc++.so.6.0.30)",
    "c10d::Reducer::finalize_backward (libtorch_cpu.so)",
    "std::_Function_handler<void (), c10d::Reducer::mark_variable_ready()::{lambda()#1}>::_M_invoke (libtorch_cpu.so)",
    "torch::autograd::Engine::thread_main (libtorch_cpu.so)",
    "torch::autograd::Engine::execute_with_graph_task (libtorch_cpu.so)",
    "torch::autograd::python::PythonEngine::execute (libtorch_python.so)",
    "THPEngine_run_backward (libtorch_python.so)",
)
LOCKED = (
    "PyThread_acquire_lock_timed (libpython3.11.so.1.0)",
    "lock_PyThread_acquire_lock (libpython3.11.so.1.0)",
    f"Condition.wait ({LIB}threading.py:327)",
)

STACKS = [
    ("DDP's backward pass, by its machine code", REDUCER + BACKWARD, WaitTarget.PEERS, "gradients"),
    ("DDP's backward pass, by Python alone", BACKWARD, WaitTarget.PEERS, "backward"),
    ("a hook of the user's inside of a backward pass", (*LOCKED, "hook (/home/me/t.py:8)", *REDUCER[4:], *BACKWARD),
     WaitTarget.THREAD, "thread of its own"),
    ("a broadcast of buffers in DDP's forward pass",
     (f"DistributedDataParallel._sync_buffers ({SITE}torch/nn/parallel/distributed.py:2200)", "main (/home/me/t.py:3)"),
     WaitTarget.PEERS, "buffers"),
    ("a collective of gloo", (f"barrier ({SITE}torch/distributed/distributed_c10d.py:5100)", "main (/home/me/t.py:3)"),
     WaitTarget.PEERS, ""),
    ("a key of the store",
     ("poll (libc.so.6)", "c10d::detail::SocketImpl::waitForInput (libtorch_cpu.so)", "main (/home/me/t.py:3)"),
     WaitTarget.PEERS, "store"),
    ("FSDP", (f"FSDPParamGroup.wait_for_unshard ({SITE}torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:401)",
              "main (/home/me/t.py:3)"), WaitTarget.PEERS, ""),
    ("DeepSpeed's ZeRO",
     (f"PartitionedParameterCoordinator.fetch_sub_module ({SITE}deepspeed/runtime/zero/parameter_coordinator.py:300)",),
     WaitTarget.PEERS, "partitions"),
    ("a pipeline's next stage",
     (f"_communicate ({SITE}megatron/core/pipeline_parallel/p2p_communication.py:300)", "train (/home/me/t.py:3)"),
     WaitTarget.PEERS, ""),
    ("torch.cuda.synchronize", (f"synchronize ({SITE}torch/cuda/__init__.py:985)", "main (/home/me/t.py:3)"),
     WaitTarget.DEVICE, "device"),
    (".item() of a tensor on a GPU",
     ("cuStreamSynchronize (libcuda.so.1)", "at::native::_local_scalar_dense_cuda (libtorch_cuda.so)",
      "main (/home/me/t.py:3)"), WaitTarget.DEVICE, "device"),
    ("NCCL", ("ncclGroupEnd (libnccl.so.2)", "c10d::ProcessGroupNCCL::barrier (libtorch_cuda.so)", "f (/me/t.py:3)"),
     WaitTarget.PEERS, ""),
    ("a data loader",
     ("poll (libc.so.6)", f"wait ({LIB}multiprocessing/connection.py:947)",
      f"Queue.get ({LIB}multiprocessing/queues.py:113)",
      f"_MultiProcessingDataLoaderIter._try_get_data ({SITE}torch/utils/data/dataloader.py:1300)", "main (/me/t.py:3)"),
     WaitTarget.CHILD, "data loader"),
    ("a checkpoint",
     ("write (libc.so.6)", f"_save ({SITE}torch/serialization.py:1230)", "save (/me/t.py:3)"), WaitTarget.DISK,
     "checkpoint"),
    ("a file lock", (f"UnixFileLock._acquire ({SITE}filelock/_unix.py:40)", "load (/me/t.py:3)"),
     WaitTarget.LOCK, "file lock"),
    ("a queue", (*LOCKED, f"Queue.get ({LIB}queue.py:171)", "main (/me/t.py:3)"), WaitTarget.THREAD, "queue"),
    ("a future", (*LOCKED, f"Future.result ({LIB}concurrent/futures/_base.py:451)", "main (/me/t.py:3)"),
     WaitTarget.THREAD, "executor"),
    ("a program", ("wait4 (libc.so.6)", "os_waitpid (libpython3.11.so.1.0)",
                   f"Popen._try_wait ({LIB}subprocess.py:2004)",
                   f"run ({LIB}subprocess.py:550)", "main (/me/t.py:3)"), WaitTarget.CHILD, "program"),
    ("an answer over HTTP",
     ("recv (libc.so.6)", "sock_recv (socketmodule.so)", f"SocketIO.readinto ({LIB}socket.py:706)",
      f"HTTPResponse._read_status ({LIB}http/client.py:280)", f"urlopen ({LIB}urllib/request.py:216)",
      "get (/me/t.py:3)"),
     WaitTarget.SERVICE, "HTTP"),
    ("a peer's plain socket",
     ("poll (libc.so.6)", f"socket.accept ({LIB}socket.py:294)", "<module> (/me/t.py:7)"),
     WaitTarget.PEERS, ""),
    ("a debugger", (f"Pdb.interaction ({LIB}pdb.py:360)", "main (/me/t.py:3)"), WaitTarget.PERSON, "debugger"),
    ("input()", ("read (libc.so.6)", "builtin_input (libpython3.11.so.1.0)", "confirm (/me/t.py:3)"),
     WaitTarget.PERSON, "stdin"),
    ("C code that holds the interpreter's lock",
     ("pthread_cond_timedwait (libc.so.6)", "take_gil (python3.11)", "f (/t.py:3)"),
     WaitTarget.LOCK, "GIL"),
    ("an event loop", (f"EpollSelector.select ({LIB}selectors.py:468)",
                       f"BaseEventLoop.run_forever ({LIB}asyncio/base_events.py:607)", "main (/me/t.py:3)"),
     WaitTarget.ITSELF, "coroutine"),
    ("sleep", ("clock_nanosleep (libc.so.6)", "time_sleep (libpython3.11.so.1.0)", "load (/me/t.py:3)"),
     WaitTarget.ITSELF, ""),
    ("a function of the user's that polls for its peers",
     ("time_sleep (libpython3.11.so.1.0)", "poll_files (/me/sync.py:9)", "my_barrier (/me/sync.py:20)",
      "main (/me/t.py:3)"),
     WaitTarget.PEERS, ""),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "waits", "what"), [case[1:] for case in STACKS], ids=[case[0] for case in STACKS])
def test_a_stack_tells_what_it_waits_for(frames: tuple[str, ...], waits: WaitTarget, what: str) -> None:
    found = wait_of(frames)
    assert found is not None
    assert found.waits is waits
    assert what in found.what


def test_a_stack_of_the_user_s_own_code_waits_for_nothing_that_is_known() -> None:
    assert wait_of(("load (/home/me/data.py:3)", "main (/home/me/t.py:9)")) is None
    assert wait_of(()) is None


def test_a_collective_far_out_does_not_count() -> None:
    inner = tuple(f"step{number} (/home/me/t.py:{number})" for number in range(DEPTH))
    assert wait_of((*inner, "all_reduce (/home/me/t.py:99)")) is None


def test_a_backward_pass_that_burns_cpu_computes() -> None:
    looks = [snapshot(BACKWARD, at, cores=1.0, state="R") for at in (10.0, 20.0)]
    assert view(looks, 0.0).manner is Manner.SAME_LINE
    looks = [snapshot(REDUCER + BACKWARD, at, cores=1.0, state="R") for at in (10.0, 20.0)]
    assert view(looks, 0.0).manner is Manner.SPINS_IN_PEERS


def test_the_closest_look_decides() -> None:
    item = ("main (/home/me/t.py:3)",)
    looks = [
        snapshot(item, 10.0, cores=1.0, state="R"),
        snapshot(("cuStreamSynchronize (libcuda.so.1)", *item), 20.0, cores=1.0, state="R"),
    ]
    seen = view(looks, 0.0)
    assert seen.manner is Manner.SPINS_IN_PEERS
    assert seen.doing == "waits busily in cuStreamSynchronize (called at t.py:3), for its device"


def test_a_rank_that_waits_for_its_own_thread_waits_for_peers_where_that_does() -> None:
    joins = (f"Thread.join ({LIB}threading.py:1119)", "main (/home/me/t.py:3)")
    barrier = (f"barrier ({SITE}torch/distributed/distributed_c10d.py:5100)",)
    assert view([snapshot(joins, at) for at in (10.0, 20.0)], 0.0).manner is Manner.ASLEEP
    both = [snapshot(joins, at, thread=barrier) for at in (10.0, 20.0)]
    assert view(both, 0.0).manner is Manner.IN_PEERS


def test_a_rank_that_the_kernel_holds_waits_for_no_peer() -> None:
    looks = [
        snapshot(("barrier (/home/me/t.py:3)",), at, state="D", waits_in="write (rpc_wait_bit_killable)")
        for at in (10.0, 20.0)
    ]
    seen = view(looks, 0.0)
    assert seen.manner is Manner.ASLEEP
    assert "stuck in the kernel (state D)" in seen.doing


CALLED = [
    ("read (wait_woken)", "0 /dev/pts/3", WaitTarget.PERSON),
    ("read (pipe_read)", "0 pipe:[81]", WaitTarget.PERSON),
    ("read (pipe_read)", "7 pipe:[81]", WaitTarget.CHILD),
    ("read (fuse_dev_do_read)", "7 /mnt/data/shard.bin", WaitTarget.DISK),
    ("openat (fifo_open)", "", WaitTarget.DISK),
    ("flock (flock_lock_inode_wait)", "7 /cache/x.lock", WaitTarget.LOCK),
    ("wait4 (do_wait)", "", WaitTarget.CHILD),
    ("accept4 (inet_csk_accept)", "3 socket:[99]", WaitTarget.PEERS),
    ("recvfrom (wait_woken)", "3 socket:[99]", WaitTarget.PEERS),
    ("recvfrom", "", WaitTarget.PEERS),
    ("clock_nanosleep", "", WaitTarget.ITSELF),
    ("futex (futex_do_wait)", "", None),
    ("poll", "", None),
]


@pytest.mark.parametrize(("call", "file", "waits"), CALLED)
def test_a_system_call_tells_what_it_waits_for(call: str, file: str, waits: WaitTarget | None) -> None:
    found = call_of(call, file)
    assert (found.waits if found is not None else None) is waits


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ("write (rpc_wait_bit_killable)", "NFS"),
        ("read (request_wait_answer)", "FUSE"),
        ("fsync (jbd2_log_wait_commit)", "disk"),
        ("openat (ll_intent_file_open)", "Lustre"),
        ("ioctl (nvidia_ioctl)", "NVIDIA"),
        ("futex (some_other_function)", None),
    ],
)
def test_a_kernel_function_tells_what_state_d_waits_for(channel: str, what: str | None) -> None:
    found = channel_of(channel)
    assert what in found.what if what is not None and found is not None else found is None


def test_every_fact_has_its_argument() -> None:
    assert len(rows()) == len(ROWS) >= 45
    for row in rows():
        assert row.why and (row.what or row.waits in (WaitTarget.PEERS, WaitTarget.ITSELF)), row
    assert all(why for *_, why in (*CALLS, *CHANNELS))
    assert all(re.compile(pattern) for pattern, *_ in (*CALLS, *CHANNELS))


def snapshot(
    frames: tuple[str, ...],
    at: float,
    *,
    cores: float = 0.0,
    state: str = "S",
    waits_in: str = "futex",
    thread: tuple[str, ...] = (),
) -> RankSnapshot:
    main = ThreadState(tid=100, pid=100, state=state, waits_in=waits_in, frames=frames, cpu_s=cores * at)
    others = (ThreadState(tid=101, pid=100, state="S", frames=thread),) if thread else ()
    return RankSnapshot(rank=0, pid=100, at=at, threads=(main, *others), cpu_s=cores * at, stack_source="py-spy")
