# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maxima and minima of zeros of both signs, and NaN, from compiled code.

usage: signed_zeros.py DDPHOOK-EXEC MODULE.so DIRECTORY
"""

import subprocess
import sys

import plain_safetensors

# Each element type by its bits: +0, -0, 1 and a NaN, in bytes.
TYPES = {
    "f32": ("F32", 4, 0x00000000, 0x80000000, 0x3F800000, 0x7FC00000),
    "f64": ("F64", 8, 0, 1 << 63, 0x3FF0000000000000, 0x7FF8000000000000),
    "f16": ("F16", 2, 0x0000, 0x8000, 0x3C00, 0x7E00),
    "bf16": ("BF16", 2, 0x0000, 0x8000, 0x3F80, 0x7FC0),
}


def main():
    tool, module, directory = sys.argv[1:]
    bad = 0
    for name, (dtype, size, plus, minus, one, nan) in TYPES.items():
        # In the order of their values; NaN wins over all of them.
        order = [minus, plus, one, nan]
        pairs = [(a, b) for a in order for b in order]
        arguments = {}
        for i in (0, 1):
            content = b"".join(pair[i].to_bytes(size, "little") for pair in pairs)
            arguments[f"arg{i}"] = (dtype, (len(pairs),), content)
        plain_safetensors.write(f"{directory}/{name}.in", arguments)
        subprocess.run(
            [tool, module, f"--entry={name}", f"--inputs={directory}/{name}.in"]
            + [f"--outputs={directory}/{name}.out"],
            check=True,
            timeout=60,
        )
        results = plain_safetensors.read(f"{directory}/{name}.out")
        for index, choose in enumerate((max, min)):
            got = results[f"result{index}"][2]
            for i, pair in enumerate(pairs):
                bits = int.from_bytes(got[i * size : (i + 1) * size], "little")
                want = nan if nan in pair else choose(pair, key=order.index)
                if bits != want and not (want == nan and bits & nan == nan):
                    print(f"{name}: {choose.__name__} of {pair[0]:#x} and {pair[1]:#x}: "
                          f"expected {want:#x}, but got {bits:#x}")
                    bad += 1
    print(f"{bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
