"""The rank that torchrun calls the root cause (else the first with a bad status), and the last exception of its log."""

import re

from _words import answer, case, exceptions, phrase_of

BY_SIGNAL = {9: "KilledBySignal", 15: "KilledBySignal"}
asked = case()
rank, signal = None, None
root = asked["launcher"].rpartition("Root Cause (first observed failure):")[2]
if found := re.search(r"rank\s*: (\d+).*?exitcode\s*: (-?\d+)", root, re.S):
    rank, code = int(found[1]), int(found[2])
    signal = -code if code < 0 else None
else:
    for one in asked["exits"]:
        if one["code"] or one["signal"]:
            rank, signal = one["rank"], one["signal"]
            break
names = [name for log in asked["logs"] if log["rank"] == rank for name in exceptions(log["text"])]
if names:
    answer(phrase_of(names[-1]), [rank] if rank is not None else [])
elif signal:
    answer(BY_SIGNAL.get(signal, "NativeCrash"), [rank] if rank is not None else [])
else:
    answer("Unexplained", [rank] if rank is not None else [])
