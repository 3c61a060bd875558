"""The same error in the words of many vendors, languages and schedulers; and lines that sound bad and are no cause."""

from __future__ import annotations

import pytest

from builders import of_log
from holdfast.explain import explain
from places import DATA

FAMILIES = [
    tuple(line.split("  ", 1))
    for line in (DATA / "error_families.txt").read_text().splitlines()
    if not line.startswith("#")
]
APEX_TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    import apex",
    "ModuleNotFoundError: No module named 'apex'",
]
PREFIXES = [
    "worker-0: ",
    "10.3.35.83: ",
    "[gpu-3]: ",
    "0| ",
    "[TP0] ",
    "[2025-03-09 00:57:15 TP4] ",
    "role_0/0 ",
    "ERROR:__main__:",
    "INFO:root:",
    "2024-01-01 10:00:00,123 - train - ERROR - ",
    "<stderr> ",
    "[node-1][rank 3] ",
    "r3 | ",
    "[0]<stderr>:",
    "[1,mpirank:3,algo-1]<stderr>:",
    "workerlog.0: ",
    "[LOCAL_RANK 3] ",
    "pid=123 ",
    "train-0[main]: ",
    "[ip-10-0-0-1] ",
]


@pytest.mark.parametrize("phrase", sorted({phrase for phrase, _ in FAMILIES}))
def test_an_error_has_one_phrase_in_each_spelling(phrase: str) -> None:
    wrong = {
        line: str(answer)
        for known, line in FAMILIES
        if known == phrase and (answer := explain(of_log(f"{line}\n")).phrase) != phrase
    }
    assert not wrong


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_an_unknown_launcher_puts_before_each_line_of_a_traceback_is_taken_off(prefix: str) -> None:
    log = "starting\n" + "".join(f"{prefix}{line}\n" for line in APEX_TRACEBACK)
    assert explain(of_log(log)).phrase == "ModuleNotFound"


def test_a_prefix_that_one_traceback_teaches_goes_from_the_lines_of_other_hosts_too() -> None:
    from holdfast.explain.logs.log_lines import parse

    log = "".join(f"<gpu-1> {line}\n" for line in APEX_TRACEBACK) + "<gpu-22> Killed\n"
    assert parse(log)[-1].text == "Killed"


def test_a_prefix_is_learnt_from_a_traceback_that_lost_its_frames() -> None:
    log = "".join(f"[root.train_work] {line}\n" for line in (APEX_TRACEBACK[0], APEX_TRACEBACK[-1]))
    assert explain(of_log(log)).phrase == "ModuleNotFound"


@pytest.mark.parametrize(
    "warning",
    [
        "[c10d] TCP client failed to connect/validate to host gpu-1:5337: Connection refused",
        "modprobe: FATAL: Module nvidia_peermem not found in directory /lib/modules/5.15",
        "the proxy returned 503 Service Unavailable, retrying in 1 s",
        "batch size must be divisible by 8, padding with 3",
    ],
)
def test_trouble_that_a_program_got_over_is_no_cause(warning: str) -> None:
    steps = "".join(f"step {number} loss 2.{99 - number}\n" for number in range(5))
    assert explain(of_log(f"{warning}\n{steps}")).phrase == "Unexplained"


def test_words_before_the_header_alone_do_not_hide_a_traceback() -> None:
    log = "worker failed: " + "\n".join(APEX_TRACEBACK) + "\n"
    assert explain(of_log(log)).phrase == "ModuleNotFound"
