# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of corpus.py that has PyTorch in it: one of two ranks.

    RANK=0 export_torch.py FOLDER PROGRAM...

Both ranks write into FOLDER/PROGRAM what they get and what PyTorch gives them; one
exports the step, and prints the name when that is done.
"""

import importlib
import json
import os
import pathlib
import sys
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "programs"), str(HERE.parents[1] / "tools/python/src")]
warnings.simplefilter("ignore")

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.utils import _pytree

import ddphook.torch

RANKS = 2


def save(tree, name, path):
    leaves = enumerate(_pytree.tree_leaves(tree))
    save_file({f"{name}{i}": leaf.contiguous().clone() for i, leaf in leaves}, path)


def run(name, folder):
    """Gives what rank 0 exports."""
    program = importlib.import_module(name).program(dist.group.WORLD)
    step, kept, make_data, trained = program
    arguments = (*kept, *make_data(torch.Generator().manual_seed(dist.get_rank())))
    save(arguments, "arg", folder / f"in.{dist.get_rank()}")
    save(step(*arguments), "result", folder / f"expected.{dist.get_rank()}")
    gradients = [(key, kept[0][key].numel()) for key in trained]
    return step, arguments, {"gradients": gradients, "ranks": RANKS, "entry": "step"}


def main(folder, *programs):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    for name in programs:
        where = pathlib.Path(folder, name)
        try:
            step, arguments, described = run(name, where)
            if rank == 0:
                (where / "step.json").write_text(json.dumps(described))
                file = where / "step.mlir"
                ddphook.torch.export(step, *arguments, file=file, whole=True)
        except Exception:
            (where / "error").write_text(traceback.format_exc())
        # Both have written what they got.
        dist.barrier()
        if rank == 0:
            print(name, flush=True)
    # Of PyTorch's threads one may be left, with which the interpreter's own end
    # sometimes aborts the process.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
