"""The results of runs: read from what the script prints, and kept in results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from versions.results import today

from keras_features.cases import Outcome

PATH = Path(__file__).with_name("results.json")
VARIABLES = {"keras": {}, "tf_keras": {"TF_USE_LEGACY_KERAS": "1"}}  # layers of tf_keras use tf.keras


@dataclass(frozen=True)
class Result:
    """A run with one Keras.

    Attributes:
        keras: its version.
        tensorflow: the version of TensorFlow.
        day: of the run, YYYY-MM-DD.
        cases: the number of cases that there are, by their kind.
        outcomes: the outcome of each case that ran.
    """

    keras: str
    tensorflow: str
    day: str
    cases: dict[str, int]
    outcomes: dict[str, Outcome]


def read(lines: Iterable[str]) -> Result:
    """Return the result that the script's lines have, even if the script did not come to its end."""
    (keras, tensorflow, cases), *found = [json.loads(line) for line in lines if line.startswith("[")]
    return Result(keras, tensorflow, today(), cases, {name: Outcome(*outcome) for name, *outcome in found})


def follow(library: str, lines: Iterable[str], earlier: Result | None = None) -> Result:
    """Keep the outcomes of a run as its lines come, and return all of them.

    A run takes hours, so what an interrupted run has found must be there for `--continue`.

    Args:
        library: of which Keras they are.
        lines: what the script prints.
        earlier: what this run continues.

    Raises:
        SystemExit: the earlier outcomes are of other versions.
    """
    read_lines: list[str] = []
    result = earlier
    for line in lines:
        if not line.startswith("["):
            continue
        read_lines.append(line)
        result = read(read_lines)
        if earlier is not None:
            result = replace(result, outcomes={**earlier.outcomes, **result.outcomes})
            if (result.keras, result.tensorflow) != (earlier.keras, earlier.tensorflow):
                raise SystemExit(f"the results are of Keras {earlier.keras}: run without --continue")
        save(library, result)
    if result is None:
        raise SystemExit(f"the script printed no outcome of {library}")
    return result


def load() -> dict[str, Result]:
    """Return the results, by the library."""
    kept = json.loads(PATH.read_text()) if PATH.exists() else {}
    return {
        library: Result(**{**result, "outcomes": {name: Outcome(*kept) for name, kept in result["outcomes"].items()}})
        for library, result in kept.items()
    }


def save(library: str, result: Result) -> None:
    """Keep a result in place of an earlier one."""
    kept = {name: asdict(one) for name, one in {**load(), library: result}.items()}
    lines = json.dumps(kept, indent=1, ensure_ascii=False)
    PATH.write_text(lines + "\n")
