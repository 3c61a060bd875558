"""What a quick start rests on: the reader beside click, the success beside the funnel, the rehearsal."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.options.run_option_table import TORCHRUN, RunOption, ignored, read_run_options, settings
from holdfast.cli.run import command
from holdfast.explain.causes.plain_success import plain_success
from holdfast.explain.funnel import explain as by_funnel
from holdfast.model.evidence import AttemptEvidence, Deadline, LogExcerpt, StopRequest, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.node.explain_warmup import AFTER_S, ExplainWarmup
from holdfast.settings.run_options import RunOptions

TYPED: list[RunOption] = [*TORCHRUN, *settings(), *ignored()]
FORMS = [form for typed in TYPED for form in (*typed.forms, *([typed.off] if typed.off else []))]
UNDERSCORED = ["--" + form[2:].replace("-", "_") for form in FORMS if form.startswith("--")]
ODD_VALUES = ["2", "a=b", "", "-x", "-", "--", "train.py", "--name", "-m", "é"]


def by_click(words: list[str]) -> RunOptions | None:
    """What click makes of the words; None where it complains or shows help."""
    context = click.Context(command, info_name="run", **command.context_settings)
    try:
        command.parse_args(context, list(words))
    except (click.ClickException, click.exceptions.Exit):
        return None
    return RunOptions(**context.params)


form = st.sampled_from([*FORMS, *UNDERSCORED])
value = st.sampled_from(ODD_VALUES)
option = st.one_of(
    form.map(lambda word: [word]),
    st.tuples(form, value).map(list),
    st.tuples(form, value).map(lambda pair: ["=".join(pair)]),
    st.sampled_from(["--nope", "-h", "--help", "-r3", "-mr", "--nam"]).map(lambda word: [word]),
)
line = st.tuples(st.lists(option, max_size=5), st.lists(st.one_of(value, form), max_size=4)).map(
    lambda parts: [word for words in parts[0] for word in words] + ["train.py"] * bool(parts[1]) + parts[1]
)


@given(line)
def test_the_quick_reader_answers_as_click_does_or_not_at_all(words: list[str]) -> None:
    quick = read_run_options(words)
    if quick is not None:
        assert quick == by_click(words)


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed.param)
def test_every_option_is_read_quickly(typed: RunOption) -> None:
    for word in (*typed.forms, *([typed.off] if typed.off else [])):
        words = [word, *([] if typed.flag else ["7"]), "train.py", word]
        quick = read_run_options(words)
        assert quick is not None
        assert getattr(quick, typed.param) not in ((), None)
        assert quick.words == ("train.py", word)
        assert quick == by_click(words)


@pytest.mark.parametrize("words", [["--help"], ["--nope", "a"], ["--name"], ["-m=x"], ["--json=1"], ["--", "a"], ["-"]])
def test_what_is_unusual_is_left_to_click(words: list[str]) -> None:
    assert read_run_options(words) is None


def ended_second(rank: int, code: int = 0, log: str = "") -> WorkerEvidence:
    at = WorkerExit(role="worker", rank=rank, node="n", attempt=2, pid=7, exit_code=code, started_at=1.0, ended_at=2.0)
    return WorkerEvidence(rank=rank, exit=at, stderr=LogExcerpt(source="worker stderr", text=log) if log else None)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "log", ["", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB\nstep 9 loss 1.0\n"]
)
def test_a_plain_success_is_the_funnels_own_answer(workers: int, log: str) -> None:
    evidence = AttemptEvidence(attempt=2, workers=tuple(ended_second(rank, log=log) for rank in range(workers)))
    assert plain_success(evidence) == by_funnel(evidence)


@pytest.mark.parametrize(
    "evidence",
    [
        AttemptEvidence(),
        AttemptEvidence(workers=(ended_second(0), ended_second(1, 1))),
        AttemptEvidence(workers=(ended_second(0), WorkerEvidence(rank=1))),
        AttemptEvidence(workers=(ended_second(0),), stop=StopRequest(reason="enough")),
        AttemptEvidence(workers=(ended_second(0),), deadline=Deadline.START),
    ],
)
def test_what_is_no_plain_success_is_left_to_the_funnel(evidence: AttemptEvidence) -> None:
    assert plain_success(evidence) is None


def test_a_rehearsal_goes_in_steps_while_all_is_well_and_leaves_the_explainer_ready() -> None:
    said: list[str] = []
    firsts: list[float] = []
    well = True

    def first(now: float) -> Iterator[object]:
        firsts.append(now)
        yield now

    rehearsal = ExplainWarmup(lambda: well, first, said.append)
    assert rehearsal.next_wake() is None, "nothing before the gang is up"
    rehearsal.begin(100.0)
    assert rehearsal.next_wake() == 100.0 + AFTER_S
    steps = 0
    well = False
    rehearsal.tick(101.0)
    assert rehearsal.next_wake() is None, "trouble comes first"
    well = True
    rehearsal.begin(200.0)
    while (wake := rehearsal.next_wake()) is not None:
        rehearsal.tick(wake)
        steps += 1
    assert steps > 20, "in small steps"
    assert said == []
    assert len(firsts) == 1
    assert "holdfast.explain.openpai_exit_file" in sys.modules
    rehearsal.begin(300.0)
    assert rehearsal.next_wake() is None, "once is enough"


def test_a_bug_in_a_rehearsal_is_said_and_costs_nothing_else() -> None:
    said: list[str] = []

    def first(now: float) -> Iterator[object]:
        yield now
        raise RuntimeError("no such thing")

    rehearsal = ExplainWarmup(lambda: True, first, said.append)
    rehearsal.begin(0.0)
    while (wake := rehearsal.next_wake()) is not None:
        rehearsal.tick(wake)
    assert said == ["a bug of holdfast, met while nothing was wrong: RuntimeError: no such thing"]
