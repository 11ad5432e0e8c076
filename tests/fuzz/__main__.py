"""Fuzzes one parser, guided by the code that it runs (atheris): python -m fuzz NAME SECONDS.

What breaks the parser is written to cases/NAME, which stays as a case of the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tfk8s"]):
    from fuzz.targets import MEMORY, SECONDS, TARGETS

_IMPORTS = 256 << 20  # bytes of this process without the parser


def main() -> None:
    name, seconds = sys.argv[1:]
    cases = Path(__file__).with_name("cases") / name
    cases.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}", f"-timeout={SECONDS:g}", f"-rss_limit_mb={(_IMPORTS + MEMORY) >> 20}",
        "-max_len=1000000", f"-artifact_prefix={cases}/",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
