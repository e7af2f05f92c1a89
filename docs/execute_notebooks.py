"""Execute the notebooks in place, on an idle machine: `python docs/execute_notebooks.py [NAME ...]`, by default all.

All of them in one go, so that what two of them measure is measured on the same machine on the same day. Figures are
saved as SVG. notebooks/data gets what the figures show. Needs `pip install -e '.[notebooks]'`; takes about 15 minutes
on two cores.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
CONFIG = """c = get_config()
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.rc = {"svg.hashsalt": "d2lmgpu"}
"""


def execute(path):
    """Run a notebook's cells, and save it with their outputs. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=where, store_widget_state=False).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    nbformat.write(notebook, path)


def main(names):
    paths = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    if unknown := [name for name in names if name not in paths]:
        sys.exit(f"no such notebook: {', '.join(unknown)}; give names without .ipynb, or none for all")
    if os.environ.get("D2LMGPU_QUICK"):
        sys.exit("D2LMGPU_QUICK is set, which shortens runs; unset it")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile_default"
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text(CONFIG)
        os.environ["IPYTHONDIR"] = folder
        for path in [paths[name] for name in names or paths]:
            begin = time.perf_counter()
            execute(path)
            print(f"{path.stem}: {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
