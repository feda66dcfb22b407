"""Which reader opens which ending. A new reader is one file and one line here."""

from __future__ import annotations

from miue.io.formats.arrays import open_npy, open_npz
from miue.io.formats.base import OpenBag
from miue.io.formats.hdf5 import open_hdf5
from miue.io.formats.safe_tensors import open_safetensors
from miue.io.formats.torch_tensors import open_torch

READERS: dict[str, OpenBag] = {
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".pt": open_torch,
    ".pth": open_torch,
    ".npy": open_npy,
    ".npz": open_npz,
    ".safetensors": open_safetensors,
}
