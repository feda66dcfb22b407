"""Seeds made of seeds."""

from __future__ import annotations

import numpy as np

from miue.common.errors import out_of_range


def derive_seed(*parts: int) -> int:
    """Return a seed that depends on all parts and on nothing else.

    Raises:
        ConfigError: a negative one.
    """
    if min(parts) < 0:
        raise out_of_range("seed", "at least 0", min(parts))
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
