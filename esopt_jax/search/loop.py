"""A search on disk: ask, save the answers, score, record, and go on from what is recorded.

Everything that is made of an answer follows from the answer and the programs before it. So a search that was killed
anywhere and goes on ends as it would have ended; no answer that had arrived is asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from esopt_jax.errors import StoppedError
from esopt_jax.search.answer_text import Answer, read_answer
from esopt_jax.search.config import AhdConfig, WriterConfig
from esopt_jax.search.learning import Evolver
from esopt_jax.search.program import Program, to_row
from esopt_jax.search.prompts import Brief, function_name, write_prompt
from esopt_jax.search.run_files import answer_row, write_best
from esopt_jax.search.scorer import Score, Scorer
from esopt_jax.search.session import At, Session, conclude, open_session
from esopt_jax.search.state import Round, SearchState, absorb, next_round
from esopt_jax.search.syntax import syntax_key
from esopt_jax.search.writer import Reply, Request, Writer
from esopt_jax.training.jsonl import encode


def search(
    config: AhdConfig,
    run_dir: str | Path,
    *,
    brief: Brief,
    scorer: Scorer,
    writer: Writer,
    evolver: Evolver | None = None,
    resume: bool = False,
    at: At = lambda moment: None,
) -> SearchState:
    """Search until the budget is spent.

    Args:
        config: of the search; when it goes on, the one in its folder.
        run_dir: its folder; a new or empty one unless `resume`.
        brief: the task, for the prompts.
        scorer: of the same task.
        writer: writes the programs.
        evolver: the same writer where its weights are to learn from them.
        resume: go on with the search in the folder.
        at: told where the search passes.

    Returns:
        The last state.

    Raises:
        EsoptError: the folder cannot be used, or does not hold what its config asks for.
        StoppedError: a signal, the disk or the writer's service ended it; it can go on.
    """
    with open_session(
        config, Path(run_dir), brief=brief, scorer=scorer, writer=writer, evolver=evolver, resume=resume, at=at
    ) as session:
        try:
            while (
                asked := next_round(config.search, session.state, direction=scorer.direction, es=config.es)
            ) is not None:
                _play(session, asked)
            conclude(session, "finished")
        except BaseException:
            with suppress(OSError):  # perhaps what stopped the search
                conclude(session, "stopped")
            raise
        return session.state


def _play(session: Session, asked: Round) -> None:
    """Play a round from where it stands, and turn to the next."""
    config, direction = session.config, session.scorer.direction
    replies = _answers(session, asked)
    programs = list(session.here)
    for program in _programs(session, asked, replies, programs):
        session.programs.write(to_row(program))
        programs.append(program)
        session.recorded.append(program)
        session.passing("recorded")
    before, session.here = session.state, ()
    session.state = absorb(config.search, before, asked, programs, direction=direction)
    if session.lessons is not None and session.state.batch > before.batch:
        session.lessons.learn(before, (*before.written, *programs))
        session.passing("learnt")
    if session.state.best is not None and session.state.best is not before.best:
        write_best(session.folder, session.state.best)
    session.report(session.state)


def _answers(session: Session, asked: Round) -> list[Reply]:
    """The replies to the slots of which no program is recorded yet; those that are new are saved first.

    Raises:
        StoppedError: the service failed for some; the others are saved.
    """
    calls = range(asked.first_call + len(session.here), asked.first_call + len(asked.slots))
    missing = [call for call in calls if call not in session.replies]
    requests = [make_request(session.config.writer, session.brief, asked, call - asked.first_call) for call in missing]
    if requests:
        replies = session.writer.write(requests)
        session.passing("answered")
        good = {call: reply for call, reply in zip(missing, replies, strict=True) if reply.error is None}
        session.answers.append("".join(encode(answer_row(call, reply)) + "\n" for call, reply in good.items()))
        session.replies |= good
        session.passing("saved")
        errors = [reply.error for reply in replies if reply.error is not None]
        if errors:
            kept = f"{len(good)} of {len(replies)} answers came and are kept"
            raise StoppedError(f"{errors[0]}; {kept}: go on with --resume {session.folder.path}")
    return [session.replies[call] for call in calls]


def make_request(writer: WriterConfig, brief: Brief, asked: Round, index: int) -> Request:
    """What is asked of the writer for a slot of a round."""
    slot = asked.slots[index]
    return Request(
        messages=write_prompt(brief, asked.operator, slot.parents),
        seed=slot.seed,
        temperature=writer.temperature,
        top_p=writer.top_p,
        max_tokens=writer.max_tokens,
        member=slot.member,
    )


def _programs(
    session: Session, asked: Round, replies: Sequence[Reply], recorded: Sequence[Program]
) -> Iterator[Program]:
    """The programs in the replies, scored, in the order of their slots.

    A program with the syntax tree of an earlier one is given its score.
    """
    name = function_name(session.brief.signature)
    known = dict(session.state.first)
    for program in recorded:
        if program.key:
            known.setdefault(program.key, program)
    drafts = []
    new = set(known)
    for index, reply in enumerate(replies, len(recorded)):
        answer = read_answer(reply.text, name)
        key = "" if answer.problem else syntax_key(answer.code)
        drafts.append((index, answer, key, not answer.problem and (not key or key not in new)))
        new.add(key)
    scores = session.scorer.score([answer.code for _, answer, _, scored in drafts if scored])
    for index, answer, key, scored in drafts:
        first = known.get(key) if key else None
        score = _checked(next(scores)) if scored else _known_score(answer, first)
        program = _program(asked, index, answer, key, score, None if first is None else first.call)
        if key:
            known.setdefault(key, program)
        yield program


def _known_score(answer: Answer, first: Program | None) -> Score:
    return Score(None, answer.problem) if first is None else Score(first.objective, first.reason)


_MAX_REASON = 1000


def _checked(score: Score) -> Score:
    """The score as it can be written down."""
    if score.objective is not None and not math.isfinite(score.objective):
        return Score(None, f"an objective of {score.objective}", score.seconds)
    return replace(score, reason=score.reason[:_MAX_REASON])


def _program(asked: Round, index: int, answer: Answer, key: str, score: Score, twin: int | None) -> Program:
    slot = asked.slots[index]
    return Program(
        call=asked.first_call + index,
        batch=asked.batch,
        slot=slot.number,
        attempt=asked.attempt,
        operator=asked.operator,
        parents=tuple(parent.call for parent in slot.parents),
        seed=slot.seed,
        idea=answer.idea,
        code=answer.code,
        objective=score.objective,
        reason=score.reason,
        key=key,
        twin=twin,
        member=slot.member,
        seconds=score.seconds,
    )
