"""Which parameters the instance loss of MIREL teaches.

With encoder ψ, bag decision φ and residual network π, R = T + r(h)·T:

- ``through-residual``: T is a constant; ψ learns through r(h) alone, and π learns. The published code.
- ``through-estimator``: T and r(h) both teach ψ, and π learns; φ is held. The text of the paper, under
  its Eq. eq-loss-ins.
- ``residual-only``: T and h are constants; only π learns. The published code's "frozen features",
  used for CIFAR10-bags.

The weights w̄ never carry a gradient.
"""

from __future__ import annotations

from typing import Literal

Routing = Literal["through-residual", "through-estimator", "residual-only"]
