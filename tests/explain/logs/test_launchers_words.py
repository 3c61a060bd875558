"""What launchers and schedulers state of an end is used where no words say why, and never before words that do."""

# ruff: noqa: E501, ISC004 - a log's line stays one line
from __future__ import annotations

import pytest
from explain_builders import of_one_log

from conftest import Holdfast
from holdfast.explain.logs.launcher_notes import plain_of, signal_of

BOX = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-02-02_15:05:46
  host      : worker-7
  rank      : 2 (local_rank: 0)
  exitcode  : 1 (pid: 99)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-02-02_15:05:45
  host      : worker-6
  rank      : 1 (local_rank: 1)
  exitcode  : 7 (pid: 3169136)
  error_file: /tmp/torchelastic_x/attempt_0/1/error.json
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""
TRACED = (
    BOX.rsplit("  traceback : ", 1)[0]
    + """  traceback : Traceback (most recent call last):
    File "/app/t.py", line 3, in main
      lr = cfg["lr"]
  KeyError: 'lr'
"""
)
HYDRA = "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"


@pytest.mark.parametrize(
    ("text", "rank", "status", "by"),
    [
        (BOX, 1, 7, "torchrun"),
        ("[E] failed (exitcode: 7) local_rank: 1 (pid: 881) of binary: /usr/bin/python", 1, 7, "torchrun"),
        ("srun: error: n3: task 2: Exited with exit code 7\nsrun: Terminating StepId=88.0", 2, 7, "Slurm"),
        ("88|train|FAILED|7:0", None, 7, "Slurm"),
        (
            "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
            "the job to be terminated. The first process to do so was:\n\n"
            "  Process name: [[51234,1],3]\n  Exit code:    7",
            3, 7, "mpirun",
        ),
        (HYDRA + "= RANK 3 PID 1078176 RUNNING AT pc44\n= EXIT STATUS: 7", 3, 7, "mpirun"),
        ("application called MPI_Abort(MPI_COMM_WORLD, 7) - process 5", 5, 7, "MPI"),
        ("[launch.py:325:sigkill_handler] ['/usr/bin/python', 't.py'] exits with return code = 7", None, 7, "DeepSpeed"),
        ("    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    7", None, 7, "Kubernetes"),
        ("Exited with exit code 7.", None, 7, "LSF"),
        ("Exit_status=7\nresources_used.walltime=00:10:00", None, 7, "PBS"),
        ("Status message: Job entrypoint command failed with exit code 7, last available logs:", None, 7, "Ray"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 7", 1, 7, "torch.mult"),
    ],
)  # fmt: skip
def test_a_launchers_word_is_better_than_none(text: str, rank: int | None, status: int, by: str) -> None:
    report = of_one_log(text)
    assert report.phrase == "Unexplained"
    assert (report.first.rank if report.first else None, report.original.exit_code) == (rank, status)
    assert f"; {by}" in report.reason


def test_the_file_that_torchrun_names_is_where_to_look() -> None:
    assert of_one_log(BOX).solution.startswith("Read /tmp/torchelastic_x/attempt_0/1/error.json on worker-6")


def test_the_traceback_inside_torchruns_summary_is_read() -> None:
    assert of_one_log(TRACED).reason == "rank 1 raised KeyError: 'lr'"


STOPPED = """[{number}]:
  time      : 2026-02-02_15:05:46
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : -15 (pid: 9{rank}){name}
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 9{rank}
"""
SENT = "W1126 23:14:20.187000 6714 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 6802 closing signal SIGTERM\n"
FAILED = "E1126 23:14:20.190000 6714 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 91) of binary: /usr/bin/python3\n"
LOST = """Traceback (most recent call last):
  File "/app/t.py", line 9, in step
    dist.all_reduce(x)
RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234
"""


def summary(code: str, *, listed: bool = True, name: str = "", lead: str = "", sent: str = SENT) -> str:
    """Return a log as torchrun writes it if rank 1 ends with `code`, and ranks 0 and 2 are stopped."""
    failures = "Failures:\n" + "".join(STOPPED.format(number=n, rank=2 * n - 2, name=name) for n in (1, 2))
    head, _, box = BOX.partition("Failures:\n")
    root = box.partition("Root Cause")[2].replace("exitcode  : 7 ", f"exitcode  : {code} ")
    root = root.replace("/tmp/torchelastic_x/attempt_0/1/error.json", "<N/A>")
    return f"{lead}{sent}{FAILED.format(code=code)}{head}{failures if listed else ''}Root Cause{root}"


@pytest.mark.parametrize("log", [
    summary("7"),
    summary("7", name="  (SIGTERM)"),
    summary("7", listed=False),
    summary("7", sent=""),
    summary("7", lead=LOST),
    summary("7", lead="Terminated\n"),
    summary("2", lead=LOST, name="  (SIGTERM)"),
    "".join(f"0: {line}\n" for line in summary("7").splitlines()),
    "".join(f"2026-02-02T15:05:46Z {line}\n" for line in summary("7").splitlines()),
    summary("7").partition("torch.distributed")[0],
], ids=["list", "names", "no list", "no stops", "lost peers", "shell", "status 2", "srun", "kubectl", "cut"])  # fmt: skip
def test_the_first_failure_that_torchrun_names_comes_before_what_followed(log: str) -> None:
    report = of_one_log(log)
    assert (report.phrase, report.first and report.first.rank) == ("Unexplained", 1)
    assert report.original.signal is None
    assert "rank 1" in report.reason


@pytest.mark.parametrize(
    ("code", "phrase"),
    [("-11", "NativeCrash"), ("139", "NativeCrash"), ("-6", "NativeCrash"), ("-9", "KilledBySignal"),
     ("-1", "KilledBySignal"), ("127", "CommandNotFound"), ("126", "ExecFormatError"), ("124", "TimeLimitReached"),
     ("205", "UserException"), ("-15", "KilledBySignal")],
)  # fmt: skip
@pytest.mark.parametrize("listed", [True, False])
def test_how_the_first_failure_ended_is_believed(code: str, phrase: str, listed: bool) -> None:
    report = of_one_log(summary(code, listed=listed))
    assert (report.phrase, report.first and report.first.rank) == (phrase, 1)


def test_an_exception_without_a_rank_has_the_rank_of_the_first_failure() -> None:
    raised = (
        "Traceback (most recent call last):\n  File \"/app/t.py\", line 3, in main\n    cfg['lr']\nKeyError: 'lr'\n"
    )
    report = of_one_log(summary("1", lead=raised))
    assert (report.reason, report.first and report.first.rank) == ("rank 1 raised KeyError: 'lr'", 1)


def test_a_cause_in_the_log_comes_before_the_summary() -> None:
    report = of_one_log("[rank0]: ModuleNotFoundError: No module named 'apex'\n" + BOX)
    assert (report.phrase, report.first and report.first.rank) == ("ModuleNotFound", 0)


def test_whom_slurm_kills_after_it_gave_up_did_not_die_by_itself() -> None:
    killed = "srun: error: c1: tasks 0-35: Killed"
    assert (
        of_one_log(f"srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n{killed}").phrase
        == "Unexplained"
    )
    assert of_one_log(f"{killed}\nsrun: Job step aborted: Waiting up to 32 seconds.").phrase == "KilledBySignal"


@pytest.mark.parametrize(
    ("status", "signal", "plain"),
    [
        (7, None, 7), (137, 9, 137), (-9, 9, None), (271, 15, None), (256, None, 1), (65280, None, 255),
        (3221225477, 11, None), (-1073741819, 11, None), (999, None, None),
    ],
)  # fmt: skip
def test_statuses_in_the_forms_of_their_writers(status: int, signal: int | None, plain: int | None) -> None:
    assert (signal_of(status), plain_of(status)) == (signal, plain)


@pytest.mark.parametrize(("typed", "said"), [("271", "SIGTERM"), ("256", "exit status 1"), ("3221225477", "SIGSEGV")])
def test_a_status_above_255_is_answered(holdfast: Holdfast, typed: str, said: str) -> None:
    log = holdfast.script("hello\n", "a.log")
    assert said in holdfast("explain", log, "--exit-code", typed).out


LINES = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 3, in <module>',
    "    import apex",
    "ModuleNotFoundError: No module named 'apex'",
]


@pytest.mark.parametrize(
    "tag",
    [
        "trainer  | ", "2026-01-01 10:00:00.123 | ERROR    | app.train:main:12 - ",
        "2026-01-01 10:00:00.123 | ERROR | stderr | ",
        "[2026-01-01 10:00:00,123][app.train][ERROR] - ", "train-job-worker-0 pytorch ", "nid001234 0: ",
        "<stderr>: ", "│ ",
    ],
)  # fmt: skip
def test_what_a_logger_puts_in_front_hides_no_exception(tag: str) -> None:
    assert of_one_log("\n".join(tag + line for line in LINES)).phrase == "ModuleNotFound"


def test_a_traceback_inside_json_or_a_quotation_is_unfolded() -> None:
    quoted = "\\n".join(line.replace('"', '\\"') for line in LINES)
    assert of_one_log(f'{{"level":"ERROR","message":"failed","exc_info":"{quoted}"}}').phrase == "ModuleNotFound"
    assert of_one_log(f'worker said: "{quoted}\\n"').phrase == "ModuleNotFound"


def test_a_fatal_line_behind_an_open_bar_is_taken_off_it() -> None:
    bar = "Training:  12%|#2   | 120/1000 [00:10<01:10, 12.0it/s]"
    assert of_one_log(bar + "ModuleNotFoundError: No module named 'apex'").phrase == "ModuleNotFound"


def test_a_bar_drawn_once_more_does_not_undo_a_fatal_error() -> None:
    line = "Loss.cu:250: nll: block: [0,0,0], thread: [5,0,0] Assertion `t >= 0 && t < n_classes` failed."
    bar = "Evaluating:   3%|#   | 11769/349869 [54:30<26:05:54,  3.60it/s]"
    assert of_one_log(f"{line}\n{bar}").phrase == "DeviceSideAssert"
    assert of_one_log("\n".join([line, *[bar] * 40])).phrase == "Unexplained"


def test_a_traceback_that_ends_at_its_raise_is_read_from_there() -> None:
    text = "\n".join([LINES[0], LINES[1], '    raise FileNotFoundError(f"File {path} does not exist.")'])
    assert of_one_log(text).phrase == "DataNotFound"


def test_code_in_a_traceback_without_indentation_is_no_exception() -> None:
    text = 'File "/a.py", line 1, in init\nself.comm: T = self.nccl.init(\nFile "/w.py", line 3, in init\nself.CHECK(\nKeyError: 1'
    assert of_one_log(text).reason == "the program raised KeyError: 1"


def test_java_tells_its_cause_last() -> None:
    text = (
        'Exception in thread "main" java.lang.IllegalStateException: no splits\n\tat com.acme.Train.main(Train.java:12)\n'
        "Caused by: java.io.FileNotFoundException: /data/x.csv (No such file or directory)\n\tat com.acme.S.read(S.java:3)"
    )
    assert of_one_log(text).phrase == "DataNotFound"


def test_a_panic_of_go_is_an_exception() -> None:
    assert (
        of_one_log("panic: no shards left\n\ngoroutine 1 [running]:\nmain.main()").reason
        == "the program raised panic: no shards left"
    )


@pytest.mark.parametrize("tag", ["[1,3]<stderr>:", "[prterun-n1-99@1,3]<stderr>: ", "[job1,3]<stderr>: "])
@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:epoch 1 loss 2.1", " 10%|#   | 1/10 [00:01<00:09, 1.1it/s]"])
def test_mpiruns_tag_in_the_middle_of_a_line_begins_a_line_of_its_rank(before: str, tag: str) -> None:
    report = of_one_log(f"[1,0]<stdout>:start\n{before}{tag}ModuleNotFoundError: No module named 'apex'\n")
    assert (report.phrase, report.first and report.first.rank) == ("ModuleNotFound", 3)


def test_a_date_that_mpirun_writes_before_its_tag_stays_with_its_line() -> None:
    report = of_one_log("Mon Aug  5 12:50:21 2019[1,6]<stderr>:ModuleNotFoundError: No module named 'apex'\n")
    assert report.phrase == "ModuleNotFound"
    assert report.first is not None
    assert report.first.rank == 6


@pytest.mark.parametrize(
    "line", ["| Volatile Uncorrectable: 0 |", "|   3  NVIDIA H100  On | 00000000:5D:00.0 Off |         0 |"]
)
def test_a_table_that_counts_no_memory_error_explains_nothing(line: str) -> None:
    assert of_one_log(f"{line}\n").phrase == "Unexplained"


def test_what_was_waited_for_in_ray_gives_way_to_the_autoscalers_word() -> None:
    report = of_one_log(
        "(autoscaler) Error: No available node types can fulfill resource request {'GPU': 16.0}.\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    ray.get(ref, timeout=40)\n'
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.\n"
    )
    assert report.phrase == "ResourcesInsufficient"


def test_an_exception_that_a_launcher_raises_of_its_own_counts_as_any_other() -> None:
    """It is no echo of a worker's failure: no worker was started."""
    report = of_one_log(
        'Traceback (most recent call last):\n  File "/opt/bin/deepspeed", line 6, in <module>\n    main()\n'
        '  File "/opt/lib/python3.10/site-packages/deepspeed/launcher/runner.py", line 368, in main\n'
        "    raise RuntimeError(f'the list of hosts names {host} twice')\nRuntimeError: the list of hosts names n4 twice"
    )
    assert (report.phrase, str(report.blame)) == ("UserException", "workload")


def test_lines_of_two_hosts_lose_their_tags_also_where_the_log_is_short() -> None:
    """Two of four lines are one host's: enough to know the tag's form."""
    report = of_one_log(
        "c000001: FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus_doc_idx.npy'\n"
        "c000002:     train, valid = datasets(\n"
        'c000002:   File "/w/megatron/data/gpt.py", line 35, in datasets\n'
        "c000002:     return build(prefix[0],"
    )
    assert report.phrase == "DataNotFound"


@pytest.mark.parametrize(
    ("line", "blame"),
    [
        ("zipfile.BadZipFile: File is not a zip file", "storage"),
        ("zlib.error: Error -3 while decompressing data", "storage"),
    ],
)
def test_an_exception_of_pythons_library_is_known_by_its_name_alone(line: str, blame: str) -> None:
    """Not all of them end in Error or Exception."""
    assert str(of_one_log(f"loading shard 3\n{line}").blame) == blame


@pytest.mark.parametrize("victim", ["-6 ", "-11 ", "-9 "])
def test_a_victim_that_crashed_later_is_not_the_first_failure(victim: str) -> None:
    name = {"-6 ": "SIGABRT", "-11 ": "SIGSEGV", "-9 ": "SIGKILL"}[victim]
    box = BOX.replace("exitcode  : 1 ", f"exitcode  : {victim}").replace(
        "traceback : To enable",
        f"traceback : Signal {victim.strip()[1:]} ({name}) received by PID 99\n  x : To enable",
        1,
    )
    report = of_one_log(box)
    assert (report.phrase, report.first and report.first.rank) == ("Unexplained", 1)
