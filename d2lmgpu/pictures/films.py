"""The films of schedules, and `play`, which shows the film of a schedule or of a plan in a notebook."""

import numpy as np

from ..base.arguments import check_whole, plain
from ..base.text import several
from ..collectives.columns import check_steps
from ..collectives.simulate import simulate
from ..plans.plan import Plan
from .plans import film_of_plan
from .player import Player, write_page
from .schedules import OPS, named_shares, piece_names, states_of


def play(schedule_or_plan, network=None, height=None, **options):
    """Animate a schedule or a plan in a notebook, as the value of a cell, and in web pages made from the notebook.

    The options for a schedule are those of `collectives.write_html`: itemsize, title, k and n (by default, as many
    devices and elements as the schedule names). The options for a plan are those of `simulate`: costs, batch_size,
    optimizer, dtype. Times are in seconds if there is a ``network`` from `collectives.network`.

    ``height``: the height of the frame, in pixels.

    Nothing is loaded from the internet. JupyterLab shows the animation in trusted notebooks, such as your own.

    Raises ValueError for what is neither a schedule nor a plan; `ScheduleError` or `PlanError`, both of them
    ValueErrors, for a wrong schedule or plan; and TypeError for an option that there is not.
    """
    if height is not None:
        height = check_whole("height", height)
    if isinstance(schedule_or_plan, Plan):
        return Player(film_of_plan(schedule_or_plan, network, **options), height)
    schedule = [step for step, _ in check_steps(schedule_or_plan)]
    transfers = [t for step in schedule for t in step]
    k = max((max(t.source, t.destination) + 1 for t in transfers), default=1)
    n = max((t.stop for t in transfers), default=0)
    return Player(film_of_schedule(schedule, **{"k": k, "n": n, "network": network} | options), height)


def write_html(schedule, k, n, file, network=None, itemsize=4, title="a schedule"):
    """Write an HTML file that animates a schedule for k devices and n elements; it needs nothing but a browser.

    With a ``network``, times are those of `simulate`, for elements of ``itemsize`` bytes; without one, each step takes
    one unit of time. Raises ValueError for anything but a schedule for k devices and n elements, OSError if the file
    cannot be written.
    """
    write_page(film_of_schedule(schedule, k, n, network, itemsize, title), file)


def film_of_schedule(schedule, k, n, network=None, itemsize=4, title="a schedule"):
    """The film of a schedule, as player.py describes it. Arguments and errors are those of `write_html`."""
    k, n, schedule, cuts, states = states_of(schedule, k, n)
    if network is None:
        times = [float(time) for time in range(len(schedule) + 1)]
        spans = [[[time] * len(step), [time + 1] * len(step)] for time, step in zip(times, schedule, strict=False)]
    else:
        simulation = simulate(schedule, network, itemsize)
        times, spans = np.cumsum([network.startup, *simulation.step_seconds]).tolist(), simulation.times
    messages, sent = [], [[[0.0, 0]] for _ in range(k)]
    for number, (step, (starts, ends)) in enumerate(zip(schedule, spans, strict=True), 1):
        for t, start, end in zip(step, starts, ends, strict=True):
            nbytes = int(t.size * plain(itemsize))
            messages.append([t.source, t.destination, t.op, _said(t, number), nbytes, float(start), float(end)])
            sent[t.source].append([float(start), sent[t.source][-1][1] + nbytes])
    total = [line[-1][1] for line in sent]
    shares = [[list(map(named_shares, device)) for device in held] for held in states]
    states = list(zip([0.0, *times[1:]], shares, strict=True))
    return {
        "title": f"{title}: {several(k, 'device')}, {several(n, 'element')}, {several(len(schedule), 'step')}",
        "unit": "" if network is None else "s",
        "end": times[-1],
        "facts": [
            ["network", "none: each step takes one unit of time" if network is None else network.name],
            ["sent in all", f"{sum(total):,} bytes"],
            ["most sent by a device", f"{max(total):,} bytes"],
        ],
        "devices": [f"device {i}" for i in range(k)],
        "kinds": {},
        "ways": {op: way for op, way in OPS.items() if op in {message[2] for message in messages}},
        "events": [],
        "messages": messages,
        "marks": [[time, f"step {number}"] for number, time in enumerate(times[:-1], 1)],
        "chart": {"name": "sent so far", "lines": sent},
        "holds": {"columns": piece_names(cuts), "most": k, "states": states},
    }


def _said(t, number):
    elements = f"element {t.start}" if t.size == 1 else f"elements {t.start} to {t.stop - 1}"
    return f"step {number}: {elements} to device {t.destination}, {'to be added' if t.op == 'add' else 'a copy'}"
