"""What is trained, in one record: network, encoder, method, their options, distances and settings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from torch import nn

from miue.bags import BagDataset
from miue.common.errors import ConfigError, lacking, wrong_type
from miue.common.values import Option, check_value, several
from miue.methods import Method
from miue.model.build import part_of_members
from miue.model.config import KINDS, Component, ModelConfig
from miue.model.feature_scores import DistanceLike, part_of_distance
from miue.model.part import Part, PartLike, find_part, unknown_option
from miue.networks import MILNetwork
from miue.networks.encoders import default_encoder
from miue.settings import (
    DEFAULT_DISTANCES,
    DEFAULT_ENCODER,
    DEFAULT_METHOD,
    DEFAULT_NETWORK,
    METHOD_OF_TIMES,
    TrainingConfig,
    TrainSettings,
)

MEMBER = "method.member"
BACKGROUND = "background"
BAGS_PER_UPDATE = 8
UPDATES_OF_PATIENCE = 1260  # 20 epochs of MNIST-bags, as published
MOST_INSTANCES = 20_000_000  # read by one training


@dataclass(frozen=True)
class Recipe:
    """What is trained and how, before the bags are known.

    Attributes:
        network: name, import path, class, factory or module.
        method: name, import path, class, factory or module, which brings its network.
        encoder: name, import path, class, factory or module, or "auto" for the one that suits the bags.
        options: values by "network.hidden", "encoder.width", "method.routing" and the like.
        distances: names, import paths or classes of distances, fitted after training.
        settings: fields of ``TrainingConfig`` that are specified.
        join: what is made of features of several patch encoders: "members", a network for each, or "patches", one.
        initial: folder of a model whose weights training starts from, where they fit.

    Raises:
        ConfigError: options, settings or distances that are no collections of these.
    """

    network: PartLike = DEFAULT_NETWORK
    method: PartLike = DEFAULT_METHOD
    encoder: PartLike = DEFAULT_ENCODER
    options: Mapping[str, Option] = field(default_factory=dict)
    distances: Sequence[DistanceLike] = DEFAULT_DISTANCES
    settings: Mapping[str, Any] = field(default_factory=dict)
    join: Literal["members", "patches"] = "members"
    initial: Path | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", check_value("options", self.options, Mapping[str, Option]))
        object.__setattr__(self, "settings", check_value("settings", self.settings, Mapping[str, Any]))
        distances = several(self.distances)
        if distances is None:
            wanted = f"several, such as ({self.distances!r},)" if isinstance(self.distances, str) else "several"
            raise wrong_type("distances", wanted, self.distances, "pass a tuple or list, () for none")
        object.__setattr__(self, "distances", tuple(distances))  # what a generator yields is read once
        if isinstance(self.encoder, str) and self.encoder.strip().lower() == DEFAULT_ENCODER:
            object.__setattr__(self, "encoder", DEFAULT_ENCODER)  # whatever its case, as all names

    @classmethod
    def of(cls, settings: TrainSettings, bags: BagDataset | None = None) -> Recipe:
        """Return what is trained and how by settings; if they name no method, one that learns from the bags."""
        chosen = {name: one for name, one in settings.given().items() if name in TrainingConfig.model_fields}
        distances = () if settings.distances == ("none",) else settings.distances
        is_named = "method" in settings.given() or bags is None or not bags.is_censored
        parts = settings.network, settings.method if is_named else METHOD_OF_TIMES, settings.encoder
        return cls(*parts, settings.options, distances, chosen, settings.join, settings.initial)

    def with_seed(self, seed: int) -> Recipe:
        """Return the same recipe with another seed."""
        return replace(self, settings={**self.settings, "seed": seed})

    def training_config(self, bags: BagDataset) -> TrainingConfig:
        """Return how the model is trained on these bags: as specified, else by their number and size.

        Raises:
            ConfigError: a setting does not exist or its value is out of range.
            DataError: no bags.
        """
        if not len(bags):
            raise lacking("the bags to train on", "at least one", "choose bags to train on")
        config = TrainingConfig.of({**settings_by_size(len(bags), int(bags.sizes.sum())), **self.settings})
        if config.instances_per_bag is None:
            return config
        read = int(bags.sizes.clip(max=config.instances_per_bag).sum())
        return TrainingConfig.of({**settings_by_size(len(bags), read), **self.settings})

    def model_config(
        self,
        instance_shape: tuple[int, ...],
        *,
        encoders: Sequence[int] = (),
        has_background: bool = True,
    ) -> ModelConfig:
        """Return what the model is made of, for instances of this shape.

        Args:
            instance_shape: of the bags.
            encoders: how many of the features are of each patch encoder, where there are several.
            has_background: whether bags of a class may have background alone; not so of intervals of a number.

        Raises:
            ConfigError: a name or option does not exist, and the nearest that does is named; or an option has a
                value of another type.
        """
        if encoders and self.join == "members":
            stops = list(accumulate(encoders))
            members = [self.model_config((width,), has_background=has_background) for width in encoders]
            spans = [(stop - width, stop) for width, stop in zip(encoders, stops, strict=True)]
            return ModelConfig.mixture(
                [one.model_copy(update={"columns": span}) for one, span in zip(members, spans, strict=True)]
            )
        parts = self._parts(instance_shape)
        by_kind: dict[str, dict[str, Option]] = {kind: {} for kind in parts}
        for kind, part in parts.items():
            if part.is_built:
                by_kind[kind] = part.options_of_module()[0]
        known = {} if parts["encoder"].is_built else parts["encoder"].parameters()
        learner = part_of_members(parts["method"], self.options.get(MEMBER)) or parts["method"]
        defaults = getattr(learner.make, "encoder_defaults", {})
        by_kind["encoder"].update({name: value for name, value in defaults.items() if name in known})
        for key, value in self.options.items():
            kind, _, option = key.partition(".")
            if kind not in parts or not option:
                raise unknown_option(key, *parts.values())
            if parts[kind].is_built:
                parts[kind].check_options({option: value})
            by_kind[kind][option] = value
        if not has_background and BACKGROUND in learner.parameters():
            by_kind["method"].setdefault(BACKGROUND, None)
        if "member" in by_kind["method"]:
            by_kind["method"]["member"] = _known_everywhere(parts["method"], by_kind["method"]["member"])
        method, network = parts["method"].make, parts["network"].make
        if isinstance(method, type) and issubclass(method, Method):
            network_class = network if isinstance(network, type) else type(network)
            by_kind["method"] = method.resolve_options(
                by_kind["method"], network_class if issubclass(network_class, MILNetwork) else MILNetwork
            )
        for kind, part in parts.items():
            if not part.is_built:
                part.check_options(by_kind[kind])
                by_kind[kind] = by_kind[kind] if part.is_own else part.with_defaults(by_kind[kind])
        of_encoder, of_network, of_method = (Component.of(parts[kind], by_kind[kind]) for kind in KINDS)
        return ModelConfig(encoder=of_encoder, network=of_network, method=of_method)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values: parts by name or import path."""
        parts = {"network": self.network, "method": self.method}
        if self.encoder != DEFAULT_ENCODER:
            parts["encoder"] = self.encoder
        named = {kind: find_part(kind, part) for kind, part in parts.items()}
        options = dict(self.options)
        if MEMBER in options:
            options[MEMBER] = _known_everywhere(named["method"], options[MEMBER])
        return {
            "encoder": DEFAULT_ENCODER,
            **{kind: part.import_path or part.name for kind, part in named.items()},
            "distances": [part.import_path or part.name for part in map(part_of_distance, self.distances)],
            "options": options,
            "settings": dict(self.settings),
            "join": self.join,
            **({} if self.initial is None else {"initial": str(Path(self.initial).resolve())}),
        }

    def check_importable(self, item: str) -> None:
        """Raise unless another process can make the same of ``to_json``.

        Args:
            item: what needs it, for the message.

        Raises:
            ConfigError: a part that is built already, or that is no name of a module.
        """
        chosen = [("network", self.network), ("method", self.method)]
        if self.encoder != DEFAULT_ENCODER:
            chosen.append(("encoder", self.encoder))
        chosen += [("distance", distance) for distance in self.distances]
        member = part_of_members(find_part("method", self.method), self.options.get(MEMBER))
        chosen += [] if member is None else [("method", member.make)]
        for kind, maker in chosen:
            is_built = isinstance(maker, nn.Module)
            part = find_part(kind, type(maker) if is_built else maker)
            if part.unsaveable or is_built:
                raise ConfigError(
                    item=item,
                    wanted="parts that another process can import and build",
                    got=part.unsaveable or f"{part.kind} {part.name!r}, which is built already",
                    fix="pass its class or import path, its options as options=, or choose the executor 'local'",
                )

    def _parts(self, instance_shape: tuple[int, ...]) -> dict[str, Part]:
        """Return encoder, network and method, of which one that is built already brings those within it."""
        network, encoder = self.network, self.encoder
        method = find_part("method", self.method)
        if isinstance(method.make, Method):
            _leave_alone("network", network, DEFAULT_NETWORK, "the method")
            network = method.make.network
        takes = getattr(method.make, "takes", {})
        if isinstance(network, str) and network == DEFAULT_NETWORK:
            network = takes.get("network", network)
        chosen = find_part("network", network)
        if isinstance(chosen.make, MILNetwork):
            _leave_alone("encoder", encoder, DEFAULT_ENCODER, "the network")
            encoder = chosen.make.encoder
        if isinstance(encoder, str) and encoder == DEFAULT_ENCODER:
            plain = len(instance_shape) == 1 and _takes_features(chosen)
            encoder = takes.get("encoder") or ("identity" if plain else default_encoder(instance_shape))
        return {"encoder": find_part("encoder", encoder), "network": chosen, "method": method}


def _known_everywhere(method: Part, member: Option) -> Option:
    """Return the members' method of an ensemble as processes find it that know no name registered here."""
    part = part_of_members(method, member)
    if part is None or (part.is_own and ":" not in str(member)):
        return member
    return part.import_path or part.name


def _leave_alone(kind: str, value: PartLike, default: str, owner: str) -> None:
    if not (isinstance(value, str) and value == default):
        raise ConfigError(
            item=f"the {kind}",
            wanted=f"none beside {owner}, which is built already and has its own",
            got=repr(value),
            fix=f"leave {kind} out, or pass the class of {owner}",
        )


def _takes_features(network: Part) -> bool:
    """Return whether a network is a plain module over features, which needs no encoder."""
    make = network.make
    if isinstance(make, nn.Module):
        return not isinstance(make, MILNetwork)
    if isinstance(make, type):
        return not issubclass(make, MILNetwork)
    parameters = inspect.signature(make).parameters
    return "in_features" in parameters and "encoder" not in parameters


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
