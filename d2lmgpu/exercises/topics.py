"""All exercises, in the order of the notebooks."""

import importlib

from ..arguments import check_name

TOPICS = [
    importlib.import_module(f".{name}", __package__)
    for name in (
        *("places", "layers_by_hand", "splitting", "synchronisation", "training", "collectives", "rates", "weights"),
        *("scaling", "speed", "bugs", "plans", "memory", "machines", "frameworks"),
    )
]
"""The modules with exercises, one for each topic."""

EXERCISES = {name: exercise for topic in TOPICS for name, exercise in topic.EXERCISES.items()}
"""All exercises by name."""


def find(name):
    """The `Exercise` of this name. Raises ValueError if there is none."""
    check_name("exercise", name, EXERCISES)
    return EXERCISES[name]
