"""Answers: does every kernel that the package launches compile, and what does it take of each architecture?

    python benchmarks/compile_kernels.py                  # all, compared with results/compiled_kernels.csv
    python benchmarks/compile_kernels.py --seconds 150    # as many as that allows, the most important first
    python benchmarks/compile_kernels.py --seconds 150 --sample WORD    # after the first few in an order by that word
    python benchmarks/compile_kernels.py --write          # keeps what it finds as the new table

In an environment that has what `pip install -e '.[gpu]'` brings (of that CuPy, NVRTC and cudart are enough), it calls
CuPy's own compile function, as on a user's machine but without a GPU, so options and include folders are CuPy's; and it
runs itself in a locale that has only ASCII, because CuPy writes the source in the locale's encoding. An error, a
warning, a spilled register and a character that is not ASCII are faults. The table has a row for all launches of a
kernel with the same number of threads and bytes of shared memory, with or without numbers of 16 bits: how many they
are, and how many registers they take, the least and the most, with each compiler and architecture. The blocks that a
multiprocessor holds follow from that. More or fewer launches, and other resources, are faults, too. Another NVRTC than
those of the table may decide otherwise, so only the same versions are compared.
"""

import argparse
import collections
import concurrent.futures
import locale
import os
import random
import sys
import time
from pathlib import Path

from launches.compiler import DoesNotCompile, blocks_resident, compile_cubin, resources
from launches.every_launch import every_module, jobs
from launches.table import Row, compare, read, with_what_was_found, write

TABLE = Path(__file__).parent / "results" / "compiled_kernels.csv"
ALWAYS = 40
"""Pairs that every sample begins with: those of the most important settings."""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def compile_one(code, options, launches, arch):
    """{`Row`: {a launch's key: registers}}, and a list of faults."""
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
        registers, static, _ = found[name]
        row = Row(name, threads, is_half(options), static + dynamic)
        rows.setdefault(row, {})[key_of(name, threads, options)] = registers
        if blocks_resident(registers, row.shared, threads, arch) == 0:
            faults.append(f"{name}: a block of {threads} threads with {row.shared} bytes does not fit")
    return rows, faults


def is_half(options):
    return int(any(option.startswith("-DHALF") for option in options))


def key_of(name, threads, options):
    """Without the matrices of Winograd's method, which follow from the other macros."""
    macros = (option[2:] for option in options if option.startswith("-D") and "{" not in option)
    return f"{name}<{threads}> " + " ".join(macros)


def launches_of(modules):
    """How many different launches there are, by (kernel, threads, half)."""
    keys = {}
    for module in modules:
        for name, threads, _ in module.launches:
            group = name, threads, is_half(module.options)
            keys.setdefault(group, set()).add(key_of(name, threads, module.options))
    return collections.Counter({group: len(each) for group, each in keys.items()})


def sample(work, word):
    """The first `ALWAYS` of a list, and the others in an order that ``word`` decides: another word, another part."""
    return work[:ALWAYS] + random.Random(word).sample(work[ALWAYS:], len(work[ALWAYS:]))


def compile_all(work, seconds, processes):
    """Compiles (module, architecture) pairs in order, until the time is up.

    Returns what was found, {`Row`: {architecture: {a launch's key: registers}}}, the faults, {text: where}, and how
    many pairs were done.
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
                for row, registers in rows.items():
                    table.setdefault(row, {}).setdefault(arch, {}).update(registers)
                names = "/".join(sorted({name for name, _, _ in module.launches}))
                for fault in found:
                    faults.setdefault(fault, []).append(f"{names} sm_{arch} {' '.join(module.options)}")


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
    launched = launches_of(modules)
    kept = read(TABLE) if TABLE.exists() else {}
    version = nvrtc_version()
    found, faults, done = compile_all(work, options.seconds, options.processes)
    print(f"NVRTC {version}, locale {locale.getpreferredencoding(False)}: compiled {done} of {len(work)} pairs of")
    print(f"a source with its macros and an architecture ({launched.total()} launches of the package)")
    for fault, places in faults.items():
        print(f"FAULT: {fault}\n    {len(places)} times, first: {places[0]}")
    versions = sorted({known for row in kept.values() for known, _ in row.registers})
    if options.write:
        table = with_what_was_found(kept, found, version)
        write(TABLE, table)
        print(f"wrote {len(table)} rows to {TABLE}")
    elif version not in versions:
        print(f"nothing to compare with: the table has NVRTC {', '.join(versions) or 'none'}")
    else:
        lines = compare(found, kept, version, launched, complete=done == len(work))
        print("\n".join(lines[:40] + [f"... {len(lines)} differences"] * (len(lines) > 40)))
        if lines:
            print("If that is meant: python benchmarks/compile_kernels.py --write, in the same environment.")
        return 1 if lines or faults else 0
    return 1 if faults else 0


if __name__ == "__main__":
    if locale.getpreferredencoding(False).upper() not in ("ANSI_X3.4-1968", "US-ASCII", "ASCII") and os.name == "posix":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ASCII})
    raise SystemExit(main())
