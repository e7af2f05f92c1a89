"""All exercises, in the order of the notebooks."""

import importlib

from ..base.arguments import check_name


def _exercises(topic):
    """The exercises of a module, by name: the classes that it defines."""
    module = importlib.import_module(f".{topic}", __package__)
    own = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return {name: kind() for name, kind in own.items() if kind.__module__ == module.__name__}


MODULES = """places layers_by_hand splitting synchronisation training collectives rates weights scaling speed bugs plans
    memory machines""".split()

TOPICS = list(map(_exercises, MODULES))
"""The exercises of each topic, by name. A topic consists of the notebooks that have the same number."""

EXERCISES = {name: exercise for topic in TOPICS for name, exercise in topic.items()}
"""All exercises by name."""


def find(name):
    """The `Exercise` of this name. Raises ValueError if there is none."""
    check_name("exercise", name, EXERCISES)
    return EXERCISES[name]
