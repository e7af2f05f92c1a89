"""A plan as an animation over time: `write_html` plays it on a page, and plans.py shows it as a picture.

`play` plays a plan or a schedule in a notebook.

Boxes are computations; messages are arrays that are sent whole, the y and dy of pipelines. Other transfers of a device,
such as those of a collective, form one bar if they follow each other without a pause.
"""

from ..base.arguments import check_whole
from ..base.text import several
from ..collectives.columns import check_steps
from ..plans.plan import COMPUTES, Plan
from ..plans.simulate import simulate
from . import COLOURS
from .player import Player, write_page
from .schedule_films import film_of_schedule

BOXES = {
    "F": ("F: forward", "#9ecae1"),
    "B": ("B: backward", "#fdae6b"),
    "I": ("I: the input's gradient", "#fdae6b"),
    "W": ("W: the weights' gradients", "#a1d99b"),
    "update": ("update", "#969696"),
    "params": ("transfers of parameters", "#756bb1"),
    "grads": ("transfers of gradients", "#de2d26"),
    "y": ("transfers of y", "#17becf"),
    "dy": ("transfers of dy", "#e377c2"),
}
_MESSAGES = {"y": ("y, handed on", COLOURS[0]), "dy": ("dy, handed back", COLOURS[1])}
"""The name and the colour of each kind of message."""
MAX_PIXELS = 10_000


def film_of_plan(plan, network=None, costs=None, **options):
    """The animation of a plan: a dict in the form that `player` describes. Arguments and errors: see `simulate`."""
    simulation = simulate(plan, network, costs, **options)
    return film_of_simulation(plan, simulation, "" if costs is None and network is None else "s")


def film_of_simulation(plan, simulation, unit):
    """The animation of a `PlanSimulation`, whose times are in this ``unit``."""
    arrows, bars = handed_on(simulation), bars_of(simulation)
    kinds = {event.action.what for event in simulation.events} | {kind for _, kind, *_ in bars}
    kinds = {kind: box for kind, box in BOXES.items() if kind in kinds}
    values = {message.action.value[0] for message in arrows}
    computed = {event.action[1:3] for event in simulation.events if event.action.what in COMPUTES}
    with_stage = len(computed) > len({device for device, _ in computed})  # a device computes several stages
    events = [
        [[action.device], action.what, _label(action, with_stage), str(action), float(start), float(end)]
        for _, action, start, end, _ in simulation.events
    ]
    lines = [[[float(time), int(nbytes)] for time, nbytes in line] for line in simulation.memory]
    moved = [[[device], kind, "", kinds[kind][0], start, end] for device, kind, start, end in bars]
    return {
        "title": _title(plan),
        "unit": unit,
        "end": float(simulation.seconds),
        "facts": _facts(plan, simulation),
        "devices": [f"device {i}" for i in range(plan.k)],
        "kinds": kinds,
        "ways": {kind: way for kind, way in _MESSAGES.items() if kind in values},
        "events": events + moved,
        "messages": [[*t[:2], t.value[0], str(t), nbytes, start, end] for _, t, start, end, nbytes in arrows],
        "marks": [],
        "chart": {"name": "memory", "lines": lines},
        "holds": None,
    }


def handed_on(simulation):
    """The messages that carry a whole y or dy."""
    return [message for message in simulation.messages if _is_whole(message.action.value, simulation)]


def _is_whole(value, simulation):
    return value[0] in ("y", "dy") and value not in simulation.joined


def bars_of(simulation):
    """All other transfers between devices: a list of (device, kind of value, start, end).

    A device's transfers are merged if there is no pause between them.
    """
    spans = {}
    for _, moves, _, starts, ends in simulation.moved:
        travels = (moves.size > 0) & (moves.source != moves.destination) & (not _is_whole(moves.value, simulation))
        for devices in moves.source, moves.destination:
            for device, start, end in zip(devices[travels].tolist(), starts[travels], ends[travels], strict=True):
                spans.setdefault((device, moves.value[0]), []).append((float(start), float(end)))
    bars = []
    for (device, kind), own in spans.items():
        apart = []
        for start, end in sorted(own):
            if apart and start <= apart[-1][1] + 1e-9 * end:
                apart[-1][1] = max(end, apart[-1][1])
            else:
                apart.append([start, end])
        bars += [(device, kind, start, end) for start, end in apart]
    return bars


def _title(plan):
    """ "1f1b: 4 devices, 8 micro-batches"."""
    return f"{plan.name}: {several(plan.k, 'device')}, {several(plan.micro_batches, 'micro-batch')}"


def _label(action, with_stage):
    """ "F3", or "F3 s1" with the stage; nothing for an update."""
    if action.what not in COMPUTES:
        return ""
    return f"{action.what}{action.micro_batch}" + (f" s{action.stage}" if with_stage else "")


def _facts(plan, simulation):
    least, most = (f"{part:.0%}" for part in (min(simulation.utilisation), max(simulation.utilisation)))
    return [
        ["network", f"{len(plan.network)} layers in {several(len(plan.stages), 'stage')}"],
        ["bubble", f"{simulation.bubble:.1%}"],
        ["devices compute", (least if least == most else f"{least} to {most}") + " of the time"],
        ["most memory of a device", f"{max(simulation.peak):,} bytes"],
        ["most sent by a device", f"{max(simulation.sent):,} bytes"],
    ]


def write_html(plan, file, network=None, costs=None, **options):
    """Write an HTML file that animates the plan as computed by `simulate`, with the same arguments and errors.

    The file needs only a browser. Raises OSError if it cannot be written.
    """
    write_page(film_of_plan(plan, network, costs, **options), file)


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
        height = check_whole("height", height, most=MAX_PIXELS)
    if isinstance(schedule_or_plan, Plan):
        return Player(film_of_plan(schedule_or_plan, network, **options), height)
    schedule = [step for step, _ in check_steps(schedule_or_plan)]
    named = [(max(t.source, t.destination) + 1, t.stop) for step in schedule for t in step]
    options = dict(zip("kn", map(max, zip(*named, (1, 0), strict=True)), strict=True)) | options
    return Player(film_of_schedule(schedule, network=network, **options), height)
