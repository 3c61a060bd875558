"""Names in a user's command: what is filled in, what stays the shell's, and what is a mistake."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadUsage
from holdfast.runtime.container_command import words_of_run
from holdfast.runtime.name_expansion import ExpansionTarget, NameValues, expand, expand_command, secret_variable
from holdfast.runtime.shell_quoting import Quote, quotes_at

NAME_VALUES = NameValues(
    values={"PAI_JOB_NAME": "j1", "PAI_HOST_IP_ps_0": "10.0.0.1", "PAI_HOST_IP_my-ps_0": "10.0.0.2"},
    later=("PAI_TASK_ATTEMPT",),
    parameters={"lr": "0.1", "a.b[0]": "deep", "quoted": "it's <b>&"},
    secrets={"token": 'x"y $z'},
    others={"script.uri": "git+https://x/y", "data.uri[0]": "s3://d"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "filled_in"),
    [
        ("$PAI_JOB_NAME", "j1"),
        ("${PAI_JOB_NAME}x", "j1x"),
        ("--to=$PAI_HOST_IP_ps_0:1", "--to=10.0.0.1:1"),
        ("$PAI_HOST_IP_my-ps_0.log", "10.0.0.2.log"),
        ("$PAI_HOST_IP_ps_0.log", "10.0.0.1.log"),
        ("$PAI_TASK_ATTEMPT", "$PAI_TASK_ATTEMPT"),
        (r"\$PAI_JOB_NAME", r"\$PAI_JOB_NAME"),
        (r"\\$PAI_JOB_NAME", r"\\j1"),
        ("$HOME $1 $(ls) ${X:-$PAI_JOB_NAME}", "$HOME $1 $(ls) ${X:-j1}"),
        ("<% $parameters.lr %><%$parameters.a.b[0]%>", "0.1deep"),
        ("<% $parameters.quoted %>", "it's <b>&"),
        ("<% $script.uri %> <% $data.uri[0] %>", "git+https://x/y s3://d"),
        ("<% render %> <%= $user.name %> <% $user.name %>", "<% render %> <%= $user.name %> <% $user.name %>"),
    ],
)
def test_a_program_gets_the_values_of_our_names_and_of_no_others(text: str, filled_in: str) -> None:
    assert expand(text, NAME_VALUES, "x", ExpansionTarget.PROGRAM) == filled_in


@pytest.mark.parametrize(
    "text",
    [
        "echo $PAI_JOB_NAME ${PAI_JOB_NAME}",
        "PAI_MINE=1; echo $PAI_MINE",
        "for PAI_X in a b; do echo $PAI_X; done",
        "echo ${PAI_NOT_THERE:-none} ${PAI_NOT_THERE-none}",
        "ssh h 'echo $PAI_OVER_THERE'",
        "# $PAI_IN_A_COMMENT\ntrue",
        "cat <<'END'\n$PAI_LITERAL\nEND\n",
        r"echo \$PAI_LITERAL",
    ],
)
def test_a_shell_fills_in_its_own_names_and_ours(text: str) -> None:
    assert expand(text, NAME_VALUES, "x", ExpansionTarget.SHELL) == text


def test_a_name_that_no_shell_can_have_is_filled_in_for_it() -> None:
    assert expand("ping $PAI_HOST_IP_my-ps_0", NAME_VALUES, "x", ExpansionTarget.SHELL) == "ping 10.0.0.2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\nb $PAI_JOB_NAMES", "CMD, line 2, column 3: there is no `$PAI_JOB_NAMES`; did you mean `$PAI_JOB_NAME`?"),
        ("${PAI_X}", "CMD, line 1, column 1: there is no `${PAI_X}`"),
        ("<% $parameters.lrr %>", "there is no `$parameters.lrr`; did you mean `$parameters.lr`?"),
        ("<% $parameter.lr %>", "there is no `$parameter`; did you mean `$parameters`?"),
        ("<% $secrets.tokn %>", "there is no `$secrets.tokn`; did you mean `$secrets.token`?"),
        ("$PAI_A\n$PAI_B", "; line 2, column 1: there is no `$PAI_B`"),
    ],
)  # fmt: skip
def test_an_unknown_name_of_ours_is_named_with_its_place(text: str, said: str) -> None:
    for reader in ExpansionTarget:
        with pytest.raises(BadUsage) as caught:
            expand(text, NAME_VALUES, "CMD", reader)
        assert said in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "printf %s <% $secrets.token %>",
        'printf %s "<% $secrets.token %>"',
        "printf %s '<% $secrets.token %>'",
        "printf %s \"$(printf %s '<% $secrets.token %>')\"",
        "cat <<END | tr -d '\\n'\n<% $secrets.token %>\nEND\n",
        "x='it'\"'\"'s' # don't\nprintf %s <% $secrets.token %>",
    ],
)
def test_a_secret_reaches_a_shell_s_command_by_the_environment_whatever_quotes_it_stands_in(text: str) -> None:
    made = expand(text, NAME_VALUES, "x", ExpansionTarget.SHELL)
    assert NAME_VALUES.secrets["token"] not in made
    env = {secret_variable("token"): NAME_VALUES.secrets["token"], "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["sh", "-c", made], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == NAME_VALUES.secrets["token"]


def test_a_secret_never_stands_on_a_command_line() -> None:
    with pytest.raises(BadUsage, match=r"word 2, line 1, column 9: a secret .* \$HOLDFAST_SECRET_token"):
        expand_command(["curl", "--token=<% $secrets.token %>"], NAME_VALUES, "x")
    assert expand("s3://k:<% $secrets.token %>@b", NAME_VALUES, "x", ExpansionTarget.HOLDFAST) == 's3://k:x"y $z@b'


def test_the_text_behind_c_is_the_shell_s() -> None:
    words = ["env", "A=1", "/bin/bash", "-ec", "echo $PAI_JOB_NAME", "$PAI_JOB_NAME"]
    assert expand_command(words, NAME_VALUES, "x") == ("env", "A=1", "/bin/bash", "-ec", "echo $PAI_JOB_NAME", "j1")


@given(st.text(alphabet="ab '\"\\$(){}#<\n|E", max_size=60))
def test_any_text_is_scanned_to_its_end(text: str) -> None:
    assert len(quotes_at(text, range(len(text)))) == len(text)


def test_quotes_are_known_in_every_place() -> None:
    text = "a 'b' \"c$(d 'e')\" $'f\\'g' #h\n<<X i\nj\nX\nk <<-'Y'\nl\n\tY\nm"
    found = {text[at]: quote for at, quote in enumerate(quotes_at(text, range(len(text)))) if text[at].islower()}
    assert found == {
        "a": Quote.PLAIN, "b": Quote.SINGLE, "c": Quote.DOUBLE, "d": Quote.PLAIN, "e": Quote.SINGLE, "f": Quote.ANSI,
        "g": Quote.ANSI, "h": Quote.COMMENT, "i": Quote.PLAIN, "j": Quote.DOCUMENT, "k": Quote.PLAIN,
        "l": Quote.LITERAL, "m": Quote.PLAIN,
    }  # fmt: skip


def test_run_is_a_node_of_an_owner_or_a_job_file_or_the_user_s_command() -> None:
    def words(environment: dict[str, str], *files: str) -> list[str]:
        return words_of_run(environment, "/x", lambda path: path in files)

    assert words({"HOLDFAST_OWNER": "o:1", "USER_CMD": "a"}, "/x/job.yaml") == ["agent"]
    assert words({"HOLDFAST_JOB_FILE": "/j.yaml"}, "/x/job.yaml") == ["run", "--job", "/j.yaml"]
    assert words({"USER_CMD": "a"}, "/x/job.yaml") == ["run", "--job", "/x/job.yaml"]
    command = ["run", "--role", "task", "--command-from"]
    assert words({"USER_CMD": "a"}) == [*command, "USER_CMD", "--max-restarts", "0", "--no-checks"]
    assert words({"HOLDFAST_COMMAND_FROM": "CMD", "HOLDFAST_MAX_RESTARTS": "2", "HOLDFAST_CHECKS": "disk"}) == [
        *command,
        "CMD",
    ]


def test_a_path_of_the_exchange_directory_may_have_spaces(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    (place / "job.yaml").touch()
    assert words_of_run({}, str(place), lambda path: Path(path).exists()) == ["run", "--job", f"{place}/job.yaml"]
