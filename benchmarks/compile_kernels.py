"""Compiles every kernel that the package launches with the real CuPy, as it would on a user's machine, without a GPU.

    python benchmarks/compile_kernels.py                  # all, compared with results/compiled_kernels.json
    python benchmarks/compile_kernels.py --seconds 150    # as many as that allows, the most important first
    python benchmarks/compile_kernels.py --seconds 150 --sample WORD    # after the first few in an order by that word
    python benchmarks/compile_kernels.py --write          # keeps what it finds as the new table

In an environment that has what `pip install -e '.[gpu]'` brings (of that CuPy, NVRTC and cudart are enough), it calls
CuPy's own compile function, so options and include folders are CuPy's; and it runs itself in a locale that has only
ASCII, because CuPy writes the source in the locale's encoding. An error, a warning, a spilled register and a character
that is not ASCII are faults. The table says for each kernel and architecture how many registers and bytes of shared
memory it takes, and how many of its blocks a multiprocessor holds. It has all launches of the package: another one, one
that is no longer made, and one that takes something else are faults, too. Another NVRTC than that of the table may
decide otherwise, so only those of the same version are compared.
"""

import argparse
import concurrent.futures
import json
import locale
import os
import random
import sys
import time
from pathlib import Path

from launches.compiler import DoesNotCompile, blocks_resident, compile_cubin, resources
from launches.every_launch import every_module, jobs

from d2lmgpu.base.files import as_json

TABLE = Path(__file__).parent / "results" / "compiled_kernels.json"
NOISE = 8
"""Registers, the granule in which they are given out: NVRTC takes a few more or less for one and the same source."""
ALWAYS = 40
"""Pairs that every sample begins with: those of the most important settings."""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def compile_one(code, options, launches, arch):
    """{a launch's key: [registers, bytes of shared memory, blocks a multiprocessor]}, and a list of faults."""
    try:
        _, log = compile_cubin(code, options, arch)
    except DoesNotCompile as error:
        lines = [line.strip() for line in str(error).splitlines() if "error" in line]
        return {}, [" ".join(lines[:1]) or str(error)[:300]]
    except UnicodeEncodeError as error:  # of CuPy, writing the source
        return {}, [f"{error.reason}: {error.object[max(0, error.start - 30) : error.end + 30]!a}"]
    faults = [line.strip() for line in log.splitlines() if "warning" in line.lower()]
    found = resources(log)
    faults += [f"{name} spills {spilled} bytes of registers" for name, (_, _, spilled) in found.items() if spilled]
    rows = {}
    for name, threads, dynamic in sorted(launches):
        registers, shared, _ = found[name]
        resident = blocks_resident(registers, shared + dynamic, threads, arch)
        rows[key_of(name, threads, options)] = [registers, shared + dynamic, resident]
        if resident == 0:
            faults.append(f"{name}: a block of {threads} threads with {shared + dynamic} bytes does not fit")
    return rows, faults


def key_of(name, threads, options):
    """Without the matrices of Winograd's method, which follow from the other macros."""
    macros = (option[2:] for option in options if option.startswith("-D") and "{" not in option)
    return f"{name}<{threads}> " + " ".join(macros)


def sample(work, word):
    """The first `ALWAYS` of a list, and the others in an order that ``word`` decides: another word, another part."""
    return work[:ALWAYS] + random.Random(word).sample(work[ALWAYS:], len(work[ALWAYS:]))


def compile_all(work, seconds, processes):
    """Compiles (module, architecture) pairs in order, until the time is up.

    Returns the table {key: {architecture: numbers}}, the faults {text: where}, and how many pairs were done.
    """
    begin, table, faults, done = time.monotonic(), {}, {}, 0
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        waiting, rest = {}, iter(work)
        while True:
            while len(waiting) < 2 * processes and time.monotonic() - begin < seconds:
                module, arch = next(rest, (None, None))
                if module is None:
                    break
                future = pool.submit(compile_one, module.code, module.options, module.launches, arch)
                waiting[future] = module, arch
            if not waiting:
                return table, faults, done
            for future in concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED").done:
                module, arch = waiting.pop(future)
                rows, found = future.result()
                done += 1
                for key, numbers in rows.items():
                    table.setdefault(key, {})[str(arch)] = numbers
                names = "/".join(sorted({name for name, _, _ in module.launches}))
                for fault in found:
                    faults.setdefault(fault, []).append(f"{names} sm_{arch} {' '.join(module.options)}")


def compare(table, kept, launched):
    """Differences between what was found and what is kept, as lines. ``launched``: the keys of all launches."""
    lines = []
    for key, rows in table.items():
        for arch, numbers in rows.items():
            before = kept.get(key, {}).get(arch)
            if before is None:
                lines.append(f"new: sm_{arch} {key}: {describe(numbers)}")
            elif before[1] != numbers[1] or abs(before[0] - numbers[0]) >= NOISE:
                lines.append(f"changed: sm_{arch} {key}: {describe(before)} -> {describe(numbers)}")
    lines += [f"not in the table: {key}" for key in sorted(launched - kept.keys() - table.keys())]
    lines += [f"no longer launched: {key}" for key in kept if key not in launched]
    return lines


def describe(numbers):
    registers, shared, resident = numbers
    return f"{registers} registers, {shared} bytes shared, {resident} blocks a multiprocessor"


def nvrtc_version():
    """Of the library's two numbers and, where it is known, its package's: "13.5.37"."""
    from importlib import metadata

    from cupy_backends.cuda.libs import nvrtc

    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return ".".join(map(str, nvrtc.getVersion()))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no more compilations after these")
    parser.add_argument("--sample", metavar="WORD", help="an order by this word; with --seconds, another part for each")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true", help="keep what is found as the new table")
    options = parser.parse_args(arguments)
    if options.write and options.seconds != float("inf"):
        parser.error("--write: the table has all launches, which takes the time that it takes; leave out --seconds")

    from cupy_backends.cuda.libs import nvrtc

    modules = every_module()
    work = jobs(modules, nvrtc.getSupportedArchs())
    if options.sample is not None:
        work = sample(work, options.sample)
    launched = {key_of(name, threads, m.options) for m in modules for name, threads, _ in m.launches}
    whole = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    version = nvrtc_version()
    table, faults, done = compile_all(work, options.seconds, options.processes)
    print(f"NVRTC {version}, locale {locale.getpreferredencoding(False)}: compiled {done} of {len(work)} pairs of")
    print(f"a source with its macros and an architecture ({len(launched)} launches of the package)")
    for fault, places in faults.items():
        print(f"FAULT: {fault}\n    {len(places)} times, first: {places[0]}")
    if options.write:
        whole[version] = table
        TABLE.write_text(dump(whole))
        print(f"wrote {len(table)} launches to {TABLE}")
    elif version not in whole:
        print(f"nothing to compare with: the table has NVRTC {', '.join(whole) or 'none'}")
    else:
        lines = compare(table, whole[version], launched)
        print("\n".join(lines[:40] + [f"... {len(lines)} differences"] * (len(lines) > 40)))
        if lines:
            print("If that is meant: python benchmarks/compile_kernels.py --write, in the same environment.")
        return 1 if lines or faults else 0
    return 1 if faults else 0


def dump(whole):
    """JSON with a line for each launch, in alphabetical order, so that differences can be read."""
    parts = []
    for version, table in sorted(whole.items()):
        lines = ",\n".join(f"  {as_json(key)}: {as_json(table[key], sort_keys=True)}" for key in sorted(table))
        parts.append(f" {as_json(version)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    if locale.getpreferredencoding(False).upper() not in ("ANSI_X3.4-1968", "US-ASCII", "ASCII") and os.name == "posix":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ASCII})
    raise SystemExit(main())
