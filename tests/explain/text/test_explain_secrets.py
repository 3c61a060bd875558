"""Secrets stay behind: what leaves in a report holds the name of a secret, never the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain import explain
from holdfast.explain.text.secret_masking import mask, mask_text
from holdfast.model.codec import encode
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.secret_hints import may_hold
from secret_texts import SECRETS


@pytest.mark.parametrize("text", [text for text, _ in SECRETS])
def test_a_text_with_a_secret_is_never_taken_for_a_plain_one(text: str) -> None:
    assert may_hold(text)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_masked_in_a_long_text_too(text: str, secret: str) -> None:
    """Which is searched by another pattern first."""
    assert secret not in mask_text("step 1 loss 2.0\n" * 100 + text + "\nstep 2 loss 1.9" * 100)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_masked(text: str, secret: str) -> None:
    masked = mask(text)
    assert secret not in masked
    assert "***" in masked
    assert mask(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'token'",
        "tokens per second: 1234, max_tokens=None",
        'unexpected key(s) in state_dict: "a.b"',
        "key: value",
        "Tokenizer path: /x/y",
        "step 3 loss 2.1",
        "https://huggingface.co/acme/base-7b/resolve/main/config.json",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert mask(text) == text


@given(st.text(max_size=300))
def test_never_fails_and_settles(text: str) -> None:
    once = mask(text)
    assert mask(once) == once or len(mask(once)) <= len(once)


def test_no_secret_in_a_whole_report() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwx"
    text = (
        "Traceback (most recent call last):\n"
        f'  File "/app/train.py", line 3, in <module>\n    login("{secret}")\n'
        f"ValueError: token {secret} is not good, nor is https://u:{secret}@h/\n"
    )
    report = explain(AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source=f"job-{secret}.log", text=text)),)))
    assert report.exception == "ValueError"
    assert secret.encode() not in encode(report)
