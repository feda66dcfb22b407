"""Files that are damaged, or made to do harm: each is refused by name, before memory is taken, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import made_files
import numpy as np
import torch

from miue.readers import contents_of

FEATURES = made_files.features_of(7)


def test_pickled_arrays_are_read_by_several_threads_at_once(tmp_path: Path) -> None:
    paths = [made_files.trident_pt(tmp_path, f"s{number:03}", FEATURES) for number in range(150)]
    with ThreadPoolExecutor(4) as pool:
        assert [found.size for found in pool.map(contents_of, paths)] == [7] * 150
    assert np.ndarray not in torch.serialization.get_safe_globals()
