"""``d2lmgpu course``: copy the course into a folder of your own.

Puts the notebooks of the course, without outputs, their data, and a file mine.py for your answers into a folder.
Existing files are not changed.
"""

from .options import add_input, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "folder", "folder for the copy, made if it does not exist", "DIR")
    command.add_argument("--no-data", action="store_true", help="leave out Fashion-MNIST, which takes 30 MB")


def run(options):
    """Copy the course, and say which files were written and which were not changed."""
    from ..exercises.course import copy_course

    copied = copy_course(options.folder, data=not options.no_data)
    print(f"{options.folder}: {len(copied['written'])} new files, {len(copied['kept'])} existing files not changed")
    for name in copied["kept"]:
        print(f"  {name}")
    print(f"Begin with: jupyter lab {options.folder}")
    write_results(options, {"folder": options.folder} | copied)
