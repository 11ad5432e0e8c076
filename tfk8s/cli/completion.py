"""What the shell may complete a command line with; Typer's own way takes long enough to be felt.

The words come from `words.json`, which is made from the commands themselves (`python -m tfk8s.cli.words`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCRIPTS = {
    "bash": """\
_tfk8s() {
    local word
    COMPREPLY=()
    while IFS=$'\\t' read -r word _; do
        COMPREPLY+=("$word")
    done < <(tfk8s __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _tfk8s tfk8s""",
    "zsh": """\
#compdef tfk8s
_tfk8s() {
    local line
    local -a found
    for line in "${(@f)$(tfk8s __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#found )); then _describe tfk8s found; else _files; fi
}
compdef _tfk8s tfk8s""",
    "fish": """\
complete -c tfk8s -a '(tfk8s __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'""",
}

# The words that an argument or an option's value may be, by its metavar.
_VALUES = {
    "FORM": ("json",),
    "FORMAT": ("cluster-spec", "tf-config", "flags", "env"),
    "KIND": ("cpu", "gpu", "server"),
    "KIND|IMAGE": ("cpu", "gpu", "server"),
    "SHELL": tuple(SCRIPTS),
}

Words = dict[str, Any]
Found = list[tuple[str, str]]


def main(words: list[str]) -> int:
    """Print the candidates for the last of the words that follow `tfk8s`, each with its help behind a tab."""
    table = json.loads(Path(__file__).with_name("words.json").read_text())
    for word, meaning in complete(words, table):
        sys.stdout.write(f"{word}\t{meaning}\n")
    return 0


def complete(words: list[str], table: Words) -> Found:
    """Return the candidates, each with its help; none where a file may stand."""
    *before, current = words or [""]
    if not before:
        candidates = [(name, command["help"]) for name, command in table.items()]
        return _that_begin(candidates, current)
    command = table.get(before[0])
    if command is None or "--" in before:
        return []
    if "commands" in command and (before[1:] or not current.startswith("-")):
        return complete(words[1:], command["commands"])
    options = command["options"]
    if (value := options.get(before[-1], {}).get("value")) is not None:
        return _that_begin(_plain(_VALUES.get(value, ())), current)
    given = _arguments(before[1:], options)
    forms = command["arguments"]
    if "SCRIPT" in forms and len(given) > forms.index("SCRIPT"):
        return []  # the script's own
    if current.startswith("-"):
        return _that_begin([(name, option["help"]) for name, option in options.items()], current)
    form = forms[min(len(given), len(forms) - 1)] if forms else ""
    return _that_begin(_plain(_candidates(form, given)), current)


def _candidates(form: str, given: list[str]) -> Iterable[str]:
    if form == "NAME|FILE":
        return _clusters()
    if form == "TASK":
        return _tasks(given[0])
    return _VALUES.get(form, ())


def _arguments(words: list[str], options: Words) -> list[str]:
    """Return the words that are neither options nor their values."""
    values = {i + 1 for i, word in enumerate(words) if options.get(word, {}).get("value") is not None}
    return [word for i, word in enumerate(words) if i not in values and not word.startswith("-")]


def _that_begin(candidates: Iterable[tuple[str, str]], current: str) -> Found:
    return [candidate for candidate in candidates if candidate[0].startswith(current)]


def _plain(words: Iterable[str]) -> Found:
    return [(word, "") for word in words]


# The folders that tfk8s.backends.local.state makes; importing it would take longer than a completion may.


def _clusters() -> list[str]:
    try:
        return sorted(path.parent.name for path in _state().glob("*/cluster.json"))
    except OSError:
        return []


def _tasks(cluster: str) -> list[str]:
    try:
        record = json.loads((_state() / cluster / "cluster.json").read_text())
        return [f"{task['job']}/{task['index']}" for task in record["tasks"]]
    except (OSError, ValueError, KeyError):
        return []


def _state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tfk8s"
