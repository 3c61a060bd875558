"""Reads the secrets of a job file. Their values are kept out of the job spec, so that no journal, report or record has
them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of
from holdfast.lazy_pattern import Lazy
from holdfast.runtime.name_expansion import NameValues
from holdfast.safe_files import read_given
from holdfast.untrusted import Malformed, json_as, yaml_nodes, yaml_value

#: The environment variable with the path of a JSON file that maps names to values. These values override those of the
#: job file.
VARIABLE = "HOLDFAST_SECRETS"
#: Replaces the value of a secret in a copy of a job file.
HIDDEN = "********"
MOST_BYTES = 1 << 20
NAME = Lazy(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_EXAMPLE = "of names, as in `token: {env: WANDB_API_KEY}` or `token: {file: ~/.token}`"


def secrets_of(found: Mistakes, said: Any, *, here: bool) -> dict[str, str]:
    """Return a map from name to value of the secrets. Add mistakes to `found`. `here`: the job starts from this
    machine, so values are read from variables and files.

    No message contains a value. `said`: the file's section.
    """
    given = _given(found) if here else {}
    whole: dict[str, str] = {}
    for name, how in found.entries("secrets", said, _EXAMPLE):
        where = f"secrets.{name}"
        if not NAME.fullmatch(name):
            found.add(where, "expected a name of letters, digits and `_`, without a digit in front")
        elif name in given:
            whole[name] = given[name]
        elif isinstance(how, dict):
            value = _referred(found, where, how, here)
            if value is not None:
                whole[name] = value
        elif isinstance(how, bool) or not isinstance(how, str | int | float):
            found.add(where, f"expected a text, {{env: VARIABLE}} or {{file: PATH}}, got {kind_of(how)}")
        elif here and str(how) == HIDDEN:
            found.add(
                where, f"this copy of the job file has no value for it: expected one in the file that {VARIABLE} names"
            )
        else:
            whole[name] = str(how)
    for name, value in whole.items():
        if "\0" in value:
            found.add(f"secrets.{name}", "expected a value without NUL characters")
    return whole


def _referred(found: Mistakes, where: str, how: dict[Any, Any], here: bool) -> str | None:
    known = ["env", "file"]
    found.unknown(where, how, known)
    sources = [key for key in known if key in how]
    if len(sources) != 1 or not isinstance(how[sources[0]], str) or not how[sources[0]]:
        found.add(where, "expected either {env: VARIABLE} or {file: PATH}")
        return None
    source = how[sources[0]]
    if not here:
        return None
    if sources[0] == "env":
        if source not in os.environ:
            found.add(f"{where}.env", f"the variable {source} is not set here: expected it with the secret's value")
        return os.environ.get(source)
    path = Path(source).expanduser()
    try:
        return read_given(path, MOST_BYTES).decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        found.add(f"{where}.file", f"{path}: {(why or str(error)).lower()}")
        return None


def _given(found: Mistakes) -> dict[str, str]:
    """Return the values from variables (`HOLDFAST_SECRET_token`) and from the file that `VARIABLE` names."""
    place = os.environ.get(VARIABLE)
    one_by_one = NameValues.of(os.environ).secrets
    if not place:
        return dict(one_by_one)
    try:
        return {**one_by_one, **json_as(read_given(Path(place), MOST_BYTES), dict[str, str])}
    except (OSError, Malformed) as error:
        why = error.strerror if isinstance(error, OSError) else "expected one JSON object of names and texts"
        found.add("secrets", f"{VARIABLE}={place}: {why or error}")
        return {}


def hidden(text: bytes) -> bytes:
    """Return a job file's text with `HIDDEN` in place of each literal secret value. Raises `Malformed`."""
    letters = text.decode()
    top = yaml_nodes(letters)
    spans: list[tuple[int, int]] = []
    for key, value in top.value if top is not None and top.tag.endswith(":map") else ():
        if key.value == "secrets" and value.tag.endswith(":map"):
            spans += [
                (inner.start_mark.index, inner.end_mark.index)
                for _, inner in value.value
                if isinstance(inner.value, str) and not inner.tag.endswith(":null")
            ]
    for start, end in sorted(set(spans), reverse=True):
        # The parser reports the next key as the end of a block scalar. So keep the white space before that key.
        rest = letters[start:end]
        letters = f'{letters[:start]}"{HIDDEN}"{rest[len(rest.rstrip()) :]}{letters[end:]}'
    copy = letters.encode()
    if any(isinstance(value, str) and value != HIDDEN for value in _secrets(copy).values()):
        raise Malformed(
            "the values of its `secrets` cannot be told from the rest: expected one a line, without aliases"
        )
    return copy


def _secrets(text: bytes) -> dict[Any, Any]:
    data = yaml_value(text)
    found = data.get("secrets") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
