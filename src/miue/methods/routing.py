"""Which parameters the instance loss of MIREL trains.

With encoder ψ, bag classifier φ and residual network π, R = T + r(h)·T:

- ``through-residual``: T is constant; π is trained, and ψ through r(h) alone. The published code.
- ``through-estimator``: π is trained, and ψ through both T and r(h); φ is fixed. The text of the paper, below
  Eq. 10.
- ``residual-only``: T and h are constant; only π is trained. The published code's "frozen features", used for
  CIFAR10-bags.

No gradient flows through the weights w̄. ``auto`` is the routing that the network names, its
``instance_routing``.
"""

from __future__ import annotations

from typing import Literal

Routing = Literal["through-residual", "through-estimator", "residual-only"]
AUTO = "auto"
