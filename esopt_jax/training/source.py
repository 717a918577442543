"""What `eval` and `play` look at: the base model of a config, or the weights that a run had after some generation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esopt_jax.config import Config
from esopt_jax.config_reader import load_config
from esopt_jax.envs.registry import make_environment
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import open_run_folder
from esopt_jax.training.session import load_parts
from esopt_jax.types import Environment, Master, Params


@dataclass(frozen=True)
class Source:
    """A policy and where it plays.

    Attributes:
        config: resolved config; of a run, its own with the overrides applied.
        environment: as the config names it.
        model: its base model.
        weights: what to play with: base parameters, or the master of a run.
        updates: how many updates lie behind the weights; 0 for a base.
        exact: whether they are the run's to the bit; on another platform they may not be.
    """

    config: Config
    environment: Environment
    model: Model
    weights: Master | Params
    updates: int = 0
    exact: bool = True


def base_source(config: Config) -> Source:
    """The base model of a config.

    Raises:
        EsoptError: the config names something that cannot be had.
    """
    environment, model = load_parts(config)
    return Source(config, environment, model, model.params)


def load_source(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    generation: int | None = None,
    base: str | None = None,
) -> Source:
    """The policy that `source` names.

    Args:
        source: a preset or a YAML file, for its base model; or a run folder.
        overrides: `section.key=value`, such as another mask or sampling.
        generation: of a run, how many updates to apply; by default all so far.
        base: where the base model of a run is, if it has moved.

    Raises:
        EsoptError: there is no such thing, or it cannot be read.

    Example:
        >>> source = load_source("quickstart", ["env.options.mask=8"])
        >>> source.updates, source.config.env.options["mask"]
        (0, 8)
    """
    if not os.path.isdir(source):
        config = load_config(source, [*overrides, *([] if base is None else [f"model.path={base}"])])
        if generation:
            raise EsoptError(f"--generation {generation} needs a run folder; {str(source)!r} is none")
        use_numerics(config)
        return base_source(config)
    file = open_run_folder(Path(source)).config
    kept, config = load_config(file), load_config(file, overrides)
    if config.es != kept.es:
        raise EsoptError(f"--set es.… does not change the weights of the run in {str(source)!r}; leave it out")
    if base is not None:
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, path=base))
    environment = make_environment(config.env.name, prompt=config.env.prompt, options=config.env.options)
    restored, model = Run(Path(source)).restore(generation, base=config.model.path, mesh=config.train.mesh)
    use_numerics(config)  # the overrides' after the run's own
    return Source(config, environment, model, restored.master, restored.updates, restored.exact)
