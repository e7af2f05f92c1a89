"""``d2lmgpu grade``: grade the answers of many students.

Checks FOLDER/STUDENT/mine.py, or the student's notebooks, for all students. Each answer runs in its own process, in a
copy of the student's folder. The exit code is 0 even if answers are wrong.
"""

import argparse
import contextlib
import csv
import io
import signal
import sys
import unicodedata
from pathlib import Path

from .. import signals
from ..monitor import say
from ..output import check_folder, each_output, is_stream, write_file, write_json
from ..words import legible, several
from .options import add_input, add_option, add_output, listed, taken, write_all

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
    add_option(command, "--student-seconds", float, 300.0, "seconds that all answers of a student may take")
    command.add_argument("--isolate", action="store_true", help="start a new Python for each student")


def _worth(text):
    name, equals, points = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be an exercise and its points, such as ring=3")
    return name, float(points)


SIGNALS = (*signals.SIGNALS, *filter(None, [getattr(signal, "SIGHUP", None)]))


@signals.listening(SIGNALS)
def run(options):
    """After each student, write all marks so far; say how many answers are right, and which files cannot be read."""
    from ..exercises.grading import grade

    how = taken(options, "seconds", "student_seconds", "seed", "isolate")
    marks = grade(options.folder, options.exercises, dict(options.points or ()), **how)
    if options.hints:
        Path(options.hints).mkdir(parents=True, exist_ok=True)
    rows, names, code = {}, {}, 0
    with each_output() as attempt:
        try:
            with contextlib.closing(marks):  # which ends the jobs that are under way
                for mine in marks:
                    rows[mine[0].student] = [_row(mark) for mark in mine]
                    _tell(mine)
                    if options.hints:
                        attempt(_hint, Path(options.hints), mine, names)
                    with contextlib.suppress(OSError):  # the error is reported at the end
                        write_all(*_files(options, rows, again=True))
        except KeyboardInterrupt:
            if not rows or not (options.csv or options.json):
                raise
            code = signals.exit_code()
        attempt(write_all, *_files(options, rows))
    if code:
        say(f"d2lmgpu grade: interrupted; the marks of {several(len(rows), 'student')} are written", file=sys.stderr)
    return code


def _files(options, rows, again=False):
    """The rows so far, in the form for `write_all`; with ``again``, not for pipes, which cannot be written again."""
    rows = [row for _, own in sorted(rows.items()) for row in own]
    files = (options.csv, _write_table, rows), (options.json, write_json, rows)
    return [(path, *what) for path, *what in files if path and not (again and is_stream(path))]


def _row(mark):
    row = mark._asdict() | {"student": legible(mark.student), "says": legible(mark.says.partition("\n")[0])}
    return {name: row[name] for name in COLUMNS}


def _tell(marks):
    right = sum(mark.passed for mark in marks)
    points = sum(mark.points for mark in marks)
    print(f"{legible(marks[0].student)}: {right} of {len(marks)} right, {points:g} points")
    for note in marks[0].notes:
        print(f"  {legible(note)}")


def _hint(folder, marks, names):
    """Write all verdicts on a student's answers, with what the answers printed, to a file.

    ``names``: how often each file name was used before.
    """
    stem = name = legible(marks[0].student).encode()[:200].decode(errors="ignore")  # which file systems limit
    while (same := unicodedata.normalize("NFKC", name).casefold()) in names:  # for some file systems the same
        names[same] += 1
        name = f"{stem} ({names[same]})"
    names[same] = 1
    file = folder / f"{name}.txt"
    if file.is_symlink():  # write the file itself, not where a link leads
        file.unlink()
    parts = [note for note in marks[0].notes if not any(note in mark.says for mark in marks)]
    parts += [mark.says + (f"\n  It printed: {mark.output.rstrip()}" if mark.output.strip() else "") for mark in marks]
    text = "\n\n".join(parts) + "\n"
    write_file(file, lambda opened: opened.write(text.encode("utf-8", "backslashreplace")))


def _write_table(path, rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"passed": str(row["passed"]).lower(), "points": f"{row['points']:g}"} for row in rows)
    write_file(path, lambda file: file.write(text.getvalue().encode()))
