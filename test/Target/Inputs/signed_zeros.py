# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maxima and minima of zeros of both signs, and NaN, from compiled code.

usage: signed_zeros.py DDPHOOK-EXEC MODULE.so DIRECTORY
"""

import json
import struct
import subprocess
import sys

# Each element type by its bits: +0, -0, 1 and a NaN, in bytes.
TYPES = {
    "f32": ("F32", 4, 0x00000000, 0x80000000, 0x3F800000, 0x7FC00000),
    "f64": ("F64", 8, 0, 1 << 63, 0x3FF0000000000000, 0x7FF8000000000000),
    "f16": ("F16", 2, 0x0000, 0x8000, 0x3C00, 0x7E00),
    "bf16": ("BF16", 2, 0x0000, 0x8000, 0x3F80, 0x7FC0),
}


def write(path, dtype, tensors):
    header, data = {}, b""
    for name, content in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": [16],
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    return {
        name: data[slice(*entry["data_offsets"])]
        for name, entry in header.items()
        if name != "__metadata__"
    }


def main():
    tool, module, directory = sys.argv[1:]
    bad = 0
    for name, (dtype, size, plus, minus, one, nan) in TYPES.items():
        # In the order of their values; NaN wins over all of them.
        order = [minus, plus, one, nan]
        pairs = [(a, b) for a in order for b in order]
        arguments = {
            f"arg{i}": b"".join(pair[i].to_bytes(size, "little") for pair in pairs)
            for i in (0, 1)
        }
        write(f"{directory}/{name}.in", dtype, arguments)
        subprocess.run(
            [tool, module, f"--entry={name}", f"--inputs={directory}/{name}.in"]
            + [f"--outputs={directory}/{name}.out"],
            check=True,
            timeout=60,
        )
        results = read(f"{directory}/{name}.out")
        for index, choose in enumerate((max, min)):
            got = results[f"result{index}"]
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
