"""A job file that becomes a TFJob, and a job file again."""

from __future__ import annotations

from typing import Any

import tfjobs
import yaml_text
from hypothesis import Phase, given, settings
from job_files import as_json

from tfk8s import render
from tfk8s.jobfile.loader import loads
from tfk8s.tools import kubeflow


@settings(phases=[Phase.generate])  # to shrink these takes minutes
@given(data=tfjobs.job_files())
def test_a_tfjob_of_the_new_job_file_is_the_same_tfjob(data: dict[str, Any]) -> None:
    first = render.tfjob_text(loads(as_json(data), "cluster.yaml"))
    converted = kubeflow.convert(first.encode(), "tfjob.yaml")
    again = loads(converted.text("tfjob.yaml"), "cluster.yaml")
    assert yaml_text.read(render.tfjob_text(again)) == yaml_text.read(first)
