"""What comes with the package besides its code: the notebooks, and Fashion-MNIST."""

from pathlib import Path

SHARE = "share/d2lmgpu"
"""Where setup.cfg puts a clone's folders when the package is installed into an environment."""


def shipped(name):
    """The path of a folder of the repository: in a clone, or else where it was installed.

    An installer puts it beside the package, or beside an enclosing folder such as ``lib/python3.12/site-packages``. If
    it is not found, the result is the path that it would have in a clone.
    """
    clone = Path(__file__).resolve().parents[2] / name
    installed = (folder / SHARE / name for folder in list(Path(__file__).parents)[2:6])
    return next((folder for folder in (clone, *installed) if folder.is_dir()), clone)
