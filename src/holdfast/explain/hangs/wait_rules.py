"""Decides what a stack waits for, with tables of known frames, system calls and kernel wait channels.

It also finds the user's code in a stack, and makes keys to compare stacks.

Frames are text, innermost first: `function (file:line)`; native frames have no line number.

A row of the table matches a frame's function and file. Frames are searched from the innermost outwards. A strong row in
an outer frame of the library takes precedence over a weak row (a lock, a sleep), because a collective that polls sleeps
too. The search ends at the first frame of the user's code: if a library calls user code (a hook in the backward pass),
a wait in that code is not the library's wait. Outside that frame, only a frame with the name of a collective counts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from holdfast.model.noun_base import Noun

_DISTRIBUTED = (
    r"torch/distributed/|distributed_c10d|horovod|mpi4py|deepspeed/(?:comm|runtime/(?:pipe|zero))|megatron"
    r"|colossalai|jax/.*distributed|torch_npu/distributed|fairscale|accelerate/utils/operations|lightning.*/strategies"
    r"|bagua|oneccl|paddle/distributed"
)
_HTTP = (
    r"(?:^|/)(?:urllib3|requests|httpx|httpcore|aiohttp|botocore|boto3|s3transfer|huggingface_hub|fsspec|s3fs|gcsfs"
    r"|adlfs|smart_open|paramiko|grpc|tornado|websockets?|openai)/|http/client\.py$|urllib/request\.py$"
)
_TORCH_SAVE = r"torch/serialization\.py$|safetensors/|torch/distributed/checkpoint/(?:filesystem|_fsspec)"

#: The columns: pattern of the function, pattern of the file, target of the wait, the end of "it waits for …", flags,
#: reason for the row. Flags: `weak`: an outer frame takes precedence; `idle`: counts only for a rank that uses no CPU;
#: `through`: counts even if the user's frames are further in. The first matching row counts.
ROWS: tuple[tuple[str, str, str, str, str, str], ...] = (
    # Rows for waits for a person. They come before the reads and system calls with which the interpreter waits for
    # input.
    (r"^(?:interaction|cmdloop|_cmdloop|user_line|user_exception|set_trace)$", r"(?:pdb|bdb|cmd)\.py$", "person",
     "a person at its debugger", "", "pdb reads its next command"),
    (r".", r"IPython/(?:terminal|core/(?:debugger|interactiveshell))|ipdb/|pudb/|rpdb|debugpy/|/code\.py$", "person",
     "a person at its debugger", "", "a debugger or prompt is open"),
    (r"^(?:builtin_input_impl|builtin_input|input|getpass|unix_getpass|_raw_input|fallback_getpass)$", "", "person",
     "a person at its stdin", "", "input() reads a line of the standard input"),
    (r"^(?:PyOS_Readline|my_fgets|rl_getc|readline_until_enter_or_signal)", "", "person",
     "a person at its stdin", "", "the interpreter's prompt"),
    # Rows for waits for the device. They come before collectives, because a synchronize is no collective, though it may
    # wait for one.
    ((r"^(?:cu(?:da)?|hip)(?:Stream|Event|Ctx|Device)Synchronize|^cu(?:da)?Mem(?:cpy|set|Free)|^hipMem(?:cpy|Free)"
     r"|^aclrtSynchronize|^aclrtMemcpy|_local_scalar_dense(?:_cuda)?|c10::(?:cuda|hip)::.*[sS]ynchronize|^xla::|^xrt"),
     "", "device", "its device", "", "the host waits for work that it has queued on the accelerator"),
    (r"^(?:synchronize|_synchronize|wait_stream|elapsed_time)$", r"torch(?:_npu|_xla)?/(?:cuda|npu|xpu|mps|hip|core)",
     "device", "its device", "", "torch.cuda.synchronize and its like"),
    (r"^(?:block_until_ready|_single_device_array_to_np_array_did_copy|mark_step|wait_device_ops)", "", "device",
     "its device", "", "JAX and XLA wait for queued work there"),
    # Rows for waits for other ranks.
    (r"^c10d::Reducer::|^c10d::.*[rR]educer", "", "peers", "the other ranks' gradients", "",
     "DDP's reducer ends a backward pass when all ranks have given their gradients"),
    (r"^c10d::(?:detail::|TCPStore|TCPClient|FileStore|HashStore|PrefixStore|Store)", "", "peers",
     "another rank's word in the store", "", "a key of the rendezvous store is set by another rank"),
    (r"^(?:nccl[A-Z]|hccl[A-Z]|Hccl[A-Z]|rccl|gloo::|c10d::|MPI_|PMPI_|ucp_|ucs_|ompi_|opal_progress|PMIx_|shmem_)", "",
     "peers", "", "", "native collectives"),
    ((r"(?i)(?:^|[_.:])(?:all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|psum|pmean|rendezvous"
     r"|init_process_group|wait_for_everyone|wait_for_peers?|sync_global_devices|all_?sync)"
     r"(?:$|[_.:\d](?!to$|shapes$|tensors$|arrays$))"), "", "peers", "", "through",
     "a function with a collective's name waits for other ranks in any library"),
    ((r"^_?(?:wait|recv|send|irecv|isend|gather|scatter|reduce|join|poll|get|synchronize|receive|result)\w*$|_wait$"
     r"|_recv$"), _DISTRIBUTED, "peers", "", "through", "waits in the files of the libraries for distributed work"),
    ((r"^(?:_communicate|recv_forward|recv_backward|send_forward|send_backward|_p2p_ops|_batch_p2p|batch_isend_irecv"
     r"|_wait_batch_p2p|_exec_(?:recv|send)_\w+|_recv_pipeline|_send_recv\w*)$"),
     (r"torch/distributed/|megatron|deepspeed"
     r"|colossalai|pipelin"), "peers", "the next stage of its pipeline", "", "pipeline schedules"),
    ((r"^(?:_unshard|unshard|wait_for_unshard|_wait_for_\w+|_pre_forward_unshard|_root_post_backward\w*"
     r"|_finalize_params|_prefetch_handle|_post_backward_hook|foreach_all_gather\w*|foreach_reduce\w*)$"),
     r"torch/distributed/(?:fsdp|_composable|_functional_collectives)", "peers", "the other ranks' shards (FSDP)",
     "idle", "FSDP gathers and scatters shards there"),
    ((r"^(?:fetch_sub_module|_?_?all_gather_params\w*|_allgather_params\w*|reduce_ready_partitions\w*"
     r"|reduce_independent_p_g_buckets\w*|allreduce_\w+|_exec_reduce\w*|average_tensor|__reduce_and_partition\w*)$"),
     r"deepspeed/", "peers", "the other ranks' partitions (DeepSpeed)", "idle", "ZeRO and its engine"),
    (r"^(?:_sync_buffers|_sync_module_states|_pre_forward|_verify_\w+|_broadcast_coalesced|join_hook|_sync_final_model)$",
     r"torch/nn/parallel/distributed\.py$", "peers", "the other ranks' buffers (DDP)", "idle",
     "DDP's forward pass broadcasts buffers"),
    (r"^(?:_engine_run_backward|run_backward)$|^torch::autograd::(?:python::)?(?:Python)?Engine::execute",
     r"torch/autograd|\.so", "peers", "the end of its backward pass", "weak idle",
     "a backward pass that uses no CPU waits for its device, or for other ranks' gradients"),
    # Rows for waits for a service outside the job.
    (r".", r"(?:^|/)(?:wandb|mlflow|comet_ml|neptune|clearml|aim)/", "service", "its tracking service", "",
     "a tracking service that does not answer"),
    (r".", _HTTP, "service", "an answer over HTTP", "", "no collective goes over HTTP"),
    (r"^(?:read|recv|recv_into|do_handshake|connect|write|send)$", r"(?:^|/)ssl\.py$", "service",
     "an answer over TLS", "", "no collective goes over TLS"),
    (r".", r"(?:^|/)(?:redis|pymongo|psycopg2?|mysql|pymysql|sqlalchemy|etcd3?|kubernetes|elasticsearch|kafka)/",
     "service", "an answer of a database or broker", "", "a client of a service outside the job"),
    (r"^(?:getaddrinfo|gethostbyname\w*|res_n?query|res_nsend|__libc_res_n?send|_nss_dns_)", "", "service",
     "the answer of a name server", "", "a name is resolved"),
    # Rows for waits for child processes.
    (r"^(?:_next_data|_get_data|_try_get_data|_process_data|_shutdown_workers|_next_index)$",
     r"utils/data/dataloader\.py$", "child", "its data loader's workers", "idle",
     "the loader's processes fill that queue"),
    (r"^(?:wait|_wait|_try_wait|communicate|_communicate|check_output|run|call)$", r"(?:^|/)subprocess\.py$", "child",
     "a program that it has started", "idle", "subprocess waits for its child's end or output"),
    (r"^(?:wait|poll|join|_join_exited_children|_bootstrap)$", r"multiprocessing/(?:popen_\w+|process)\.py$", "child",
     "a process that it has started", "idle", "multiprocessing waits for its child"),
    (r"^(?:get|wait|map|starmap|apply|next|join|_terminate_pool|_help_stuff_finish)$", r"multiprocessing/pool\.py$",
     "child", "a process of its pool", "idle", "a pool whose worker was killed never answers"),
    (r"^join$", r"torch/multiprocessing/spawn\.py$", "child", "the processes that it has spawned", "idle",
     "torch.multiprocessing.spawn"),
    (r"^(?:os_wait\w*|wait[34p]\w*|waitid|waitpid|__wait4|__GI___wait4|__waitpid)$", "", "child",
     "a process that it has started", "weak", "wait4 and its like"),
    # Rows for waits for a lock.
    (r".", r"(?:^|/)(?:filelock|fasteners|portalocker|zc/lockfile)/|utils/file_baton\.py$", "lock",
     "a file lock that another process holds", "", "libraries that lock by files"),
    (r"^(?:flock|fcntl_flock\w*|fcntl_lockf\w*|lockf|__flock|__GI___flock)$", "", "lock",
     "a file lock that another process holds", "", "flock and fcntl locks"),
    (r"^take_gil$", "", "lock", "the interpreter's lock (GIL), which C code holds", "",
     "a thread that wants to run Python waits in take_gil"),
    ((r"^(?:__lll_lock_wait\w*|pthread_mutex_lock|__pthread_mutex_lock\w*|pthread_rwlock_\w+|sem_wait|__new_sem_wait\w*"
     r"|do_futex_wait\w*|do_sem_wait\w*)$"), "", "lock", "a lock of C code", "weak",
     "a mutex or semaphore below Python"),
    (r"^(?:acquire|__enter__|_acquire_restore)$", r"multiprocessing/synchronize\.py$|threading\.py$", "lock",
     "a lock", "weak", "the lock's own methods"),
    # Rows for waits for a thread or task of the same process.
    (r"^(?:join|_wait_for_tstate_lock)$", r"(?:^|/)threading\.py$", "thread", "a thread of its own", "weak",
     "Thread.join"),
    (r"^result$|^wait$|^as_completed$|^shutdown$", r"concurrent/futures/\w+\.py$", "thread", "a task of its executor",
     "weak", "a future that is never done"),
    (r"^(?:get|put|join)$", r"(?:^|/)queue\.py$", "thread", "a queue that no thread of its own fills or empties",
     "weak", "queue.Queue is filled by this process's threads only"),
    (r"^(?:get|put|join|recv|_recv|_recv_bytes|recv_bytes)$", r"multiprocessing/(?:queues|connection|managers)\.py$",
     "child", "a queue that no process of its own fills or empties", "weak idle",
     "a queue or pipe between it and its children"),
    (r"^wait$", r"(?:^|/)threading\.py$", "thread", "a thread of its own", "weak",
     "an Event, Condition or Barrier of this process"),
    (r"^(?:_run_once|run_forever|run_until_complete|runner_run)$|^run$", r"asyncio/\w+\.py$", "itself",
     "a coroutine that is never resumed", "weak idle", "an event loop without anything to run"),
    (r"^(?:accept|create_connection|recv_into|readinto|readline|recv|connect|sendall)$",
     r"(?:^|/)socket\.py$", "peers", "", "weak",
     "a plain socket links ranks, unless a frame says that it is a service's"),
    (r"^(?:sock_accept|sock_recv\w*|sock_send\w*|sock_connect|internal_connect|sock_call\w*)$", "", "peers", "", "weak",
     "the same in machine code, where the user's own code calls it"),
    # Rows for waits for the disk.
    (r".", _TORCH_SAVE, "disk", "the disk of a checkpoint", "idle", "writing or reading a checkpoint"),
    (r"^(?:caffe2::serialize::|PyTorchStream|torch::serialize|mz_zip_|H5[A-Z]+)", "", "disk",
     "the disk of a checkpoint", "idle", "torch.save writes through these"),
    (r"^(?:fsync|fdatasync|sync_file_range|syncfs|__fsync|os_fsync)$", "", "disk", "the disk", "",
     "fsync returns when the disk has the bytes"),
    (r"^(?:_io_open|_io_FileIO___init__\w*|_Py_open\w*|open64|__open64\w*|openat\w*)$", "", "disk",
     "a file that does not open", "weak", "an open that blocks: a FIFO or a file system that does not answer"),
    # Rows for sleeps, and for waits for a signal.
    (r"^(?:time_sleep|pysleep|sleep|usleep|nanosleep|clock_nanosleep|__nanosleep|clock_nanosleep\w*)$", "", "itself",
     "", "weak", "it sleeps because its own code asked for it"),
    (r"^(?:pause|sigwait\w*|sigsuspend|signal_pause|signal_sigwait\w*)$", "", "itself", "a signal", "weak",
     "pause and sigwait end with a signal only"),
)  # fmt: skip

CALLS: tuple[tuple[str, str, str, str, str], ...] = (
    # Columns: system call, file, target of the wait, the end of "it waits for …", reason for the row.
    (r"p?read|readv|ioctl", r"^0 (?!.*\.(?:bin|pt|json)$)", "person", "a person at its stdin", "descriptor 0 is stdin"),
    (r"flock|fcntl", r"", "lock", "a file lock that another process holds", "blocking locks of files"),
    (r"wait4|waitid", r"", "child", "a process that it has started", "they return when a child ends"),
    (r"p?read|p?write|readv|writev", r"^\d+ pipe:", "child", "the other end of a pipe",
     "a pipe links it to a process of its own"),
    ((r"p?read(?!\w*link)|p?write|readv|writev|openat|open\b|newfstatat|fsync|fdatasync|syncfs|sync_file_range"
     r"|copy_file_range"), r"^(?!\d+ socket:)", "disk", "a file", "a file, or a FIFO that stands for one"),
    (r"recv|accept|connect|send|p?read\w* |writev? ", r"^(?:\d+ socket:.*)?$", "peers", "",
     "a plain socket links ranks, unless a frame says that it is a service's"),
    (r"clock_nanosleep|nanosleep|pause|rt_sig", r"", "itself", "", "it sleeps because its own code asked for it"),
)  # fmt: skip

CHANNELS: tuple[tuple[str, str, str, str], ...] = (
    # Columns: kernel function in which a thread in state D sleeps, target, the end of "it waits for …", reason.
    (r"nfs|rpc_(?:wait|execute)|__rpc", "disk", "an NFS server", "NFS and SUNRPC"),
    (r"fuse|request_wait_answer", "disk", "a FUSE file system's own process", "FUSE asks a process"),
    (r"ll_|cl_sync|ldlm|ptlrpc|obd_|osc_|lov_", "disk", "a Lustre server", "Lustre's client"),
    (r"ceph|rbd_", "disk", "a Ceph server", "Ceph's client"),
    (r"cifs|smb2?_", "disk", "an SMB server", "CIFS"),
    (r"gpfs|mmfs|cxiWait", "disk", "a GPFS server", "Spectrum Scale"),
    (r"beegfs|FhgfsOps|weka|wekafs", "disk", "its parallel file system", "BeeGFS and Weka"),
    (r"autofs", "disk", "an automount", "autofs"),
    (r"nvidia|^nv_|uvm_|os_acquire|rm_", "device", "its NVIDIA driver", "the driver's own functions"),
    (r"amdgpu|kfd_|ttm_|dma_fence", "device", "its accelerator's driver", "AMD's driver and DMA fences"),
    (r"davinci|devdrv|hisi", "device", "its accelerator's driver", "Ascend's driver"),
    (r"ib_|rdma|mlx[45]|uverbs", "device", "its network card's driver", "RDMA verbs"),
    ((r"jbd2|ext4|xfs|btrfs|f2fs|io_schedule|folio_wait|wait_on_page|wait_on_buffer|blk_|bio_|submit_bio|nvme"
     r"|balance_dirty|filemap|do_get_write_access|sync_inode"), "disk", "a disk",
     "block devices and local file systems"),
    (r"mem_cgroup|throttle|swap|shrink|oom", "device", "memory", "its memory limit holds it back"),
    (r"inode_lock|rwsem|down_(?:read|write)|lookup_slow|__wait_on_freeing", "disk", "a lock of a file system",
     "locks of inodes and directories"),
    (r"freezer|refrigerator|cgroup_freez", "itself", "its control group, which is frozen", "a frozen control group"),
)  # fmt: skip


#: Number of innermost Python frames to search. Wrappers and loggers may lie between a collective and its wait.
DEPTH = 8


class WaitTarget(enum.StrEnum):
    """What a rank waits for."""

    #: The rank waits for other ranks, which have not joined the operation.
    PEERS = "peers"
    #: The rank waits for work that is queued on an accelerator. The work may be a collective, so such a wait does not
    #: distinguish a rank from the others.
    DEVICE = "device"
    DISK = "disk"
    CHILD = "child"
    LOCK = "lock"
    PERSON = "person"
    #: The rank waits for an answer from a service outside the job.
    SERVICE = "service"
    #: The rank waits for a thread or task of its own process.
    THREAD = "thread"
    #: The rank sleeps, or waits for an event that only its own code can cause.
    ITSELF = "itself"


class WaitPattern(Noun, frozen=True, kw_only=True):
    """One row of the table of frames, system calls or wait channels."""

    function: re.Pattern[str]
    file: re.Pattern[str] | None
    waits: WaitTarget
    #: The end of the sentence "it waits for …", such as `its data loader's workers`.
    what: str
    #: The reason why the table has this row.
    why: str
    weak: bool = False
    #: Whether the row also counts for a rank that uses the CPU at this frame in every snapshot; False: only for an idle
    #: rank.
    spins: bool = True
    #: Whether the row also counts if the matching frame called frames of the user's code.
    through: bool = False


class Wait(Noun, frozen=True, kw_only=True):
    """The wait that a stack shows."""

    waits: WaitTarget
    what: str
    #: The index of the frame that shows the wait; -1: the kernel shows it.
    index: int = -1
    spins: bool = False
    weak: bool = False


_FRAME = re.compile(r"^(?P<function>[^ ]+|.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$", re.DOTALL)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |\.so(?:[.\d]*)?$")
_NATIVE = re.compile(r"\.so(?:[.\d]*)?$|^[^/.]*$|/[^/.]+$|/python[\d.]*$|^python[\d.]*$")


class WaitFrame:
    """One frame, parsed into function, file and line."""

    __slots__ = ("file", "function", "line", "text")

    def __init__(self, text: str) -> None:
        found = _FRAME.match(text)
        self.text = text
        self.function = found["function"] if found else text
        self.file = found["file"] if found else ""
        self.line = int(found["line"]) if found and found["line"] else 0

    @property
    def place(self) -> str:
        """Return file name and line number: `train.py:12`."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if self.line else name

    @property
    def native(self) -> bool:
        """Whether the frame is machine code of a library or the interpreter, and not Python code."""
        return not self.line and bool(_NATIVE.search(self.file))

    @property
    def ours(self) -> bool:
        """Whether the frame is of the user's code, not of a library or the interpreter."""
        return bool(self.file) and not self.native and not _LIBRARY.search(self.file)


def _made() -> tuple[WaitPattern, ...]:
    return tuple(
        WaitPattern(
            function=re.compile(function),
            file=re.compile(file) if file else None,
            waits=WaitTarget(waits),
            what=what,
            why=why,
            weak="weak" in flags,
            spins="idle" not in flags,
            through="through" in flags,
        )
        for function, file, waits, what, flags, why in ROWS
    )


_rows: tuple[WaitPattern, ...] = ()


def rows() -> tuple[WaitPattern, ...]:
    """Return the table of frames. It is compiled at the first call."""
    global _rows  # compiled at the first call only
    _rows = _rows or _made()
    return _rows


def row_of(frame: WaitFrame) -> WaitPattern | None:
    """Return the first row that matches the frame; None: no row matches."""
    # The function of a Python frame may have a class before it: `Condition.wait`.
    name = frame.function if frame.native else frame.function.rpartition(".")[2]
    for row in rows():
        if row.function.search(name) and (row.file is None or row.file.search(frame.file)):
            return row
    return None


def wait_of(frames: Sequence[str]) -> Wait | None:
    """Return the wait that a stack shows, its innermost frame first; None if no row matches."""
    weak: Wait | None = None
    index, python, inside = -1, 0, True
    found: Wait | None = None
    for index, text in enumerate(frames):
        frame = WaitFrame(text)
        python += not frame.native
        if python > DEPTH:
            break
        row = row_of(frame)
        if row is not None and (inside or row.through):
            wait = Wait(waits=row.waits, what=row.what, index=index, spins=row.spins, weak=row.weak)
            if row.weak:
                # Of two weak rows with the same target, the outer frame is the more precise: `Future.result`, not its
                # `Condition.wait`.
                weak = wait if weak is None or weak.waits is row.waits else weak
            elif found is None or (found.waits is WaitTarget.PEERS and row.through):
                # The outermost frame of a collective is the one that the user's code calls.
                found = wait if found is None or row.waits is WaitTarget.PEERS else found
        if frame.ours:
            inside = False
    return found or weak


def call_of(waits_in: str, file: str) -> Wait | None:
    """Return the wait that a system call (`waits_in`, with its wait channel) and its `file` show; None: unknown."""
    for call, target, waits, what, _ in CALLS:
        if re.match(call, waits_in) and re.search(target, file):
            return Wait(waits=WaitTarget(waits), what=what)
    return None


def channel_of(waits_in: str) -> Wait | None:
    """Return the wait of a thread in state D, from the kernel function in which it sleeps; None: unknown."""
    for channel, waits, what, _ in CHANNELS:
        if re.search(channel, waits_in):
            return Wait(waits=WaitTarget(waits), what=what)
    return None


def peer_wait(frames: Sequence[str]) -> int | None:
    """Return the index of the frame in which the stack waits for other ranks or its device; None: no such frame."""
    wait = wait_of(frames)
    return wait.index if wait is not None and wait.waits in (WaitTarget.PEERS, WaitTarget.DEVICE) else None


def python_only(frames: Sequence[str]) -> tuple[str, ...]:
    """Return the stack without its native frames, because only some snapshots have native frames."""
    return tuple(text for text in frames if not WaitFrame(text).native)


def own_frame(frames: Sequence[str]) -> WaitFrame | None:
    """Return the innermost frame in the user's code, or the innermost of all frames if none is in the user's code."""
    for text in frames:
        if (frame := WaitFrame(text)).ours:
            return frame
    return WaitFrame(frames[0]) if frames else None


def signature(frames: Sequence[str]) -> tuple[str, ...]:
    """Return a key that is equal for two stacks at the same place. Frames inside a collective do not count."""
    frames = python_only(frames)
    at = peer_wait(frames)
    if at is None:
        return tuple(frames)
    return (WaitFrame(frames[at]).function, *frames[at + 1 :])


def outline(frames: Sequence[str]) -> tuple[str, ...]:
    """Return the stack's functions without line numbers.

    Two snapshots of a loop that sleeps and polls have the same result.
    """
    return tuple(f"{frame.function} ({frame.file})" for frame in map(WaitFrame, python_only(frames)))
