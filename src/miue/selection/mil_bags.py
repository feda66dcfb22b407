"""Bags that separate networks that respect the MIL assumption from those that do not.

Each test has bags to learn from, on which an easy rule against the assumption is as good as the right one, and
test bags in which the easy rule is wrong. Instances are vectors of D independent normal numbers of one mean and
standard deviation: 0 and 1 of the background, −10 and 0.1 of the poison. A bag has 1 to 9 background instances.

Reference: Raff & Holt 2023, Algorithms 1 to 3. Differs from them in that the first test, too, draws the number of
background instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from miue.bags import BagDataset

WIDTH = 16
POISON = (-10.0, 0.1)  # mean and standard deviation, as of the others
BACKGROUND = (0.0, 1.0)
HIDDEN_CONCEPT = ((0.0, 3.0), (1.0, 1.0))  # two kinds of instances, either of which makes a bag positive
CONCEPTS = ((2.0, 0.1), (3.0, 0.1))  # which make a bag positive together

Kinds = list[tuple[float, float]]
"""Mean and standard deviation of each instance of a bag."""


@dataclass(frozen=True)
class MILTest:
    """A test of the MIL assumption.

    Attributes:
        name: of the test.
        shift: what is different in shifted test bags.
        draw: maps a generator, whether the bag is positive, and whether it is shifted, to the kinds of its
            instances, background aside.
    """

    name: str
    shift: str
    draw: Callable[[np.random.Generator, bool, bool], Kinds]

    def bags(self, count: int, *, seed: int, is_shifted: bool = False, width: int = WIDTH) -> BagDataset:
        """Return ``count`` bags, every other one positive, the first included.

        Args:
            count: number of bags.
            seed: of the only source of randomness.
            is_shifted: draw test bags in which the easy rule is wrong.
            width: D.

        >>> MIL_TESTS["single-concept"].bags(4, seed=1).labels.values.tolist()
        [1, 0, 1, 0]
        """
        random = np.random.default_rng(seed)
        labels = [1 - number % 2 for number in range(count)]
        bags = [_instances(random, self.draw(random, label == 1, is_shifted), width) for label in labels]
        return BagDataset.from_arrays(bags, labels, class_names=("negative", "positive"))


def single_concept(random: np.random.Generator, is_positive: bool, is_shifted: bool) -> Kinds:
    """A positive bag has 1 to 3 instances of a concept; a negative one, a positive one if shifted, has a poison.

    The easy rule: a bag is positive unless it has a poison.
    """
    concept = [HIDDEN_CONCEPT[random.integers(2)] for _ in range(random.integers(1, 4) if is_positive else 0)]
    return concept + [POISON] * (is_positive == is_shifted)


def multi_concept(random: np.random.Generator, is_positive: bool, is_shifted: bool) -> Kinds:
    """A positive bag has 1 to 3 instances of each of two concepts, a negative one has one; poison as above.

    The easy rule: as above.
    """
    concepts = [*CONCEPTS] * int(random.integers(1, 4)) if is_positive else [CONCEPTS[random.integers(2)]]
    return concepts + [POISON] * (is_positive == is_shifted)


def false_frequency(random: np.random.Generator, is_positive: bool, is_shifted: bool) -> Kinds:
    """A positive bag has an instance of each of two concepts, a negative one has one, or many if shifted.

    The easy rule: a bag is positive if it has many instances of any concept.
    """
    if is_positive:
        return [*CONCEPTS]
    return [CONCEPTS[random.integers(2)]] * (int(random.integers(35, 45)) if is_shifted else 1)


MIL_TESTS = {
    test.name: test
    for test in (
        MILTest("single-concept", "the poison of negative bags is in positive ones", single_concept),
        MILTest("multi-concept", "the poison of negative bags is in positive ones", multi_concept),
        MILTest("false-frequency", "negative bags repeat one concept 35 to 44 times", false_frequency),
    )
}


def _instances(random: np.random.Generator, kinds: Kinds, width: int) -> Float64[np.ndarray, "n D"]:
    """Return an instance of each kind and 1 to 9 of the background, in random order."""
    means, deviations = np.array([*kinds, *[BACKGROUND] * int(random.integers(1, 10))]).T
    drawn = random.normal(means[:, None], deviations[:, None], (len(means), width))
    return drawn[random.permutation(len(drawn))]
