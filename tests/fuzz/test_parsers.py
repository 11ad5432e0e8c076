"""Each parser survives hostile bytes: in bounded time and memory, with an error that its caller expects.

TFK8S_FUZZ_SECONDS is the time for all parsers together; `make fuzz` gives ten minutes to each. What breaks a parser
is written to cases/NAME, which stays as a case: commit the file with the mend.
"""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.inputs import INPUTS, Bytes
from fuzz.targets import MEMORY, SECONDS, TARGETS, Target

CASES = Path(__file__).with_name("cases")
TOTAL = float(os.environ.get("TFK8S_FUZZ_SECONDS", "60"))
_BATCH = 100  # examples, after which the time is looked at
_REPEATABLE = "TFK8S_FUZZ_SECONDS" not in os.environ


def survive(work: Target, data: bytes) -> None:
    """Run a parser on an input within its limits. The time is that of a run without the trace, which slows parsers."""
    start = time.process_time()
    work(data)
    assert time.process_time() - start < SECONDS
    tracemalloc.start()
    try:
        work(data)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", TARGETS)
def test_found_inputs_stay_harmless(name: str) -> None:
    for case in sorted((CASES / name).glob("*")):
        survive(TARGETS[name], case.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs_are_harmless(name: str) -> None:
    worst: list[bytes] = []
    end, batch = time.monotonic() + TOTAL / len(TARGETS), 0
    while time.monotonic() < end:
        batch += 1
        try:
            _try_batch(TARGETS[name], INPUTS[name], batch if _REPEATABLE else time.time_ns(), worst, end)
        except BaseException:
            if worst:
                (CASES / name).mkdir(parents=True, exist_ok=True)
                (CASES / name / hashlib.sha256(worst[-1]).hexdigest()[:12]).write_bytes(worst[-1])
            raise


def _try_batch(work: Target, inputs: Bytes, number: int, failed: list[bytes], end: float) -> None:
    @seed(number)
    @settings(
        max_examples=_BATCH, deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],  # shrinking may take minutes
    )  # fmt: skip
    @given(inputs)
    def attempt(data: bytes) -> None:
        if time.monotonic() >= end and not failed:
            return
        try:
            survive(work, data)
        except Exception:
            failed.append(data)
            raise

    attempt()
