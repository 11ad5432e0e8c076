"""Objects as YAML that people read: small maps and lists in one line, texts of several lines as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from tfk8s.render.pods import Object

_LINE = 110


def dump(objects: Sequence[Object]) -> str:
    """Return the objects as YAML documents; the same objects give the same text."""
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=1 << 20
    )


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc] # either has the same methods
    """libyaml's, where PyYAML was built with it: ten times as fast."""

    def represent_text(self, text: str) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    def represent_dict(self, data: Object) -> Any:
        return self.represent_mapping("tag:yaml.org,2002:map", data, flow_style=_is_small(data.values(), data))

    def represent_list(self, data: list[Any]) -> Any:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=_is_small(data))


def _is_small(values: Iterable[Any], keys: Iterable[str] = ()) -> bool:
    """Return whether it is all scalars, and fits in a line."""
    words = [*keys, *values]
    return (
        all(not isinstance(word, dict | list) for word in words) and sum(len(str(word)) + 3 for word in words) < _LINE
    )


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(dict, _Dumper.represent_dict)
_Dumper.add_representer(list, _Dumper.represent_list)
