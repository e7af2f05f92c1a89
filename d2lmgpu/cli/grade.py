"""``d2lmgpu grade``: marks for the answers of many students."""

import argparse
import contextlib
import csv
import io
import signal
import unicodedata
from pathlib import Path

from .. import terminated
from ..output import check_writable, is_stream, write_file, write_json
from ..words import several
from .options import add_file, add_option, check_outputs, file_name, keep_apart, listed, number, whole
from .outlet import say_last

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
    command.add_argument("--isolate", action="store_true", help="start Python anew for each student")


def _worth(text):
    name, equals, points = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be an exercise and its points, such as ring=3")
    return name, number(points)


SIGNALS = (*terminated.SIGNALS, *filter(None, [getattr(signal, "SIGHUP", None)]))


@terminated.listening(SIGNALS)
def run(options):
    """Write the marks, all anew after each student, and say how many answers of each are right."""
    from ..exercises.grading import grade

    keep_apart(options, "csv json hints", {"FOLDER": options.folder})
    check_outputs(options.json)
    if options.csv:
        check_writable(options.csv)
    points = dict(options.points or ())
    limits = {"seconds": options.seconds, "student_seconds": options.student_seconds, "seed": options.seed}
    marks = grade(options.folder, options.exercises, points, **limits, isolate=options.isolate)
    if options.hints:
        Path(options.hints).mkdir(parents=True, exist_ok=True)
    rows, hints = {}, {}
    try:
        with contextlib.closing(marks):  # which ends what is under way
            for mine in marks:
                rows[mine[0].student] = [_row(mark) for mark in mine]
                _tell(mine)
                if options.hints:
                    _hint(Path(options.hints), mine, hints)
                _write(options, rows, over=False)
    except KeyboardInterrupt:
        if not rows or not (options.csv or options.json):
            raise
        _write(options, rows, over=True)
        say_last(f"d2lmgpu grade: interrupted; the marks of {several(len(rows), 'student')} are written")
        return terminated.exit_code()
    _write(options, rows, over=True)
    return 0


def _write(options, students, over):
    """Write the rows of all students that there are, by name; to what is no file only when it is ``over``."""
    rows = [row for _, rows in sorted(students.items()) for row in rows]
    for path, write in ((options.csv, _write_table), (options.json, write_json)):
        if path and is_stream(path) == over:
            write(path, rows)


def _row(mark):
    row = mark._asdict() | {"student": _printable(mark.student), "says": _printable(mark.says.partition("\n")[0])}
    return {name: row[name] for name in COLUMNS}


def _tell(marks):
    right = sum(mark.passed for mark in marks)
    points = sum(mark.points for mark in marks)
    print(f"{_printable(marks[0].student)}: {right} of {len(marks)} right, {points:g} points")


def _printable(text):
    """In one line, and without what a terminal might obey; what there is no character for, as Python writes it."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _hint(folder, marks, names):
    """Write all verdicts on a student's answers, in a file for it alone. ``names``: of the files written before."""
    stem = name = _printable(marks[0].student).encode()[:200].decode(errors="ignore")  # a longer one is no file's name
    while (same := unicodedata.normalize("NFKC", name).casefold()) in names:  # on some file system
        names[same] += 1
        name = f"{stem} ({names[same]})"
    names[same] = 1
    file = folder / f"{name}.txt"
    if file.is_symlink():  # to be written itself, and not what it leads to
        file.unlink()
    write_file(file, _writes(_report(marks)))


def _report(marks):
    """All that there is to say to one student."""
    parts = [mark.says + (f"\n  It printed: {mark.output.rstrip()}" if mark.output.strip() else "") for mark in marks]
    return "\n\n".join(parts) + "\n"


def _write_table(path, rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower(), "points": f"{row['points']:g}"} for row in rows)
    write_file(path, _writes(text.getvalue()))


def _writes(text):
    return lambda file: file.write(text.encode("utf-8", "backslashreplace"))
