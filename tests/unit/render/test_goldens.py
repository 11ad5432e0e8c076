"""Tests that manifests/ holds the output of `render` for an example. TFK8S_UPDATE=1 writes the files.

tests/chart compares the objects of all examples with those of the Helm chart.
"""

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
from zips import with_files, without_zip

from tfk8s import render
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import load
from tfk8s.render import rbac
from tfk8s.render.yaml import dump

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "tutorial" / "cluster.yaml"
MANIFEST = ROOT / "manifests" / "tutorial.yaml"


def require_equal(path, text, comparable=lambda text: text):
    if os.environ.get("TFK8S_UPDATE") and comparable(path.read_text()) != comparable(text):
        path.write_text(text)
    assert comparable(path.read_text()) == comparable(text), "run: make update"


def test_manifest_equals_the_rendered_example():
    head = f"# {EXAMPLE.relative_to(ROOT)} as Kubernetes objects. Made by `make update`; kept equal by a test.\n"

    def comparable(text):
        return without_zip(text), with_files(yaml.safe_load_all(text)) if "binaryData" in text else text

    text = head + render.text(load(EXAMPLE))
    assert text.count("…") == 0
    assert without_zip(text).count("…") == 2
    require_equal(MANIFEST, text, comparable)


def test_roles_equal_the_output_of_the_command():
    note = "# The output of `tfk8s roles`. Made by `make update`; kept equal by a test.\n"
    require_equal(ROOT / "manifests" / "roles.yaml", note + dump(rbac.roles()))


def test_manifests_has_no_other_files():
    assert {path.name for path in (ROOT / "manifests").iterdir()} == {"roles.yaml", MANIFEST.name}


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
