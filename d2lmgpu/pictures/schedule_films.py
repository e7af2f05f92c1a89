"""Turn a schedule into an animated page for a browser, which shows what each device sends and holds."""

import numpy as np

from ..base.arguments import plain
from ..base.text import several
from ..collectives.simulate import simulate
from .player import write_page
from .schedules import OP_COLOURS, named_shares, piece_names, states_of

OPS = {"add": "added where it arrives", "copy": "copied"}


def write_html(schedule, k, n, file, network=None, itemsize=4, title="a schedule"):
    """Write an HTML file that animates a schedule for k devices and n elements; it needs nothing but a browser.

    With a ``network``, times are those of `simulate`, for elements of ``itemsize`` bytes; without one, each step takes
    one unit of time. Raises ValueError for anything but a schedule for k devices and n elements, OSError if the file
    cannot be written.
    """
    write_page(film_of_schedule(schedule, k, n, network, itemsize, title), file)


def film_of_schedule(schedule, k, n, network=None, itemsize=4, title="a schedule"):
    """The animation of a schedule, a dict as `player` describes it. Arguments and errors are those of `write_html`."""
    k, n, schedule, cuts, states = states_of(schedule, k, n)
    simulation = None if network is None else simulate(schedule, network, itemsize)
    begin, each = (0.0, [1.0] * len(schedule)) if network is None else (network.startup, simulation.step_seconds)
    times = [float(time) for time in np.cumsum([begin, *each])]
    messages, sent = [], [[[0.0, 0]] for _ in range(k)]
    for number, step in enumerate(schedule):
        own = [[time] * len(step) for time in times[number : number + 2]]
        own = own if network is None else simulation.times[number]
        for t, start, end in zip(step, *map(list, own), strict=True):
            size = int(t.size * plain(itemsize))
            messages.append([t.source, t.destination, t.op, _said(t, number), size, float(start), float(end)])
            sent[t.source].append([float(start), sent[t.source][-1][1] + size])
    total = [line[-1][1] for line in sent]
    return {
        "title": f"{title}: {several(k, 'device')}, {several(n, 'element')}, {several(len(schedule), 'step')}",
        "unit": "" if network is None else "s",
        "end": times[-1],
        "facts": [
            ["network", "none: each step takes one unit of time" if network is None else network.name],
            ["sent in all", f"{sum(total):,} bytes"],
            ["most sent by a device", f"{max(total):,} bytes"],
            *(_bound(simulation) if network is not None and (states[-1] == 1).all() else ()),  # an allreduce
        ],
        "devices": [f"device {i}" for i in range(k)],
        "kinds": {},
        "ways": {op: [OPS[op], OP_COLOURS[op]] for op in OPS if any(t.op == op for step in schedule for t in step)},
        "events": [],
        "messages": messages,
        "marks": [[time, f"step {number}"] for number, time in enumerate(times[:-1], 1)],
        "chart": {"name": "sent so far", "lines": sent},
        "holds": {"columns": piece_names(cuts), "most": k, "states": _named(states, [0.0, *times[1:]])},
    }


def _bound(simulation):
    if simulation.bound:
        yield [
            "no allreduce is faster than",
            f"{simulation.bound:.3g} s, a factor of {simulation.seconds / simulation.bound:.2f} below",
        ]


def _said(t, number):
    elements = f"element {t.start}" if t.size == 1 else f"elements {t.start} to {t.stop - 1}"
    return f"step {number + 1}: {elements} to device {t.destination}, {'to be added' if t.op == 'add' else 'a copy'}"


def _named(states, times):
    """For each of the ``times``, the devices whose shares of each piece every device holds from then on."""
    return [
        [time, [[list(named_shares(counts)) for counts in device] for device in held]]
        for time, held in zip(times, states, strict=True)
    ]
