from __future__ import annotations

from tfk8s.core.compact import JobSize, format_jobs, parse_jobs, scale_jobs

TEXT = "chief=1,ps=2:2300"
JOBS = {"chief": JobSize(1, 2222), "ps": JobSize(2, 2300)}


def test_the_compact_form_is_parsed_and_formatted() -> None:
    assert parse_jobs(TEXT, 2222) == JOBS
    assert format_jobs(JOBS, 2222) == TEXT


def test_scaling_keeps_ports_and_other_jobs() -> None:
    assert scale_jobs(TEXT, {"ps": 5}) == "chief=1,ps=5:2300"
    assert scale_jobs(TEXT, {"chief": 3}) == "chief=3,ps=2:2300"
