"""The published procedure in plain PyTorch: noise is added to the weights in place, and taken away again."""

import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence

import torch

CHUNK = 8_388_608
"""Normals that are drawn at once."""

Weights = Mapping[str, torch.Tensor]


def tuned(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every weight once, tied ones under their first name."""
    return {name: leaf.data for name, leaf in model.named_parameters()}


def add_noise(weights: Weights, seed: int, scale: float) -> None:
    """Add `scale` times the noise of a member, rounded to the weights' type before and after."""
    for name, leaf in weights.items():
        draw = _generator(leaf, name, seed)
        for part in _chunks(leaf):
            noise = torch.randn(part.shape, generator=draw, device=leaf.device)
            part.add_(noise.to(part.dtype), alpha=scale)


def update(weights: Weights, seeds: Sequence[int], shaped: Sequence[float], *, alpha: float) -> None:
    """One step along the weighted noise of all members, which is summed in float32 and rounded once."""
    for name, leaf in weights.items():
        draws = [_generator(leaf, name, seed) for seed in seeds]
        for part in _chunks(leaf):
            total = torch.zeros(part.shape, device=leaf.device)
            for draw, weight in zip(draws, shaped, strict=True):
                noise = torch.randn(part.shape, generator=draw, device=leaf.device)
                total.add_(noise, alpha=alpha / len(seeds) * weight)
            part.add_(total.to(part.dtype))


def zscored(rewards: Sequence[float]) -> list[float]:
    """Rewards of mean 0 and standard deviation 1."""
    mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [(reward - mean) / (spread + 1e-8) for reward in rewards]


def _generator(leaf: torch.Tensor, name: str, seed: int) -> torch.Generator:
    return torch.Generator(device=leaf.device).manual_seed(seed ^ zlib.crc32(name.encode()))


def _chunks(leaf: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from leaf.view(-1).split(CHUNK)
