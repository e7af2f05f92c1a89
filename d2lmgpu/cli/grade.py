"""``d2lmgpu grade``: grade the answers of many students.

Checks FOLDER/STUDENT/mine.py for all students. Answers run in the student's folder, in processes of their own. The exit
code is 0 even if answers are wrong.
"""

import argparse
import csv
import io
import sys

from ..base import signals
from ..base.files import write_file, write_json
from ..base.text import legible
from ..training.monitor import say
from .options import add_input, add_option, add_output, listed_numbers, write_all

COLUMNS = "student", "exercise", "passed", "points", "says"


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "folder", "folder that contains a folder for each student", "FOLDER")
    add_output(command, "--csv", "write a row for each student and exercise")
    add_output(command, "--json", "write the same as JSON")
    exercises, points = "exercises that count (default: all)", "points for exercises (default: 1 each)"
    command.add_argument("--exercises", type=listed_numbers(str), metavar="NAME,...", help=exercises)
    command.add_argument("--points", type=listed_numbers(_worth), metavar="NAME=X,...", help=points)
    add_option(command, "--seconds", float, 20.0, "seconds that an answer may take")


def _worth(text):
    name, equals, points = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be an exercise and its points, such as ring=3")
    return name, float(points)


def run(options):
    """Say how many of each student's answers are right; at the end, or when interrupted, write the marks."""
    from ..exercises.answers import grade

    rows, code = [], 0
    try:
        for marks in grade(options.folder, options.exercises, dict(options.points or ()), options.seconds):
            right, points = sum(mark.passed for mark in marks), sum(mark.points for mark in marks)
            rows += map(_row, marks)
            why = "" if right else f"; the first: {rows[-len(marks)]['says']}"  # perhaps the same for all
            print(f"{legible(marks[0].student)}: {right} of {len(marks)} right, {points:g} points{why}")
    except KeyboardInterrupt:
        say("d2lmgpu grade: interrupted; these are the marks so far", file=sys.stderr)
        code = signals.exit_code()
    write_all((options.csv, _write_table, rows), (options.json, write_json, rows))
    return code


def _row(mark):
    says = legible(" ".join(mark.says.split()))  # in one line, for a spreadsheet
    return mark._asdict() | {"student": legible(mark.student), "says": says}


def _write_table(path, rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower(), "points": f"{row['points']:g}"} for row in rows)
    write_file(path, lambda file: file.write(text.getvalue().encode()))
