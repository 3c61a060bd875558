"""However a program, a shell or a scheduler says that a signal ended a process, it is understood."""

# ruff: noqa: E501 - a log's line stays one line
from __future__ import annotations

import pytest
from explain_builders import of_one_log

from holdfast.explain.logs.launcher_notes import notes
from holdfast.explain.logs.log_lines import parse
from holdfast.explain.logs.signal_sentences import ATOMS, SENTENCES, SHELL, SHELL_WORDS, WORDS, number_of

SAID = [
    (9, "./run.sh: line 31: 8123 Killed                  python3 fit.py --bs 8"),
    (11, "run.sh: line 7: 4410 Segmentation fault      (core dumped) python fit.py"),
    (11, "job.sh: Zeile 9: 4411 Speicherzugriffsfehler  (Speicherabzug geschrieben) python fit.py"),
    (9, "job.sh: Zeile 9: 4411 Getötet                 python fit.py"),
    (7, "job.sh: Zeile 9: 4411 Bus-Zugriffsfehler      python fit.py"),
    (11, "job.sh : ligne 9 : 4411 Erreur de segmentation  (core dumped) python fit.py"),
    (9, "job.sh : ligne 9 : 4411 Processus arrêté       python fit.py"),
    (11, "job.sh: línea 9: 4411 Violación de segmento  (`core' generado) python fit.py"),
    (11, "job.sh: 行 9: 4411 段错误               （核心已转储） python fit.py"),
    (9, "job.sh：行 9： 4411 已杀死               python fit.py"),
    (6, "job.sh: 第 9 行: 4411 已放弃               (核心已转储) python fit.py"),
    (9, "job.sh: 9 行: 4411 強制終了            python fit.py"),
    (9, "zsh: killed     python fit.py"),
    (6, "zsh: abort (core dumped)  python fit.py"),
    (7, "[1]  + 2211 bus error  python fit.py"),
    (9, "[2]    2212 killed     torchrun fit.py"),
    (11, "fish: Job 1, 'python fit.py' terminated by signal SIGSEGV (Address boundary error)"),
    (9, "fish: Job 2, 'torchrun --nproc 8 fit.py' has been terminated by signal SIGKILL (Forced quit)"),
    (9, "make[1]: *** [Makefile:8: fit] Killed"),
    (9, "subprocess.CalledProcessError: Command '['python', 'fit.py']' died with <Signals.SIGKILL: 9>."),
    (11, "subprocess.CalledProcessError: Command 'fit' returned non-zero exit status -11."),
    (9, "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed. "),
    (1, "RuntimeError: DataLoader worker (pid 812) is killed by signal: Hangup. "),
    (15, "RuntimeError: DataLoader worker (pid 812) is killed by signal: Terminated. "),
    (9, "joblib.externals.loky.process_executor.TerminatedWorkerError: a worker stopped\nThe exit codes of the workers are {SIGKILL(-9)}"),
    (9, "Process SpawnProcess-3 exited with exit code -9"),
    (9, "2026-04-04 10:00:00,000 - distributed.nanny - INFO - Worker process 812 was killed by signal 9"),
    (9, "celery: WorkerLostError('Worker exited prematurely: signal 9 (SIGKILL) Job: 8.')"),
    (9, "[2026-04-04 10:00:00 +0000] [7] [ERROR] Worker (pid:88) was sent SIGKILL! Perhaps out of memory?"),
    (11, "[2026-04-04 10:00:00 +0000] [7] [ERROR] Worker (pid:88) was sent code 139!"),
    (9, "DAMN ! worker 2 (pid: 44) died, killed by signal 9 :( trying respawn ..."),
    (11, "Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)"),
    (11, "2026/04/04 10:00:00 [alert] 31#31: worker process 32 exited on signal 11 (core dumped)"),
    (15, "[rank: 3] Received SIGTERM: 15"),
    (2, "[launch.py:328:sigkill_handler] Main process received SIGINT, exiting"),
    (2, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 81 got signal: 2"),
    (1, "torch/distributed/elastic/agent/server/api.py:704] Received 1 death signal, shutting down workers"),
    (15, "torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers"),
    (11, "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGSEGV"),
    (9, 'level=error msg="fit failed" error="signal: killed"'),
    (6, "exec: signal: aborted (core dumped)"),
    (9, "Error: child failed: exit status: signal: 9 (SIGKILL)"),
    (11, "error: process didn't exit successfully: `target/fit` (signal: 11, SIGSEGV: invalid memory reference)"),
    (11, "#  SIGSEGV (0xb) at pc=0x00007f1a2b, pid=81, tid=82"),
    (9, "npm error Command failed with signal SIGKILL: node fit.js"),
    (11, "Program terminated with signal SIGSEGV, Segmentation fault."),
    (11, "Thread 4 \"python\" received signal SIGSEGV, Segmentation fault."),
    (9, "srun: error: gpu-12: tasks 8-11: Killed"),
    (9, "9912|fit|FAILED|0:9"),
    (9, "   JobState=FAILED ExitCode=0:9 Restarts=0"),
    (9, "    Exit_status = 265"),
    (15, "    Exit_status = 271"),
    (9, "Exited with exit code 137."),
    (10, "Exited with signal termination: 10."),
    (9, "exit_status  137                  (Killed)"),
    (11, "\t(0) Abnormal termination (signal 11)"),
    (9, "      Exit Code:    137"),
    (9, "      Signal:       9"),
    (9, "fit-1  | x\nfit-1 exited with code 137"),
    (9, "a81f  img  \"fit\"  2 hours ago  Exited (137) 5 minutes ago   fit"),
    (9, "gpu4 systemd[1]: fit.service: Main process exited, code=killed, status=9/KILL"),
    (11, "gpu4 systemd[1]: fit.service: Main process exited, code=dumped, status=11/SEGV"),
    (11, "2026-04-04 10:00:00,000 WARN exited: fit (terminated by SIGSEGV (core dumped); not expected)"),
    (9, "mpirun noticed that process rank 3 with PID 812 on node n4 exited on signal 9 (Killed)."),
    (11, "=   RANK 3 PID 812 RUNNING AT n4\n=   KILLED BY SIGNAL: 11 (Segmentation fault)"),
    (9, "Process 3 exits with return code = -9"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text"), SAID)
def test_a_signal_is_understood_wherever_it_is_said(number: int, text: str) -> None:
    found = notes(parse(text))
    assert [note.signal for note in found if note.signal is not None][-1:] == [number]


@pytest.mark.parametrize(
    ("number", "text"),
    [each for each in SAID if each[0] in (1, 2, 4, 6, 7, 8, 9, 11, 15)],
    ids=lambda each: str(each)[:40],
)
def test_a_report_names_how_the_process_ended(number: int, text: str) -> None:
    crashed = {"NativeCrash", "SharedMemoryExhausted"}
    asked = {"KilledBySignal", "StoppedByOperator"}
    right = {2: {"StoppedByOperator"}, 9: asked | {"HostOutOfMemoryKilled"}, 1: asked, 15: asked}
    assert of_one_log(text).phrase in right.get(number, crashed)


@pytest.mark.parametrize(
    "text",
    [
        "torch/distributed/elastic/multiprocessing/api.py:897] Sending process 81 closing signal SIGTERM",
        "a handler for SIGTERM is installed",
        "step 3: the killed neurons are 9 of 100",
        "fit-1 exited with code 0",
        "2026-04-04 10:00:00,000 INFO exited: fit (exit status 0; expected)",
        "signal to noise: 9",
        "Mask: 11 segments, terminated at 15",
        "Abandon all hope",
    ],
)
def test_other_lines_with_such_words_state_no_end(text: str) -> None:
    assert [note for note in notes(parse(text)) if note.signal] == []


def test_every_sentence_can_be_found_by_a_quick_word() -> None:
    for number, text in SAID:
        for line in parse(text):
            if any(pattern.search(line.text) for _, pattern in SENTENCES):
                assert any(atom in line.text for atom in ATOMS), (number, line.text)
            if any(pattern.match(line.text) for pattern in SHELL) and line.text.isascii():
                assert any(word in line.text for word in SHELL_WORDS), line.text


def test_a_signal_has_its_number_by_any_name() -> None:
    for name in ("SIGKILL", "kill", "9", "Killed", "getötet", "已杀死", "強制終了"):
        assert number_of(name) == 9
    assert number_of("SIGNOT") is None
    assert set(WORDS.values()) <= set(range(1, 32))
