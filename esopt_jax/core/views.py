"""What the members of a population read, and how the leaves of a view are taken apart.

A leaf of a population's view is an array with a leading member axis, a `Factored` whose base all members share, or a
`Shared` that no member has an own copy of. Model code only ever sees one member: arrays and `Factored`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from esopt_jax.types import Params, Specs, View


@struct.dataclass
class Factored:
    """A matrix leaf plus a low-rank perturbation: `base + leftᵀ right` on the matrix form `[rows, columns]`.

    Attributes:
        base: the leaf in its own shape, shared by the members of a population.
        left: `[R, rows]`, or `[M, R, rows]` for M members, with sigma, sign and `1/sqrt(R)` folded in.
        right: `[R, columns]` or `[M, R, columns]`.
    """

    base: Any
    left: Any
    right: Any


@struct.dataclass
class Shared:
    """A leaf that is not perturbed, as part of a population's view.

    Attributes:
        base: the leaf in its own shape, the same array for all members.
    """

    base: Any


def view_axes(view: View) -> View:
    """`in_axes` for `jax.vmap` over a population's `unwrapped` view: 0 for what members own, None for what they share.

    Example:
        >>> view = {"w": Factored(base=jnp.ones((3, 2)), left=jnp.ones((5, 1, 3)), right=jnp.ones((5, 1, 2)))}
        >>> jax.vmap(lambda v: v["w"].base.sum() + v["w"].left.sum(), in_axes=(view_axes(view),))(view).shape
        (5,)
    """

    def axes(leaf: Any) -> Any:
        match leaf:
            case Factored():
                return Factored(base=None, left=0, right=0)
            case Shared():
                return None
            case _:
                return 0

    return {path: axes(leaf) for path, leaf in view.items()}


def unwrapped(view: View) -> View:
    """The same leaves as a model reads them: what was `Shared` is the array itself.

    Example:
        >>> view = {"w": Shared(base=jnp.ones(2)), "b": jnp.ones((5, 2))}
        >>> axes = view_axes(view)
        >>> jax.vmap(lambda v: v["w"].sum() + v["b"].sum(), in_axes=(axes,))(unwrapped(view)).shape
        (5,)
    """
    return {path: leaf.base if isinstance(leaf, Shared) else leaf for path, leaf in view.items()}


def member_view(view: View, index: jax.Array | int) -> View:
    """The view of one member of a population's view.

    Example:
        >>> member_view({"b": jnp.arange(6.0).reshape(3, 2)}, 1)["b"].tolist()
        [2.0, 3.0]
    """
    return {path: _member(leaf, index) for path, leaf in view.items()}


def with_member(view: View, new: View, index: jax.Array | int) -> View:
    """A population's view with another member at `index`; `new` is a view of that one. What `view` owned is donated.

    Example:
        >>> with_member({"b": jnp.zeros((2, 1))}, {"b": jnp.ones((1, 1))}, 1)["b"].tolist()
        [[0.0], [1.0]]
    """
    return {path: _replaced(leaf, new[path], index) for path, leaf in view.items()}


def materialize(view: View, specs: Specs) -> Params:
    """Dense float32 weights of one member's view, for tests and for exporting a member.

    Args:
        view: of one member, without member axis.
        specs: the leaf table.

    Returns:
        path -> float32 array.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (1, 2), (None, None), 1, "normal", "w"),)
        >>> view = {"w": Factored(base=jnp.ones((1, 2)), left=jnp.array([[0.5]]), right=jnp.array([[1.0, -1.0]]))}
        >>> materialize(view, specs)["w"].tolist()
        [[1.5, 0.5]]
    """
    return {spec.path: _dense(view[spec.path], spec.noise_form) for spec in specs}


def _member(leaf: Any, index: jax.Array | int) -> Any:
    match leaf:
        case Factored():
            return Factored(leaf.base, leaf.left[index], leaf.right[index])
        case Shared():
            return leaf.base
        case _:
            return leaf[index]


def _replaced(leaf: Any, new: Any, index: jax.Array | int) -> Any:
    match leaf:
        case Factored():  # the base is everybody's
            left, right = _put(leaf.left, new.left, index), _put(leaf.right, new.right, index)
            return Factored(leaf.base, left, right)
        case Shared():
            return leaf
        case _:
            return _put(leaf, new, index)


@partial(jax.jit, donate_argnums=0)
def _put(members: jax.Array, one: jax.Array, index: jax.Array | int) -> jax.Array:
    result: jax.Array = lax.dynamic_update_index_in_dim(members, one[0], index, 0)
    return result


@partial(jax.jit, static_argnames="form")
def _dense(leaf: Any, form: tuple[int, int]) -> jax.Array:
    if not isinstance(leaf, Factored):
        return jnp.asarray(leaf, jnp.float32)
    left, right = leaf.left.astype(jnp.float32), leaf.right.astype(jnp.float32)
    noise = jnp.einsum("ra,rb->ab", left, right, precision=lax.Precision.HIGHEST)
    return (jnp.asarray(leaf.base, jnp.float32).reshape(form) + noise).reshape(leaf.base.shape)
