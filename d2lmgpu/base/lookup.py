"""Names that a room offers, but that a room above it defines: they are looked up when somebody asks for them."""

import importlib


def looked_up(package, above):
    """The functions ``__getattr__`` and ``__dir__`` of a package, by which it offers names of modules above it.

    ``above``: by module, relative to the package, the names in it.
    """
    module_of = {name: module for module, names in above.items() for name in names.split()}

    def look_up(name):
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name], package), name)

    def names():
        return sorted({*vars(importlib.import_module(package)), *module_of})

    return look_up, names
