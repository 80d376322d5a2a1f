"""Accelerate: a loader of ours stays ours when it is prepared, with its policy and its report.

Accelerate makes a loader of torch's class with the settings of the one it is given, and iterates over that
(`base_dataloader`). Hugging Face's Trainer prepares all its loaders so, and makes one more when it resumes in the middle
of an epoch. `lastwords.torch` asks for this adapter; `lastwords run --loader` needs none, since it changes torch's class.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import Any

from lastwords.engines.contract import Engine, log

ENGINE = Engine("accelerate", tested=("1.15",))
MAKERS = ("prepare_data_loader", "skip_first_batches")


def adapt(module: ModuleType) -> None:
    ENGINE.guarded(_follow_makers)(module)


def _follow_makers(module: ModuleType) -> None:
    for name in MAKERS:
        make = getattr(module, name)
        following = _following(make)
        # Whoever was imported before us has the function by its name already: accelerate itself, Trainer, the job.
        for one in [module, *sys.modules.values()]:
            if getattr(one, "__dict__", {}).get(name) is make:
                setattr(one, name, following)


def _following(make: Callable[..., Any]) -> Callable[..., Any]:
    keep_ours = ENGINE.guarded(_keep_ours)

    @functools.wraps(make)
    def call(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(dataloader, *args, **kwargs)
        kept = keep_ours(made, dataloader)
        return made if kept is None else kept

    return call


def _keep_ours(made: Any, given: Any) -> Any:
    from lastwords.torch import DataLoader, as_ours

    ours = getattr(given, "base_dataloader", given)  # it may be prepared already
    if not isinstance(ours, DataLoader):
        return None
    ENGINE.is_tested(metadata.version("accelerate"))
    if "base_dataloader" in vars(made):
        made.base_dataloader = as_ours(made.base_dataloader, ours)
        made.dl_state_dict = made.base_dataloader.state_dict()
        return made
    if type(made) in DataLoader.__mro__:
        return as_ours(made, ours)
    log(f"accelerate made a {type(made).__name__} of a DataLoader: deaths of its workers are not survived")
    return None
