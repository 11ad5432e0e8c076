"""The mappings that are values of keys in a job file: tolerations, network, security and more; not volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfk8s.core import programs
from tfk8s.core.job_file import mappings
from tfk8s.core.script import ScriptResources
from tfk8s.jobfile import types
from tfk8s.jobfile.declared import struct
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.types import Choice, Type
from tfk8s.jobfile.validation import Container, Key, List, Map, OptionalList, Struct, Validator
from tfk8s.jobfile.values import Invalid

Values = dict[str, Any]  # a struct's values by key, without the absent keys


def _one_source(code: str, noun: str, *sources: str) -> dict[str, Any]:
    """Return the rule that a struct has exactly one of these keys, as a function and as a JSON Schema."""
    expected = f"expected exactly one of {', '.join(sources[:-1])} and {sources[-1]}"

    def rule(values: Values) -> None:
        given = [source for source in sources if source in values]
        if len(given) != 1:
            message = f"a {noun} can't have {' and '.join(given)} at once" if given else f"this {noun} has no source"
            raise Invalid(code, message, expected)

    return {"rule": rule, "rule_schema": {"oneOf": [{"required": [source]} for source in sources]}}


class _OrMapping(Container):
    """A value of a simple type, or a mapping.

    Args:
        simple: the type.
        mapping: the type of the mapping.
        noun: the mapping in messages.
        meaning: returns the meaning of a value that the simple type has read.
    """

    def __init__(
        self,
        simple: Type,
        mapping: Struct,
        noun: str = "a mapping",
        meaning: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._simple, self._mapping, self._meaning = simple, mapping, meaning
        self.accepts = (*simple.accepts, dict)
        self.expected = f"{simple.expected}, or {noun}"
        names = simple.json_schema["type"]
        self.json_schema = {
            **simple.json_schema,
            "type": [*([names] if isinstance(names, str) else names), "object"],
            "if": {"type": "object"},
            "then": mapping.json_schema,
        }

    def read_entries(self, form: Any, path: Path, validator: Validator, /) -> Any:
        """Return the meaning of the value or of the mapping."""
        if isinstance(form, dict):
            return self._mapping.read_entries(form, path, validator)
        return self._meaning(self._simple.read(form, path))

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a value of the simple type."""
        return self._simple.suggest(value, text)


ENV_VALUE = _OrMapping(
    types.TEXT,
    struct(mappings.EnvSource, **_one_source("bad-env-source", "variable", "secret", "config_map")),
    "a mapping with a source",
)


def _consistent(toleration: Values) -> None:
    exists = toleration.get("operator") == "Exists"
    if "key" not in toleration and not exists:
        raise Invalid("bad-toleration", "a toleration without key needs operator: Exists")
    if toleration.get("value") and exists:
        raise Invalid("bad-toleration", "a toleration with operator: Exists has no value")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        raise Invalid("bad-toleration", "tolerationSeconds needs effect: NoExecute")


TOLERATION = Struct(
    "Toleration",
    "A Kubernetes toleration, with the keys that it has in a pod's spec.",
    {
        "key": Key(types.LABEL_KEY, "The key of the taint. If absent, the toleration matches all taints.", "dedicated"),
        "operator": Key(Choice("Equal", "Exists"), "Exists ignores the taint's value.", "Exists", default="Equal"),
        "value": Key(types.LABEL_VALUE, "The value of the taint, for the operator Equal.", "training"),
        "effect": Key(
            Choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
            "The effect of the taint. If absent, the toleration matches every effect.",
            "NoSchedule",
        ),
        "tolerationSeconds": Key(types.SECONDS, "The tolerated time in seconds. If absent, unlimited.", 300),
    },
    rule=_consistent,
    rule_schema={
        "anyOf": [{"required": ["key"]}, {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}}],
        "not": {
            "required": ["operator", "value"],
            "properties": {"operator": {"const": "Exists"}, "value": {"minLength": 1}},
        },
        "if": {"required": ["tolerationSeconds"]},
        "then": {"required": ["effect"], "properties": {"effect": {"const": "NoExecute"}}},
    },
)


def _spread_or_pack(topology: Values) -> None:
    if ("spread" in topology) == ("pack" in topology):
        message = "tasks can't be spread and packed at once" if "pack" in topology else "this topology has no rule"
        raise Invalid("bad-topology", message, "expected exactly one of spread and pack")


class _Words(List):
    """The words of a program."""

    absent = None  # a job without program has servers

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the program."""
        words = super().read_entries(entries, path, validator)
        if words[0] is not None and not words[0].strip():
            raise Invalid("bad-program", "the program has no name", "expected a Python file, or a command of the image")
        return programs.Program(words)


PROGRAM = _Words(types.TEXT, minimum=1)


class _Ends(Container):
    """The ends after which programs run again: a word, or a list of exit codes."""

    accepts = (str, list)
    _words, _codes = Choice(*programs.RESTART_ON), List(types.EXIT_CODE, minimum=1)
    expected = f"{_words.expected}, or a list of exit codes"
    json_schema = {  # noqa: RUF012 - nobody changes it
        **_codes.json_schema,
        "type": ["string", "array"],
        "if": {"type": "string"},
        "then": {"enum": list(programs.RESTART_ON)},
    }

    def read_entries(self, value: Any, path: Path, validator: Validator, /) -> Any:
        """Return the word, or the exit codes."""
        if isinstance(value, str):
            return self._words.read(value, path)
        return self._codes.read_entries(value, path, validator)

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a single exit code as a list."""
        return f"write [{text}]" if isinstance(value, int) else None


RUN = struct(programs.RunPolicy, {"ENDS": _Ends()}, title="Run")
SCRIPT = struct(ScriptResources)
TOPOLOGY = struct(
    mappings.Topology,
    rule=_spread_or_pack,
    rule_schema={"oneOf": [{"required": ["spread"]}, {"required": ["pack"]}]},
)


def _sleeps_before_end(limits: Values) -> None:
    if not limits:
        raise Invalid("empty", "idle has no limit", "expected suspend, remove, or both")
    if "remove" in limits and limits.get("suspend", 0) >= limits["remove"]:
        raise Invalid("bad-idle", "the cluster would be removed before it is suspended", "suspend has to be shorter")


def _idle(**limits: Any) -> int | mappings.IdleLimits:
    """Return the limits, or the seconds until the removal if there is no other limit."""
    return mappings.IdleLimits(**limits) if "suspend" in limits else int(limits["remove"])


IDLE = _OrMapping(
    types.DURATION,
    struct(mappings.IdleLimits, rule=_sleeps_before_end, rule_schema={"minProperties": 1}, make=_idle),
)


def _pods_or_addresses(peer: Values) -> None:
    pods = "namespace" in peer or "pods" in peer
    if "cidr" in peer and pods:
        raise Invalid("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
    if "except" in peer and "cidr" not in peer:
        raise Invalid("bad-peer", "except needs cidr, the range that it leaves addresses out of", "expected cidr")
    if "cidr" not in peer and not pods:
        raise Invalid("bad-peer", "this entry selects no pods and no addresses", "expected namespace, pods or cidr")


_PEER_RULE = {
    "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}, {"required": ["cidr"]}],
    "not": {
        "allOf": [
            {"anyOf": [{"required": ["cidr"]}, {"required": ["except"]}]},
            {"anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}]},
        ]
    },
}


def _peers(kind: type[mappings.Source]) -> Struct:
    more = {
        "PEER_LABELS": Map(types.LABEL_KEY, types.LABEL_VALUE, minimum=1),
        "CIDRS": List(types.CIDR, minimum=1),
        "PORTS": List(types.PORT, minimum=1),
    }
    return struct(kind, more, rule=_pods_or_addresses, rule_schema=_PEER_RULE)


SOURCE, DESTINATION = _peers(mappings.Source), _peers(mappings.Destination)


def _names_readers(metrics: Values) -> None:
    if not metrics:
        raise Invalid("empty", "metrics names nobody who may read them", "expected from, or metrics: true")


METRICS = _OrMapping(
    types.BOOLEAN,
    struct(
        mappings.Metrics, {"SOURCES": List(SOURCE, minimum=1)}, rule=_names_readers, rule_schema={"minProperties": 1}
    ),
    meaning=lambda serves: mappings.Metrics() if serves else None,
)


def _one_place() -> dict[str, Any]:
    """Return the rule of a history, as `_one_source` does: what only a bucket has is of no use to a claim."""
    places = _one_source("bad-history", "history", "claim", "bucket")

    def rule(values: Values) -> None:
        places["rule"](values)
        for key in ("endpoint", "secret"):
            if "claim" in values and key in values:
                raise Invalid("bad-history", f"{key} has no effect on a claim", "expected bucket beside it")
        if "endpoint" in values and values["bucket"].startswith("gs:"):
            raise Invalid("bad-history", "a gs:// bucket has no other endpoint", "expected an s3:// bucket beside it")
        if "[" in (endpoint := values.get("endpoint", "")):
            _require_ipv6(endpoint.partition("[")[2].partition("]")[0])

    of_bucket = {
        "dependentRequired": {key: ["bucket"] for key in ("endpoint", "secret")},
        "if": {"required": ["endpoint"]}, "then": {"properties": {"bucket": {"pattern": "^s3:"}}},
    }  # fmt: skip
    return {"rule": rule, "rule_schema": places["rule_schema"] | of_bucket}


def _require_ipv6(text: str) -> None:
    import ipaddress  # few job files have one

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise Invalid("bad-endpoint", f"[{text}] is no IPv6 address", "such as [2001:db8::1]") from None


HISTORY = struct(mappings.SharedHistory, **_one_place())
NETWORK = struct(mappings.Network, {"SOURCES": List(SOURCE), "DESTINATIONS": OptionalList(DESTINATION)})
SECURITY = struct(mappings.Security)
