"""The price of what tasks request, by rates an hour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfk8s.core.resources import CPU, MEMORY, Resources

EXAMPLE = "currency: EUR\ncpu: 0.03\nmemory: 0.004\ngpus: {nvidia-l4: 0.6}\nspot: {cpu: 0.01, gpus: {nvidia-l4: 0.2}}\n"
_SPOT = "spot/"  # begins the name of an amount on spot nodes
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_MOST = 1e6  # an hour
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a cluster's tasks.

    Attributes:
        amount: the sum for an hour.
        currency: its code, such as "EUR".
        unknown: the names of GPUs that the sum lacks, because no rate is known.
    """

    amount: float
    currency: str
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        without = f", without {', '.join(self.unknown)}: no rate is known" if self.unknown else ""
        return f"{money(self.amount, self.currency)} an hour{without}"


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of an hour of what tasks request.

    Attributes:
        currency: its code, such as "EUR".
        rates: of a core, a GiB and a GPU by the names of `billed`. Without a rate of its own, an amount on spot nodes
            has the rate of other nodes.
    """

    currency: str
    rates: Mapping[str, float]

    def price(self, amounts: Resources) -> Price:
        """Return the price of amounts that `billed` has named."""
        total, unknown = 0.0, []
        for name, amount in amounts.amounts.items():
            rate = self.rates.get(name, self.rates.get(name.removeprefix(_SPOT)))
            if rate is None:
                unknown.append(name.removeprefix(_SPOT))
            else:
                total += rate * float(amount) / (_GIB if name.removeprefix(_SPOT) == MEMORY else 1)
        return Price(total, self.currency, tuple(dict.fromkeys(unknown)))


def billed(requests: Resources, accelerator: str | None, *, is_spot: bool) -> Resources:
    """Return amounts under the names that rates have.

    Args:
        requests: under the names of Kubernetes' resources.
        accelerator: the model of all GPUs; None keeps the name of their resource.
        is_spot: whether the nodes are spot nodes.
    """
    prefix = _SPOT if is_spot else ""
    parts = requests.amounts.items()
    return Resources({prefix + (name if name in (CPU, MEMORY) else accelerator or name): part for name, part in parts})


def parse(plain: object) -> Rates:
    """Return the rates in the plain data of a file as `EXAMPLE`.

    Raises:
        ValueError: a part is wrong; the text names the part.
    """
    values = _mapping(plain, "", ("currency", "cpu", "memory", "gpus", "spot"))
    currency = values.get("currency")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise ValueError("currency: expected three capital letters, such as EUR")
    spot = _mapping(values.get("spot", {}), "spot", ("cpu", "memory", "gpus"))
    rates = {CPU: 0.0, MEMORY: 0.0, **dict(_rates(values, ""))}
    return Rates(currency, {**rates, **{_SPOT + name: rate for name, rate in _rates(spot, "spot.")}})


def money(amount: float, currency: str) -> str:
    """Return an amount for people, such as "3.62 EUR"; of less than 1, up to four digits: "0.0152 EUR"."""
    if amount >= 1:
        return f"{amount:,.2f} {currency}"
    whole, _, digits = f"{amount:.4f}".partition(".")
    return f"{whole}.{digits[:2]}{digits[2:].rstrip('0')} {currency}"


def _rates(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name in (CPU, MEMORY):
        if name in values:
            yield name, _rate(values[name], f"{prefix}{name}")
    for name, rate in _mapping(values.get("gpus", {}), f"{prefix}gpus").items():
        yield name, _rate(rate, f"{prefix}gpus.{name}")


def _rate(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        raise ValueError(f"{where}: expected a price an hour, such as 0.03")
    return float(value)


def _mapping(value: object, where: str, keys: tuple[str, ...] = ()) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where or 'the file'}: expected keys and values")
    strange = [key for key in value if keys and key not in keys]
    if strange:
        raise ValueError(f"{where and where + '.'}{strange[0]}: expected one of {', '.join(keys)}")
    return value
