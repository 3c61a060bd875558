"""The rows of the exit catalogue hold their contract, and every sample is explained as its row says."""

from __future__ import annotations

import json
import re

import pytest
import re2

from holdfast.catalogue.exit_rows import ExitRow, circles, read_rows
from holdfast.explain import explain
from holdfast.explain.row_lint import lint
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from places import DATA, ROOT

#: Phrases and whose trouble each is: what scripts that read our reports rely on.
CONTRACT_PHRASES = {
    "": ["Succeeded"],
    "workload": [
        "HookFailed", "DaemonFailed",
        "AcceleratorOutOfMemory", "HostOutOfMemoryKilled", "HostAllocationFailed", "SharedMemoryExhausted",
        "UserException", "SyntaxError", "ModuleNotFound", "ImportFailed", "AbiMismatch", "LibcTooOld",
        "SharedLibraryMissing", "CommandNotFound", "ExecFormatError", "CodeNotFound", "DataNotFound",
        "CheckpointNotFound", "OutputPathMissing", "PermissionDenied", "InvalidArguments", "ConfigInvalid",
        "LauncherMisconfigured", "ShapeMismatch", "DtypeMismatch", "IndexOutOfRange", "DeviceSideAssert",
        "IllegalMemoryAccess", "IllegalInstruction", "KernelLaunchFailed", "CudaForkMisuse", "InvalidDeviceOrdinal",
        "PicklingFailed", "NanLoss", "CollectiveMismatch", "UnusedParameters", "CheckpointIncompatible",
        "KvCacheTooSmall", "TooManyOpenFiles", "HubAuthFailed",
        "ProcessLimitReached", "HubRepoNotFound", "HubOfflineCacheMiss",
        "ObjectStoreAuthFailed", "TrackerAuthFailed", "ProxyMisconfigured", "DependencyNotFound",
        "KilledByDiskCleaner", "AcceleratorArchUnsupported", "AcceleratorApplicationFault", "HungWorker",
        "ResourcesInsufficient", "TimeLimitReached", "NativeCrash",
        "DownloadNotFound", "DownloadRefused", "CredentialsMissing", "GitRefNotFound", "DownloadTooLarge",
        "ArchiveUnsafe", "PlaceTaken", "DeviceProgramFailed", "TestFailed",
    ],
    "platform": [
        "ThreadLimit", "AcceleratorNotAvailable", "DriverTooOld", "NvmlError", "PeerLost", "AddressInUse",
        "ImagePullFailed", "GangStartTimeout", "OwnerLost", "Evicted", "Preempted", "SchedulerError",
        "Resized", "DeviceBusy",
    ],
    "external": [
        "HubRateLimited", "HubUnavailable", "DownloadFailed", "ObjectStoreThrottled", "DownloadCorrupt",
        "DownloadTimedOut", "DownloadUnreachable",
    ],
    "network": [
        "HubUnreachable", "ObjectStoreUnreachable", "TlsVerifyFailed", "DnsFailed", "RendezvousTimeout",
        "RendezvousFailed", "CollectiveConnectFailed", "NetworkLost", "NetworkUnreachable",
    ],
    "storage": [
        "DiskFull", "QuotaExceeded", "ReadOnlyFilesystem", "StorageIoError", "DataCorrupt", "CheckpointCorrupt",
    ],
    "hardware": [
        "AcceleratorLost", "AcceleratorMemoryError", "AcceleratorFault", "InterconnectFault", "NicFault",
        "NodeFailed", "CheckFailed",
    ],
    "operator": ["StoppedByOperator"],
    "unknown": ["CollectiveTimeout", "CollectiveSystemError", "KilledBySignal", "Unexplained"],
}  # fmt: skip

#: Where the code of a blame lies. Phrases whose blame is unknown, and those below, have places of their own.
BLOCKS = {
    "hardware": [*range(160, 180), 252],
    "network": range(180, 190),
    "storage": range(180, 190),
    "external": range(180, 190),
    "platform": [*range(190, 200), 251, 253, 254],
    "workload": range(220, 250),
    "operator": [250],
}
OWN_CODES = {
    "Succeeded": 0, "KilledByDiskCleaner": 198, "CheckFailed": 252, "GangStartTimeout": 251, "KilledBySignal": 137,
    "Unexplained": 255, "AcceleratorOutOfMemory": 226, "SyntaxError": 231, "ModuleNotFound": 232, "ImportFailed": 232,
    "OwnerLost": 251,
}  # fmt: skip
#: No line of a log tells of these: holdfast sees the end of each process itself.
SEEN_BY_HOLDFAST = {"Succeeded", "HookFailed", "DaemonFailed"}
TRANSIENT = {
    "DeviceBusy",
    "HubRateLimited", "HubUnavailable", "HubUnreachable", "ObjectStoreUnreachable", "DnsFailed", "PeerLost",
    "ObjectStoreThrottled", "DownloadCorrupt", "DownloadTimedOut", "DownloadUnreachable",
    "AddressInUse", "RendezvousTimeout", "RendezvousFailed", "NetworkLost", "Preempted", "SchedulerError",
    "GangStartTimeout", "Evicted", "NodeFailed", "AcceleratorLost", "AcceleratorMemoryError", "InterconnectFault",
    "NicFault", "OwnerLost",
}  # fmt: skip

#: Holdfast's own words for what it fetches before a start, always in one form.
OF_A_FETCH = {
    "DownloadNotFound", "DownloadRefused", "CredentialsMissing", "GitRefNotFound", "DownloadTooLarge", "ArchiveUnsafe",
    "PlaceTaken", "DownloadCorrupt", "DownloadTimedOut", "DownloadUnreachable",
}  # fmt: skip

CATALOGUE = read_rows()
WORDINGS = [(row, wording) for row in CATALOGUE for wording in row.wordings]


def by_phrase() -> dict[str, ExitRow]:
    return {row.phrase: row for row in CATALOGUE}


def phrase_of_line(text: str) -> str:
    log = LogExcerpt(source="job.log", text=text + "\n")
    report = explain(AttemptEvidence(workers=(WorkerEvidence(log=log),)))
    assert not (report.hint or "").startswith("bug"), report.hint
    return report.phrase


def test_every_phrase_of_the_contract_has_one_row_with_its_blame() -> None:
    wanted = {phrase: blame or "unknown" for blame, phrases in CONTRACT_PHRASES.items() for phrase in phrases}
    assert {row.phrase: str(row.blame) for row in CATALOGUE} == wanted
    assert len(CATALOGUE) == len(wanted)


def test_codes_lie_in_the_block_of_their_blame() -> None:
    for phrase, row in by_phrase().items():
        if phrase in OWN_CODES:
            assert row.code == OWN_CODES[phrase], phrase
        elif row.blame != "unknown":
            assert row.code in BLOCKS[str(row.blame)], phrase
        else:
            assert 180 <= row.code < 190, phrase


def test_what_may_pass_is_never_called_hopeless() -> None:
    rows = by_phrase()
    for phrase in TRANSIENT:
        assert rows[phrase].rerun != "never", phrase
        for wording in rows[phrase].wordings:
            assert wording.rerun != "never", wording.id


def test_each_class_has_wordings_enough_and_each_wording_a_sample() -> None:
    for row in CATALOGUE:
        if row.phrase not in SEEN_BY_HOLDFAST and row.phrase not in OF_A_FETCH:
            assert len(row.wordings) >= 3, row.phrase
    for _row, wording in WORDINGS:
        assert wording.samples, wording.id
    names = [wording.id for _row, wording in WORDINGS]
    assert sorted(names) == sorted(set(names))


def test_patterns_are_linear_and_never_match_nothing() -> None:
    for _row, wording in WORDINGS:
        for pattern in (wording.pattern, wording.beside, wording.unless):
            if pattern:
                compiled = re2.compile(pattern)
                assert not compiled.search(""), wording.id
                assert not compiled.search("step 12 | loss 2.31 | lr 3e-4 | 412 ms/step"), wording.id


def test_sentences_use_only_fields_that_something_fills() -> None:
    common = {"who", "rank", "node", "time", "line", "message", "exception", "signal", "exit", "source"}
    for row in CATALOGUE:
        known = common | {name for pattern in row.fields for name in re2.compile(pattern).groupindex}
        for text in (row.reason, row.solution):
            assert set(re.findall(r"\{(\w+)\}", text)) <= known, row.phrase
        for wording in row.wordings:
            own = known | set(re2.compile(wording.pattern).groupindex)
            for text in (wording.reason, wording.solution):
                assert set(re.findall(r"\{(\w+)[?}]", text)) <= own, wording.id


@pytest.mark.parametrize("phrase", [row.phrase for row in CATALOGUE if row.wordings])
def test_every_sample_is_explained_as_its_row_says(phrase: str) -> None:
    wrong = {}
    for wording in by_phrase()[phrase].wordings:
        for sample in wording.samples:
            if (answer := phrase_of_line(sample)) != phrase:
                wrong[wording.id] = answer
    assert not wrong


HARMLESS = [
    "W tensorflow/core/framework/op_kernel.cc:1651] invalid argument: optional attribute missing, ignored",
    "WARNING hub: Connection reset by peer, retrying in 2 s",
    "INFO probe: /dev/infiniband: No such file or directory (optional)",
    "node-1:91:210 [0] NCCL INFO NET/IB : No device found.",
    "UserWarning: `resume_download` is deprecated and will raise an error in a later version",
    "WARNING loader: failed to load native tokenizer, using fallback",
    "INFO retry: HTTP 503 from metrics, trying again",
    "DEBUG cache: OSError while reading stale entry, rebuilding",
]


@pytest.mark.parametrize("harmless", HARMLESS)
def test_a_harmless_line_before_a_healthy_stretch_decides_nothing(harmless: str) -> None:
    steps = "\n".join(f"step {n} | loss {3 - n / 100:.3f} | 400 ms/step" for n in range(40))
    cause = (
        "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\n    f(x)\nKeyError: 'label'"
    )
    assert phrase_of_line(f"{harmless}\n{steps}\n{cause}") == "UserException"
    assert phrase_of_line(f"{harmless}\n{steps}") == "Unexplained"


def test_records_with_a_certain_cause_are_explained_well_enough() -> None:
    import sys

    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import explain_accuracy as bench
    finally:
        sys.path.pop(0)
    for file, least_blame in (("explain_exam", 0.98), ("explain_exam2", 0.96), ("explain_jobs", 0.97)):
        records = bench.read([DATA / f"{file}.jsonl"])
        assert len(records) >= 80
        judged = [bench.judge(record) for record in records]
        misses = [bench.miss(j) for j in judged if not j.right]
        assert len(misses) <= 0.03 * len(records), "\n".join(misses)
        assert sum(j.blame_right for j in judged) >= least_blame * len(records), file
        assert not [j.name for j in judged if j.hopeless_said_of_transient]


def test_records_are_well_formed() -> None:
    phrases = {phrase for group in CONTRACT_PHRASES.values() for phrase in group}
    for file in DATA.glob("explain_*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            assert {record["phrase"], *record["also_right"]} <= phrases, record["id"]
            assert record["transient"] in ("yes", "no", "unknown"), record["id"]


def test_a_launchers_trailer_is_no_part_of_an_exceptions_message() -> None:
    cause = (
        "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\n    f(x)\nKeyError: 'label'\n"
    )
    trailer = (
        "srun: error: gpu-2: task 6: Exited with exit code 1\nsrun: Terminating StepId=7711.0\n"
        "slurmstepd: error: *** STEP 7711.0 ON gpu-1 CANCELLED AT 2026-06-14T03:00:01 ***\n"
    )
    assert phrase_of_line(cause + trailer) == "UserException"


def test_what_speaks_against_a_wording_must_stand_in_the_same_exception() -> None:
    cause = 'Traceback (most recent call last):\n  File "/w/pull.py", line 2, in <module>\n    s.connect(a)\n'
    cause += "OSError: [Errno 101] Network is unreachable\n"
    assert phrase_of_line("NCCL version 2.21.5+cuda12.4\n" + cause) == "NetworkUnreachable"


def test_a_bare_assertion_is_known_by_its_source_line() -> None:
    text = 'Traceback (most recent call last):\n  File "/w/m.py", line 12, in forward\n'
    text += "    assert q.shape[-1] == k.shape[-1]\n"
    assert phrase_of_line(f"{text}           ^^^^^^^^^^^^^^^^^^^^^^^^^\nAssertionError\n") == "ShapeMismatch"


def test_a_shells_trailing_killed_comes_after_the_link_that_failed() -> None:
    text = (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
    )
    assert phrase_of_line(
        f"{text}Received sigquit from a child process. It usually means the child failed.\nKilled\n"
    ) == ("CollectiveConnectFailed")


def test_those_who_waited_come_after_the_link_that_failed() -> None:
    lost = "[rank1]: RuntimeError: NET/IB : Got completion from peer 10.0.0.9<5111> with error 12, opcode 0, len 0\n"
    waited = "[rank0]:[E614 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL\n"
    assert phrase_of_line(waited + lost) == phrase_of_line(lost + waited) == "NetworkLost"


def test_the_order_of_classes_has_no_circle_and_names_known_classes() -> None:
    assert circles(CATALOGUE) == []
    known = {row.phrase for row in CATALOGUE}
    assert {other for row in CATALOGUE for other in (*row.explains, *row.implies, *row.quotes)} <= known


@pytest.mark.parametrize(
    ("phrase", "generic", "specific"),
    [
        ("Preempted", "The actor died because its node has died. Node Id: a", "the actor's node was preempted"),
        ("TestFailed", "AssertionError: False is not true", "FAILED (failures=1)"),
        ("DiskFull", "OSError: [Errno 5] Input/output error: '/x'", "OSError: [Errno 28] No space left on device"),
        ("HostOutOfMemoryKilled", "run.sh: line 3: 8 Killed", "Memory cgroup out of memory: Killed process 8 (fit)"),
    ],
)  # fmt: skip
def test_the_specific_class_counts_in_either_order(phrase: str, generic: str, specific: str) -> None:
    assert phrase_of_line(f"{generic}\n{specific}\n") == phrase
    assert phrase_of_line(f"{specific}\n{generic}\n") == phrase


def test_a_circle_in_a_users_rows_is_found_by_lint() -> None:
    rows = """
- {phrase: LicenceGone, code: 240, blame: workload, rerun: never, what: x, solution: y, explains: [PeerLost]}
- {phrase: PeerLost, code: 190, blame: platform, rerun: later, what: x, solution: y, implies: [LicenceGone, NoSuch]}
"""
    found = {problem.rule: problem.message for problem in lint(rows, "rows.yaml")}
    assert {"LicenceGone", "PeerLost"} <= set(found["circle"].partition(":")[0].split(" comes before "))
    assert "NoSuch" in found["unknown-class"]
