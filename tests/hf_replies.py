"""Greedy replies of a transformers model, for comparison."""

import numpy as np


def greedy_replies(model, ids: np.ndarray, mask: np.ndarray, new: int) -> np.ndarray:
    """`new` tokens behind left-padded prompts `ids: [B, T]` with their `mask`; no end id stops them, `[B, new]`."""
    import torch

    written = model.generate(
        input_ids=torch.as_tensor(ids),
        attention_mask=torch.as_tensor(mask),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return written.numpy()[:, ids.shape[1] :]
