"""``d2lmgpu grade``: marks for the answers of many students."""

import argparse
import csv
import io
from pathlib import Path

from ..output import check_writable, write_file, write_json
from .options import add_file, add_option, check_outputs, file_name, keep_apart, listed, number, whole

COLUMNS = "student", "exercise", "passed", "points", "says"


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "grade",
        help="grade the answers of many students",
        description="Check FOLDER/STUDENT/mine.py, or the student's notebooks, for all students. Each answer runs in a "
        "process of its own, in a copy of the student's folder. The exit code is 0 also where answers are wrong.",
    )
    command.set_defaults(command=run)
    command.add_argument("folder", type=file_name, metavar="FOLDER", help="a folder that has one of each student")
    add_file(command, "--csv", "write a row for each student and exercise")
    add_file(command, "--json", "write the same as JSON")
    add_file(command, "--hints", "write all verdicts, with hints, in a file for each student", "DIR")
    command.add_argument(
        "--exercises", type=listed(str), metavar="NAME,...", help="the exercises that count (default: all)"
    )
    command.add_argument(
        "--points", type=listed(_worth), metavar="NAME=X,...", help="what exercises are worth (default: 1 each)"
    )
    command.add_argument("--seed", type=whole, metavar="N", help="try other numbers, and more cases, drawn by a seed")
    add_option(command, "--seconds", number, 20.0, "how long an answer may take")
    add_option(command, "--student-seconds", number, 300.0, "how long all answers of a student may take")


def _worth(text):
    name, equals, points = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be an exercise and its points, such as ring=3")
    return name, number(points)


def run(options):
    """Write the marks, and say how many answers of each student are right."""
    from ..exercises.grading import grade

    keep_apart(options, "csv json hints", {"FOLDER": options.folder})
    check_outputs(options.json)
    if options.csv:
        check_writable(options.csv)
    points = dict(options.points or ())
    limits = {"seconds": options.seconds, "student_seconds": options.student_seconds, "seed": options.seed}
    marks = []
    for mine in grade(options.folder, options.exercises, points, **limits):
        marks += mine
        right = sum(mark.passed for mark in mine)
        print(f"{mine[0].student}: {right} of {len(mine)} right, {sum(mark.points for mark in mine):g} points")
        if options.hints:
            write_file(Path(_folder(options.hints), f"{mine[0].student}.txt"), _writes(_report(mine)))
    rows = [mark._asdict() | {"says": mark.says.partition("\n")[0]} for mark in marks]
    rows = [{name: row[name] for name in COLUMNS} for row in rows]
    if options.csv:
        write_file(options.csv, _writes(_table(rows)))
    if options.json:
        write_json(options.json, rows)
    return 0


def _folder(path):
    Path(path).mkdir(parents=True, exist_ok=True)
    return path


def _report(marks):
    """All that there is to say to one student."""
    parts = [mark.says + (f"\n  It printed: {mark.output.rstrip()}" if mark.output.strip() else "") for mark in marks]
    return "\n\n".join(parts) + "\n"


def _table(rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower(), "points": f"{row['points']:g}"} for row in rows)
    return text.getvalue()


def _writes(text):
    return lambda file: file.write(text.encode("utf-8", "backslashreplace"))
