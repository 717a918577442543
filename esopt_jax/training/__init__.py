"""The generation loop, evaluation, and what a run writes into its folder."""
