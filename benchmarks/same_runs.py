"""Answers: did two training runs that should have learned the same do so?

    python benchmarks/same_runs.py ONE.json OTHER.json --tolerance 1e-4
    python benchmarks/same_runs.py ONE.json OTHER.json --bits

The losses of the epochs that both files have must agree up to the relative tolerance; with --bits, they and the final
parameters must be the same to the last bit. Exit code 1 if they differ.
"""

import argparse
import json
from pathlib import Path


def difference(one, other):
    """The largest relative difference of the losses of the first epochs. Raises ValueError if there are none."""
    pairs = list(zip(one["train_loss"], other["train_loss"], strict=False))
    if not pairs:
        raise ValueError("no epoch to compare")
    return max(abs(a - b) / abs(b) for a, b in pairs)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=2, type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--bits", action="store_true")
    options = parser.parse_args(arguments)
    one, other = (json.loads(file.read_text()) for file in options.files)
    found, names = difference(one, other), [file.stem for file in options.files]
    if options.bits:
        same = found == 0 and one["final_parameters_sha256"] == other["final_parameters_sha256"]
        print(f"{names[0]} and {names[1]}: {'the same' if same else 'different'} bits")
    else:
        same = found <= options.tolerance
        print(f"{names[0]} and {names[1]}: losses differ by {found:.2g}, at most {options.tolerance:g} is right")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
