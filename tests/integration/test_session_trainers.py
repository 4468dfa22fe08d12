"""Scripts of other libraries' training loops as jobs: killed, restarted, and ended with the weights of a run that was not disturbed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import trainers_warm
from tests.integration.session_support import JobRun, Runs
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher
from trainhouse.workers.launcher.warm_process import WarmProcess

pytestmark = pytest.mark.stack

TRANSFORMERS = """
import hashlib, os, signal, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from trainhouse.workers import TrainhouseCallback

class Kill(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step == int(sys.argv[1]) and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
            os.kill(os.getpid(), signal.SIGKILL)

tokens = torch.randint(0, 32, (112, 8), generator=torch.Generator().manual_seed(3))
set_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1))
args = TrainingArguments(output_dir="out", num_train_epochs=2, per_device_train_batch_size=8 // int(os.environ["WORLD_SIZE"]),
    learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
data = [{"input_ids": line, "labels": line} for line in tokens]
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[TrainhouseCallback(), Kill()])
trainer.train()
weights = b"".join(tensor.numpy().tobytes() for _, tensor in sorted(trainer.model.state_dict().items()))
print("weights sha256", hashlib.sha256(weights).hexdigest())
"""

LIGHTNING = """
import hashlib, os, signal, sys
import lightning, torch
from trainhouse.workers import TrainhousePlugin

class Kill(lightning.Callback):
    def on_before_optimizer_step(self, trainer, *args):
        if trainer.global_step == int(sys.argv[1]) and trainer.global_rank == trainer.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

    def training_step(self, batch, index):
        loss = (self.layers(batch[0]).squeeze(1) - batch[0].sum(1)).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.layers(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

lightning.seed_everything(3)
points = torch.utils.data.TensorDataset(torch.randn(112, 6, generator=torch.Generator().manual_seed(5)))
ranks = int(os.environ["WORLD_SIZE"])
loader = torch.utils.data.DataLoader(points, batch_size=8 // ranks, shuffle=True)
model = Regression()
strategy = "ddp" if ranks > 1 else "auto"
trainer = lightning.Trainer(callbacks=[TrainhousePlugin(), Kill()], accelerator="cpu", devices=ranks, strategy=strategy,
    max_epochs=2, log_every_n_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, loader, torch.utils.data.DataLoader(points, batch_size=56))
weights = b"".join(tensor.numpy().tobytes() for _, tensor in sorted(model.state_dict().items()))
print("weights sha256", hashlib.sha256(weights).hexdigest())
"""
STEPS, NEVER = 28, "-1"
TORCHRUN = {"TORCHELASTIC_RUN_ID": "job"}  # the agent sets it, so that Lightning takes the ranks as they are


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """One whose warm process has imported both libraries; the page `docs/howto/trainers.md` runs scripts that import them themselves."""
    launcher = Launcher(warm_wait_s=120)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WarmProcess, "PROGRAM", (trainers_warm.__file__,))
        launcher.prepare()
    until(launcher.warm_ready)
    yield launcher
    launcher.close()


def points(run: JobRun, name: str) -> list[tuple[int, float]]:
    """Step and value of each point, in the order in which rank 0 logged them."""
    return [(line[1], line[3][name]) for line in run.lines() if line[0] == "m" and name in line[3]]  # type: ignore[misc, index, operator]


def saved(run: JobRun) -> list[int]:
    return [event[2]["step"] for event in run.events("CheckpointCompleted")]  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("script", "metric", "ranks"),
    [(TRANSFORMERS, "loss", 1), (TRANSFORMERS, "loss", 2), (LIGHTNING, "train_loss", 1), (LIGHTNING, "train_loss", 2)],
    ids=["transformers", "transformers on two ranks", "lightning", "lightning on two ranks"],
)
def test_a_killed_rank_is_restarted_to_the_same_weights(runs: Runs, script: str, metric: str, ranks: int) -> None:
    policy: dict[str, Any] = {"environment": TORCHRUN, "ranks": ranks, "checkpoint": {"every_steps": 3}}
    whole = runs.start(script, (NEVER,), name="whole", **policy)
    assert [whole.exit_of(rank, 400.0).exit_code for rank in range(ranks)] == [0] * ranks, whole.stderr()
    first = runs.start(script, ("17",), **policy)
    until(lambda: first.exit_of(ranks - 1, 400.0).signal == signal.SIGKILL)
    first.end()
    reached = max(step for step, _ in points(first, metric))
    assert 3 <= max(saved(first)) <= reached and reached in (16, 17), "the rank that is left may finish the step"
    second = runs.start(script, (NEVER,), epoch=1, **policy)
    assert [second.exit_of(rank, 400.0).exit_code for rank in range(ranks)] == [0] * ranks, second.stderr()
    assert second.weights() == whole.weights()
    (restored,) = second.events("CheckpointRestored")
    step = restored[2]["step"]  # type: ignore[index, call-overload]
    assert step >= max(saved(first)) and saved(second)[-1] == STEPS
    assert [at for at, _ in points(second, metric)] == list(range(step, STEPS)), "each step once, from the restored one"
    assert points(second, metric) == points(whole, metric)[step:] and points(first, metric) == points(whole, metric)[: reached + 1]
