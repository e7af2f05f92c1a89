"""One reader of plans: a page that plays in a browser, who does what when, and who holds how much."""

from ..arguments import check_path
from ..player import write_page
from .draw import FILLS, MESSAGE_NAMES, MESSAGES, NAMES, have_several_stages, kind_of, label_of, title_of
from .simulate import simulate


def write_html(plan, file, network=None, costs=None, batch_size=256, optimizer="sgd", dtype="float32", company=(1,)):
    """Write one HTML file that plays the plan in time, as `simulate` tells it, which has the same arguments and errors.

    It needs nothing but a browser. Raises OSError if the file cannot be written.
    """
    check_path("file", file)
    simulation = simulate(plan, network, costs, batch_size, optimizer, dtype, company)
    write_page(film_of(plan, simulation, in_seconds=costs is not None or network is not None), file)


def film_of(plan, simulation, in_seconds):
    """The film of a plan that was timed: a dict as `player` describes it."""
    kinds = {kind_of(event.action) for event in simulation.events}
    values = {message.action.value for message in simulation.messages}
    with_stage = have_several_stages(plan)
    return {
        "title": title_of(plan),
        "unit": "s" if in_seconds else "",
        "end": float(simulation.seconds),
        "facts": _facts(plan, simulation),
        "devices": [f"device {i}" for i in range(plan.k)],
        "kinds": {kind: [NAMES[kind], FILLS[kind]] for kind in FILLS if kind in kinds},
        "ways": {value: [MESSAGE_NAMES[value], MESSAGES[value]] for value in MESSAGES if value in values},
        "events": [
            [
                list(e.devices),
                kind_of(e.action),
                label_of(e.action, with_stage),
                str(e.action),
                float(e.start),
                float(e.end),
            ]
            for e in simulation.events
        ],
        "messages": [
            [m.source, m.destination, m.action.value, str(m.action), int(m.nbytes), float(m.start), float(m.end)]
            for m in simulation.messages
        ],
        "marks": [],
        "chart": {
            "name": "memory",
            "lines": [[[float(time), int(nbytes)] for time, nbytes in line] for line in simulation.memory],
        },
        "holds": None,
    }


def _facts(plan, simulation):
    least, most = (f"{part:.0%}" for part in (min(simulation.utilisation), max(simulation.utilisation)))
    layers = f"{len(plan.network)} layers in {len(plan.stages)} stage" + ("s" if len(plan.stages) > 1 else "")
    return [
        ["network", layers],
        ["bubble", f"{simulation.bubble:.1%}"],
        ["devices compute", (least if least == most else f"{least} to {most}") + " of the time"],
        ["most memory of a device", f"{max(simulation.peak):,} bytes"],
        ["most sent by a device", f"{max(simulation.sent):,} bytes"],
    ]
