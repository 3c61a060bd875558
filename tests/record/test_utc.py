"""Times in UTC: asked for at one command, by a variable, or in a file of settings."""

from __future__ import annotations

import re

import pytest

from conftest import Holdfast

TELLS_ZONE = "import os, time\nprint('TZ', os.environ['TZ'], time.strftime('%z'), flush=True)\nraise SystemExit(3)\n"
AWAY = "Asia/Tokyo"
ZONE_SHOWN = re.compile(r"\d\d:\d\d:\d\d ([+-]\d\d:\d\d|UTC)")


def zones(text: str) -> set[str]:
    return set(ZONE_SHOWN.findall(text))


@pytest.mark.real
def test_a_run_prints_utc_and_its_workers_keep_their_zone(holdfast: Holdfast) -> None:
    script = holdfast.script(TELLS_ZONE)
    ran = holdfast.run("--max-restarts", "0", script, TZ=AWAY)
    assert zones(ran.err) == {"+09:00"}
    ran = holdfast.run("--utc", "--max-restarts", "0", script, TZ=AWAY)
    assert zones(ran.err) == {"UTC"}
    assert f"TZ {AWAY} +0900" in ran.out


@pytest.mark.real
def test_a_variable_or_a_key_asks_every_verb_for_utc(holdfast: Holdfast) -> None:
    assert holdfast.run("--max-restarts", "0", holdfast.script(TELLS_ZONE), TZ=AWAY).status
    verbs = (["show", "--verbose"], ["jobs"], ["logs", "--timestamps"], ["explain"])
    plain = [holdfast(*verb, TZ=AWAY) for verb in verbs]
    by_variable = [holdfast(*verb, TZ=AWAY, HOLDFAST_UTC="1") for verb in verbs]
    (holdfast.home / "config.yaml").write_text("utc: true\n")
    by_key = [holdfast(*verb, TZ=AWAY) for verb in verbs]
    assert [ran.status for ran in plain] == [ran.status for ran in by_variable] == [ran.status for ran in by_key]
    assert zones(plain[0].out) == {"+09:00"}
    assert zones(by_variable[0].out) == zones(by_key[0].out) == {"UTC"}
    assert [ran.out for ran in by_variable[1:]] == [ran.out for ran in by_key[1:]]
    assert plain[2].out != by_key[2].out


@pytest.mark.real
def test_a_file_of_settings_that_cannot_be_read_holds_up_no_verb_that_only_asks_it_for_the_zone(
    holdfast: Holdfast,
) -> None:
    assert holdfast.run(holdfast.script("pass\n")).status == 0
    (holdfast.home / "config.yaml").write_text("utc: perhaps\n")
    assert holdfast("show").status == 0
    said = holdfast.run(holdfast.script("pass\n"))
    assert said.status == 2
    assert "utc" in said.err
