"""Read `history.jsonl` back, and refuse what no run can have written.

A partial last line is what a killed run leaves; it is left out. Anything else that is wrong would change the weights
that follow from the history, so it is an error that names the line.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import LATER, Config, ESConfig, config_hash
from esopt_jax.config_reader import from_dict
from esopt_jax.core.replay import Record
from esopt_jax.errors import EsoptError
from esopt_jax.training.coefficients import coefficients, scheduled
from esopt_jax.training.history import SCHEMA
from esopt_jax.training.jsonl import read_lines
from esopt_jax.types import NOISE_SPEC

_KEYS = {
    "header": {"kind", "schema", "noise_spec", "base_digest", "config_hash", "fingerprint", "es", "mesh"},
    "generation": {"kind", "generation", "sigma", "alpha", "fitness", "weights", "excluded", "cases"},
    "applied": {"kind", "generation", "digest"},
    "resumed": {"kind", "fingerprint", "config_hash", "generations"},
}
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Header:
    """What the run began with: noise, update and the base they act on."""

    base_digest: str
    config_hash: str
    fingerprint: str
    es: ESConfig
    mesh: tuple[int, int]


@dataclass(frozen=True)
class History:
    """A history as far as it is complete.

    Attributes:
        header: row 0.
        records: one a generation, in order.
        digests: of the weights after each of them; the last record may still lack its own.
        platforms: fingerprint under which each update ran that has its digest.
        fingerprint: of the platform that the run last went on under.
        config_hashes: of the configs that it began and went on with.
        size: bytes of the complete lines.
        partial: whether a line was left out because it was cut short.
    """

    header: Header
    records: tuple[Record, ...]
    digests: tuple[str, ...]
    platforms: tuple[str, ...]
    fingerprint: str
    config_hashes: tuple[str, ...]
    size: int
    partial: bool


def read_history(path: Path) -> History | None:
    """The history in a file; None when not even its header is complete.

    Raises:
        EsoptError: the file cannot be read, or a complete line is not what belongs there; the message names the line.
    """
    lines = read_lines(path)
    if not lines.rows:
        return None
    state: _State | None = None
    for number, row in enumerate(lines.rows, 1):
        try:
            state = _State.begin(row) if state is None else state.after(row)
        except EsoptError as fault:
            raise EsoptError(f"{path}, line {number}: {fault}") from None
    assert state is not None
    return state.history(size=lines.size, partial=lines.partial)


def check_config(history: History, config: Config, path: Path) -> None:
    """Refuse a config that is not the one of the run.

    Args:
        history: of the run.
        config: as the file at `path` says now.
        path: of the run's `config.yaml`.

    Raises:
        EsoptError: naming what differs.
    """
    theirs = dataclasses.replace(history.header.es, generations=config.es.generations)
    keys = [f"es.{name}" for name, value in vars(theirs).items() if value != getattr(config.es, name)]
    if config_hash(config) not in history.config_hashes or keys:
        raise EsoptError(
            f"{path} and the history beside it do not belong together ({', '.join(keys) or 'a key outside es'}): one "
            "was changed after the run began; put it back. If nobody changed it, another version of esopt_jax began "
            "the run: env.json says which"
        )


def new_history(header: Mapping[str, Any]) -> History:
    """The history of a run that has only its header, which is not in a file yet."""
    return _State.begin(header).history(size=0, partial=False)


@dataclass
class _State:
    """The history read so far."""

    header: Header
    fingerprint: str
    config_hashes: list[str]
    generations: int
    records: list[Record]
    digests: list[str]
    platforms: list[str]

    @classmethod
    def begin(cls, row: Mapping[str, Any]) -> _State:
        header = _header(row)
        return cls(header, header.fingerprint, [header.config_hash], header.es.generations, [], [], [])

    def after(self, row: Mapping[str, Any]) -> _State:
        kind = row.get("kind")
        if kind == "generation" and len(self.records) == len(self.digests):
            es = dataclasses.replace(self.header.es, generations=self.generations)
            self.records.append(_record(row, len(self.records), es))
        elif kind == "applied" and len(self.records) == len(self.digests) + 1:
            _check_keys(row, "applied")
            _check(row, "generation", lambda x: type(x) is int and x == len(self.digests), f"{len(self.digests)}")
            self.digests.append(_hex(row, "digest", 32))
            self.platforms.append(self.fingerprint)
        elif kind == "resumed":
            _check_keys(row, "resumed")
            _check(row, "generations", lambda x: type(x) is int and x >= len(self.records), "a number of generations")
            self.generations = row["generations"]
            self.fingerprint = _hex(row, "fingerprint", 16)
            self.config_hashes.append(_hex(row, "config_hash", 16))
        else:
            wanted = "generation" if len(self.records) == len(self.digests) else "applied"
            raise EsoptError(f"kind is {kind!r}; it must be {wanted!r} here")
        return self

    def history(self, *, size: int, partial: bool) -> History:
        return History(
            header=self.header,
            records=tuple(self.records),
            digests=tuple(self.digests),
            platforms=tuple(self.platforms),
            fingerprint=self.fingerprint,
            config_hashes=tuple(self.config_hashes),
            size=size,
            partial=partial,
        )


def _header(row: Mapping[str, Any]) -> Header:
    if row.get("kind") != "header":
        raise EsoptError(f"kind is {row.get('kind')!r}; a history begins with its 'header'")
    if "method" in row:
        raise EsoptError(
            f"the run is of method {row['method']!r}, whose steps cannot be replayed: its checkpoints are what there is"
        )
    _check(row, "schema", lambda x: x == SCHEMA, f"{SCHEMA}, the schema of this version")
    _check_keys(row, "header")
    _check(row, "noise_spec", lambda x: x == NOISE_SPEC, f"{NOISE_SPEC}, the noise specification of this version")
    _check(row, "mesh", lambda x: _is_list(x, 2, _is_index) and min(x) > 0, "[member, model]")
    later = {key.removeprefix("es.") for key in LATER if key.startswith("es.")}
    if not isinstance(row["es"], dict) or set(row["es"]) | later != set(vars(ESConfig())):
        raise EsoptError("es is not the whole section of a config")
    return Header(
        base_digest=_hex(row, "base_digest", 32),
        config_hash=_hex(row, "config_hash", 16),
        fingerprint=_hex(row, "fingerprint", 16),
        es=from_dict({"es": row["es"]}).es,
        mesh=(row["mesh"][0], row["mesh"][1]),
    )


def _record(row: Mapping[str, Any], generation: int, es: ESConfig) -> Record:
    _check_keys(row, "generation")
    _check(row, "generation", lambda x: type(x) is int and x == generation, f"{generation}, the next one")
    for name in ("sigma", "alpha"):
        _check(row, name, lambda x: _is_float(x) and x >= 0, "a number, 0 or more")
    for name in ("fitness", "weights"):
        _check(
            row, name, lambda x: _is_list(x, es.population_size, _is_float32), f"{es.population_size} float32 values"
        )
    for name in ("excluded", "cases"):
        _check(row, name, lambda x: _is_list(x, None, _is_index), "a list of numbers, 0 or more")
    fitness, weights = (np.asarray(row[name], np.float32) for name in ("fitness", "weights"))
    _check_follows(row, fitness, weights, es)
    return Record(
        generation=generation,
        sigma=float(row["sigma"]),
        alpha=float(row["alpha"]),
        fitness=fitness,
        weights=weights,
        excluded=tuple(row["excluded"]),
        cases=tuple(row["cases"]),
    )


def _check_follows(row: Mapping[str, Any], fitness: np.ndarray, weights: np.ndarray, es: ESConfig) -> None:
    """Refuse coefficients, sigma and alpha that do not follow from fitness and header: somebody changed one of them.

    To tolerance, since another platform may have computed them.
    """
    shaped, _ = coefficients(fitness, es, row["generation"])
    if not np.allclose(weights, shaped, rtol=1e-3, atol=1e-5):
        raise EsoptError("its weights do not follow from its fitness: one of them was changed after it was written")
    for name in ("sigma", "alpha"):
        value = scheduled(es, name, row["generation"])
        if not math.isclose(row[name], value, rel_tol=1e-9):
            raise EsoptError(f"{name} is {row[name]}, the schedule says {value}: one of them was changed")


def _check_keys(row: Mapping[str, Any], kind: str) -> None:
    missing, unknown = sorted(_KEYS[kind] - set(row)), sorted(set(row) - _KEYS[kind])
    if missing or unknown:
        raise EsoptError(f"a {kind!r} row lacks {missing} and has unknown keys {unknown}")


def _check(row: Mapping[str, Any], key: str, good: Callable[[Any], bool], allowed: str) -> None:
    if key not in row or not good(row[key]):
        text = repr(row.get(key))
        raise EsoptError(f"{key} is {text if len(text) < 80 else text[:77] + '...'}; it must be {allowed}")


def _hex(row: Mapping[str, Any], key: str, digits: int) -> str:
    _check(
        row,
        key,
        lambda x: isinstance(x, str) and bool(re.fullmatch(f"[0-9a-f]{{{digits}}}", x)),
        f"{digits} hex digits",
    )
    return str(row[key])


def _is_list(value: Any, length: int | None, item: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and all(map(item, value))


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_float(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _FLOAT32_MAX


def _is_float32(value: Any) -> bool:
    """Whether float32 holds the value exactly: any other one was not written by a run."""
    return _is_float(value) and float(np.float32(value)) == value
