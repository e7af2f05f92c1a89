"""What a person is told who types a wrong command line: exit code 2, one line on standard error, and no file written.

tests/base/test_errors.py has the same table of calls.
"""

import re

import pytest
from error_tables import rows, says
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.devices import find_gpus

ROWS = {
    "train": """
train --devices 0 => at least 1
train --devices two => give how many, such as 2, or which
train --environment auto --devices cpu:x => should be a name such as cpu:0
train --devices 99999999999999999999999999 => at most 4,096
train --epochs 1e3 => --epochs: invalid int value: '1e3'
train --patience 5 => --patience is for several processes; add --environment parallel
train --environment tpu => choose from auto, cpu, gpu, multi-gpu; devices are
train --lr nan => lr is nan
train --precision tf32 => 'tf32' is unknown; choose from float32, mixed
train --loads 1,half => --loads: invalid numbers_or_auto value: '1,half'
train --memory-limit 0.25M => split data needs 1,126,864 bytes on cpu(0), 864,720 more than its limit; more devices help
train --json= => --json: the name is ''
train --checkpoint-steps 2 => give checkpoint, too
train --resume / => /: Is a directory
train --resume text --json /dev/stdout --trace /dev/stdout => text is no checkpoint of d2lmgpu
train --data nothere => nothere: no such folder
train --image-size 32 => --image-size is for your own pictures; add --data FOLDER
train --data squares --image-size big => 'big' should be width and height in pixels
train --data squares --channels 2 => takes 2 channels; pictures have 1 (grey) or 3 (colour)
train --data squares --image-size 4x4 => layer 4 does not take images
train --network nothere.py => there is no such file
train --plot /no/such/folder/plot.png => cannot write /no/such/folder/plot.png
train --plot plot.doc => .png, .svg, .pdf
train --checkpoint text --trace link => --checkpoint text and --trace link are the same file
train --speed 9 => unknown argument '--speed'; did you mean --seed? (see d2lmgpu train --help)
train --learning-rate 0.1 => did you mean --lr?
train --momentum 0.9 => did you mean --optimizer momentum?
train more words => unknown arguments 'more', 'words' (see d2lmgpu train --help)
""",
    "allreduce": """
allreduce --environment parallel => 'parallel' is for commands in processes
allreduce --environment cpu --sizes 4K,big => size 'big'
allreduce --invent => --invent needs a simulated network; give its name or file
allreduce --html a.html => --html needs a simulated network
allreduce --on torus --devices gpu:0 => --devices is 'gpu:0'; for a simulated network, give a number
allreduce --on torus --algorithms nccl => allreduce to simulate 'nccl' is unknown; choose from naive,
allreduce --on nvlink_mesh --devices 5 => --devices is 5, and nvlink_mesh has 8; leave out --devices
allreduce --on torsu => --on torsu: there is no such file; networks by name are full_switch, pcie_bus,
allreduce --on wires.txt => wires.txt, line 2: '1=2' is no wire; write a line such as '0-1: 25 GB/s'
allreduce --on torus --algorithms none => allreduce to simulate 'none' is unknown
""",
    "experiments": """
sweep --lr 0.1,fast => --lr: invalid list of float value: '0.1,fast'
sweep --x rate => x 'rate' is unknown; choose from devices,
sweep --results /no/such/folder/rows.json => cannot write
sweep --keep-models text => is not a folder; give another name
scaling --devices 2,4 => 1 should be among them
scaling --devices 1,0 => devices is 0; it should be a whole number, at least 1
scaling --devices 1;2 => devices '1;2': give how many, such as 2
scaling --mode both => mode 'both' is unknown; choose from strong, weak
scaling --steps 0 => steps is 0
scaling --allreduce none => replicas drift apart
scaling --allreduce nccl --predict => allreduce to predict from 'nccl' is unknown; choose from naive
scaling --mode weak --devices 1,4 --batch-size 20000 => 80000 examples is more than
""",
    "others": """
trian => d2lmgpu: error: 'trian' is not a command; choose from devices, train, … ; did you mean train?
predict / => /: Is a directory
predict => are required: CHECKPOINT (see
predict none => No such file
predict none squares/test/a/1.png --confusion plot.png => leave out the files
predict text --json new.png --confusion ./new.png => --json new.png and --confusion ./new.png are the same
predict text picture.png --json link => --json link would be written over text, which is read
check rng file.py => did you mean ring?
check ring text --json text => --json text would be written over text, which is read
grade . --exercises rings => exercise 'rings' is unknown; … did you mean ring?
course text --no-data => text
""",
}
QUICK = {
    "train": "--environment cpu --limit 60 --epochs 1 --init he --batch-size 30",
    "sweep": "--environment cpu --limit 60 --epochs 1 --mode sequential",
    "scaling": "--environment cpu",
}
"""Options that come before those of a row."""


def failure(capsys, line):
    """What is said on standard error by a command that should fail."""
    command, _, options = line.partition(" ")
    try:
        code = cli.main([command, *QUICK.get(command, "").split(), *options.split()])
    except SystemExit as end:  # from argparse
        code = end.code
    finally:
        d2l.cpu(0).limit_memory(None)
    out, err = capsys.readouterr()
    assert code == 2 and re.fullmatch("(pictures: .*\n)?", out) and re.match("d2lmgpu.*: error: .*\n", err), err
    return err[:-1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    (tmp_path / "link").symlink_to("text")
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "squares" / name).mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "squares" / name / "1.png")
    (tmp_path / "wires.txt").write_text("0-1: 1 GB/s\n1=2\n")
    return tmp_path


@pytest.mark.parametrize("lines, said", rows(ROWS))
def test_one_line_says_what_is_wrong(folder, capsys, lines, said):
    for line in lines:
        told = failure(capsys, line)
        assert says(told, said), told
    assert sorted(path.name for path in folder.iterdir()) == ["link", "squares", "text", "wires.txt"]
    assert (folder / "text").read_text() == "text"


@pytest.mark.threads
@pytest.mark.packages
@pytest.mark.skipif(find_gpus()[0] > 0, reason="there is a GPU")
def test_nine_gpus_where_there_are_none(capsys):
    assert says(failure(capsys, "train --devices 9 --environment gpu"), "needs a GPU: CuPy")
