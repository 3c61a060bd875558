"""What the pages can change, and who may not: a release and a report, by the user of the server, from our form."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from web_site import Answer, Served, environment

from holdfast.web.page_parts import is_loopback
from typed_here import typed


def typed_at(home: Path, *words: str) -> str:
    done = typed(*words, cwd=home.parent, env=environment(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def reported_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of a machine that has a held device with a hostile name beside an isolated one."""
    home = tmp_path_factory.mktemp("devices") / "home"
    for at in (1, 2, 3):
        typed_at(home, "faults", "report", "--device", "gpu3", "--code", "48", "--once", "--text", f"time {at}")
    typed_at(home, "faults", "report", "--device", "gpu1", "--code", "79", "--text", "<script>x</script>")
    return home


@pytest.fixture(scope="module")
def changed_site(reported_home: Path, web_of: Callable[..., Served]) -> Served:
    return web_of(shutil.copytree(reported_home, reported_home.with_name("served")))


@pytest.fixture
def fresh_site(reported_home: Path, changed_site: Served) -> Served:
    """A server on such a directory, as it was before the test before."""
    shutil.rmtree(changed_site.home)
    shutil.copytree(reported_home, changed_site.home)
    return changed_site


def form_of(server: Served) -> str:
    found = re.search(r'name="form" value="([0-9a-f]+)"', server.ask("/devices").text)
    assert found
    return found[1]


def post(server: Served, path: str, headers: dict[str, str] | None = None, /, **fields: str) -> Answer:
    typed = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return server.ask(path, method="POST", body=urlencode(fields), headers=typed)


def standing(server: Served, device: str) -> str:
    [found] = [one for one in server.ask("/devices.json").json["devices"] if one["name"] == device]
    return str(found["standing"])


def test_devices_stand_with_why_what_is_counted_and_what_ends_it(fresh_site: Served) -> None:
    rows = {one["name"]: one for one in fresh_site.ask("/devices.json").json["devices"]}
    assert (rows["gpu3"]["standing"], rows["gpu3"]["ends"]) == ("HELD", "a person releases it, once it is repaired")
    assert rows["gpu1"]["standing"] == "ISOLATED" and "79" in rows["gpu1"]["ends"] and rows["gpu1"]["counted"]
    assert "&lt;script&gt;x" in fresh_site.ask("/devices").text, "the history has the text as it was reported"
    rows = fresh_site.ask("/now.json").json["attention"]
    assert [(row["name"], row["cause"]) for row in rows] == [("gpu3", "held"), ("gpu1", "isolated")]


def test_a_held_device_is_released_with_a_reason_that_is_kept(fresh_site: Served) -> None:
    answer = post(fresh_site, "/devices/release", form=form_of(fresh_site), device="gpu3", reason="new <b>memory</b>")
    assert (answer.status, "HELD → HEALTHY" in answer.text) == (200, True)
    assert "<b>memory" not in answer.text
    assert standing(fresh_site, "gpu3") != "HELD"
    newest = fresh_site.ask("/devices.json").json["past"][0]
    assert newest["who"] and newest["what"].startswith("released: new <b>memory</b>")


def test_a_fault_is_reported_and_reported_as_over(fresh_site: Served) -> None:
    fields = {"form": form_of(fresh_site), "device": "gpu1", "code": "79"}
    assert post(fresh_site, "/devices/report", assertion="recover", **fields).status == 200
    assert standing(fresh_site, "gpu1") == "HEALTHY"
    assert post(fresh_site, "/devices/report", assertion="occur", text="again", **fields).status == 200
    assert standing(fresh_site, "gpu1") == "ISOLATED"


@pytest.mark.parametrize(
    ("fields", "headers", "status"),
    [
        ({"device": "gpu3", "reason": "x"}, {}, 403),
        ({"device": "gpu3", "reason": "x", "form": "0" * 64}, {}, 403),
        ({"device": "gpu3", "reason": "x", "form": "right"}, {"Origin": "http://evil.example"}, 403),
        ({"device": "gpu3", "reason": "x", "form": "right"}, {"Origin": "null"}, 403),
        ({"device": "gpu3", "reason": " ", "form": "right"}, {}, 400),
        ({"device": "gpu3", "reason": "x" * 501, "form": "right"}, {}, 400),
        ({"device": "gpu3", "reason": "a\0b", "form": "right"}, {}, 400),
        ({"device": "gpu3", "reason": "x" * 20_000, "form": "right"}, {}, 400),
    ],
)
def test_a_form_that_is_not_ours_or_not_whole_changes_nothing(
    fresh_site: Served, fields: dict[str, str], headers: dict[str, str], status: int
) -> None:
    given = {name: form_of(fresh_site) if value == "right" else value for name, value in fields.items()}
    assert post(fresh_site, "/devices/release", headers, **given).status == status
    assert standing(fresh_site, "gpu3") == "HELD"


def test_what_looks_like_an_option_is_a_device(fresh_site: Served) -> None:
    answer = post(
        fresh_site, "/devices/release", form=form_of(fresh_site), device="--help", reason="--platform=kubernetes"
    )
    assert "Usage" not in answer.text
    assert standing(fresh_site, "gpu3") == "HELD"


def test_a_link_changes_nothing(fresh_site: Served) -> None:
    assert fresh_site.ask("/devices/release?device=gpu3&reason=x").status == 405
    assert post(fresh_site, "/devices", form=form_of(fresh_site)).status == 405


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can be two users")
@pytest.mark.parametrize(
    ("source", "header"),
    [
        ("127.0.0.1", ""),
        ("127.0.0.1", "X-Forwarded-For: 203.0.113.5"),
        ("127.0.0.1", "Forwarded: for=203.0.113.5"),
        ("127.0.0.1", "X-Real-IP: 203.0.113.5"),
        # Sockets of the server have this port too, at another address.
        ("127.0.0.2", "the server's port"),
        ("127.0.0.77", "the server's port"),
    ],
)
def test_another_user_who_has_seen_the_link_reads_and_changes_nothing(
    fresh_site: Served, source: str, header: str
) -> None:
    name, _, value = header.partition(": ")
    port = fresh_site.port if header == "the server's port" else 0
    code = f"""
import http.client
c = http.client.HTTPConnection("127.0.0.1", {fresh_site.port}, timeout=90, source_address=({source!r}, {port}))
c.request("POST", "/devices/release", "form={form_of(fresh_site)}&device=gpu3&reason=x",
          {{"Authorization": "Bearer {fresh_site.token}", **dict({[(name, value)] if value else []})}})
print(c.getresponse().status)
"""
    typed = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", code]
    done = subprocess.run(typed, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "403"
    assert standing(fresh_site, "gpu3") == "HELD"


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::1", "127.0.0.9"])
def test_this_machine_is_known_by_each_of_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can have another user's directory")
def test_the_devices_of_another_users_state_directory_have_no_button(
    fresh_site: Served, web_of: Callable[..., Served]
) -> None:
    for path in (fresh_site.home, *fresh_site.home.rglob("*")):
        os.chown(path, 65534, 65534)
    other = web_of(fresh_site.home)
    assert "belong to another user" in other.ask("/devices").text
    assert not re.search(r"<form method=.post", other.ask("/devices").text)
    form = re.search(r"[0-9a-f]{64}", fresh_site.ask("/devices").text)
    assert form
    assert post(other, "/devices/release", form=form[0], device="gpu3", reason="x").status == 403
