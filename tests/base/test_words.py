"""Numbers and names as people read them."""

import d2lmgpu as d2l
from d2lmgpu.base.text import format_seconds, listed, several


def test_one_is_no_plural():
    assert [several(n, "epoch") for n in (0, 1, 2, 60000)] == ["0 epochs", "1 epoch", "2 epochs", "60,000 epochs"]
    assert [several(n, "micro-batch") for n in (1, 2)] == ["1 micro-batch", "2 micro-batches"]


def test_short_times_have_digits_too():
    times = {0: "0.0", 0.0347: "0.035", 0.5: "0.50", 0.999: "1.0", 1: "1.0", 2.24: "2.2", 123.45: "123.5"}
    assert {time: format_seconds(time) for time in times} == times
    assert [format_seconds(time, 2) for time in (0.02071, 0.5, 12.345)] == ["0.0207", "0.500", "12.35"]


def test_many_names_are_no_wall():
    assert listed(d2l.cpu(i) for i in range(8)).count("cpu(") == 8
    assert listed(f"cpu({i})" for i in range(64)) == "cpu(0), cpu(1), ..., cpu(63)"
    assert listed([]) == ""
