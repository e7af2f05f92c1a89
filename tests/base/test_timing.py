"""Spans of work, by device: what they say, what they leave alone, and how they are written and drawn."""

import json
import sys
import threading
import time
import types

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.devices.timeline import PHASES, Span, Timeline, chrome_trace, span
from d2lmgpu.pictures.plots import plot_timeline


def work(seconds, name="forward"):
    with span(name):
        time.sleep(seconds)


def test_spans_are_of_the_device_that_works(make_devices):
    """Of no other, nor of other threads, nor outside of the measurement; who reads them waits for devices."""
    one, other = make_devices(2)
    with Timeline([one, other], spans=True) as timeline:
        begin = time.perf_counter()
        with span("data"):
            pass
        d2l.cpu(7).run(work, 0).result()  # a device that is not measured
        thread = threading.Thread(target=work, args=(0,))
        thread.start()
        thread.join()
        one.run(work, 0.02)
        other.run(work, 0.01, "update")
        one.run(work, 0.03)
        found = {(s.row, s.name) for s in timeline.all_spans()}
        elapsed = time.perf_counter() - begin
        phases = timeline.phases(elapsed)
    one.run(work, 0).result()
    work(0)
    assert found == {("host", "data"), (str(one), "forward"), (str(other), "update")}
    assert len(timeline.all_spans()) == 4 and tuple(phases) == PHASES
    assert 0.025 <= phases["forward"] <= elapsed / 2 and 0.005 <= phases["update"]  # means over two devices
    assert phases["backward"] == phases["allreduce"] == 0
    assert sum(phases[name] for name in PHASES if name != "data") == pytest.approx(elapsed)
    first, second = [s for s in timeline.all_spans() if s.row == str(one)]
    assert 0 <= first.begin < first.end <= second.begin < second.end <= elapsed + 1


def test_a_device_is_measured_once_at_a_time():
    with Timeline([d2l.cpu(0)]):
        with pytest.raises(RuntimeError, match=r"cpu\(0\) is being measured already"):
            Timeline([d2l.cpu(0)]).__enter__()
        with Timeline([d2l.cpu(1)]):
            pass
    with Timeline([d2l.cpu(0)]):
        pass


def clocked(spans, devices):
    """A `Timeline` of spans at made-up times, (device, name, begin, end)."""
    timeline = Timeline(devices, spans=True)
    timeline.begin = 0.0
    for arguments in spans:
        timeline.add(*arguments)
    return timeline


def test_a_part_of_a_span_is_not_counted_twice():
    one, other = d2l.cpu(0), d2l.cpu(1)
    spans = [(one, "forward", 1, 2), (one, "forward", 2, 4), (one, "evaluate", 1, 6), (one, "backward", 5.5, 7)]
    timeline = clocked([*spans, (other, "backward", 0, 2), (other, "mine", 2, 3), (None, "data", 0, 9)], [one, other])
    phases = timeline.phases(10)
    assert (phases["forward"], phases["backward"], phases["data"]) == (0, 1.5, 9)
    assert phases["waiting"] == (4 + 7) / 2
    assert timeline.utilisation(10) == {"cpu(0)": 0.6, "cpu(1)": 0.3}
    assert len(timeline.all_spans()) == 7


def test_an_overlapped_allreduce_counts_where_a_device_did_nothing_else():
    devices = [d2l.cpu(0), d2l.cpu(1)]
    spans = [(devices[0], "backward", 0, 4), (devices[0], "update", 5, 6), (devices[0], "update", 8, 9)]
    spans += [(devices[0].comm_stream, "allreduce", begin, end) for begin, end in ((1, 2), (3, 5.5), (5.5, 7), (7, 9))]
    timeline = clocked([*spans, (devices[1].comm_stream, "allreduce", 2, 3)], devices)
    phases = timeline.phases(10)
    assert phases["allreduce"] == (1 + 1 + 1 + 1) / 2  # 4 to 5, 6 to 7, 7 to 8; and 2 to 3 of the other
    assert (phases["backward"], phases["update"], phases["waiting"]) == (2, 1, 5)


def test_what_is_left_out_is_in_no_sum():
    (device,) = devices = [d2l.cpu(0)]
    timeline = clocked([(device, "forward", 0, 4), (None, "data", 0, 1)], devices)
    timeline.leave_out()
    timeline.add(device, "forward", 5, 6)
    timeline.settle()
    timeline.add(device, "backward", 6, 9)
    timeline.leave_out()
    assert timeline.phases(2) == dict.fromkeys(PHASES, 0) | {"forward": 1, "waiting": 1}
    assert timeline.utilisation(2) == {"cpu(0)": 0.5} and len(timeline.all_spans()) == 4


def test_work_of_several_devices_that_one_launches():
    devices = [d2l.cpu(i) for i in range(3)]
    timeline = clocked([(devices[0], "step", 0, 4, devices[:2]), (devices[2], "forward", 1, 2)], devices)
    assert timeline.utilisation(8) == {"cpu(0)": 0.5, "cpu(1)": 0.5, "cpu(2)": 0.125}
    assert timeline.phases(8)["step"] == pytest.approx(8 / 3)


SPANS = [Span("host", "data", 0.0, 0.001)] + [
    Span(f"cpu({i})", name, step + begin, step + begin + 0.2)
    for step in range(5)
    for i in (0, 1)
    for name, begin in (("forward", 0.1), ("backward", 0.3), ("allreduce", 0.5 + 0.05 * i), ("update", 0.75))
]


def test_a_chrome_trace():
    trace = json.loads(json.dumps(chrome_trace(SPANS)))
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert list(names.values()) == ["host", "cpu(0)", "cpu(1)"]
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(SPANS) and all(e["pid"] == 0 for e in events)
    assert (names[events[-1]["tid"]], events[-1]["name"]) == ("cpu(1)", "update")
    assert (events[-1]["ts"], events[-1]["dur"]) == pytest.approx((4.75e6, 0.2e6))


def test_a_plot_of_a_few_steps():
    axes = plot_timeline(SPANS, steps=2).axes[0]
    assert axes.get_xlim() == pytest.approx((0, 2000))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["host", "cpu(0)", "cpu(1)"]
    assert len(axes.patches) == 2 * 2 * 4  # steps, devices, phases
    assert min(patch.get_x() for patch in axes.patches) == pytest.approx(150)
    assert len(plot_timeline(SPANS[:9]).axes[0].patches) == 9  # fewer steps than asked for: all of them
    early, late = Span("cpu(0)", "forward", 1.9, 2.0), Span("cpu(1)", "forward", 3.9, 4.05)
    cut = plot_timeline([*SPANS, early, late], steps=2).axes[0].patches[-2:]  # the window is from 1.95 to 3.95
    assert [(patch.get_x(), patch.get_width()) for patch in cut] == [pytest.approx(p) for p in ((0, 50), (1950, 50))]
    assert plot_timeline([]).axes


@pytest.mark.parametrize("lasts, shown", [([9, 9, 2, 3, 2, 3, 40], 5000), ([9, 9, 40, 1, 2, 4], 6000)])
def test_a_plot_shows_usual_steps(lasts, shown):
    """Neither the slowest pair of steps nor the fastest, wherever the interruption is; the first two are left out.

    With overlap a device updates twice in a step.
    """
    for names in (["forward", "update"], ["forward", "update", "update"]):
        spans = []
        for end, last in zip(np.cumsum(lasts), lasts, strict=True):
            times = np.linspace(end - last, end, len(names) + 1)
            spans += [
                Span(f"cpu({i})", *each) for each in zip(names, times[:-1], times[1:], strict=True) for i in (0, 1)
            ]
        axes = plot_timeline(spans, steps=2).axes[0]
        assert axes.get_xlim() == pytest.approx((0, shown)) and len(axes.patches) == 2 * 2 * len(names)


def test_spans_of_a_gpu_are_as_precise_in_a_long_run(standin, monkeypatch):
    """CUDA tells milliseconds between two events as float32: an hour after the start they are 0.25 ms apart."""
    now = [0.0]
    monkeypatch.setattr("standin_streams.time.perf_counter", lambda: now[0])

    def compute():
        for seconds in (2e-5, 3e-5):
            with span("forward"):
                now[0] += seconds
            now[0] += 1e-5

    device = d2l.gpu(0)
    with Timeline([device], spans=True) as timeline:
        for start in (0, 3600, 7200):
            now[0] = start + 0.1234567
            device.run(compute).result()
            device.synchronize()
            timeline.settle()
    spans = timeline.all_spans()
    assert [s.end - s.begin for s in spans] == pytest.approx([2e-5, 3e-5] * 3, abs=1e-9)
    apart = [late.begin - early.begin for early, late in zip(spans[::2], spans[1::2], strict=True)]
    assert apart == pytest.approx([3e-5] * 3)


def test_devices_on_one_card_have_one_clock(standin, monkeypatch):
    """However late the program learns of an event: what comes first on a card also begins first."""
    devices = [d2l.gpu(i) for i in (0, 1, 2, 3)]
    assert [device.card for device in devices] == [0, 1, 0, 1]
    learned = iter([5.0, 3.0, 1.0, 0.0])
    start_clock = type(devices[0]).start_clock
    monkeypatch.setattr(type(devices[0]), "start_clock", lambda self: (start_clock(self)[0], next(learned)))
    with Timeline(devices, spans=True) as timeline:
        for device in devices:
            device.run(work, 0).result()
    begins = {found.row: found.begin for found in timeline.all_spans()}
    assert begins["gpu(0)"] < begins["gpu(2)"] < begins["gpu(0)"] + 1
    assert begins["gpu(1)"] < begins["gpu(3)"] < begins["gpu(1)"] + 1


def test_the_clock_is_set_by_the_event_that_the_program_learned_of_soonest(standin, monkeypatch):
    seconds = iter(np.cumsum([0, 9, 0, 2, 0, 5] + [0, 7] * 20).tolist())
    program = types.SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr(sys.modules["d2lmgpu.devices.gpu"], "time", program)
    device = d2l.gpu(0)
    _, now = device.submit(device.start_clock).result()
    assert now == 11
