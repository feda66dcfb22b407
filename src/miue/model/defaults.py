"""Settings of training that depend on the size of the data."""

from __future__ import annotations

import math

BAGS_PER_UPDATE = 8
UPDATES_OF_PATIENCE = 1260  # 20 epochs of MNIST-bags, as published
MOST_INSTANCES = 20_000_000  # read by one training


def settings_by_size(bags: int, instances: int) -> dict[str, int]:
    """Return the settings of training that are not specified, for so many training bags and instances.

    Training ends after 1260 updates without improvement, which are 10 to 50 epochs, and at the latest after ten
    times as many epochs. Where these would read more than 20 million instances there are fewer, at least 50, and
    training ends after a fifth of them without improvement.

    >>> settings_by_size(500, 5000)  # MNIST-bags
    {'max_epochs': 200, 'bags_per_update': 8, 'lr_patience': 10, 'stop_patience': 20}
    >>> settings_by_size(32, 384_000)  # slides
    {'max_epochs': 52, 'bags_per_update': 8, 'lr_patience': 5, 'stop_patience': 10}
    """
    patience = min(50, max(10, round(UPDATES_OF_PATIENCE / math.ceil(bags / BAGS_PER_UPDATE))))
    epochs = min(10 * patience, max(50, MOST_INSTANCES // instances))
    patience = min(patience, epochs // 5)
    return {
        "max_epochs": epochs,
        "bags_per_update": BAGS_PER_UPDATE,
        "lr_patience": patience // 2,
        "stop_patience": patience,
    }
