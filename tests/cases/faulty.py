"""Elementwise kernels that are broken on purpose, as a user's own kernel might be."""

from __future__ import annotations

from pathlib import Path

from ge2 import paths

MODEL = "elementwise_strided"
_START = "    const Linear first = "
_SKIP = ">= size) continue;"
_STORE = "            ge2::from_compute<{{ out_types[loop.index0] }}>({{ result }});"

# name -> (text of elementwise_strided, what it becomes)
FAULTS: dict[str, tuple[str, str]] = {
    "faulty_half": (_SKIP, ">= size / 2) continue;"),
    "faulty_value": (_STORE, _STORE.replace("{{ result }}", "({{ result }}) + (at[u][0] == 5)")),
    # An instruction, or a loop without effects is dropped.
    "faulty_loop": (_START, "    while (true)\n#ifdef __CUDACC_RTC__\n"
                    "        asm volatile(\"nanosleep.u32 1000;\");\n#else\n"
                    "        asm volatile(\"\");\n#endif\n" + _START),
    "faulty_trap": (_START, "#ifdef __CUDACC_RTC__\n    __trap();\n#else\n"
                    "    __builtin_trap();\n#endif\n" + _START),
    "faulty_address": (_START, "    args.out0[1ll << 40] = args.out0[0];\n" + _START),
    "faulty_syntax": (_START, "    this is no C++;\n" + _START),
    "faulty_input": (_START, "    if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1)\n"
                     "        const_cast<{{ in_types[0] }}*>(args.in0)[959] = args.in0[0];\n"
                     + _START),
    "faulty_shared": (_START, "    __shared__ float much[76800];\n"
                      "    much[threadIdx.x] = args.size;\n    __syncthreads();\n"
                      "    if (much[threadIdx.x ^ 1] < 0) return;\n" + _START),
}


def write_faulty(folder: Path, *names: str, score: int = 30) -> None:
    """Write templates of broken kernels into a folder."""
    text = (paths.kernels_dir() / f"elementwise/{MODEL}.cu.j2").read_text()
    for name in names:
        old, new = FAULTS[name]
        assert old in text, old
        broken = text.replace(old, new).replace(f'name = "{MODEL}"', f'name = "{name}"')
        broken = broken.replace(f"\n{MODEL}(", f"\n{name}(")
        broken = broken.replace("score = 30", f"score = {score}")
        (folder / f"{name}.cu.j2").write_text(broken)
