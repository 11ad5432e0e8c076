"""Tests that manifests/ holds the output of `render` for the examples. TFK8S_UPDATE=1 writes the files."""

import contextlib
import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from job_files import AMBIGUOUS_TEXTS

from tfk8s import render
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import load
from tfk8s.render import rbac
from tfk8s.render.yaml import dump

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))


def manifest(job_file):
    return ROOT / "manifests" / f"{job_file.name}.yaml"


def require_equal(path, text):
    if os.environ.get("TFK8S_UPDATE"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_manifests_equal_the_rendered_examples(example):
    job_file = load(example)
    text = (
        f"# {example.relative_to(ROOT)} as Kubernetes objects. Made by `make update`; kept equal by a test.\n"
        + render.text(job_file)
    )
    require_equal(manifest(job_file), text)


def test_roles_equal_the_output_of_the_command():
    note = "# The output of `tfk8s roles`. Made by `make update`; kept equal by a test.\n"
    require_equal(ROOT / "manifests" / "roles.yaml", note + dump(rbac.roles()))


def test_manifests_has_no_other_files():
    assert {path.name for path in (ROOT / "manifests").iterdir()} == {
        "roles.yaml",
        *(manifest(load(example)).name for example in EXAMPLES),
    }


def test_job_without_an_image_is_rejected():
    with pytest.raises(InvalidInput, match='job "ps" has no image'):
        render.text(JobFile(name="a", master="worker", jobs=(Job(name="worker", image="i"), Job(name="ps"))))


def test_cluster_with_addresses_is_rejected():
    with pytest.raises(InvalidInput, match="already run"):
        render.text(JobFile(name="a", master="worker", jobs=(Job(name="worker", addresses=("a:1",)),)))


# ---- the YAML ------------------------------------------------------------------------------------------------------


class GoLoader(yaml.SafeLoader):
    """Reads as kubectl does, too: by yaml.v2's resolve.go."""


def go_number(loader, node):
    text = loader.construct_scalar(node)
    for number in (lambda digits: int(digits, 0), float):
        with contextlib.suppress(ValueError):
            return number(text.replace("_", ""))
    return text  # no digit in it


GoLoader.add_implicit_resolver("!bool", re.compile(r"[yYnN]\Z"), list("yYnN"))
GoLoader.add_constructor("!bool", lambda loader, node: loader.construct_scalar(node) in "yY")
GoLoader.add_implicit_resolver(
    "!number", re.compile(r"[-+]?(\.[0-9_]+|[0-9_]+(\.[0-9_]*)?)([eE][-+]?[0-9_]+)?\Z"), list("+-._0123456789")
)
GoLoader.add_implicit_resolver("!number", re.compile(r"[-+]?0([xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)\Z"), None)
GoLoader.add_constructor("!number", go_number)

texts = st.text() | st.sampled_from(AMBIGUOUS_TEXTS) | st.from_regex(r"[-+.]?[0-9][0-9a-fxob_.:e-]*", fullmatch=True)
scalars = texts | st.integers() | st.booleans() | st.none()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10)


def test_texts_that_a_reader_may_take_for_something_else_are_quoted():
    for text in ("", "2001-12-14 21:59:43.10 -5", *AMBIGUOUS_TEXTS):
        assert dump([{text: [text]}]) == f"---\n'{text}': ['{text}']\n"


@given(st.dictionaries(texts, values))
def test_every_reader_gets_the_objects_back(objects):
    text = dump([objects])
    for loader in (yaml.SafeLoader, GoLoader):
        assert json.dumps(list(yaml.load_all(text, loader))) == json.dumps([objects])


def test_texts_of_several_lines_stay_readable():
    assert dump([{"data": {"a.py": "import b\n\nb.c()\n"}}]) == ("---\ndata:\n  a.py: |\n    import b\n\n    b.c()\n")
