"""``d2lmgpu course``: copy the course into a folder of your own.

Put the notebooks of the course, without outputs, the data that they read, and mine.py for your answers into a folder.
Files that are there already stay as they are.
"""

from .options import add_input, add_output, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "folder", "the folder, which is made unless it exists", "DIR")
    command.add_argument("--no-data", action="store_true", help="leave out Fashion-MNIST, which takes 30 MB")
    add_output(command, "--json", "write what was done as JSON")


def run(options):
    """Copy, and say what was written and what stayed."""
    from ..exercises.course import copy_course

    copied = copy_course(options.folder, data=not options.no_data)
    written, kept, missing = copied.values()
    print(f"{options.folder}: {len(written)} files are new" + (f", {len(kept)} were there and stay:" if kept else ""))
    for name in kept:
        print(f"  {name}")
    if missing:
        print(f"Fashion-MNIST was not copied; the notebooks will look for it, and download it. {missing}")
    print(f"Begin with: jupyter lab {options.folder}")
    write_results(options, {"folder": options.folder} | copied)
