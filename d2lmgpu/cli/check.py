"""``d2lmgpu check``: is this answer to an exercise right?"""

import runpy

from ..output import write_json
from .options import check_outputs


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "check",
        help="check the answer to an exercise of the course",
        description="Check the answer to an exercise: a Python file with a function of the exercise's name. The file "
        "is run. Without a name: the list of exercises; without a file: what the exercise asks for.",
    )
    command.set_defaults(command=run)
    command.add_argument("exercise", metavar="NAME", nargs="?", help="the exercise")
    command.add_argument("file", metavar="FILE", nargs="?", help="a Python file with the answer")
    command.add_argument("--json", metavar="FILE", help="write the verdict as JSON")


def run(options):
    """Print the verdict; the exit code is 1 for a wrong answer."""
    from ..exercises import EXERCISES, find, judge

    check_outputs(options.json)
    if options.exercise is None:
        for name, exercise in EXERCISES.items():
            print(f"{name}: {exercise.asks}")
        return 0
    exercise = find(options.exercise)
    if options.file is None:
        print(exercise.asks)
        return 0
    verdict = judge(options.exercise, exercise, _answer(options.file, options.exercise))
    print(verdict.says)
    if options.json:
        write_json(options.json, {"exercise": options.exercise, "right": verdict.right, "says": verdict.says})
    return 0 if verdict.right else 1


def _answer(path, name):
    """The function ``name`` of a Python file. Raises ValueError if there is none, or the file cannot be run."""
    try:
        names = runpy.run_path(path)
    except OSError:
        raise
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    if name not in names:
        raise ValueError(f"{path} has no function {name}; write def {name}(...)")
    return names[name]
