# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accelerate and Lightning register hooks and save their states.

States differ between ranks. A job resumed from a checkpoint has the same bits as an
uninterrupted one.
"""

import os

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import models
import ranks
from test_requests import log

OPTIONS = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
HOOKS = [("powersgd", OPTIONS), ("int4", {}), ("topk", {"density": 0.1})]
# Makes DDP have its final buckets from the first step on.
FIXED = {"find_unused_parameters": True, "bucket_cap_mb": 0.02}


def as_launched(rank, world):
    """Sets the variables that describe the job, which PyTorch has already joined."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in places.items()})
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "GROUP_RANK": "0"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "none", "ACCELERATE_USE_CPU": "true"}


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.rand(4, 64, generator=generator)


def _accelerate(rank, folder):
    as_launched(rank, 2)
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.utils import DDPCommunicationHookType

    import ddphook.accelerate

    def prepared(hook, options):
        accelerator = Accelerator(
            cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**FIXED)]
        )
        torch.manual_seed(7)
        model = models.mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimizer = accelerator.prepare(model, optimizer)
        handle = ddphook.accelerate.register(accelerator, model, hook, **options)

        def train(first, end):
            for step in range(first, end):
                accelerator.backward(model(batch(rank, step)).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            return models.parameters(model)

        return accelerator, handle, train

    for hook, options in HOOKS:
        _, handle, train = prepared(hook, options)
        expected = train(0, 8)
        handle.close()
        accelerator, handle, train = prepared(hook, options)
        train(0, 4)
        accelerator.save_state(f"{folder}/{hook}")
        handle.close()
        accelerator, handle, train = prepared(hook, options)
        with log() as warnings:
            accelerator.load_state(f"{folder}/{hook}")
        assert not warnings
        models.check_equal([train(4, 8)], [expected], hook)
        handle.close()
    accelerator, handle, train = prepared("fp16", {})
    handle.close()
    with pytest.raises(ddphook.FailedPreconditionError, match="was closed"):
        accelerator.save_state(f"{folder}/closed")
    accelerator, handle, _ = prepared("powersgd", {})
    os.makedirs(f"{folder}/none", exist_ok=True)
    with pytest.raises(ddphook.InvalidArgumentError, match="saved without them"):
        accelerator.load_state(f"{folder}/none")
    with pytest.raises(ddphook.InvalidArgumentError, match=r"prepare\(\) returned"):
        ddphook.accelerate.register(accelerator, models.mlp(), "fp16")
    # A model whose hook Accelerate has registered cannot have another one.
    given = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16)
    model = Accelerator(cpu=True, kwargs_handlers=[given]).prepare(models.mlp())
    with pytest.raises(ddphook.FailedPreconditionError, match="without comm_hook"):
        ddphook.torch.register(model, given)
    handle.close()


def test_accelerate(tmp_path):
    ranks.run(2, _accelerate, str(tmp_path))


def _lightning(rank, folder):
    as_launched(rank, 2)
    import lightning.pytorch as pl

    import ddphook.lightning

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(7)
            self.model = models.mlp()

        def training_step(self, batch, number):
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    # Each rank has one batch, so that checkpoints are between epochs: Lightning restarts epochs.
    rows = torch.cat([batch(0, 0), batch(1, 0)])

    def fit(steps, strategy, callback, checkpoint=None):
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=2,
            strategy=strategy,
            callbacks=[callback],
            max_steps=steps,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
            default_root_dir=folder,
        )
        module = Module()
        trainer.fit(module, DataLoader(TensorDataset(rows), 4), ckpt_path=checkpoint)
        return trainer, models.parameters(module)

    class Saving(ddphook.lightning.HookCallback):
        """Records the name of DDP's hook, and writes a checkpoint at the end."""

        def on_train_end(self, trainer, pl_module):
            self.name = trainer.strategy.model._get_ddp_logging_data()["comm_hook"]
            self.sent = self.handle.statistics()["wire_bytes"]
            trainer.save_checkpoint(f"{folder}/{self.name}.ckpt")

    plain = pl.strategies.DDPStrategy

    def by_callback(hook, options):
        return plain(**FIXED), Saving(hook, **options)

    def by_strategy(hook, options):
        strategy = ddphook.lightning.DDPStrategy(
            ddp_comm_hook=hook, hook_options=options, **FIXED
        )
        return strategy, Saving()

    for hook, options in HOOKS:
        results = []
        for way in (by_callback, by_strategy):
            _, expected = fit(8, *way(hook, options))
            fit(4, *way(hook, options))
            with log() as warnings:
                strategy, callback = way(hook, options)
                _, got = fit(8, strategy, callback, f"{folder}/{hook}.ckpt")
            assert not warnings and callback.name == hook and callback.sent > 0
            models.check_equal([got], [expected], hook)
            results.append(got)
        models.check_equal(results[:1], results[1:], hook)
    with pytest.raises(ddphook.InvalidArgumentError, match="the strategy has one"):
        fit(1, by_strategy("fp16", {})[0], Saving("fp16"))


def test_lightning(tmp_path):
    ranks.run(2, _lightning, str(tmp_path))


def _one_rank(rank, folder):
    """Without DDP, the handle does nothing; with DDP, the hook runs. States are saved."""
    as_launched(rank, 1)
    import lightning.pytorch as pl
    from accelerate import Accelerator

    import ddphook.accelerate
    import ddphook.lightning

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(models.mlp())
    with ddphook.accelerate.register(accelerator, model, ddphook.Int4()) as handle:
        accelerator.save_state(f"{folder}/accelerate")
        accelerator.load_state(f"{folder}/accelerate")
        assert handle.hook == "hook=int4" and handle.state_dict()["world_size"] == 1

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = models.mlp()

        def training_step(self, batch, number):
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Saving(ddphook.lightning.HookCallback):
        def on_train_end(self, trainer, pl_module):
            self.shown, self.counters = repr(self.handle), self.handle.statistics()
            trainer.save_checkpoint(f"{folder}/one.ckpt")

    typed = ddphook.PowerSGD(rank=2, start_powerSGD_iter=2)
    ddp = ddphook.lightning.DDPStrategy(ddp_comm_hook=typed)
    data = DataLoader(TensorDataset(batch(0, 0)), 4)
    for strategy, callback, steps in (
        ("auto", Saving(typed), 1),
        ("auto", Saving(typed), 2),
        (ddp, Saving(), 2),
    ):
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, strategy=strategy, callbacks=[callback],
            max_steps=steps, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, logger=False, default_root_dir=folder,
        )
        before = f"{folder}/one.ckpt" if strategy == "auto" and steps == 2 else None
        trainer.fit(Module(), data, ckpt_path=before)
        assert trainer.global_step == steps
        assert "matrix_approximation_rank=2" in callback.shown
        assert ("nothing to send" in callback.shown) == (strategy == "auto")
        assert (callback.counters["wire_bytes"] > 0) == (strategy is ddp)


def test_one_rank(tmp_path):
    ranks.run(1, _one_rank, str(tmp_path))
