"""Which failures are one problem: numbers, paths, hashes and machines differ, class, exception and place do not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.failure_groups import alike, group_of

NUMBERS = st.one_of(st.integers(0, 10**12).map(str), st.floats(0, 1e6).map(lambda number: f"{number:.3f}"))
HEX = st.integers(0, 2**64 - 1)
PATHS = st.lists(st.from_regex(r"[a-z][a-z0-9_-]{0,12}", fullmatch=True), min_size=2, max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)
HOST_NAMES = st.one_of(
    st.from_regex(r"[a-z]{2,8}-?[0-9]{1,4}", fullmatch=True),
    st.from_regex(r"[a-z]{2,8}[0-9]{1,3}\.[a-z]{2,6}\.(?:internal|com|local)", fullmatch=True),
    st.tuples(*[st.integers(0, 255)] * 4).map(lambda parts: ".".join(map(str, parts))),
)
VARYING = {
    "number": NUMBERS,
    "address": HEX.map(hex),
    "hash": st.binary(min_size=8, max_size=20).map(bytes.hex),
    "uuid": st.uuids().map(str),
    "path": PATHS,
    "host": HOST_NAMES,
    "port": st.integers(1, 65535).map(str),
}
TEMPLATES = (
    "no such shard: {number}",
    "object at {address} of pid {number} is gone",
    "cannot read {path}: checksum {hash} is wrong",
    "run {uuid}: rank {number} got no answer from host {host} on port {port} within {number} s",
    "connection to {host}:{port} was closed by rank {number}",
    "block [{number}, {number}] of '{path}' has {number} bytes",
)


@st.composite
def occasions(draw: st.DrawFn) -> tuple[str, str]:
    """Two messages of one template."""
    template = draw(st.sampled_from(TEMPLATES))

    def filled() -> str:
        return template.format_map({name: draw(VARYING[name]) for name in VARYING if f"{{{name}}}" in template})

    return filled(), filled()


def printed(phrase: str, how: str, exception: str, place: str, text: str, devices: str = "") -> str:
    return "|".join((phrase, how, exception, place, "", text, devices))


@settings(max_examples=60)
@given(occasions(), st.sampled_from(["", "n1/gpu3", "gpu0,gpu1"]), st.sampled_from(["", "n2/gpu7"]))
def test_what_differs_from_one_occasion_to_the_next_is_no_other_group(
    said: tuple[str, str], devices: str, others: str
) -> None:
    one = printed("UserException", "status 1", "ValueError", "train.py:12:load", said[0], devices)
    other = printed("UserException", "status 1", "ValueError", "train.py:12:load", said[1], others)
    assert group_of(one) == group_of(other)


@settings(max_examples=60)
@given(
    *[st.tuples(*[st.sampled_from(["", f"{part}1", f"{part}2", f"{part}:30:f"]) for part in "abcd"])] * 2,
    occasions(),
)
def test_another_class_signal_exception_or_place_is_another_group(
    one: tuple[str, ...], other: tuple[str, ...], said: tuple[str, str]
) -> None:
    of_one, of_other = "|".join((*one, "", said[0], "")), "|".join((*other, "", said[1], ""))
    same = group_of(of_one) == group_of(of_other)
    assert same == (one == other)


@given(st.text(max_size=200))
def test_any_text_has_a_group_and_that_is_its_own_group(text: str) -> None:
    assert alike(alike(text)) == alike(text)
    group_of(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 2 is blocked in load_batch", "ranks 0, 1 and 3 are blocked in load_batch"),
        ("ranks 0 to 7 wait", "rank 3 wait"),
        ("[fe80::1]:29500 refused", "[fe80::2:17]:29501 refused"),
        ("s3://bucket/a/b.pt is gone", "s3://other/c.pt is gone"),
        ("node gpu-07 left", "node gpu-113 left"),
        ("ckpt/step_10/model.pt has no key", "ckpt/step_2000/model.pt has no key"),
    ],
)
def test_ranks_addresses_and_places_of_data_are_no_difference(one: str, other: str) -> None:
    ours, theirs = (alike(text).replace(" are ", " is ") for text in (one, other))
    assert ours == theirs


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such shard: 17", "no such table: 17"),
        ("torch.nn.Linear got no weight", "torch.nn.Conv2d got no weight"),
        ("loss is nan", "loss is inf"),
        ("node is None", "peer is None"),
    ],
)
def test_other_words_are_another_group(one: str, other: str) -> None:
    assert alike(one) != alike(other)


def test_a_collective_is_one_group_at_any_number() -> None:
    of = "CollectiveTimeout|SIGABRT|||{}||"
    assert group_of(of.format("ALLREDUCE 1523")) == group_of(of.format("ALLREDUCE 7"))
    assert group_of(of.format("ALLREDUCE 1523")) != group_of(of.format("BROADCAST 1523"))


def test_fingerprints_of_earlier_releases_are_read() -> None:
    assert group_of("") == ""
    assert group_of("Unexplained") == "Unexplained"
    assert group_of("UserException|ValueError|train.py:10|") == group_of("UserException|ValueError|train.py:10|")
    assert group_of("UserException|ValueError|train.py:10|") != group_of("UserException|ValueError|train.py:20|")


def test_a_long_path_that_has_cut_the_text_is_no_other_group() -> None:
    words = "cannot open {} since its header is not one of a checkpoint"
    short, long = words.format("/d/x.pt"), words.format("/data/" + "part/" * 20 + "x.pt")
    assert long.startswith(short[:11])
    assert alike(short) == alike(long)
