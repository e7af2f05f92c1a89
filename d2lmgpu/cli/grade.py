"""``d2lmgpu grade``: grade the answers of many students.

Checks FOLDER/STUDENT/mine.py for all students. Answers run in the student's folder, in processes of their own. The exit
code is 0 even if answers are wrong.
"""

import csv
import io
import sys

from ..base import signals
from ..base.files import write_file
from ..base.text import legible
from ..training.monitor import say
from .options import add_input, add_option, add_output, listed_numbers, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "folder", "folder that contains a folder for each student", "FOLDER")
    add_output(command, "--csv", "write a row for each student and exercise")
    add_option(command, "--exercises", listed_numbers(str), None, "exercises that count (default: all)")
    add_option(command, "--seconds", float, 20.0, "seconds that an answer may take")


def run(options):
    """Say how many of each student's answers are right; at the end, or when interrupted, write the marks."""
    from ..exercises.answers import grade

    rows, code = [], 0
    try:
        for marks in grade(options.folder, options.exercises, options.seconds):
            right = sum(mark.passed for mark in marks)
            rows += map(_row, marks)
            why = "" if right else f"; the first: {rows[-len(marks)]['says']}"  # perhaps the same for all
            print(f"{legible(marks[0].student)}: {right} of {len(marks)} right{why}")
    except KeyboardInterrupt:
        say("d2lmgpu grade: interrupted; these are the marks so far", file=sys.stderr)
        code = signals.exit_code()
    write_results(options, rows, (options.csv, _write_table, rows))
    return code


def _row(mark):
    says = legible(" ".join(mark.says.split()))  # in one line, for a spreadsheet
    return mark._asdict() | {"student": legible(mark.student), "says": says}


def _write_table(path, rows):
    from ..exercises.answers import Mark

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, Mark._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower()} for row in rows)
    write_file(path, lambda file: file.write(text.getvalue().encode()))
