"""The digest of bags: what it must tell apart, in memory, in files and in a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_bags import separable_bags

import miue
from miue.bags import Labels, fingerprint, fingerprint_of_facts


@pytest.mark.parametrize("instance", [0, 1, -1])
def test_another_value_anywhere_in_memory_is_told_apart(instance: int) -> None:
    bags = separable_bags(12)
    other = np.array(bags.instances)
    other[instance, -1] += 1e-3
    assert fingerprint(replace(bags, instances=other)) != fingerprint(bags)
    assert fingerprint(replace(bags, instances=np.array(bags.instances))) == fingerprint(bags)


def test_instances_of_other_bags_do_not_count() -> None:
    bags = separable_bags(12)
    other = np.array(bags.instances)
    other[bags.starts[3]] += 1
    rest = [row for row in range(len(bags)) if row != 3]
    assert fingerprint(replace(bags, instances=other).subset(rest)) == fingerprint(bags.subset(rest))


def test_features_made_anew_for_a_few_of_many_files_are_told_apart(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in range(150):
        np.save(tmp_path / f"slide_{name:03}.npy", random.normal(size=(2, 3)).astype(np.float32))
    before = fingerprint(miue.load_bags(tmp_path).bags)
    assert fingerprint(miue.load_bags(tmp_path).bags) == before
    np.save(tmp_path / "slide_077.npy", random.normal(size=(2, 3)).astype(np.float32))
    assert fingerprint(miue.load_bags(tmp_path).bags) != before


def test_a_store_of_other_features_is_told_apart(tmp_path: Path) -> None:
    bags = separable_bags(12)
    doubled = replace(bags, instances=2 * np.asarray(bags.instances))
    for name, content in {"first": bags, "same": bags, "other": doubled}.items():
        miue.write_store(tmp_path / name, content)
    first, same, other = (fingerprint(miue.read_store(tmp_path / name)) for name in ("first", "same", "other"))
    assert first == same != other


def test_a_label_that_is_unknown_is_told_apart_from_that_of_the_first_class() -> None:
    bags = separable_bags(12)
    known = bags.labels.known.copy()
    known[np.flatnonzero(bags.labels.values == 0)[0]] = False
    fewer = replace(bags, labels=Labels(bags.labels.values, known))
    assert fingerprint(fewer) != fingerprint(bags)
    assert fingerprint_of_facts(fewer) != fingerprint_of_facts(bags)


def test_facts_of_the_instances_of_other_bags_do_not_count() -> None:
    bags = separable_bags(12)
    labels = bags.instance_labels.values.copy()
    labels[bags.starts[3]] += 1
    other = replace(bags, instance_labels=Labels(labels, bags.instance_labels.known))
    rest = [row for row in range(len(bags)) if row != 3]
    assert fingerprint_of_facts(other) != fingerprint_of_facts(bags)
    assert fingerprint_of_facts(other.subset(rest)) == fingerprint_of_facts(bags.subset(rest))
