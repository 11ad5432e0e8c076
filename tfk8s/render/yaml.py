"""Objects as YAML for people and for any reader: PyYAML, with short maps and lists on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from tfk8s.render.pods import Object

_LINE = 110

# Words and numbers of other readers, which PyYAML prints without quotes. kubectl's YAML is Go's: it takes `n` for false
# and `1e-4` for a number. YAML 1.2 has `0o17`. What only looks like a number gets quotes too; that does no harm.
_AMBIGUOUS = re.compile(
    r"(?: (?i: y|n|yes|no|on|off|true|false|null|nan|inf )"
    r"  | [-+]? [._]* [0-9] [0-9a-fA-FxXoO_.:+-]*"
    r"  | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} [Tt\s] .* ) \Z",
    re.VERBOSE,
)


def dump(objects: Sequence[Object]) -> str:
    """Return the objects as YAML documents. The same objects give the same text."""
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=1 << 20
    )


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc] # either has the same methods
    """libyaml's dumper if PyYAML has it, which is ten times as fast."""

    def represent_text(self, text: str) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    def represent_dict(self, data: Object) -> Any:
        return self.represent_mapping("tag:yaml.org,2002:map", data, flow_style=_is_small(data.values(), data))

    def represent_list(self, data: list[Any]) -> Any:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=_is_small(data))


def _is_small(values: Iterable[Any], keys: Iterable[str] = ()) -> bool:
    """Return whether all are scalars that fit on one line together."""
    words = [*keys, *values]
    return (
        all(not isinstance(word, dict | list) and "\n" not in str(word) for word in words)
        and sum(len(str(word)) + 3 for word in words) < _LINE
    )


_Dumper.add_implicit_resolver("!ambiguous", _AMBIGUOUS, None)  # a text that would resolve to another type gets quotes
_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(dict, _Dumper.represent_dict)
_Dumper.add_representer(list, _Dumper.represent_list)
