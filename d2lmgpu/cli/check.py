"""``d2lmgpu check``: check the answer to an exercise of the course.

Checks the answer to an exercise: a Python file with a function that has the exercise's name. The file runs in its own
process. Without a name, the command lists the exercises; without a file, it prints what the exercise asks for.
"""

from .options import add_input, add_output, write_results


def add_to(command):
    """Add the options to the command's parser."""
    command.add_argument("exercise", metavar="NAME", nargs="?", help="name of the exercise")
    add_input(command, "file", "Python file with the answer", nargs="?")
    command.add_argument("--seconds", type=float, metavar="X", help="seconds that the answer may take (default: 60)")
    add_output(command, "--json", "write the verdict as JSON")


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
    limit = {} if options.seconds is None else {"seconds": options.seconds}
    verdict = judge_file(options.exercise, options.file, **limit)
    if verdict.output:
        print(f"It printed:\n{verdict.output.rstrip()}\n")
    print(verdict.says)
    write_results(options, {"exercise": options.exercise, "right": verdict.right, "says": verdict.says})
    return 0 if verdict.right else 1
