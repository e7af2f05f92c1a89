"""Files that are shipped with the package's code: the notebooks, and Fashion-MNIST."""

from pathlib import Path

SHARE = "share/d2lmgpu"
"""Where setup.cfg puts a clone's folders in the environment into which the package is installed."""


def shipped(name):
    """The path of a folder of the repository: a clone's, or else one that was installed.

    An installer puts it beside the package, or beside a folder around that, such as ``lib/python3.12/site-packages``.
    Where it is nowhere, this is the path that it would have in a clone.
    """
    clone = Path(__file__).resolve().parents[1] / name
    installed = (folder / SHARE / name for folder in list(Path(__file__).parents)[1:5])
    return next((folder for folder in (clone, *installed) if folder.is_dir()), clone)
