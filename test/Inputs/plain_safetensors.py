# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""safetensors files without numpy, for the scripts that lit's tests run.

A tensor is (type, shape, bytes), the type as the format spells it: "F32", "BF16".
"""

import json
import struct


def write(path, tensors):
    """Writes a dictionary of tensors, in its order."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """The tensors of a file by name, without what it says about itself."""
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            tuple(entry["shape"]),
            data[slice(*entry["data_offsets"])],
        )
        for name, entry in header.items()
    }
