"""`holdfast submit`: from a job file to the batch script, and what is said of mistakes. No Slurm is needed here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BadUsage
from holdfast.launch.jobfile import job_file_reader as jobfile
from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble
from holdfast.platforms.slurm.slurm_launch import nodes_of
from holdfast.platforms.slurm.submit.sbatch_refusals import sbatch_refusal
from holdfast.platforms.slurm.submit.slurm_submit import _handed_on, prepare
from holdfast.platforms.slurm.text.allocation import Allocation
from holdfast.platforms.slurm.text.sbatch_script import SbatchScriptSpec, script
from holdfast.platforms.slurm.text.slurm_options import OWN, SlurmOptions, SlurmValue, slurm_options
from holdfast.platforms.submission import SubmitRequest
from holdfast.settings.resolved_settings import resolve
from holdfast.settings.run_options import RunOptions
from holdfast.settings.yaml_sections import section
from holdfast.untrusted import Malformed
from places import DOCS

PAGE = DOCS / "how-to" / "slurm.md"
JOB = """\
name: finetune
roles:
  worker: {count: 16, command: [python, train.py]}
"""


def _wanted(**said: object) -> SlurmOptions:
    return slurm_options([{key: SlurmValue(value=value, origin=f"`slurm.{key}`") for key, value in said.items()}])  # type: ignore[arg-type]  # any value


def _script(asked: SlurmOptions, spares: int = 0, **more: object) -> str:
    order = SbatchScriptSpec(
        name="finetune", wanted=asked, spares=asked.spares or spares, home="/home/ada/.local/state/holdfast",
        job_file="/home/ada/.local/state/holdfast/submitted/finetune-1.yaml", source="job.yaml",
        python="/venv/bin/python", version="1", **more,  # type: ignore[arg-type]  # fields of it
    )  # fmt: skip
    return script(order)


@pytest.mark.parametrize(
    ("key", "typed", "slurms"),
    [
        ("time", "90", "90"),
        ("time", "1-12", "1-12"),
        ("time", "UNLIMITED", "UNLIMITED"),
        ("time", "2h", "2:00:00"),
        ("time", "45m", "0:45:00"),
        ("time", "1d12h", "1-12:00:00"),
        ("time", "5400 s", "1:30:00"),
        ("signal", "B:USR1@120", "B:USR1@120"),
        ("signal", "USR1@2m", "USR1@120"),
        ("replace-wait", "2.5", "2.5"),
        ("replace-wait", "5m", "300"),
    ],
)
def test_a_duration_with_units_is_written_as_slurm_reads_it(key: str, typed: str, slurms: str) -> None:
    assert _wanted(**{key: typed}).texts == {key: slurms}


def test_one_node_has_a_small_script_without_no_kill() -> None:
    assert _script(_wanted(gpus="8", time="2:00:00")) == (
        """\
#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=2:00:00
#SBATCH --requeue
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append

# Written by holdfast 1 from job.yaml.
export HOLDFAST_HOME=/home/ada/.local/state/holdfast
exec /venv/bin/python -P -m holdfast run --job /home/ada/.local/state/holdfast/submitted/finetune-1.yaml
"""
    )


def test_many_nodes_with_everything() -> None:
    asked = _wanted(
        nodes="2:4", spares="1", cpus="64", memory="64GiB", partition="gpu", account="lab", qos="high", time="1-12",
        signal="B:USR1@120", requeue=False, comment="it's \"x\" # y", constraint="a100&ib", exclude=("n1", "n[3-4]"),
        reservation="r", array="0-19%4", report="out dir/%A_%a %x.json", setup=("module load cuda", "ulimit -n 4096"),
        mail_type=("END", "FAIL"), exclusive=True, oversubscribe=False, requeue_at_limit=True,
        **{"replace-wait": "60"},
    )  # fmt: skip
    assert _script(asked, words=("--max-restarts", "5")) == (
        """\
#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --nodes=2-5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --mem=64G
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=high
#SBATCH --time=1-12
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
#SBATCH --comment="it's \\"x\\" # y"
#SBATCH --constraint=a100&ib
#SBATCH --exclude=n1,n[3-4]
#SBATCH --reservation=r
#SBATCH --array=0-19%4
#SBATCH --output=slurm-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --mail-type=END,FAIL
#SBATCH --exclusive

# Written by holdfast 1 from job.yaml.
export HOLDFAST_HOME=/home/ada/.local/state/holdfast
module load cuda
ulimit -n 4096
exec /venv/bin/python -P -m holdfast run --job /home/ada/.local/state/holdfast/submitted/finetune-1.yaml --nnodes 2:4 \
--spares 1 --report 'out dir/'"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"_"$SLURM_ARRAY_TASK_ID"' 'finetune.json \
--replace-wait 60 --requeue-at-limit --max-restarts 5
"""
    )


def test_one_node_and_a_spare_are_two_nodes_and_no_single_machine() -> None:
    text = _script(_wanted(spares="1"))
    assert "#SBATCH --nodes=2\n" in text and "#SBATCH --no-kill\n" in text
    assert "--nnodes" not in text and text.rstrip().endswith("--spares 1")


# ----------------------------------------------------------------------------------- nothing is read as anything else


def _read_by_sbatch(line: str) -> list[str]:
    """The words of a `#SBATCH` line as sbatch takes them: quotes group, a backslash escapes inside them, `#` ends."""
    words, word, quote, escaped, begun = [], "", "", False, False
    for letter in line.removeprefix("#SBATCH"):
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\":
            escaped = True
        elif quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "\"'":
            quote, begun = letter, True
        elif letter == "#":
            break
        elif letter.isspace():
            words += [word] if word or begun else []
            word, begun = "", False
        else:
            word += letter
    return words + ([word] if word or begun else [])


_ANY = st.text(max_size=80) | st.text(alphabet="ab \"'\\#$`;|&(){}<>*?~!%\n\r\t:=-", max_size=30)


@given(comment=_ANY, other=_ANY, report=_ANY, path=_ANY, key=_ANY)
@example(comment='"; rm -rf /', other="--wrap=x", report="$(id)", path="a b'c", key="x --wrap")
@example(comment='\\" --wrap=id #', other="\\", report="`id`", path="$HOME", key="nice")
@example(comment="a\n#SBATCH --wrap=id", other="a\u2028b", report="a\nb", path="a", key="a\nb")
def test_a_value_is_one_value_for_sbatch_and_for_bash(
    comment: str, other: str, report: str, path: str, key: str
) -> None:
    try:
        asked = _wanted(comment=comment, wckey=other, report=report, **{key: other})
        text = _script(asked, words=(path,))
    except BadUsage as refused:
        assert "expected" in refused.message or "says the same" in refused.message or refused.hint
        return
    lines = text.split("\n")
    directives = [line for line in lines if line.startswith("#SBATCH")]
    read = [word for line in directives for word in _read_by_sbatch(line)]
    assert len(read) == len(directives), "one line is one option"
    assert f"--comment={comment.strip()}" in read
    assert f"--wckey={other.strip()}" in read
    assert not any(word.startswith("--wrap") for word in read)
    body = [line for line in lines if line and not line.startswith("#")]
    assert [line.split()[0] for line in body[:1]] == ["export"] and body[1].startswith("exec ")
    words = shlex.split("\n".join(body[1:]))
    assert words[-1] == path
    assert words[words.index("--report") + 1].replace("$SLURM_JOB_ID", "%j") == report.strip().replace(
        "%x", "finetune"
    ).replace("%A", "${SLURM_ARRAY_JOB_ID:-%j}").replace("%%", "%")


def test_a_report_of_bash_is_what_slurm_would_have_made_of_it() -> None:
    text = _script(_wanted(report="o $HOME/%x-%j 100%%.json", array="1-3"))
    line = text.splitlines()[-1].replace("exec /venv/bin/python", "printf '%s\\n'")
    done = subprocess.run(
        ["bash", "-c", line], env={"SLURM_JOB_ID": "43"}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert done[-1] == "o $HOME/finetune-43 100%.json"


# ------------------------------------------------------------------------------------------------------- the section


def test_scalars_stay_as_they_were_written() -> None:
    text = "slurm: {time: 1:30:00, nodes: 0x10, begin: 2026-11-22, nice: 1_000, exclusive: yes, hold: off, x: 'yes'}"
    assert section(text, "slurm") == {
        "time": "1:30:00", "nodes": "0x10", "begin": "2026-11-22", "nice": "1_000", "exclusive": True, "hold": False,
        "x": "yes",
    }  # fmt: skip
    assert section("slurm:\n", "slurm") is None and section("name: x", "slurm") is None and section("", "slurm") is None
    merged = "base: &b {partition: a, qos: q}\nslurm: {<<: *b, partition: c, exclude: [n1, n2], empty: }"
    assert section(merged, "slurm") == {"partition": "c", "qos": "q", "exclude": ("n1", "n2"), "empty": None}


@pytest.mark.parametrize(
    "text",
    [
        "slurm: yes",
        "slurm: [a]",
        "slurm: {a: {b: c}}",
        "slurm: {a: [{b: c}]}",
        "slurm: {a: [[b]]}",
        "slurm: {? [a] : b}",
        "slurm: {<<: 3}",
    ],
)
def test_what_is_no_section_is_named_with_its_line(text: str) -> None:
    with pytest.raises(Malformed, match="`slurm") as wrong:
        section(text, "slurm")
    assert wrong.value.line == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"nodes": "0"}, "`slurm.nodes`: expected a number of nodes, 1 or more, or MIN:MAX, got '0'"),
        ({"nodes": "3:2"}, "the smaller number first"),
        ({"spares": "-1"}, "0 or more"),
        ({"gpus": "all"}, "a number of GPUs of each node"),
        ({"memory": "64"}, "write 64M"),
        ({"time": "2y"}, "expected a time such as 2h or 1d12h, minutes"),
        ({"time": "1h30"}, "expected a time such as 2h"),
        ({"replace_wait": "soon"}, "expected seconds, or a time such as 5m"),
        ({"requeue": "maybe"}, "expected true or false"),
        ({"partition": True}, "`true` as a text stands in quotes"),
        ({"partition": None}, "nothing stands there; expected a name"),
        ({"partition": ""}, "expected a name, got ''"),
        ({"nice": None}, "or true for `--nice` without one"),
        ({"array": "a"}, "0-19%4"),
        ({"array": "1,5-2%4"}, "the smaller index first, got 1,5-2%4"),
        ({"ntasks": "4"}, "`count` of a role"),
        ({"no_kill": True}, "holdfast writes it"),
        ({"job-name": "x"}, "the job's `name`"),
        ({"wrap": "id"}, "the script is holdfast's"),
        ({"p": "gpu"}, "the long name"),
        ({"Mail Type": "x"}, "the long name"),
        ({"mem": "1G", "memory": "2G"}, "`mem` says the same"),
        ({"comment": "a\nb"}, "one line without a line end"),
        ({"comment": "a\x1b"}, "without the character U+001B"),
        ({"comment": "x" * 3000}, "at most 2000 bytes"),
        ({"python": "python3"}, "the absolute path of a Python"),
        ({"report": "r-%q"}, "`%q` in r-%q"),
        ({"report": "r-%a"}, "this job is no array"),
        ({"report": "r.json", "array": "0-3"}, "all jobs of the array 0-3 would write r.json"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_what_was_expected(said: dict[str, object], words: str) -> None:
    with pytest.raises(BadUsage, match=re.escape(words)):
        _script(_wanted(**said))


def test_the_stronger_layer_wins_key_by_key_whatever_its_spelling() -> None:
    layers = [
        {"mem": SlurmValue(value="2G", origin="--mem")},
        {"memory": SlurmValue(value="1G", origin="file"), "exclusive": SlurmValue(value=False, origin="file")},
        {
            "partition": SlurmValue(value="gpu", origin="settings"),
            "exclusive": SlurmValue(value=True, origin="settings"),
        },
    ]
    found = slurm_options(layers)
    assert (found.texts, found.further) == ({"memory": "2G", "partition": "gpu"}, ())
    assert found.origins["memory"] == "--mem"


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("err", "key", "words"),
    [
        (
            "error: invalid partition specified: mian\nsbatch: error: Invalid partition name specified\n",
            "partition",
            "no such",
        ),
        (
            "error: Batch job submission failed: Invalid account or account/partition combination",
            "account",
            "may not use",
        ),
        ("error: Batch job submission failed: Invalid qos specification", "qos", "may not use"),
        ("error: Batch job submission failed: Requested time limit is invalid (missing …)", "time", "allows less"),
        ("error: Invalid --time specification", "time", "no time"),
        ("error: Batch job submission failed: Node count specification invalid", "nodes", "fewer nodes"),
        ("error: Invalid generic resource (gres) specification", "gpus", "GPUs"),
        ("error: Batch job submission failed: Invalid feature specification", "constraint", "feature"),
        ("error: Batch job submission failed: Requested reservation is invalid", "reservation", "reservation"),
        ("unrecognized option '--partiton=x'\nTry \"sbatch --help\"", "partiton", "did you mean `partition`?"),
        ("error: Batch job submission failed: Something new", "", ""),
    ],
)
def test_sbatchs_refusal_is_quoted_with_what_it_is_about(err: str, key: str, words: str) -> None:
    found = sbatch_refusal(
        CommandOutput(words=("sbatch",), err=f"sbatch: {err}", status=1, trouble=CommandTrouble.FAILED, said="x"), {}
    )
    assert (found.key, found.ours) == (key, False)
    assert words in found.advice
    assert found.said and "sbatch:" not in found.said


# ----------------------------------------------------------------------------------------------------- the job's keys


def _prepared(tmp_path: Path, keys: str) -> str:
    (tmp_path / "job.yaml").write_text(f"{JOB}{keys}\nslurm: {{}}\n")
    request = SubmitRequest(path=tmp_path / "job.yaml", platform="slurm", options={}, run_words=(), home=tmp_path)
    return prepare(request, resolve({}, {}, tmp_path), (tmp_path / "job.yaml").read_bytes(), cwd=tmp_path).script


def test_a_virtual_cluster_is_a_partition_unless_the_section_says_another(tmp_path: Path) -> None:
    assert "#SBATCH --partition=vc1\n" in _prepared(tmp_path, "virtualCluster: vc1")
    (tmp_path / "job.yaml").write_text(f"{JOB}virtualCluster: vc1\nslurm: {{partition: gpu}}\n")
    request = SubmitRequest(path=tmp_path / "job.yaml", platform="slurm", options={}, run_words=(), home=tmp_path)
    text = (tmp_path / "job.yaml").read_bytes()
    assert "#SBATCH --partition=gpu\n" in prepare(request, resolve({}, {}, tmp_path), text, cwd=tmp_path).script


def test_an_image_runs_by_what_the_nodes_have_or_not_at_all(tmp_path: Path) -> None:
    assert " --image-runtime auto\n" in _prepared(tmp_path, "image: train:1")
    assert "image-runtime" not in _prepared(tmp_path, "")
    text = f"{JOB}image: train:1\n"
    done = _submit(tmp_path, "--platform", "slurm", "--dry-run", "job.yaml", text=text)
    assert "image train:1: apptainer, singularity or enroot (pyxis) on the nodes runs it; --no-image" in done.stderr
    done = _submit(tmp_path, "--platform", "slurm", "--no-image", "--dry-run", "job.yaml", text=text)
    assert done.returncode == 0 and done.stdout.endswith(" --image-runtime none\n")
    assert "image train:1: left out: workers run under the nodes' software" in done.stderr
    done = _submit(tmp_path, "--dry-run", "job.yaml", text=f"{text}slurm: {{no-image: true}}\n")
    assert done.returncode == 0 and done.stdout.endswith(" --image-runtime none\n")


# --------------------------------------------------------------------------------------------------- the command line


def _submit(tmp_path: Path, *words: str, text: str = JOB, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.yaml").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "HOLDFAST_"))}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "submit", *words],
        cwd=tmp_path,
        env={**kept, "PATH": "/usr/bin:/bin", "HOLDFAST_HOME": str(tmp_path / "home"), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.real
def test_a_dry_run_prints_the_script_and_writes_nothing(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir(mode=0o700)
    (home / "config.yaml").write_text("slurm: {partition: all, account: lab, time: 10:00}\n")
    text = JOB + "slurm: {nodes: 2, partition: gpu}\n"
    done = _submit(tmp_path, "--dry-run", "job.yaml", "--gpus", "8", "--max-restarts", "5", "--", "--warm", text=text)
    assert done.returncode == 0, done.stderr
    for line in ("nodes=2", "partition=gpu", "account=lab", "time=10:00", "gpus-per-node=8", "no-kill"):
        assert f"#SBATCH --{line}\n" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"exec {sys.executable} -P -m holdfast run --job {home}/submitted/finetune-")
    assert last.endswith("--nnodes 2 --max-restarts 5 --warm")
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0
    assert sorted(entry.name for entry in home.iterdir()) == ["config.yaml"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--platform", "slrum", "job.yaml"], "did you mean `slurm`?"),
        (["--platform", "slurm", "nope.yaml"], "job file nope.yaml: No such file"),
        (["--platform", "slurm", "job.yml"], "did you mean job.yaml?"),
        (["train.py"], "train.py is a script: expected `--` before it, or a job file"),
        (["--platform", "slurm", "job.yaml", "--", "--hang-timout", "3"], "No such option '--hang-timout'"),
        (["--platform", "slurm", "job.yaml", "--", "--hang-timeout", "x"], "1d12h, got 'x'"),
        (["--platform", "slurm", "job.yaml", "--", "train.py"], "what runs stands in the job file"),
        (["--platform", "slurm", "job.yaml", "--", "--job", "b.yaml"], "expected the job file before the `--`"),
        (["--platform", "slurm", "job.yaml", "--", "--nnodes", "3"], "expected --nodes before the `--`"),
        (["--platform", "slurm", "job.yaml", "--array", "0-3", "--", "--report", "r.json"], "expected --report before"),
        (["--platform", "slurm", "job.yaml", "--output", "no/x"], "there is no directory"),
        (["--platform", "slurm", "job.yaml", "--sbatch", "=x"], "expected NAME or NAME=VALUE"),
    ],
)  # fmt: skip
def test_what_is_typed_wrongly_is_one_message(tmp_path: Path, words: list[str], said: str) -> None:
    done = _submit(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "\n  try: " in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.real
def test_without_sbatch_the_message_says_where_to_go(tmp_path: Path) -> None:
    if Path("/usr/bin/sbatch").exists():
        pytest.skip("sbatch is found in /usr/bin here whatever PATH says")
    (tmp_path / "bin").mkdir()
    done = _submit(tmp_path, "--platform", "slurm", "job.yaml", PATH=str(tmp_path / "bin"), SLURM_CONF="/nowhere")
    assert done.returncode == 1
    assert "sbatch is not on this machine: expected a login node" in done.stderr


@pytest.mark.real
def test_a_run_passes_the_section_over(tmp_path: Path) -> None:
    text = "name: x\nroles: {w: {count: 1, command: [echo, hi]}}\nchecks: []\nslurm: {nodes: x, what: {ever: 1}}\n"
    (tmp_path / "job.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--job", "job.yaml"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "slurm" not in done.stderr


def test_a_login_node_is_not_judged_by_what_the_job_needs() -> None:
    text = b"name: x\nroles: {w: {count: 1, command: [echo], resources: {memory: 900TiB, cpus: 9999}}}\n"
    assert jobfile.parsed(Path("job.yaml"), text, here=False).spec.roles[0].resources.cpus == 9999
    with pytest.raises(BadUsage, match="this machine's"):
        jobfile.parsed(Path("job.yaml"), text)


# ------------------------------------------------------------------------------------------------ the documentation


def test_the_page_has_the_table_of_names() -> None:
    rows = ["| name | option of sbatch | what it says |", "|---|---|---|"]
    for own in OWN:
        others = "".join(f", `{name}`" for name in own.also)
        sbatch = {"spares": "`--nodes`", "requeue": "`--requeue`, `--no-requeue`"}.get(own.key, "–")
        rows.append(f"| `{own.key}`{others} | {f'`--{own.sbatch}`' if own.sbatch else sbatch} | {own.what} |")
    begin, end = "<!-- names: made by tests/platforms/slurm/test_slurm_submit.py -->\n", "<!-- end of names -->"
    page = PAGE.read_text(encoding="utf-8")
    made = f"{page.partition(begin)[0]}{begin}" + "\n".join(rows) + f"\n{end}{page.partition(end)[2]}"
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        PAGE.write_text(made, encoding="utf-8")
    assert page == made, "make it anew: HOLDFAST_WRITE_DOCS=1 pytest tests/platforms/slurm/test_slurm_submit.py"


def test_the_pages_example_is_a_job_file(tmp_path: Path) -> None:
    example = next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "roles:" in text)
    (tmp_path / "job.yaml").write_text(example)
    assert jobfile.load(tmp_path / "job.yaml").spec.world_size == 16
    found = section(example, "slurm") or {}
    assert "--time=1-12:00:00" in _script(
        slurm_options([{key: SlurmValue(value=v, origin=key) for key, v in found.items()}])
    )
    json.dumps(found)


@pytest.mark.parametrize(
    ("given_nodes", "spares", "nodes"), [(5, 1, (2, 4)), (4, 1, (2, 3)), (3, 1, (2, 2)), (2, 1, (2, 2)), (6, 1, (2, 4))]
)
def test_a_range_takes_what_slurm_has_given(given_nodes: int, spares: int, nodes: tuple[int, int]) -> None:
    found = Allocation(job="42", nodes=tuple(f"n{index}" for index in range(given_nodes)))
    assert nodes_of(RunOptions(nnodes="2:4"), (2, 4), spares, found) == nodes
    with pytest.raises(BadUsage, match="expected as many as nodes and spares together"):
        nodes_of(RunOptions(nnodes="7:9"), (7, 9), spares, found)


@pytest.mark.real
def test_config_shows_a_files_section_and_a_run_passes_it_over(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir(mode=0o700)
    (home / "config.yaml").write_text("grace: 7\nslurm: {partition: gpu, time: 1:30:00}\n")
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    words = [sys.executable, "-m", "holdfast"]
    told = subprocess.run([*words, "config"], env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(rf"^slurm\.time +1:30:00 +{re.escape(str(home / 'config.yaml'))}$", told, re.MULTILINE)
    found = json.loads(subprocess.run([*words, "config", "--json"], env=env, capture_output=True, check=True).stdout)
    assert [row["name"] for row in found["sections"]] == ["slurm.partition", "slurm.time"]
    ran = subprocess.run([*words, "run", "--no-checks", "--no-python", "true"], env=env, timeout=60, check=False)
    assert ran.returncode == 0


def test_a_setting_that_is_nearly_the_section_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("slrum: {partition: gpu}\n")
    tmp_path.chmod(0o700)
    with pytest.raises(BadUsage, match="did you mean `slurm`"):
        resolve({}, {}, tmp_path)


def test_variables_of_sbatch_and_of_a_surrounding_job_do_not_beat_the_script() -> None:
    order = SbatchScriptSpec(
        name="x", wanted=_wanted(partition="gpu", time="10"), spares=0, home="/h", job_file="/h/j.yaml",
        source="job.yaml", python="/p",
    )  # fmt: skip
    env = {
        "SBATCH_PARTITION": "a", "SBATCH_TIMELIMIT": "1", "SBATCH_NO_REQUEUE": "1", "SBATCH_WAIT": "1",
        "SBATCH_ACCOUNT": "lab", "SBATCH_EXPORT": "NONE", "SLURM_CONF": "/c", "PATH": "/bin", "LANG": "C",
    }  # fmt: skip
    kept = {"SBATCH_ACCOUNT": "lab", "SBATCH_EXPORT": "NONE", "SLURM_CONF": "/c", "PATH": "/bin", "LANG": "C"}
    assert _handed_on({**env, "SLURM_HINT": "nomultithread"}, order) == {**kept, "SLURM_HINT": "nomultithread"}
    inside = {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "9", "PMI_RANK": "0"}
    assert _handed_on({**env, **inside}, order) == kept
