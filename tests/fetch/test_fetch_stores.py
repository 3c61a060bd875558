"""Objects and prefixes from a real S3 server (moto's), files and directories over WebHDFS: through fsspec.

moto is small and pure Python, keeps to Amazon's errors, and can be told to ask for credentials; its server is a process
of its own.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdfs_server import hdfs_server

from fetched import PLAIN_ENVIRONMENT, fetch, nothing_counts
from web_server import web_server

pytestmark = [pytest.mark.real, pytest.mark.extras]
#: Three ranges.
BIG = os.urandom(20_000_000)


class S3:
    def __init__(self, url: str) -> None:
        self.url = url
        self.env = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "AKIAtest",
            "AWS_SECRET_ACCESS_KEY": "geheim",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": "/nonexistent",
        }

    def client(self) -> Any:
        import botocore.session

        return botocore.session.get_session().create_client(
            "s3", endpoint_url=self.url, aws_access_key_id="x", aws_secret_access_key="y", region_name="us-east-1"
        )


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    code = (
        "import sys\n"
        "from moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer('127.0.0.1', 0, verbose=False)\n"
        "server.start()\n"
        "print(server.get_host_and_port()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=PLAIN_ENVIRONMENT,
    )
    assert server.stdout is not None and server.stdin is not None
    with server:
        found = S3(f"http://127.0.0.1:{int(server.stdout.readline())}")
        client = found.client()
        client.create_bucket(Bucket="models")
        client.put_object(Bucket="models", Key="big.bin", Body=BIG)
        for key in ("tree/a.txt", "tree/sub/b.txt", "treeish"):
            client.put_object(Bucket="models", Key=key, Body=key.encode() * 100, ACL="public-read")
        yield found
        server.stdin.close()


def test_an_object_comes_whole_by_ranges(s3: S3, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", "s3://models/big.bin", env=s3.env)
    assert ran.status == 0 and (tmp_path / "m").read_bytes() == BIG and ran.done[0].mark


@pytest.mark.parametrize("uri", ["s3://models/tree/", "s3://models/tree"])
def test_a_prefix_comes_as_a_tree(s3: S3, tmp_path: Path, uri: str) -> None:
    ran = fetch(tmp_path / "t", uri, env=s3.env)
    found = {str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t").rglob("*") if path.is_file()}
    assert ran.status == 0 and found == {"a.txt", "sub/b.txt"}
    assert (tmp_path / "t" / "a.txt").read_bytes() == b"tree/a.txt" * 100


def test_an_object_goes_on_where_a_killed_fetch_was(s3: S3, tmp_path: Path) -> None:
    into = tmp_path / "m"
    fetch(into, "s3://models/big.bin", env=s3.env)
    state = {"mark": fetch(into, "s3://models/big.bin", env=s3.env).done[0].mark}
    key = re.search(r'"key":"(\w+)"', (tmp_path / ".m.holdfast.json").read_text())
    assert key is not None
    (tmp_path / ".m.holdfast.json").unlink()
    part = tmp_path / ".m.holdfast-part"
    part.mkdir()
    into.rename(part / "data")
    os.truncate(part / "data", 9_000_000)
    mark = state["mark"].replace('"', '\\"')
    (part / "state.json").write_text(f'{{"key":"{key[1]}","mark":"{mark}","bytes":{len(BIG)}}}')
    again = fetch(into, "s3://models/big.bin", env=s3.env)
    assert again.done[0].resumed_bytes == 9_000_000 and into.read_bytes() == BIG


def test_no_object_no_bucket_and_no_credentials_are_told_apart(s3: S3, tmp_path: Path) -> None:
    for uri in ("s3://models/none.bin", "s3://nowhere/x", "s3://models/none/"):
        ran = fetch(tmp_path / "m", uri, env=s3.env)
        assert ran.phrase == "DownloadNotFound" and ran.failed.tries == 1, ran.text
    bare = {name: value for name, value in s3.env.items() if "KEY" not in name}
    missing = fetch(tmp_path / "m", "s3://models/big.bin", env=bare)
    assert missing.phrase == "CredentialsMissing", missing.text
    assert fetch(tmp_path / "m", "s3://models/treeish#anon=yes", env=bare).status == 0


def test_a_store_that_refuses_is_busy_or_away(s3: S3, tmp_path: Path) -> None:
    with web_server(b"") as web:
        for status, phrase in ((403, "ObjectStoreAuthFailed"), (503, "ObjectStoreThrottled")):
            env = {**s3.env, "AWS_ENDPOINT_URL": f"{web.url}/status/{status}"}
            ran = fetch(tmp_path / "m", "s3://models/big.bin", env=env, tries=1)
            assert ran.phrase == phrase and nothing_counts(tmp_path / "m"), ran.text
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        env = {**s3.env, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed.getsockname()[1]}"}
        assert fetch(tmp_path / "m", "s3://models/big.bin", env=env, tries=1).phrase == "DownloadUnreachable"
    nowhere = {**s3.env, "AWS_ENDPOINT_URL": "http://nowhere.invalid"}
    assert fetch(tmp_path / "m", "s3://models/big.bin", env=nowhere, tries=1).phrase == "DnsFailed"


def test_keys_in_the_uri_are_used_and_shown_nowhere(s3: S3, tmp_path: Path) -> None:
    bare = {name: value for name, value in s3.env.items() if "KEY" not in name}
    ran = fetch(tmp_path / "m", "s3://AKIAxyz:geheim%2Fer@models/treeish", env=bare)
    assert ran.status == 0 and "geheim" not in ran.text and "AKIAxyz" not in ran.text


def test_an_object_larger_than_allowed_is_not_fetched(s3: S3, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "m", "s3://models/big.bin", env=s3.env, most_bytes=1_000_000)
    assert ran.phrase == "DownloadTooLarge" and not any(word.__class__.__name__ == "FetchMoved" for word in ran.words)


def test_hdfs_has_files_and_directories(tmp_path: Path) -> None:
    files = {"/data/big": BIG, "/data/d/x": b"x" * 1000, "/data/d/e/y": b"y"}
    with hdfs_server(files) as hdfs:
        one = fetch(tmp_path / "big", f"hdfs://127.0.0.1:{hdfs.port}/data/big")
        tree = fetch(tmp_path / "d", f"webhdfs://127.0.0.1:{hdfs.port}/data/d")
        assert one.status == 0 and (tmp_path / "big").read_bytes() == BIG, one.text + one.errors
        assert tree.status == 0 and (tmp_path / "d" / "e" / "y").read_bytes() == b"y", tree.text + tree.errors
        assert "OPEN" in hdfs.asked


def test_hdfs_refuses_and_has_nothing(tmp_path: Path) -> None:
    with hdfs_server({"/secret/x": b"x"}) as hdfs:
        uri = f"hdfs://127.0.0.1:{hdfs.port}"
        assert fetch(tmp_path / "m", f"{uri}/none").phrase == "DownloadNotFound"
        assert fetch(tmp_path / "m", f"{uri}/secret/x").phrase == "ObjectStoreAuthFailed"
        assert fetch(tmp_path / "m", f"{uri}/secret/x", env={"HADOOP_USER_NAME": "ada"}).status == 0
    away = fetch(tmp_path / "n", f"{uri}/none", tries=1)
    assert away.phrase == "DownloadUnreachable", away.text
