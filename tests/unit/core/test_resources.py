from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.quantity import Quantity
from tfk8s.core.resources import NOTHING, Resources, amount_text, named, total
from tfk8s.core.spec import Job, JobFile

amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(1, 10**12).map(Decimal))


@given(amounts.map(Resources), amounts.map(Resources), st.integers(0, 10))
def test_sums(one: Resources, other: Resources, count: int) -> None:
    assert one + other == other + one
    assert one + other - other == one
    assert total([(one, count), (other, 1)]) == one * count + other
    assert one * 0 == NOTHING


def test_what_a_job_file_names() -> None:
    worker = Job(name="worker", tasks=3, cpu=Quantity.parse("500m"), gpus=2)
    ps = Job(name="ps", tasks=2, memory=Quantity.parse("1.5Gi"), gpus=1, gpu_resource="amd.com/gpu")
    found = named(JobFile(name="a", jobs=(worker, ps), master="worker"))
    assert found == Resources.parse({"cpu": "1.5", "memory": "3Gi", "nvidia.com/gpu": "6", "amd.com/gpu": "2"})
    assert str(found) == "1500m cpu, 6 nvidia.com/gpu, 3Gi memory, 2 amd.com/gpu"
    assert (found.gpus, found.cells) == (8, ("1500m", "3Gi", "8"))
    assert NOTHING.cells == ("", "", "")


AMOUNTS = [
    ("cpu", "4k", "4000"),
    ("cpu", "0.25", "250m"),
    ("memory", "9Ti", "9Ti"),
    ("memory", "1536Mi", "1536Mi"),
    ("memory", "8135656Ki", "7944Mi"),
    ("memory", "1000", "1000"),
    ("nvidia.com/gpu", "16", "16"),
]


def test_amounts_in_a_job_files_units() -> None:
    for name, amount, text in AMOUNTS:
        assert amount_text(name, Quantity.parse(amount).value) == text, name
