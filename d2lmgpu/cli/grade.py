"""``d2lmgpu grade``: grade the answers of many students.

Checks FOLDER/STUDENT/mine.py, or the student's notebooks, for all students. Answers run in the student's folder, in
processes of their own. The exit code is 0 even if answers are wrong.
"""

import argparse
import csv
import io
import signal
import sys
from pathlib import Path

from .. import signals
from ..monitor import say
from ..output import check_folder, each_output, write_file, write_json
from ..words import legible, several
from .options import add_input, add_option, add_output, listed, write_all

COLUMNS = "student", "exercise", "passed", "points", "says"


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "folder", "folder that contains a folder for each student", "FOLDER")
    add_output(command, "--csv", "write a row for each student and exercise")
    add_output(command, "--json", "write the same as JSON")
    hints = "write all verdicts, with hints, to one file per student"
    add_output(command, "--hints", hints, "DIR", check_folder)
    exercises, points = "exercises that count (default: all)", "points for exercises (default: 1 each)"
    command.add_argument("--exercises", type=listed(str), metavar="NAME,...", help=exercises)
    command.add_argument("--points", type=listed(_worth), metavar="NAME=X,...", help=points)
    command.add_argument("--seed", type=int, metavar="N", help="use other numbers and more cases, drawn with this seed")
    add_option(command, "--seconds", float, 20.0, "seconds that an answer may take")


def _worth(text):
    name, equals, points = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be an exercise and its points, such as ring=3")
    return name, float(points)


SIGNALS = (*signals.SIGNALS, *filter(None, [getattr(signal, "SIGHUP", None)]))


@signals.listening(SIGNALS)
def run(options):
    """Say how many of each student's answers are right, and which files cannot be read; at the end, write the marks."""
    from ..exercises.grading import grade

    marks = grade(options.folder, options.exercises, dict(options.points or ()), options.seconds, options.seed)
    if options.hints:
        Path(options.hints).mkdir(parents=True, exist_ok=True)
    rows, students, code = [], 0, 0
    with each_output() as attempt:
        try:
            for mine in marks:
                rows += map(_row, mine)
                students += 1
                _tell(mine)
                if options.hints:
                    attempt(_hint, Path(options.hints), mine)
        except KeyboardInterrupt:
            if not rows or not (options.csv or options.json):
                raise
            code = signals.exit_code()
        files = (options.csv, _write_table, rows), (options.json, write_json, rows)
        attempt(write_all, *[(path, *what) for path, *what in files if path])
    if code:
        say(f"d2lmgpu grade: interrupted; the marks of {several(students, 'student')} are written", file=sys.stderr)
    return code


def _row(mark):
    row = mark._asdict() | {"student": legible(mark.student), "says": legible(mark.says.partition("\n")[0])}
    return {name: row[name] for name in COLUMNS}


def _tell(marks):
    right = sum(mark.passed for mark in marks)
    points = sum(mark.points for mark in marks)
    print(f"{legible(marks[0].student)}: {right} of {len(marks)} right, {points:g} points")
    for note in marks[0].notes:
        print(f"  {legible(note)}")


def _hint(folder, marks):
    """Write all verdicts on a student's answers to a file."""
    notes = [note for note in marks[0].notes if not any(note in mark.says for mark in marks)]
    text = "\n\n".join([*notes, *(mark.says for mark in marks)]) + "\n"
    file = folder / f"{legible(marks[0].student)}.txt"
    write_file(file, lambda opened: opened.write(text.encode("utf-8", "backslashreplace")))


def _write_table(path, rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower(), "points": f"{row['points']:g}"} for row in rows)
    write_file(path, lambda file: file.write(text.getvalue().encode()))
