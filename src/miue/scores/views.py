"""What of an instance a score is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class InstanceViews:
    """Some instances as scores read them.

    Attributes:
        features: h of the first network.
        statistics: of the images, None where there are none.
        logits: returns T.
    """

    features: Float[Tensor, "N D"]
    statistics: Float[Tensor, "N S"] | None
    logits: Callable[[], Float[Tensor, "N C"]]

    def read(self, what: str) -> Float[Tensor, "N W"]:
        """Return the rows that a score with this value of ``reads`` takes; of logits, energy and the largest."""
        if what == "statistics":
            assert self.statistics is not None
            return self.statistics
        if what == "features":
            return self.features
        logits = self.logits()
        of_logits = torch.stack([-logits.logsumexp(1), logits.amax(1)], 1)
        return of_logits if what == "logits" else torch.cat([self.features, of_logits], 1)
