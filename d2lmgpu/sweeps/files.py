"""A checkpoint for each trial: an interrupted trial resumes from it, and in the end it is the model that is kept.

    models/                  keep_models, or sweep.json.trials beside the results sweep.json
        3f2a91c4d0.ckpt      written after every epoch; its name depends on the trial's settings and the data

A file is removed when its trial has ended, unless models are kept. The file of a failed trial stays, and the next sweep
that includes this trial resumes from it.
"""

import contextlib
import hashlib
import json
from pathlib import Path

from ..arguments import check_path
from ..locks import holding, target
from ..output import check_apart, check_folder
from .results import FINISHED
from .trials import identity


class TrialFiles:
    """The checkpoints of trials on ``data`` (checksums, or None) in ``folder``, which is None if none are written."""

    def __init__(self, folder, keep, data):
        self._folder, self._keep, self._data = folder, keep, data

    def path(self, settings):
        """The absolute path of the trial's file, since a worker may run in another folder; None if there is none."""
        return None if self._folder is None else str(target(self._file(settings)))

    def with_model(self, row):
        """The row of a finished trial, with the location of its model if that is kept."""
        if not self._keep or row["status"] != "done":
            return row
        file = self._file(row["settings"])
        return row | {"model": str(file) if file.exists() else None}

    def lack(self, row):
        """Whether a finished trial must be done again because its model should be kept but is not there."""
        return self._keep and row["status"] == "done" and self.with_model(row)["model"] is None

    def remove(self, row):
        """Remove the file of a trial whose row is kept, unless a later sweep needs it."""
        needed = row["status"] not in FINISHED or (self._keep and row["status"] == "done")
        if self._folder is not None and not needed:
            self._file(row["settings"]).unlink(missing_ok=True)

    def _file(self, settings):
        trial = json.dumps([identity(settings), self._data], sort_keys=True)
        return self._folder / f"{hashlib.sha256(trial.encode()).hexdigest()[:10]}.ckpt"


@contextlib.contextmanager
def trial_files(keep_models, results, data):
    """Yield the `TrialFiles` of a sweep that keeps its models in a folder, or its ``results`` in a file, or neither.

    Raises OSError if the folder cannot be written to, if it is a file, or if another sweep writes into it; ValueError
    if the folder is the file of results.
    """
    keep = keep_models is not None
    if not keep and results is None:
        yield TrialFiles(None, keep, data)
        return
    if keep:
        check_path("keep_models", keep_models)
    check_apart({"keep_models": keep_models, "results": results}, {})
    folder = Path(keep_models) if keep else Path(f"{results}.trials")
    check_folder(folder)
    with holding(folder / "sweep"):
        yield TrialFiles(folder, keep, data)
    if not keep:
        with contextlib.suppress(OSError):  # the folder is not empty, apart from files that killed programs left
            for file in folder.glob(".*"):
                file.unlink()
            folder.rmdir()
