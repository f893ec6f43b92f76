# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the losses of both models, native ones beside PyTorch's own.

    plot.py DIRECTORY PLOT.svg

DIRECTORY has what eager.py and native.py have written of each model, in a folder of its
name.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import shared

TITLES = {"conv": "A conv net on digits", "gpt": "A GPT on the docs"}


def main(directory, path):
    figure, [panels] = shared.make_figure(1, len(TITLES))
    for axes, (task, title) in zip(panels, TITLES.items()):
        folder = pathlib.Path(directory, task)
        theirs = json.loads((folder / "eager.json").read_text())
        ours = json.loads((folder / "native.json").read_text())
        shared.draw_losses(
            axes, {"PyTorch, uncompressed": theirs["allreduce"], **ours}, title
        )
    shared.save_figure(figure, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
