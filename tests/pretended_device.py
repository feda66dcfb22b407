"""A pretended accelerator: its tensors lie in main memory, and are refused wherever a real one would refuse them.

Run as a program, it compares networks and methods on it with the same on the CPU: loss, gradients, predictions
and distances. It is a program since a process keeps a device that was registered. The device has float64, as one
of CUDA; what is computed with one network is compared again after it has lost it, as an Apple GPU is without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from results_on_device import results
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from miue.bags import BagDataset
from miue.common import tensors
from miue.methods import METHODS
from miue.model import feature_scores
from miue.model import predict as prediction
from miue.model.build import build_method
from miue.model.contract import DataContract
from miue.model.recipe import Recipe
from miue.networks import NETWORKS
from miue.training import fit

NAME = "pretended"
WAITS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_unique2", "masked_select")
MAY_MIX = ("_to_copy", "copy_", "index", "index_put_", "_index_put_impl_")  # as between a real device and the CPU


class OnDevice(Tensor):
    """A tensor that says it is on the device; ``held`` is the same in main memory."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        if held.dtype == torch.float64 and NAME in tensors.WITHOUT_DOUBLE:
            raise TypeError("the device has no float64")
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return computed(func, args, kwargs or {})

    def tolist(self) -> list[Any]:
        return self.held.tolist()

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None, *_: Any, **__: Any) -> Tensor:
        return OnDevice(self.held.new_tensor(data, dtype=dtype or self.dtype))

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a tensor of the device to numpy")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert a tensor of the device to numpy")


class Everywhere(TorchDispatchMode):
    """Also sees what is made without a tensor: ``torch.zeros(3, device=...)``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Backend(backend_registration._DummyBackendModule):
    """What torch asks of the module of a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def computed(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what torch computes, in main memory; fails where tensors of the device and of the CPU are mixed."""
    tensors: list[Tensor] = []
    mapped(tensors.append, (args, kwargs))
    there = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
    name = function.overloadpacket.__name__
    here = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim()]
    if there and here and name not in MAY_MIX:
        raise RuntimeError(f"{function}: tensors on the device and on the CPU")
    named = kwargs.get("device")
    stays = isinstance(args[0], OnDevice) if name == "copy_" else bool(there)
    to_device = stays if named is None else torch.device(named).type == NAME
    if named is not None:
        kwargs = {**kwargs, "device": "cpu"}
    args, kwargs = mapped(lambda x: x.held if isinstance(x, OnDevice) else x, (args, kwargs))
    result = function(*args, **kwargs)
    known = {id(tensor.held): tensor for tensor in there}

    def placed(x: Tensor) -> Tensor:
        if to_device:
            return known[id(x)] if id(x) in known else OnDevice(x)
        return x.clone() if id(x) in known else x

    return mapped(placed, result)


def mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Return a value with each of its tensors changed; torch's ``tree_map`` would take most of the time."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)([mapped(change, one) for one in value])
    if isinstance(value, dict):
        return {name: mapped(change, one) for name, one in value.items()}
    return value


def register() -> None:
    """Make the device known to torch in this process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, Backend())
    on_cpu: Callable[..., Tensor] = torch.tensor

    def tensor(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        made = on_cpu(data, **kwargs)
        return OnDevice(made) if device is not None and torch.device(device).type == NAME else made

    patch.object(torch, "tensor", tensor).start()
    patch.object(torch, "inference_mode", torch.no_grad).start()  # tensors of inference cannot be wrapped
    for module in (prediction, feature_scores, fit):
        patch.object(module, "torch_device", torch.device).start()


def compare(bags: BagDataset, encoder: str, network: str, method: str) -> int:
    """Return how often a method was compared; raise unless the device has the results of the CPU."""
    here = list(results(bags, encoder, network, method, "cpu"))
    kinds: list[set[str]] = [set(), {NAME}] if network == "attention" else [set()]
    for without_double in kinds:
        with patch.object(tensors, "WITHOUT_DOUBLE", without_double), Everywhere():
            there = list(results(bags, encoder, network, method, NAME))
        for (name, value), (also, expected) in zip(there, here, strict=True):
            assert name == also
            message = f"{network}, {method}, device without {without_double or 'nothing'}: {name}"
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5, err_msg=message)
    return len(kinds)


@contextmanager
def counted_waits() -> Iterator[list[str]]:
    """Return what had to wait for an answer of the device within the block; copies of whole tensors are none."""
    waits: list[str] = []
    scalar = computed

    def seen(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if function.overloadpacket.__name__ in WAITS and isinstance(args[0], OnDevice):
            waits.append(str(function))
        return scalar(function, args, kwargs)

    def listed(tensor: OnDevice) -> list[Any]:
        waits.append("tolist")
        return tensor.held.tolist()

    with patch.dict(globals(), computed=seen), patch.object(OnDevice, "tolist", listed), Everywhere():
        yield waits


def check_waits(bags: BagDataset, method: str) -> None:
    """Raise if an update waits for the device, or a batch that is predicted more than twice."""
    shape = bags.instances.shape[1:]
    contract = DataContract(instance_shape=shape, class_names=("0", "1"))
    made = build_method(Recipe(method=method).model_config(shape), contract, 1)
    made.train()
    with Everywhere():
        made.to(NAME)
        batch = bags.batch(np.arange(len(bags))).to(NAME)
    with counted_waits() as waits:
        made.loss(batch, 1).backward()
    assert not waits, f"{method}: an update waits for {waits}"
    with counted_waits() as waits:
        list(prediction.predict(made, bags, device=NAME))
    assert len(waits) <= 2, f"{method}: a batch that is predicted waits for {waits}"


def main() -> None:
    """Compare everything, and print how much it was."""
    register()
    random = np.random.default_rng(0)
    sizes = (9, 1, 30, 12)
    vectors = [random.standard_normal((size, 6), dtype=np.float32) for size in sizes]
    images = [random.integers(0, 255, (size, 28, 28, 1), dtype=np.uint8) for size in sizes]
    compared = 0
    networks = [name for name in NETWORKS if name in sys.argv[1:] or not sys.argv[1:]]
    pairs = {(network, "mirel") for network in networks} | {
        ("attention", method) for method, made in METHODS.items() if not made.takes
    }
    for network, method in sorted(pairs):
        compared += compare(BagDataset.from_arrays(vectors, [0, 0, 1, 1]), "mlp", network, method)
    for method in ("laplace", "mirel", "sngp"):
        compared += compare(BagDataset.from_arrays(vectors, [0, 0, 1, 2]), "mlp", "attention", method)
    compared += compare(BagDataset.from_arrays(images, [0, 0, 1, 1]), "lenet", "attention", "mirel")
    large = [random.standard_normal((size, 6), dtype=np.float32) for size in (3000, 700)]
    for method in ("softmax", "mirel"):
        for arrays in (vectors[:2], large):
            check_waits(BagDataset.from_arrays(arrays, [0, 1]), method)
    print(f"{compared} networks with methods compute the same")


if __name__ == "__main__":
    main()
