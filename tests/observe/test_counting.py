"""How far a worker's output says that its work has come: lines as real trainers print them."""
# ruff: noqa: E501 - a log's line stays one line

from __future__ import annotations

import pytest

from holdfast.model.progress_facts import Count
from holdfast.observe.step_counter import counts_in

BAR = "█████▍    "


def counted(text: str, *more: str) -> dict[str, tuple[float | None, float]]:
    return {count.name: (count.epoch, count.value) for count in counts_in(text, *more)}


@pytest.mark.parametrize(
    ("line", "name", "epoch", "value"),
    [
        ("step 120", "step", None, 120),
        ("step: 120 loss: 2.31", "step", None, 120),
        ("step=120", "step", None, 120),
        ("[step 120/1000] loss 0.2", "step", None, 120),
        ("Step 1,200 | loss 0.2 | 312 ms", "step", None, 1200),
        ('{"step": 120, "loss": 0.25, "time": 1763811579.2}', "step", None, 120),
        ("{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 1.25}", "epoch", None, 1.25),
        ("{'loss': '0.5', 'epoch': '1.25'}", "epoch", None, 1.25),
        ("{'eval_loss': 0.5, 'eval_runtime': 3.1, 'epoch': 2.0}", "epoch", None, 2),
        ("global_step=77, lr=0.1", "global_step", None, 77),
        ("iter 100: loss 2.3114, time 312.33ms, mfu 12.1%", "iter", None, 100),
        ("step 250: train loss 1.9, val loss 2.0", "step", None, 250),
        (" [2026-11-22 12:00:01.123456] iteration      200/  500000 | consumed samples:   51200 |", "iteration", None, 200),
        ("[2026-11-22 12:00:01,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.01]", "step", None, 10),
        ("INFO:tensorflow:loss = 0.1, step = 100 (0.512 sec)", "step", None, 100),
        ("I1122 12:00:01.123 1234 train.py:88] step: 40, loss 0.1", "step", None, 40),
        ("11/22 12:00:01 - mmengine - INFO - Iter(train) [  100/80000]  lr: 1.0e-03", "iter", None, 100),
        ("11/22 12:00:01 - mmengine - INFO - Epoch(train)  [3][  50/1000]  lr: 1e-3", "batch of 1000", 3, 50),
        ("Epoch: [2][  10/5005]\tTime  0.3 ( 0.4)\tLoss 6.9e+00", "batch of 5005", 2, 10),
        ("Epoch: [2]  [ 100/1251]  eta: 0:05:12  lr: 0.1", "batch of 1251", 2, 100),
        ("Train Epoch: 4 [640/60000 (1%)]\tLoss: 2.3", "batch of 60000", 4, 640),
        ("Train: 5 [  50/1251 (  4%)]  Loss: 6.9 (6.9)", "batch of 1251", 5, 50),
        ("epoch 001:     17 / 100 loss=9.2, ppl=590", "batch of 100", 1, 17),
        (f"2|130|Loss: 0.52:  40%|{BAR}| 12/30 [00:01<00:02,  7.1it/s]", "bar of 30", 2, 12),
        (f"      3/100      2.4G     0.91      1.2       64      640:  40%|{BAR}| 12/30 [00:01<00:02, 7it/s]", "bar of 30", 3, 12),
        ("Episode: 120/1000 reward 3.5", "episode", None, 120),
        (f"Epoch 1:  40%|{BAR}| 12/30 [00:01<00:02, 7.1it/s, v_num=0]", "batch of 30", 1, 12),
        ("Epoch 0/9 ━━━━━━╸━━━━━━━━━ 12/30 0:00:01 • 0:00:02 7.1it/s", "batch of 30", 0, 12),
        ("Epoch 3/10", "epoch", None, 3),
        ("Epoch [3/10], Loss: 0.5", "epoch", None, 3),
        ("=== epoch 3 of 10 ===", "epoch", None, 3),
        (f" 37%|{BAR}| 370/1000 [00:10<00:17, 36.2it/s]", "bar of 1000", None, 370),
        (f"loss 0.532: 37%|{BAR}| 370/1000 [00:10<00:17, 36.2it/s]", "bar of 1000", None, 370),
        ("370it [00:10, 36.2it/s]", "bar", None, 370),
        ("12/30 [===========>..................] - ETA: 0s - loss: 0.3", "bar of 30", None, 12),
        ("\x1b[1m12/30\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 5ms/step - loss: 0.3", "bar of 30", None, 12),
        ("|    total_timesteps      | 2048     |", "total_timesteps", None, 2048),
        ("Training epoch 0, iteration 5/99 | lr: 1e-4 | global_step: 5", "iteration", 0, 5),
    ],
)  # fmt: skip
def test_a_trainers_line_counts(line: str, name: str, epoch: float | None, value: float) -> None:
    assert counted(line)[name] == (epoch, value)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-22 12:00:01 INFO started",
        "pid 12345 listens on port 29500",
        "loss 0.532 lr 0.001",
        "processed 1200 lines",
        "max_steps=1000 num_epochs: 10 warmup_steps: 100 steps_per_epoch=250",
        "  Num Epochs = 3",
        "  Total optimization steps = 1,000",
        "max epoch: 10",
        "python train.py --epochs 10 --step 5",
        "epoch: 1763811579.25",
        "step time 312 ms, 0.31 s per step",
        "one step 312 ms",
        "5ms/step",
        "val_step: 12",
        "validation epoch 3, step 12",
        "Epoch(val)  [3][ 50/100]",
        "Resuming from step 350",
        "resumed at epoch 12",
        "loaded checkpoint (epoch 12)",
        "learning rate step_size=30",
        "/data/run/epoch=3-step=100.ckpt",
        f"Validation DataLoader 0:  40%|{BAR}| 12/30 [00:01<00:02, 7.1it/s]",
        f"Sanity Checking DataLoader 0: 100%|{BAR}| 2/2 [00:01<00:02, 7.1it/s]",
        f"Map:  40%|{BAR}| 400/1000 [00:01<00:02, 7.1 examples/s]",
        f"Loading checkpoint shards:  50%|{BAR}| 2/4 [00:01<00:02]",
        f"model.safetensors:  37%|{BAR}| 370M/1.00G [00:10<00:17, 36.2MB/s]",
        "Traceback (most recent call last):",
        "RuntimeError: [Errno 5] Input/output error",
    ],
)
def test_a_line_without_a_count_of_work_counts_nothing(line: str) -> None:
    assert counted(line) == {}


def test_the_last_number_of_each_name_counts() -> None:
    assert counted("step 1\nstep 2\nstep 3\n") == {"step": (None, 3)}
    assert counted("epochs: 10\nepoch: 10\nEpoch 1\nEpoch 2\n") == {"epoch": (None, 2)}


def test_an_epoch_is_told_before_what_is_counted_in_it() -> None:
    assert counted("Epoch 1\nbatch 10\nbatch 20\nEpoch 2\nbatch 10\n")["batch"] == (2, 10)
    assert counted("Epoch 7\n" + "batch 3 loss 0.1\n" * 5000)["batch"] == (7, 3)


def test_states_of_a_bar_stand_in_one_line() -> None:
    text = "".join(f"\r {n // 10}%|{BAR}| {n}/1000 [00:10<00:17]" for n in range(100, 371))
    assert counted(text) == {"bar of 1000": (None, 370)}


def test_the_longest_bar_is_the_works() -> None:
    text = f" 37%|{BAR}| 370/1000 [00:10<00:17]\n 80%|{BAR}| 8/10 [00:01<00:00]\n"
    assert counted(text) == {"bar of 1000": (None, 370)}


def test_a_long_traceback_behind_it_hides_no_count() -> None:
    text = "step 41\n" + '  File "/x/y.py", line 12, in f\n' * 20_000
    assert counted(text) == {"step": (None, 41)}


def test_both_streams_count() -> None:
    assert counted("epoch 2\n", f" 37%|{BAR}| 370/1000 [00:10<00:17]") == {
        "epoch": (None, 2),
        "bar of 1000": (None, 370),
    }


@pytest.mark.parametrize("text", ["", "\r\n" * 9, "\0" * 99, "step " * 9999, "epoch" * 99_999, "%|" * 99_999])
def test_nothing_breaks_it(text: str) -> None:
    assert counts_in(text) == ()


def test_counts_are_small_plain_values() -> None:
    assert counts_in("step 5") == (Count(name="step", value=5.0, alone=True),)


def rising(text: str, *more: str) -> set[str]:
    return {count.name for count in counts_in(text, *more) if not count.alone}


@pytest.mark.parametrize(
    "text",
    [
        "=== iteration 7 ===\nloading 7 shards\n",
        "srun step 3\nstart of the run\n",
        "run step=48123 of the launcher\n",
        "step=29500\nstep=29500\n",
        "step 20261126\nstep 20261126\n",
        "Epoch 7\n" + "batch 3 loss 0.1\n" * 50,
        "iteration 9 begins\n" + "x" * 60_000 + "\niteration 9 failed\n",
        "iteration 9 failed, back to\niteration 4\n",
        f" 37%|{BAR}| 370/1000 [00:10<00:17]\n",
    ],
)
def test_a_number_without_lower_ones_before_it_is_no_series(text: str) -> None:
    assert rising(text) == set()
    assert all(count.alone for count in counts_in(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("step 1\nstep 2\n", {"step"}),
        ("iteration 7\nstep 1\nstep 2\n", {"step"}),
        ("run step=48123\nstep 1\nstep 2\n", {"step"}),
        ("step 1\n" + "x" * 9_000 + "\nstep 2\n", {"step"}),
        ("step 1\n" + "x" * 900_000 + "\nstep 2\n" + "y" * 200_000, {"step"}),
        ("Train: 3 [100/300]\nTrain: 3 [200/300]\n", {"epoch", "batch of 300"}),
        ("Epoch 2\nstep 900\nEpoch 3\nstep 100\n", {"epoch", "step"}),
        ("{'loss': 0.5, 'epoch': 1.25}\n{'loss': 0.5, 'epoch': 1.5}\n", {"epoch"}),
        ("Epoch 7\n" + "batch 3 loss 0.1\n" * 5000 + "batch 4 loss 0.1\n", {"epoch", "batch"}),
        (f"\r  1%|{BAR}| 1/100 [00:01<00:09]\r  2%|{BAR}| 2/100 [00:01<00:09]", {"bar of 100"}),
    ],
)
def test_a_number_after_lower_ones_is_a_series(text: str, names: set[str]) -> None:
    assert rising(text) == names


def test_a_series_in_one_stream_outranks_a_number_in_the_other() -> None:
    assert counts_in("step 1\nstep 2\n", "run step=48123\n") == (Count(name="step", value=2.0),)
