# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/examples/pytorch with tiny models: checks the facts of its table."""

import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import ranks

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"
STEPS, COMPRESS_FROM = 6, 2
HANG_S = 600
PAGE = """\
before
<!-- models on one machine, written by docs/examples/pytorch/compare.py -->
nothing yet
<!-- end of models on one machine -->
behind
"""


def compare_ended(folder, *more):
    words = [sys.executable, EXAMPLES / "pytorch" / "compare.py", "--tiny"]
    words += ["--hooks", "fp16", "--rounds=1", f"--steps={STEPS}"]
    words += [f"--compress-from={COMPRESS_FROM}", f"--results={folder}"]
    words += [f"--page={folder / 'page.md'}", f"--plot={folder / 'plot.svg'}"]
    words += more
    return subprocess.run(
        words, capture_output=True, text=True, timeout=HANG_S, check=False
    )


def compare(folder):
    ended = compare_ended(folder)
    assert ended.returncode == 0, ended.stderr
    return (folder / "page.md").read_text()


@pytest.mark.full("trains two models six times")
def test_the_comparison(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    page = compare(tmp_path)
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in page.splitlines()]
    rows = {tuple(row[:2]): row for row in rows if len(row) == 9}
    for task, title in (("resnet", "ResNet-18"), ("gpt", "GPT")):
        result = json.loads((tmp_path / f"local.{task}.fp16.0.json").read_text())
        none, theirs, ours = (result[side] for side in ("none", "pytorch", "ours"))
        # The hook is exact: all results have equal bits.
        assert ours["losses"] == theirs["losses"] and result["difference"] == 0
        assert none["losses"][0] == ours["losses"][0]
        assert none["losses"] != ours["losses"], "fp16 rounds"
        assert none["bytes"] == [4 * result["parameters"]] * STEPS
        assert ours["bytes"] == theirs["bytes"] == [2 * result["parameters"]] * STEPS
        loss = sum(ours["losses"]) / STEPS
        assert rows[f"**{title}**, none", f"{none['bytes'][0]:,}"]
        row = rows["fp16", f"{ours['bytes'][0]:,}"]
        assert row[-2:] == [f"{loss:.3f}", f"{loss:.3f}"]
    assert page.startswith("before\n<!--") and page.endswith("-->\nbehind\n")
    assert "nothing yet" not in page
    text = (tmp_path / "plot.svg").read_text()
    xml.etree.ElementTree.fromstring(text)
    assert "ResNet-18" in text and "fp16, ours" in text

    kept = (tmp_path / "local.gpt.fp16.0.json").stat().st_mtime_ns
    assert compare(tmp_path) == page
    assert (tmp_path / "local.gpt.fp16.0.json").stat().st_mtime_ns == kept

    ended = compare_ended(tmp_path, "--steps=7")
    assert ended.returncode == 1
    assert "'steps': 7" in ended.stderr


@pytest.mark.full("trains four times")
def test_the_accuracy(tmp_path):
    """The table has a row for each hook; an exact hook predicts the same as no hook."""
    page = tmp_path / "page.md"
    place = "small GPT, written by docs/examples/pytorch/accuracy.py"
    page.write_text(f"before\n<!-- {place} -->\n<!-- end of small GPT -->\nbehind\n")
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words += ["--standalone", "--local-addr=127.0.0.1"]
    words += [EXAMPLES / "pytorch" / "accuracy.py", "--tiny", "--steps=3", "--seeds=2"]
    words += ["--hooks", "none", "int4", f"--page={page}"]
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "behind")
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in lines[4:-2]]
    assert [row[0] for row in rows] == ["none", "int4"]
    (none, _), (int4, deviation) = (map(float, row[2].split(" ± ")) for row in rows)
    # Results vary more with seeds than with codes.
    assert abs(none - int4) < 0.1 and 0 < deviation
    assert rows[0][3] == "0.0000 ± 0.0000"
    sent, encoded = (int(row[4].replace(",", "")) for row in rows)
    # 4-byte elements become half a byte, plus two bytes for each block of 64.
    assert sent * (1 / 8 + 1 / 128) <= encoded < sent / 7


@pytest.mark.full("four ranks train five models")
@pytest.mark.parametrize("mode", ["train", "replicas", "shards"])
def test_sharded_training(mode, tmp_path):
    """Tables have a row for each hook; exact ones learn and reduce the same as no hook."""
    words = [sys.executable, EXAMPLES / "network" / "fsdp.py", mode, "--tiny", "--local"]
    words += ["--steps=14", "--seeds=2", f"--json={tmp_path / 'result.json'}"]
    words += [f"--plot={tmp_path / 'plot.svg'}"] if mode == "train" else []
    ended = subprocess.run(
        words,
        env={**os.environ, "DDPHOOK_PORT": str(ranks.free_port())},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in ended.stdout.splitlines()]
    assert len({len(row) for row in rows}) == 1
    rows = {row[0]: row for row in rows[2:]}
    if mode == "train":
        assert list(rows) == ["none", "bf16", "int8", "int4", "PowerSGD, rank 4"]
        losses = {name: float(row[2].split(" ± ")[0]) for name, row in rows.items()}
        assert max(losses.values()) - min(losses.values()) < 0.1
        assert "1 Gbit/s" in (tmp_path / "plot.svg").read_text()
    elif mode == "replicas":
        errors = {name: float(row[-1]) for name, row in rows.items()}
        assert errors["none"] == 0 < errors["bf16"] < errors["int8"] < errors["int4"] < 0.5
    else:
        assert rows["none, ours"][1] == "none" and float(rows["none, ours"][-1]) == 0
        assert 0 < float(rows["fp16, ours"][-1]) < float(rows["bf16, ours"][-1]) < 0.01
    sections = json.loads((tmp_path / "result.json").read_text())["sections"]
    assert [each["name"] for each in sections[0]["results"]] == list(rows)


def _powersgd(rank):
    sys.path.insert(0, str(EXAMPLES / "pytorch"))
    import argparse

    import train

    arguments = argparse.Namespace(
        task="gpt", hook="powersgd-2", compress_from=COMPRESS_FROM, tiny=True
    )
    trainings = train.make_trainings(arguments)
    train.train(trainings, STEPS)
    shapes = [list(p.shape) for p in trainings["ours"].ddp.parameters()]
    trainings["ours"].handle.close()
    losses = {side: training.losses for side, training in trainings.items()}
    return shapes, losses, {side: t.bytes for side, t in trainings.items()}


def test_powersgd_in_the_comparison():
    for shapes, losses, sent in ranks.run(2, _powersgd):
        count = 0
        for rows, *columns in shapes:
            elements, small = rows * sum(columns or [1]), 2 * (rows + sum(columns))
            # PyTorch compresses matrices that become at most half as large.
            count += small if columns and 2 * small < elements else elements
        assert sent["ours"] == sent["pytorch"]
        assert sent["ours"][:COMPRESS_FROM] == sent["none"][:COMPRESS_FROM]
        assert sent["ours"][COMPRESS_FROM:] == [4 * count] * (STEPS - COMPRESS_FROM)
        same = COMPRESS_FROM + 1  # The loss is computed before the step's update.
        assert losses["ours"][:same] == losses["pytorch"][:same]
        for a, b in zip(losses["ours"], losses["pytorch"]):
            assert abs(a - b) < 1e-4
