"""Lightning, Accelerate and Hugging Face's Trainer: they rebuild loaders, and what they rebuild still survives."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import DistributedSampler, Sampler, SequentialSampler

import lastwords
from lastwords.engines import accelerate as adapter
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Deadly, Stream, digest

pytestmark = [
    pytest.mark.heavy,
    # Their own, about each other and about small machines.
    pytest.mark.filterwarnings("ignore"),
]

SKIP = lastwords.Policy(on_poison="skip")


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


# Whole jobs, as their users write them: with the import replaced, and not changed at all.

DATASET = """
import ctypes, json, os, signal
import torch
{imports}

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index == 5 and first_time(index):
            ctypes.string_at(8)
        if index == 18 and first_time(index):
            os.kill(os.getpid(), signal.SIGKILL)
        return {{"number": torch.tensor([float(index)])}}

def first_time(index):
    try:
        os.close(os.open(f"died-{{index}}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def forward(self, number):
        self.seen += number.flatten().int().tolist()
        return {{"loss": self.layer(number).mean()}}

def tell(model, rank=0):
    with open(f"seen-{{rank}}", "w") as file:
        json.dump(model.seen, file)
"""

LIGHTNING = """
import pytorch_lightning

class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def train_dataloader(self):
        return DataLoader(Numbers(), 4, shuffle=True, num_workers=2)

    def training_step(self, batch):
        return self.model(**batch)["loss"]

    def on_train_end(self):
        tell(self.model, self.global_rank)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

pytorch_lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices={ranks}, strategy="{strategy}", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
).fit(Module())
"""

ACCELERATE = """
from accelerate import Accelerator

accelerator, model = Accelerator(cpu=True), Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2)
prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(prepared(**batch)["loss"])
    optimizer.step()
tell(model)
"""

TRAINER = """
import transformers
{imports}

model = Model()
arguments = transformers.TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True, report_to=[], disable_tqdm=True,
    save_strategy="no", logging_strategy="no", dataloader_num_workers=2, dataloader_persistent_workers=True,
    dataloader_prefetch_factor=3, dataloader_pin_memory=False,
)
transformers.Trainer(model, arguments, train_dataset=Numbers()).train()
tell(model)
"""

TORCHS = "from torch.utils.data import DataLoader"
OURS = "from lastwords.torch import DataLoader"
TRAINERS = "import lastwords.torch, transformers.trainer; transformers.trainer.DataLoader = lastwords.torch.DataLoader"
ONE_RANK, TWO_RANKS = {"ranks": 1, "strategy": "auto"}, {"ranks": 2, "strategy": "ddp_fork"}


def run(folder: Path, job: str, *prefix: str) -> list[int]:
    (folder / "job.py").write_text(job)
    done = subprocess.run(
        [*prefix, sys.executable, "job.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.glob("died-*")) == ["died-18", "died-5"], "both have died"
    return sorted(number for seen in folder.glob("seen-*") for number in json.loads(seen.read_text()))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("job", "epochs"),
    [
        pytest.param(
            DATASET.format(imports=OURS) + LIGHTNING.format(**TWO_RANKS), 1, marks=needs("pytorch_lightning")
        ),
        pytest.param(DATASET.format(imports=OURS) + ACCELERATE, 1, marks=needs("accelerate")),
        pytest.param(
            DATASET.format(imports="") + TRAINER.format(imports=TRAINERS), 2, marks=needs("transformers")
        ),
    ],
    ids=["lightning, two ranks", "accelerate", "trainer"],
)
def test_with_the_import_replaced(tmp_path: Path, job: str, epochs: int):
    assert run(tmp_path, job) == sorted([*range(32)] * epochs)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("job", "epochs"),
    [
        pytest.param(
            DATASET.format(imports=TORCHS) + LIGHTNING.format(**ONE_RANK), 1, marks=needs("pytorch_lightning")
        ),
        pytest.param(DATASET.format(imports=TORCHS) + ACCELERATE, 1, marks=needs("accelerate")),
        pytest.param(DATASET.format(imports="") + TRAINER.format(imports=""), 2, marks=needs("transformers")),
    ],
    ids=["lightning", "accelerate", "trainer"],
)
def test_without_a_change(tmp_path: Path, job: str, epochs: int):
    seen = run(tmp_path, job, sys.executable, "-m", "lastwords", "run", "--loader", "--")
    assert seen == sorted([*range(32)] * epochs)


# Lightning makes loaders anew, by what `__init__` says it takes.


@needs("pytorch_lightning")
@pytest.mark.parametrize("is_made_in_hook", [False, True])
def test_lightning_keeps_what_is_ours_when_it_replaces_the_sampler(is_made_in_hook: bool):
    from lightning_fabric.utilities.data import _replace_dunder_methods
    from pytorch_lightning.trainer.states import RunningStage
    from pytorch_lightning.utilities.data import _update_dataloader

    def make() -> DataLoader:
        return DataLoader(Deadly([13]), 8, shuffle=True, num_workers=2, policy=SKIP, in_order=False)

    if is_made_in_hook:
        with _replace_dunder_methods(TorchDataLoader, "dataset"):
            loader = make()
    else:
        loader = make()
    sampler: Sampler = DistributedSampler(loader.dataset, num_replicas=2, rank=1, shuffle=False)
    made = _update_dataloader(loader, sampler, RunningStage.TRAINING)
    assert type(made) is DataLoader
    assert (made.policy, made.batch_size, made.num_workers, made.in_order) == (SKIP, 8, 2, False)
    assert made.sampler is sampler


@needs("pytorch_lightning")
def test_lightning_predicts_without_the_item_that_kills():
    lightning: Any = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):
        def predict_step(self, batch: torch.Tensor) -> torch.Tensor:
            return batch

    loader = DataLoader(Deadly([13]), batch_size=8, num_workers=2, policy=SKIP)
    answers = quiet_trainer(lightning).predict(Module(), loader)
    assert torch.cat(answers).tolist() == [index for index in range(40) if index != 13]


def quiet_trainer(lightning: Any, **more: Any) -> Any:
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )


def trained(
    lightning: Any, loader: Any, checkpoint: Path | None = None, **more: Any
) -> tuple[Any, list[int]]:
    """The trainer afterwards, and the items in the order in which they came."""

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
            self.seen: list[int] = []

        def training_step(self, batch: Any) -> torch.Tensor:
            self.seen += batch["index"].tolist()
            return self.layer(batch["noise"]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    module, trainer = Module(), quiet_trainer(lightning, **more)
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return trainer, module.seen


def shuffled() -> DataLoader:
    return DataLoader(Augmented(40), batch_size=8, num_workers=2, shuffle=True)


@needs("pytorch_lightning")
@pytest.mark.parametrize("steps", [3, 5])
def test_a_checkpoint_of_lightning_goes_on_with_the_next_batch(tmp_path: Path, steps: int):
    lightning = pytest.importorskip("pytorch_lightning")
    trainer, first = trained(lightning, shuffled(), max_steps=steps)
    trainer.save_checkpoint(tmp_path / "checkpoint")
    _, rest = trained(lightning, shuffled(), tmp_path / "checkpoint", max_steps=10)
    assert sorted(first + rest) == sorted([*range(40)] * 2)
    assert sorted((first + rest)[:40]) == [*range(40)], "the epoch that was left, and then the next"


# Accelerate


@pytest.fixture
def accelerator() -> Iterable[Any]:
    accelerate = pytest.importorskip("accelerate")
    found = accelerate.Accelerator(cpu=True)
    yield found
    found.free_memory()  # it keeps what it has prepared, persistent workers included
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@needs("accelerate")
def test_what_accelerate_prepares_has_the_policy_and_the_report(accelerator: Any):
    loader = DataLoader(Deadly([13]), batch_size=8, num_workers=2, policy=SKIP)
    prepared = accelerator.prepare(loader)
    assert [index for batch in prepared for index in batch.tolist()] == [i for i in range(40) if i != 13]
    assert [one.index for one in loader.report().skipped] == [13]
    assert isinstance(prepared, DataLoader) and prepared.policy is SKIP


@needs("accelerate")
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Augmented(40), {"batch_size": 5, "shuffle": True}),
        (Augmented(40), {"batch_size": None, "sampler": SequentialSampler(range(40))}),
        (Stream(40), {"batch_size": 5}),
        (Augmented(40), {"batch_size": 5, "shuffle": True, "persistent_workers": True, "prefetch_factor": 3}),
    ],
    ids=["shuffled", "no batches", "stream", "persistent"],
)
def test_prepared_batches_are_torchs_own(accelerator: Any, dataset: Any, options: dict[str, Any]):
    found = []
    for make in (TorchDataLoader, DataLoader):
        torch.manual_seed(8)
        prepared = accelerator.prepare(make(dataset, num_workers=2, **options))
        found.append([digest(prepared) for _ in range(2)])
    assert found[0] == found[1]


@needs("accelerate")
@pytest.mark.parametrize("is_prepared", [False, True])
def test_batches_that_are_skipped_on_resuming(accelerator: Any, is_prepared: bool):
    from accelerate import skip_first_batches

    loader: Any = DataLoader(Deadly([29]), batch_size=8, num_workers=2, policy=SKIP)
    rest = skip_first_batches(accelerator.prepare(loader) if is_prepared else loader, 2)
    assert [index for batch in rest for index in batch.tolist()] == [i for i in range(16, 40) if i != 29]
    assert [one.index for one in loader.report().skipped] == [29]


@needs("accelerate")
def test_shards_of_two_processes_are_the_whole(accelerator: Any):
    from accelerate.data_loader import prepare_data_loader

    seen = []
    for rank in range(2):
        loader = DataLoader(Deadly([13]), batch_size=8, num_workers=2, policy=SKIP)
        shard = prepare_data_loader(loader, num_processes=2, process_index=rank, even_batches=False)
        seen += [index for batch in shard for index in batch.tolist()]
        assert len(loader.report().deaths) == (2 if rank == 1 else 0), "item 13 is in the second batch"
    assert sorted(seen) == [index for index in range(40) if index != 13]


@needs("accelerate")
def test_batches_as_they_come_can_be_prepared(accelerator: Any):
    """It asks for the state before each batch."""
    prepared = accelerator.prepare(DataLoader(Deadly([]), batch_size=8, num_workers=2, in_order=False))
    assert sorted(index for batch in prepared for index in batch.tolist()) == [*range(40)]


@needs("accelerate")
def test_a_state_saved_by_accelerate_goes_on(tmp_path: Path):
    accelerate = pytest.importorskip("accelerate")
    settings = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    prepared = accelerator.prepare(shuffled())
    assert isinstance(prepared, DataLoader), "and not torchdata's"
    given = []
    for number, batch in enumerate(prepared):
        given += batch["index"].tolist()
        if number == 2:
            accelerator.save_state(tmp_path)
            break
    accelerator.load_state(tmp_path)
    given += [index for batch in prepared for index in batch["index"].tolist()]
    assert sorted(given) == [*range(40)]


def test_an_accelerate_that_looks_different_is_left_alone(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    other = types.ModuleType("accelerate.data_loader")
    other.prepare_data_loader = lambda dataloader: "prepared"  # type: ignore[attr-defined]
    monkeypatch.setattr(adapter.ENGINE, "is_on", True)
    adapter.adapt(other)  # has no skip_first_batches
    loader = DataLoader(Augmented())
    assert other.prepare_data_loader(loader) == "prepared"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lastwords: accelerate: off in this process, and the job goes on without: ")
