"""The published loops as one would write them first: NumPy and PyTorch, instance by instance, step by step."""

import itertools
from collections.abc import Callable

import numpy as np
import torch

WEIGHTS = (0, 1, 1, 2, 2, 3, 3)


def construct_tsp(select: Callable, cities: np.ndarray) -> float:
    """Mean length of tours built city by city."""
    lengths = []
    for points in cities:
        distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
        order = np.argsort(distances, axis=1)
        count = len(points)
        route = np.zeros(count, dtype=int)
        for step in range(1, count - 1):
            near = order[route[step - 1]][1:]
            near = near[~np.isin(near, route[:step])]
            city = select(route[step - 1], 0, near[:50], distances)
            if city in route[:step]:
                raise ValueError(f"city {city} again")
            route[step] = city
        everything = np.arange(count)
        route[-1] = everything[~np.isin(everything, route[:-1])][0]
        lengths.append(sum(distances[route[i], route[(i + 1) % count]] for i in range(count)))
    return float(np.mean(lengths))


def construct_asp(priority: Callable, blocks: tuple, inseparable: np.ndarray, letters: int, weight: int) -> float:
    """Size of a greedily chosen admissible set; every word that is left is tried after every choice."""
    bad = {triple for triple in itertools.combinations_with_replacement(range(7), 3) if inseparable[triple]}
    codes = [c for c in itertools.product(range(7), repeat=letters // 3) if sum(WEIGHTS[k] for k in c) == weight]
    scores = np.array([priority(sum((blocks[k] for k in code), ()), letters, weight) for code in codes])
    chosen: list[tuple[int, ...]] = []
    while codes:
        best = codes[int(np.argmax(scores))]
        left = [index for index, code in enumerate(codes) if _stays(code, best, chosen, bad)]
        codes, scores = [codes[index] for index in left], scores[left]
        chosen.append(best)
    return float(sum(np.prod([1 if k in (0, 5, 6) else 3 for k in code]) for code in chosen))


def _stays(code: tuple, best: tuple, chosen: list, bad: set) -> bool:
    if all(WEIGHTS[a] <= WEIGHTS[b] for a, b in zip(best, code, strict=True)):
        return False
    if all(WEIGHTS[a] >= WEIGHTS[b] for a, b in zip(best, code, strict=True)):
        return False
    return not any(all(tuple(sorted(triple)) in bad for triple in zip(old, best, code, strict=True)) for old in chosen)


def aco_tsp(heuristics: np.ndarray, cities: np.ndarray, ants: int = 30, iterations: int = 100) -> float:
    """Mean length of the shortest tours; the ants of a colony step together, colonies come one after the other."""
    best = []
    for index, (matrix, points) in enumerate(zip(heuristics, cities, strict=True)):
        torch.manual_seed(index)
        attraction = torch.tensor(matrix, dtype=torch.float32).clamp_min(1e-9)
        distances = torch.cdist(*[torch.tensor(points, dtype=torch.float32)] * 2)
        pheromone, shortest = torch.ones_like(distances), float("inf")
        for _ in range(iterations):
            here = torch.randint(0, len(points), (ants,))
            mask = torch.ones(ants, len(points))
            mask[torch.arange(ants), here] = 0
            path = [here]
            for _ in range(len(points) - 1):
                here = torch.multinomial(pheromone[here] * attraction[here] * mask, 1).squeeze(1)
                mask = mask.clone()
                mask[torch.arange(ants), here] = 0
                path.append(here)
            paths = torch.stack(path)
            onward = torch.roll(paths, -1, 0)
            costs = distances[paths, onward].sum(0)
            shortest = min(shortest, costs.min().item())
            pheromone = pheromone * 0.9
            for ant in range(ants):
                pheromone[paths[:, ant], onward[:, ant]] += 1 / costs[ant]
                pheromone[onward[:, ant], paths[:, ant]] += 1 / costs[ant]
        best.append(shortest)
    return float(np.mean(best))


def aco_cvrp(
    heuristics: np.ndarray,
    places: np.ndarray,
    demands: np.ndarray,
    capacity: float,
    ants: int = 30,
    iterations: int = 100,
) -> float:
    """Mean length of the shortest routes; the ants of a colony step together, colonies come one after the other."""
    best = []
    for index, (matrix, points, wants) in enumerate(zip(heuristics, places, demands, strict=True)):
        torch.manual_seed(index)
        attraction = (torch.tensor(matrix, dtype=torch.float32) + 1e-9).clamp_min(1e-9)
        distances = torch.cdist(*[torch.tensor(points, dtype=torch.float32)] * 2)
        wanted = torch.tensor(wants, dtype=torch.float32)
        pheromone, shortest = torch.ones_like(distances), float("inf")
        every = torch.arange(ants)
        for _ in range(iterations):
            here = torch.zeros(ants, dtype=torch.long)
            free = torch.ones(ants, len(points))
            free[:, 0] = 0
            room = torch.full((ants,), float(capacity))
            path = [here]
            while free.any():
                mask = free * (wanted[None] <= room[:, None])
                mask[:, 0] = ((here != 0) | (free.sum(1) == 0)).float()
                here = torch.multinomial(pheromone[here] * attraction[here] * mask, 1).squeeze(1)
                free = free.clone()
                free[every, here] = 0
                room = torch.where(here == 0, torch.tensor(float(capacity)), room - wanted[here])
                path.append(here)
            paths = torch.stack([*path, torch.zeros_like(here)])
            costs = distances[paths[:-1], paths[1:]].sum(0)
            shortest = min(shortest, costs.min().item())
            pheromone = pheromone * 0.9
            for ant in range(ants):
                pheromone[paths[:-1, ant], paths[1:, ant]] += 1 / costs[ant]
            pheromone = pheromone.clamp_min(1e-10)
        best.append(shortest)
    return float(np.mean(best))


def aco_bpp(heuristics: np.ndarray, demands: np.ndarray, capacity: int, packings: int = 200) -> float:
    """Mean number of bins; packings come one after the other."""
    best = []
    for index, (matrix, sizes) in enumerate(zip(heuristics, demands, strict=True)):
        rng = np.random.default_rng(index)
        attraction = np.clip(matrix, 1e-6, 1e6) / matrix.max()
        best.append(min(_bins(rng, attraction, sizes, capacity) for _ in range(packings)))
    return float(np.mean(best))


def _bins(rng: np.random.Generator, attraction: np.ndarray, sizes: np.ndarray, capacity: int) -> int:
    left = np.ones(len(sizes), dtype=bool)
    bins = 0
    while left.any():
        items = [int(rng.choice(np.flatnonzero(left)))]
        left[items[0]] = False
        room = capacity - sizes[items[0]]
        bins += 1
        while (fits := left & (sizes <= room)).any():
            merit = (attraction[items].mean(axis=0) + 1e-5) * fits
            item = int(merit.argmax())
            items.append(item)
            left[item] = False
            room -= sizes[item]
    return bins
