"""A list of strings, the first that is found wins: what an operator's page on failed jobs usually is."""

from _words import answer, case

LIST = (
    ("CUDA out of memory", "AcceleratorOutOfMemory"),
    ("OutOfMemoryError", "AcceleratorOutOfMemory"),
    ("Xid", "AcceleratorFault"),
    ("uncorrectable ECC", "AcceleratorMemoryError"),
    ("fallen off the bus", "AcceleratorLost"),
    ("oom-kill", "HostOutOfMemoryKilled"),
    ("Out of memory", "HostOutOfMemoryKilled"),
    ("MemoryError", "HostAllocationFailed"),
    ("can't allocate memory", "HostAllocationFailed"),
    ("No space left on device", "DiskFull"),
    ("Disk quota exceeded", "QuotaExceeded"),
    ("Read-only file system", "ReadOnlyFilesystem"),
    ("Stale file handle", "StorageIoError"),
    ("Input/output error", "StorageIoError"),
    ("Too many open files", "TooManyOpenFiles"),
    ("Permission denied", "PermissionDenied"),
    ("Address already in use", "AddressInUse"),
    ("Name or service not known", "DnsFailed"),
    ("Temporary failure in name resolution", "DnsFailed"),
    ("No route to host", "NetworkUnreachable"),
    ("NCCL WARN", "CollectiveSystemError"),
    ("Watchdog caught collective operation timeout", "CollectiveTimeout"),
    ("ncclSystemError", "CollectiveSystemError"),
    ("Connection reset by peer", "NetworkLost"),
    ("Connection closed by peer", "PeerLost"),
    ("Connection refused", "NetworkUnreachable"),
    ("Segmentation fault", "NativeCrash"),
    ("core dumped", "NativeCrash"),
    ("No module named", "ModuleNotFound"),
    ("cannot import name", "ImportFailed"),
    ("SyntaxError", "SyntaxError"),
    ("cannot open shared object file", "SharedLibraryMissing"),
    ("undefined symbol", "AbiMismatch"),
    ("GLIBC_", "LibcTooOld"),
    ("command not found", "CommandNotFound"),
    ("No such file or directory", "DataNotFound"),
    ("Error(s) in loading state_dict", "CheckpointIncompatible"),
    ("PytorchStreamReader", "CheckpointCorrupt"),
    ("CERTIFICATE_VERIFY_FAILED", "TlsVerifyFailed"),
    ("429", "HubRateLimited"),
    ("503", "HubUnavailable"),
    ("404", "DownloadFailed"),
    ("Traceback (most recent call last)", "UserException"),
)
asked = case()
for words, phrase in LIST:
    ranks = [log["rank"] for log in asked["logs"] if words in log["text"]]
    if ranks or words in asked["launcher"]:
        answer(phrase, sorted(set(ranks)))
        break
else:
    answer("Unexplained", [])
