"""One training loop for all networks here: updates as a function of their number, so that an interrupted run goes on exactly.

A task (see train_backbone.py) names its network and makes batch, loss and scores:

    task.plan                      a `Plan`
    task.model()                   the module, with random weights
    task.batch(update, side)       what `task.loss` reads; a function of its arguments and of nothing else
    task.loss(model, batch)        (loss, {name: (sum, count)}) of a batch
    task.evaluate(model, side)     {name: value} on photos held out

A run folder has last.pt (model, Adam's state, update; written atomically), log.jsonl, and plan.json. Nothing in an update is drawn from
a random state that outlives it: the number of the update stands for it. One thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kept
import numpy as np
import torch
from torch import Tensor

from bcnn.nets import fused
from bcnn.nets.latent import latent_weights


@dataclass(frozen=True)
class Plan:
    """Schedule of a run; positions are fractions of its updates."""

    updates: int
    batch: int = 64
    lr: float = 0.01
    head_lr: float = 1.0  # factors of lr: of linear layers,
    real_lr: float = 1.0  # and of all else that is not a latent weight
    lr_last: float = 0.002  # fraction of lr at the end of the cosine
    warmup: float = 0.01
    sizes: tuple[tuple[float, int], ...] = ((1.0, 64),)  # (until this position, side of the training crops)
    real_until: float = 0.0  # step 1 (real weights) until this position, then step 2 (binary weights)
    evaluate_every: int = 150_000  # crops

    def at(self, update: int) -> tuple[float, int, str]:
        """Rate, side and kind of weights of an update."""
        t = update / self.updates
        if t < self.warmup:
            rate = 0.01 + 0.99 * t / self.warmup
        else:
            rate = (
                self.lr_last + (1 - self.lr_last) * (1 + math.cos(math.pi * (t - self.warmup) / (1 - self.warmup))) / 2
            )
        side = next(side for until, side in self.sizes if t < until or until == 1.0)
        return self.lr * rate, side, "real" if t < self.real_until else "binary"


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as everywhere


def normalised(pixels: np.ndarray, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Tensor:
    """uint8 N,S,S,3 -> float N,3,S,S."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255  # channels last in memory, as the kernels read it
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


REWARM = 300  # updates over which a run without Adam's state comes back to its rate


def groups(model: torch.nn.Module, plan: Plan) -> list[dict]:
    """Parameters with the factor of their rate: latent weights, heads, the rest."""
    latent = {id(p) for p in latent_weights(model)}
    heads = {id(p) for m in model.modules() if isinstance(m, torch.nn.Linear) for p in m.parameters()}
    parts: dict[float, list] = {1.0: [], plan.head_lr: [], plan.real_lr: []}
    for p in model.parameters():
        parts[1.0 if id(p) in latent else plan.head_lr if id(p) in heads else plan.real_lr].append(p)
    return [{"params": params, "factor": factor} for factor, params in parts.items() if params]


class Run:
    """A run folder and what is in it."""

    def __init__(self, task, folder: Path, start: Path | None) -> None:
        self.task, self.plan, self.folder = task, task.plan, folder
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(task.seed)
        self.model = task.model()
        self.optimizer = torch.optim.Adam(groups(self.model, self.plan), lr=self.plan.lr, fused=True)
        self.update, self.cpu, self.rewarm_from = 0, 0.0, -REWARM
        last = folder / "last.pt"
        if last.exists():
            found = torch.load(last, weights_only=True)
            self.model.load_state_dict(found["model"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.update, self.cpu, self.rewarm_from = found["update"], found["cpu"], found["rewarm_from"]
        elif start is not None:
            state, facts = kept.load(start)
            self.model.load_state_dict(state)
            # The position in the schedule counts, not the update: the plan may have become longer or shorter.
            self.update = round(facts["position"] * self.plan.updates)
            self.cpu, self.rewarm_from = facts["cpu_seconds"], self.update
        plain = dataclasses.asdict(self.plan)
        (folder / "plan.json").write_text(json.dumps(plain, indent=1) + "\n")

    def save(self) -> None:
        part = self.folder / "last.part"
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**state, "update": self.update, "cpu": self.cpu, "rewarm_from": self.rewarm_from}, part)
        os.replace(part, self.folder / "last.pt")

    def log(self, **record) -> None:
        record = {"update": self.update, "crops": self.update * self.plan.batch, **record}
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in record.items()})
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    def step(self, lr: float, side: int) -> dict[str, tuple[float, float]]:
        for group in self.optimizer.param_groups:
            group["lr"] = group["factor"] * lr * min(1.0, (self.update - self.rewarm_from + 1) / REWARM)
        self.optimizer.zero_grad(set_to_none=True)
        loss, sums = self.task.loss(self.model, self.task.batch(self.update, side))
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for weight in latent_weights(self.model):
                weight.clamp_(-1, 1)
        if not math.isfinite(value := float(loss.detach())):
            raise SystemExit(f"the loss is {value} at update {self.update}; the last checkpoint is from before")
        return {"loss": (value, 1.0), **sums}

    def evaluate(self, side: int) -> None:
        began = time.thread_time()
        self.model.eval()
        with torch.inference_mode():
            scores = self.task.evaluate(self.model, side)
        self.model.train()
        self.log(kind="held out", side=side, **scores, seconds=time.thread_time() - began)

    def train(self, stop_at: float, log_crops: int = 20_000, save_seconds: float = 240) -> None:
        """Train until the plan ends or the clock says `stop_at`."""
        from bcnn.nets.latent import set_weights

        plan, stopped = self.plan, []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.append(1))
        sums: dict[str, list[float]] = {}
        saved = began = time.monotonic()
        cpu, first = time.thread_time(), self.update
        weights = ""
        self.model.train()
        with fused.cores(self.model):
            while self.update < plan.updates and not stopped and time.time() < stop_at:
                lr, side, wanted = plan.at(self.update)
                if wanted != weights:
                    set_weights(self.model, weights := wanted)
                for name, (value, count) in self.step(lr, side).items():
                    total = sums.setdefault(name, [0.0, 0.0])
                    total[0], total[1] = total[0] + value, total[1] + count
                self.update += 1
                crops = self.update * plan.batch
                if crops % log_crops < plan.batch:
                    now, spent = time.monotonic(), time.thread_time()
                    self.cpu += spent - cpu
                    count = (self.update - first) * plan.batch
                    means = {name: total / max(count, 1) for name, (total, count) in sums.items()}
                    self.log(kind="train", lr=lr, side=side, **means, per_second=count / (now - began),
                             per_cpu_second=count / (spent - cpu), cpu=self.cpu)  # fmt: skip
                    sums, began, cpu, first = {}, now, spent, self.update
                if crops % plan.evaluate_every < plan.batch:
                    self.evaluate(side)
                    began, cpu, first = time.monotonic(), time.thread_time(), self.update
                if time.monotonic() - saved > save_seconds:
                    self.save()
                    saved = time.monotonic()
        self.cpu += time.thread_time() - cpu
        self.save()
        self.evaluate(plan.at(min(self.update, plan.updates - 1))[1])


def main(parser: argparse.ArgumentParser, make) -> None:
    """The command line that all tasks share. `make(arguments)` returns the task."""
    parser.add_argument("--run", type=Path, required=True, help="run folder; one with a checkpoint goes on")
    parser.add_argument("--from", dest="start", type=Path, help="kept weights to go on from: a .safetensors of kept.py")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop, with a checkpoint, after so many minutes")
    parser.add_argument("--updates", type=int, help="length of the whole schedule")
    parser.add_argument("--set", action="append", default=[], help="KEY=NUMBER of the plan, for short experiments")
    parser.add_argument("--keep", type=Path, help="write the run's weights to this .safetensors, and train no further")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stop_at = time.time() + arguments.minutes * 60
    task = make(arguments)
    if arguments.updates:
        task.plan = dataclasses.replace(task.plan, updates=arguments.updates)
    for key, _, value in (text.partition("=") for text in arguments.set):
        task.plan = dataclasses.replace(task.plan, **{key: type(getattr(task.plan, key))(value)})
    run = Run(task, arguments.run, arguments.start)
    if arguments.keep:
        log = [json.loads(line) for line in (arguments.run / "log.jsonl").read_text().splitlines()]
        last = {kind: next((r for r in reversed(log) if r["kind"] == kind), None) for kind in ("train", "held out")}
        facts = {
            "position": run.update / run.plan.updates,
            "updates": run.update,
            "crops": run.update * run.plan.batch,
            "cpu_seconds": round(run.cpu),
            "plan": dataclasses.asdict(run.plan),
            "last": last,
        }
        kept.save(arguments.keep, run.model, facts)
        return
    print(f"from update {run.update:,} of {run.plan.updates:,}: {' '.join(sys.argv)}", flush=True)
    run.train(stop_at)
