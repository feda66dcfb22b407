"""Errors within code of others: as they are, with a note of where they were met."""

from __future__ import annotations

import parts_of_others as others
import pytest
from made_bags import train_one_epoch

from miue.bags import BagDataset

WORDS = "--network parts_of_others:FailsInUse --method softmax --set max_epochs=1 --quiet"


def test_an_error_in_training_names_the_epoch(bags: BagDataset) -> None:
    with pytest.raises(KeyError, match="stain") as raised:
        train_one_epoch(bags, network=others.FailsInUse, distances=[])
    assert raised.value.__notes__[0].startswith("in training epoch 1, for ")


def test_an_error_in_prediction_names_the_bags(bags: BagDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train_one_epoch(bags, network=others.PlainMean, distances=[])
    monkeypatch.setattr(others.PlainMean, "forward", others.FailsInUse.forward)
    with pytest.raises(KeyError, match="stain") as raised:
        model.predict(bags.subset([3, 1, 4]))
    sizes = bags.batch([3, 1, 4]).segments.in_words()
    assert sizes.startswith("3 bags of ")
    assert raised.value.__notes__ == [f"in prediction, for {sizes}, {bags.ids[3]!r} to {bags.ids[4]!r}"]
