"""Programs of the notebooks that need what may be missing: run, or told from a record."""

import pytest

from d2lmgpu.exercises.recorded import run_or_recall

RECORD = "recorded on a day with this and that):\n11\n"


def test_a_program_runs_where_it_can(capsys):
    said = run_or_recall("import sys; print(sys.argv[1:])", 3, "x", record=RECORD, needs=["numpy"])
    assert said == "['3', 'x']" and capsys.readouterr().out == said + "\n"


@pytest.mark.parametrize(
    "options, why",
    [
        ({"needs": ["numpy", "no_such_module"]}, "(not installed here: no_such_module; recorded on a day"),
        ({"needs": [], "run": False}, "(skipped in the quick setting; recorded on a day"),
        ({"needs": [], "processes": 2}, "(not installed here: mpiexec; recorded on a day"),
    ],
)
def test_a_record_stands_in(options, why, capsys, monkeypatch):
    monkeypatch.setattr("d2lmgpu.exercises.recorded._find", lambda name: None)
    assert run_or_recall("raise SystemExit('never')", record=RECORD, **options) == RECORD
    out = capsys.readouterr().out
    assert out.startswith(why) and out.endswith("\n11\n") and "never" not in out


def test_a_run_that_fails(capsys):
    program = "import sys; print('half', flush=True); sys.exit('bad luck')"
    assert run_or_recall(program, record=RECORD, needs=[]) == RECORD
    out = capsys.readouterr().out
    assert out.startswith("half\nbad luck\n(this run failed, with exit code 1; recorded on a day")
    assert out.endswith("11\n")
    assert run_or_recall(program, record=RECORD, needs=[], fails=True) == "half\nbad luck"


def test_a_program_that_does_not_end(capsys):
    program = "import time; print('begun', flush=True); time.sleep(1000)"
    assert run_or_recall(program, record=RECORD, needs=[], seconds=0.1) == RECORD
    assert "(stopped: it was still running after 0.1 seconds)" in capsys.readouterr().out
