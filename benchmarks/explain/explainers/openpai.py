"""OpenPAI's published patterns for a container's exit: the exit status, and its expressions on the user's log.

From the configuration k8s-job-exit-spec of microsoft/pai (MIT), at a95d942. Its phrases are read as the nearest classes
here; what needs a pod's record cannot be seen in a case. Bare exit statuses come after the expressions. It knows no
rank: the first log that matches counts as one.
"""

import re

from _words import answer, case

ON_LOGS = (
    (r"(?i)command not found", "CommandNotFound"),
    (r"(?mi)tensorflow.*ResourceExhaustedError.*OOM.*", "AcceleratorOutOfMemory"),
    (r"(?i)ran out of memory trying to allocate", "AcceleratorOutOfMemory"),
    (r"(?mi)Signal code: Address not mapped.*", "NativeCrash"),
    (r"(?mi)CUDA_ERROR_ECC_UNCORRECTABLE.*", "AcceleratorMemoryError"),
    (r"(?i)cuda driver version is insufficient for cuda runtime version", "DriverTooOld"),
    (r"(?i)unknown option", "InvalidArguments"),
    (r"(?mi)bad argument #2 to .*", "InvalidArguments"),
    (r"(?i)perhaps your file is in a different file format", "CheckpointIncompatible"),
    (r"(?i)ValueError: Restore called with invalid save path", "CheckpointNotFound"),
    (r"(?i)syntaxerror: invalid syntax", "SyntaxError"),
    (r"(?i)unpicklingerror", "CheckpointCorrupt"),
    (r"(?mi)importerror:.*", "ImportFailed"),
    (r"(?mi)indexerror:.*index out of range", "IndexOutOfRange"),
    (r"(?i)segmentation fault", "NativeCrash"),
    (r"(?i)core dumped", "NativeCrash"),
)
BY_STATUS = {
    132: "NativeCrash", 134: "NativeCrash", 135: "NativeCrash", 136: "NativeCrash", 137: "KilledBySignal",
    139: "NativeCrash", 143: "KilledBySignal", 130: "StoppedByOperator",
}  # fmt: skip
asked = case()
for pattern, phrase in ON_LOGS:
    ranks = [log["rank"] for log in asked["logs"] if re.search(pattern, log["text"])]
    if ranks:
        answer(phrase, ranks[:1])
        break
else:
    for one in asked["exits"]:
        status = 128 + one["signal"] if one["signal"] else one["code"]
        if status in BY_STATUS and not one.get("by_launcher"):
            answer(BY_STATUS[status], [one["rank"]])
            break
    else:
        answer("Unexplained", [])
