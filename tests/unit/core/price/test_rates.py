"""Prices by rates, and rates that are wrong."""

from __future__ import annotations

import pytest
import yaml

from tfk8s.core.price.rates import EXAMPLE, Price, billed, money, parse
from tfk8s.core.resources import NOTHING, Resources

RATES = parse(yaml.safe_load(EXAMPLE))


@pytest.mark.parametrize(
    ("requests", "accelerator", "is_spot", "price"),
    [
        ({"cpu": 2, "memory": "10Gi"}, None, False, 0.1),
        ({"cpu": 2, "memory": "10Gi"}, None, True, 0.06),  # memory on spot nodes has no rate of its own
        ({"nvidia.com/gpu": 2}, "nvidia-l4", False, 1.2),
        ({"nvidia.com/gpu": 2}, "nvidia-l4", True, 0.4),
        ({}, None, False, 0.0),
    ],
)
def test_price(requests: dict[str, object], accelerator: str | None, is_spot: bool, price: float) -> None:
    found = RATES.price(billed(Resources.parse(requests), accelerator, is_spot=is_spot))
    assert found.amount == pytest.approx(price)
    assert found.unknown == ()


def test_a_gpu_without_a_rate_is_named() -> None:
    both = billed(Resources.parse({"cpu": 1, "amd.com/gpu": 1}), None, is_spot=False)
    spot = billed(Resources.parse({"amd.com/gpu": 1}), None, is_spot=True)
    assert str(RATES.price(both + spot)) == "0.03 EUR an hour, without amd.com/gpu: no rate is known"


def test_prices_show_with_groups_of_thousands() -> None:
    assert str(Price(12345.678, "USD")) == "12,345.68 USD an hour"
    assert str(RATES.price(NOTHING)) == "0.00 EUR an hour"


@pytest.mark.parametrize(
    ("amount", "text"), [(0.5, "0.50"), (0.0151, "0.0151"), (0.01500001, "0.015"), (0.0004, "0.0004"), (1.0151, "1.02")]
)
def test_small_amounts_have_more_digits(amount: float, text: str) -> None:
    assert money(amount, "EUR") == f"{text} EUR"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "the file: expected keys and values"),
        ("cpu: 1", "currency: expected three capital letters, such as EUR"),
        ("currency: euro", "currency: expected three capital letters, such as EUR"),
        ("{currency: EUR, gpu: 1}", "gpu: expected one of currency, cpu, memory, gpus, spot"),
        ("{currency: EUR, cpu: -1}", "cpu: expected a price an hour, such as 0.03"),
        ("{currency: EUR, cpu: .nan}", "cpu: expected a price an hour, such as 0.03"),
        ("{currency: EUR, cpu: true}", "cpu: expected a price an hour, such as 0.03"),
        ("{currency: EUR, gpus: 1}", "gpus: expected keys and values"),
        ("{currency: EUR, gpus: {1: 1}}", "gpus: expected keys and values"),
        ("{currency: EUR, spot: {memory: x}}", "spot.memory: expected a price an hour, such as 0.03"),
        ("{currency: EUR, spot: {currency: USD}}", "spot.currency: expected one of cpu, memory, gpus"),
    ],
)
def test_wrong_rates(text: str, error: str) -> None:
    with pytest.raises(ValueError) as info:
        parse(yaml.safe_load(text))
    assert str(info.value) == error
