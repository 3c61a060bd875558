"""URIs taken apart: who fetches them, what people read of them, and mistakes in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.fetch.prerequisite_uris import UriKind, uri_of
from holdfast.launch.fetch_request import cache, order_of, variable_of
from holdfast.model.fetch_messages import FetchDone, FetchMoved, FetchOrder
from holdfast.model.fetch_progress import bar, fetch_sentence, progress, size
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.runtime_plan import Prerequisite, RuntimePlan


@pytest.mark.parametrize(
    ("uri", "kind", "url", "ref", "shown"),
    [
        ("/data/x", UriKind.LOCAL, "/data/x", "", "/data/x"),
        ("https://h/x?sig=s", UriKind.HTTP, "https://h/x?sig=s", "", "https://h/x?***"),
        ("https://u:p@h:8/x", UriKind.HTTP, "https://h:8/x", "", "https://h:8/x"),
        ("https://[::1]:8/x", UriKind.HTTP, "https://[::1]:8/x", "", "https://[::1]:8/x"),
        ("s3://k:s@b/p/", UriKind.S3, "s3://b/p/", "", "s3://b/p/"),
        ("hdfs://n:9870/x", UriKind.HDFS, "hdfs://n:9870/x", "", "hdfs://n:9870/x"),
        ("https://t:x@h/a/b.git@v1", UriKind.GIT, "https://h/a/b.git", "v1", "https://h/a/b.git@v1"),
        ("git+https://h/a/b@feature/x#depth=3", UriKind.GIT, "https://h/a/b", "feature/x", "https://h/a/b@feature/x"),
        ("git@h:a/b.git@v1", UriKind.GIT, "git@h:a/b.git", "v1", "git@h:a/b.git@v1"),
        ("git+ssh://git@h/a/b.git", UriKind.GIT, "ssh://git@h/a/b.git", "", "ssh://git@h/a/b.git"),
        ("git+file:///srv/x", UriKind.GIT, "file:///srv/x", "", "file:///srv/x"),
        ("/srv/x.git@main", UriKind.GIT, "/srv/x.git", "main", "/srv/x.git@main"),
    ],
)
def test_a_uri_is_taken_apart(uri: str, kind: UriKind, url: str, ref: str, shown: str) -> None:
    found = uri_of(Prerequisite(name="x", uri=uri))
    assert (found.kind, found.url, found.ref, found.shown) == (kind, url, ref, shown)


@pytest.mark.parametrize(
    ("uri", "more", "words"),
    [
        ("", {}, "has no uri; expected s3://"),
        ("gopher://h/x", {}, "gopher:// is not known; expected s3://"),
        ("https:///x", {}, "names no host or bucket"),
        ("s3:///x", {}, "names no host or bucket"),
        ("https://h:port/x", {}, "cannot be read"),
        ("--upload-pack=x", {}, "characters that no uri has"),
        ("/x.git@--upload-pack=touch x;git-upload-pack", {}, "is no name of a branch, a tag or a commit"),
        ("/x.git@-q", {}, "'-q' is no name of a branch"),
        ("git@h:x.git@-q", {}, "'-q' is no name of a branch"),
        ("git+--upload-pack=x.git", {}, "path of a repository begins with `-`"),
        ("git+ssh://h/x@main:refs/heads/main", {}, "is no name of a branch"),
        ("git+https://h/x.git@a..b", {}, "is no name of a branch"),
        ("git+https://h/x#depht=1", {}, "#depht= is no option of git; after # it takes depth, submodules"),
        ("git+https://h/x#depth=some", {}, "expected a number of commits"),
        ("s3://b/x#anon=perhaps", {}, "expected yes or no"),
        ("git+https://h/x", {"sha256": "0" * 64}, "name the commit instead"),
        ("git+https://h/x", {"extract": True}, "extract is for archives"),
        ("https://h/x", {"sha256": "12"}, "expected 64 hexadecimal digits"),
    ],
)
def test_a_mistake_in_a_uri_is_told(uri: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(BadUsage, match=re.escape(words)):
        uri_of(Prerequisite(name="x", uri=uri, **more))  # type: ignore[arg-type]  # each field gets its own type


def _order(*things: Prerequisite, directory: Path | None = None, **env: str) -> FetchOrder:
    spec = JobSpec(
        name="train",
        user="ada",
        roles=(Role(name="w", count=1, command=("x",)),),
        parameters={"v": "3"},
        runtime=RuntimePlan(prerequisites=things),
    )
    return order_of(spec, {"HOME": "/home/ada", **env}, node="n", limit_s=1.0, directory=directory, who="")


def test_names_are_filled_in_and_secrets_too() -> None:
    thing = Prerequisite(name="x", uri="https://ada:<% $secrets.t %>@h/$PAI_USERNAME/$PAI_JOB_NAME/<% $parameters.v %>")
    order = _order(thing, HOLDFAST_SECRET_t="geheim")
    assert order.things[0].uri == "https://ada:geheim@h/ada/train/3"
    with pytest.raises(BadUsage, match=r"prerequisites\.x\.uri.*PAI_JOBNAME"):
        _order(Prerequisite(name="x", uri="https://h/$PAI_JOBNAME"))


def test_the_cache_has_a_place_for_each_content_and_the_exchange_directory_for_each_name() -> None:
    one, other = (_order(Prerequisite(name="m", uri=f"https://h/{x}")).things[0].into for x in "ab")
    assert one != other and one.startswith(str(cache({"HOME": "/home/ada"}))) and one.endswith("/m")
    same = {_order(Prerequisite(name="m", uri=f"https://h/{x}", sha256="a" * 64)).things[0].into for x in "ab"}
    assert len(same) == 1, "a signed address that changes each time is no other content"
    here = _order(Prerequisite(name="m", uri="https://h/a", into="d/m"), directory=Path("/usr/local/pai"))
    assert here.things[0].into == "/usr/local/pai/d/m"


@pytest.mark.parametrize(("one", "other"), [("a", "a"), ("a", "a/b"), ("/x/a", "/x/a/b")])
def test_prerequisites_lie_beside_each_other(one: str, other: str) -> None:
    things = [Prerequisite(name=f"p{i}", uri="https://h/x", into=into) for i, into in enumerate((one, other))]
    with pytest.raises(BadUsage, match="beside each other"):
        _order(*things, directory=Path("/d"))


def test_a_prerequisites_variable_has_its_name() -> None:
    assert variable_of("llama-8b.v2") == "HOLDFAST_DATA_LLAMA_8B_V2"


def test_progress_is_told_in_units_people_know() -> None:
    assert [size(count) for count in (0, 999, 1000, 999_949, 999_950, 4.2e9)] == [
        "0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "4.2 GB",
    ]  # fmt: skip
    moved = FetchMoved(name="m", bytes=1_000_000_000, most_bytes=4_000_000_000, per_s=100e6)
    assert progress(moved) == "fetching: 1.0 GB of 4.0 GB, 100.0 MB/s, 30 s left"
    assert progress(FetchMoved(name="m", bytes=5, doing="unpacking")) == "unpacking: 5 B"
    drawn = bar(moved, 100)
    assert (
        drawn.startswith("m  [###")
        and len(drawn) < 100
        and drawn.count("#") * 3 == drawn.count(".", 0, drawn.index("]"))
    )
    assert len(bar(moved, 20)) < 20
    assert "1.0 kB of it from an earlier fetch, try 2" in fetch_sentence(
        FetchDone(name="m", into="/m", bytes=5000, took_s=1, resumed_bytes=1000, tries=2)
    )
