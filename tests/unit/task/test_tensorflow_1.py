"""TensorFlow 1's API: the parts that `tensorflow.compat.v1` lacks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tfk8s.task.programs import tensorflow_1


def test_a_package_gets_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "whole/__init__.py": "import whole.core, whole.own\nVERSION = 2\n_hidden = 0\nname = 'whole'\ndel core",
        "whole/core/__init__.py": "", "whole/core/graph.py": "", "whole/own.py": "place = 'whole'",
        "whole/examples/data.py": "", "whole/compat/__init__.py": "",
        "whole/compat/v1/__init__.py": "name = 'v1'\nfrom whole.compat.v1 import own",
        "whole/compat/v1/own.py": "place = 'v1'",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    whole, v1 = importlib.import_module("whole"), importlib.import_module("whole.compat.v1")
    tensorflow_1.fill(v1, whole)
    monkeypatch.setitem(sys.modules, "whole", v1)
    found: dict[str, object] = {}
    exec(  # noqa: S102 - import statements are what is tested
        "import whole, whole.core.graph as graph, whole.examples.data as data\nfrom whole.own import place", found
    )
    assert (v1.name, v1.VERSION, v1.own.place, hasattr(v1, "_hidden")) == ("v1", 2, "v1", False)
    assert (found["graph"], found["data"]) == (v1.core.graph, v1.examples.data)
    for name in [name for name in sys.modules if name.startswith("whole.")]:
        del sys.modules[name]
