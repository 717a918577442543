"""Programs written by a model behind an OpenAI-compatible endpoint: a hosted one, vLLM, llama.cpp, Ollama.

The client repeats requests that were not answered, with growing pauses. A service that is down, or says no, is told in
the replies: what has been answered is kept, and the search stops resumably.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.search.config import WriterConfig
from esopt_jax.search.writer import Reply, Request


class EndpointWriter:
    """A `writer.Writer`."""

    def __init__(self, config: WriterConfig) -> None:
        """Make a client; nothing is sent.

        Raises:
            EsoptError: the `openai` extra is not installed, the key is missing or the address is none.
        """
        try:
            import openai
        except ImportError:
            text = "writer.backend endpoint needs the package openai: pip install 'esopt-jax[endpoint]'"
            raise EsoptError(text) from None
        if not config.base_url.startswith(("http://", "https://")):
            raise EsoptError(f"writer.base_url is {config.base_url!r}; it must begin with http:// or https://")
        key = os.environ.get(config.api_key_env, "") if config.api_key_env else "none"
        if not key:
            raise EsoptError(f"writer.api_key_env is {config.api_key_env!r}, but there is no such environment variable")
        self._config = config
        self._client = openai.OpenAI(
            base_url=config.base_url, api_key=key, timeout=config.timeout_s, max_retries=config.retries
        )
        self._refused, self._lost = openai.APIStatusError, openai.APIConnectionError
        self._failed = openai.OpenAIError

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request; after the first that fails for good, those that have not been sent are not."""
        pool = ThreadPoolExecutor(self._config.concurrency, "esopt-endpoint")
        futures = [pool.submit(self._ask, request) for request in requests]
        try:
            for future in as_completed(futures):
                if future.result().error is not None:
                    break
            for future in futures:
                future.cancel()
            return [_reply(future) for future in futures]
        except BaseException:  # Ctrl-C must not wait for answers
            self._client.close()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, request: Request) -> Reply:
        where = f"the endpoint {self._config.base_url}"
        messages: Any = [dict(message) for message in request.messages]
        try:
            answer = self._client.chat.completions.create(
                model=self._config.model,
                messages=messages,
                seed=request.seed,
                temperature=request.temperature,
                top_p=request.top_p,
                max_tokens=request.max_tokens,
            )
            return _text(answer)
        except self._refused as fault:
            return Reply("", error=f"{where} answered {fault.status_code}: {_short(fault.message)}")
        except self._lost as fault:
            text = f"does not answer ({_short(str(fault))}), asked {self._config.retries + 1} times"
            return Reply("", error=f"{where} {text}")
        except ValueError as fault:
            return Reply("", error=f"what {where} sent is no chat completion: {_short(str(fault))}")
        except (self._failed, OSError, RuntimeError) as fault:  # `RuntimeError`: the client was closed
            return Reply("", error=f"{where} cannot be used: {_short(str(fault) or type(fault).__name__)}")


def _text(answer: Any) -> Reply:  # the client builds its types from whatever came
    """The first choice of a completion.

    Raises:
        ValueError: there is none: what answered is no such endpoint.
    """
    choices = getattr(answer, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise ValueError("it holds no message")
    text = choices[0].message.content
    return Reply(text if isinstance(text, str) else "", "length" if choices[0].finish_reason == "length" else "stop")


def _reply(future: Future[Reply]) -> Reply:
    with suppress(CancelledError):
        return future.result()
    return Reply("", error="not asked, since another request failed")


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
