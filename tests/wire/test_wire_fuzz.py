"""The fuzzer of the wire, some cases of it: continuous integration runs a hundred thousand."""

from __future__ import annotations

import pytest

from holdfast.wire.tls_channel import ChannelEndKind
from holdfast_testing.fuzz_wire import Fuzz, run


def test_each_case_is_a_message_or_ends_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(4000, seed=2) == 0, capsys.readouterr().out


def test_the_fuzzer_meets_what_it_is_for() -> None:
    """It gets through handshakes, frames are taken and refused, and those without the key are turned away."""
    fuzz = Fuzz(3)
    for _ in range(2000):
        fuzz.case()
    fuzz.close()
    assert {
        "messages",
        "refused frames",
        "shaken",
        ChannelEndKind.NO_TLS,
        ChannelEndKind.OTHER_KEY,
        ChannelEndKind.MALFORMED,
    } <= fuzz.seen.keys()


def test_the_same_seed_gives_the_same_cases() -> None:
    one, other = Fuzz(4), Fuzz(4)
    assert [one.mutated(b"abc") for _ in range(50)] == [other.mutated(b"abc") for _ in range(50)]
    one.close()
    other.close()
