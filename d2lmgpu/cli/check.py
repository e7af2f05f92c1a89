"""``d2lmgpu check``: check the answer to an exercise of the course.

Checks the answer to an exercise: a Python file with a function that has the exercise's name. The file runs in its own
process; what it prints appears on standard error. Without a name, the command lists the exercises; without a file, it
prints what the exercise asks for.
"""

from .options import add_input, add_option, write_results


def add_to(command):
    """Add the options to the command's parser."""
    command.add_argument("exercise", metavar="NAME", nargs="?", help="name of the exercise")
    add_input(command, "file", "Python file with the answer", nargs="?")
    add_option(command, "--seconds", float, 20.0, "seconds that the answer may take")


def run(options):
    """Print the verdict; return the exit code, which is 1 for a wrong answer."""
    from ..exercises import EXERCISES, find, judge_file

    if options.exercise is None:
        for name, exercise in EXERCISES.items():
            print(f"{name}: {exercise.asks}")
        return 0
    exercise = find(options.exercise)
    if options.file is None:
        print(exercise.asks)
        return 0
    verdict = judge_file(options.exercise, options.file, options.seconds)
    print(verdict.says)
    write_results(options, {"exercise": options.exercise, "right": verdict.right, "says": verdict.says})
    return 0 if verdict.right else 1
