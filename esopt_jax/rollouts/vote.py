"""Several models that act as one: each writes a reply to every prompt, and the commonest text is what is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.driver import Policy, Start, play
from esopt_jax.rollouts.policy import DevicePolicy
from esopt_jax.rollouts.population import BASE, Case, Stage, episodes_of, seeded
from esopt_jax.rollouts.processes import count, of_all, share
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.rollouts.seats import Ids
from esopt_jax.types import Trajectory, View


class Vote:
    """A `driver.Policy` of other ones; among equally common texts the one that comes first wins.

    Only for prompts that stand alone: a voter that was overruled would remember a reply that was never given.
    """

    def __init__(self, voters: Sequence[Policy], text: Callable[[Ids], str]) -> None:
        """`voters` in the order of their weight in a tie; `text` makes of a reply what is counted."""
        self._voters, self._text = list(voters), text
        self._said: list[dict[int, Ids]] = [{} for _ in voters]

    def turn_to(self, members: Sequence[tuple[int, int]]) -> None:
        """Voters stay who they are."""
        raise NotImplementedError("voters do not change")

    def begin(self, starts: Sequence[Start]) -> None:
        """Read prompts.

        Raises:
            EsoptError: one goes on from an earlier reply.
        """
        if not all(start.fresh for start in starts):
            raise EsoptError("a vote needs prompts that stand alone; this environment's conversations grow")
        for voter in self._voters:
            voter.begin(starts)

    def proceed(self) -> dict[int, Ids]:
        """The replies of the rows on which every voter has written its own."""
        for said, voter in zip(self._said, self._voters, strict=True):
            said.update(voter.proceed())
        complete = sorted(set.intersection(*(set(said) for said in self._said)))
        return {row: commonest([said.pop(row) for said in self._said], self._text) for row in complete}


def commonest(replies: Sequence[Ids], text: Callable[[Ids], str]) -> Ids:
    """The first reply among those with the commonest text.

    Example:
        >>> commonest([(1,), (2,), (3, 2), (2,)], lambda ids: str(ids[-1]))
        (2,)
    """
    texts = [text(ids) for ids in replies]
    best, _ = Counter(texts).most_common(1)[0]  # of equals the first that was met
    return replies[texts.index(best)]


def rollout_vote(
    stage: Stage,
    views: Sequence[View],
    cases: Sequence[Case],
    *,
    seed: int,
    sampling: Sampling,
    repeats: int = 1,
    rows: int = 0,
) -> list[Trajectory]:
    """As `population.rollout_model`, by several models that vote on every reply; all of them are held at once."""
    own, shares, episodes = share(episodes_of(BASE, cases, repeats)), stage.engine.shares, len(cases) * repeats
    each = -(-min(rows or episodes, episodes) // (shares * count()))
    voters = [
        DevicePolicy(
            stage.engine,
            stage.engine.spread(view),
            (shares, each),
            sampling=sampling,
            seed=seed,
            generation=0,
            batched=False,
        )
        for view in views
    ]
    played = play(
        Vote(voters, stage.chat.text),
        stage.environment,
        [seeded(own, stage, seed, 0)],
        width=shares * each,
        chat=stage.chat,
        pool=stage.pool,
        limits=stage.limits,
        patience=stage.patience,
    )
    return of_all(played[0])
