"""Seeds made of seeds."""

from __future__ import annotations

import numpy as np


def derive_seed(*parts: int) -> int:
    """Return a seed that depends on all parts and on nothing else."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
