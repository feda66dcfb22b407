"""Networks of the library torchmil, with one logit per class instead of a single logit.

Weights carry torchmil's names under ``model``; options have torchmil's names. Only the method's loss is trained:
torchmil's own losses, such as CLAM's clustering of instances, are not used.

Reference: Castro-Macías et al. 2024, torchmil.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from miue.common.errors import import_extra, out_of_range
from miue.common.values import Rate, Width
from miue.networks.encoders import Encoder
from miue.networks.padded import PaddedNetwork

Padded = tuple[Float[Tensor, "b C"], Float[Tensor, "b L K"] | None]


class TorchmilABMIL(PaddedNetwork):
    """torchmil's ABMIL: softmax attention, then a linear classifier.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        hidden: width of the attention.
        gated: multiply the attention's hidden layer with a sigmoid gate.
    """

    has_attention: ClassVar[bool] = True
    embeds_bags: bool = True
    model_name: ClassVar[str] = "ABMIL"

    def __init__(self, encoder: Encoder, num_classes: int, hidden: Width = 256, gated: bool = False) -> None:
        super().__init__(encoder, num_classes)
        width = encoder.out_features
        self.model = torchmil_model(self.model_name)((width,), att_dim=hidden, gated=gated)
        self.model.classifier = nn.Linear(width, num_classes)

    def score_padded(self, features: Float[Tensor, "b L D"], present: Bool[Tensor, "b L"]) -> Padded:
        """Return the logits and the attention of padded bags."""
        logits, scores = self.model(features, present, return_att=True)
        return logits, scores.masked_fill(~present, -torch.inf).softmax(1).unsqueeze(2)


class TorchmilCLAM(TorchmilABMIL):
    """torchmil's CLAM-SB, whose attention is gated by default and whose forward pass is that of ABMIL.

    The classifiers of its clustering loss are left out, because that loss is not used.
    """

    model_name: ClassVar[str] = "CLAM_SB"

    def __init__(self, encoder: Encoder, num_classes: int, hidden: Width = 256, gated: bool = True) -> None:
        super().__init__(encoder, num_classes, hidden, gated)
        self.model.inst_classifiers = nn.ModuleList()


class TorchmilDSMIL(PaddedNetwork):
    """torchmil's DSMIL: the mean of the highest instance logit and attention to that instance.

    Each class has its own critical instance and attended embedding; one linear bag classifier reads them all.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        hidden: width of the queries.
        nonlinear_q: two layers for the queries.
        nonlinear_v: a layer for the values, which are otherwise the features.
        dropout: rate before that layer.
    """

    has_attention: ClassVar[bool] = True

    def __init__(
        self,
        encoder: Encoder,
        num_classes: int,
        hidden: Width = 256,
        nonlinear_q: bool = False,
        nonlinear_v: bool = False,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__(encoder, num_classes)
        width = encoder.out_features
        self.model = torchmil_model("DSMIL")(
            (width,), att_dim=hidden, nonlinear_q=nonlinear_q, nonlinear_v=nonlinear_v, dropout=dropout
        )
        self.model.inst_classifier = nn.Linear(width, num_classes)

    @property
    def last_layer(self) -> nn.Module:
        """The bag classifier, which reads the attended embedding of each class."""
        layer: nn.Module = self.model.bag_classifier
        return layer

    def score_padded(self, features: Float[Tensor, "b L D"], present: Bool[Tensor, "b L"]) -> Padded:
        """Return the logits and, per class, the attention of padded bags."""
        logits, attention, of_instances = self.model(features, present, return_att=True, return_inst_pred=True)
        return (logits + of_instances.amax(1)) / 2, attention


class TorchmilTransMIL(PaddedNetwork):
    """torchmil's TransMIL: Nyström attention between instances arranged on a square, read at a class token.

    It takes no mask and depends on the order of instances. Its pseudo-inverse starts from a maximum over the
    whole batch, so each bag runs alone within one vectorized call.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        hidden: width of the tokens, a multiple of ``n_heads``.
        n_layers: attention layers, at least 2.
        n_heads: attention heads.
        n_landmarks: number of landmarks; every bag, including bags of one, is filled up to a multiple of it.
            torchmil's own default, half the width, makes T expensive.
        dropout: rate in the attention layers.
    """

    takes_mask: ClassVar[bool] = False
    embeds_bags: bool = True

    def __init__(
        self,
        encoder: Encoder,
        num_classes: int,
        hidden: Width = 256,
        n_layers: Width = 2,
        n_heads: Width = 4,
        n_landmarks: Width = 16,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__(encoder, num_classes)
        if n_layers < 2 or hidden % n_heads:
            wanted, got = "at least 2 layers and a width that n_heads divides", (n_layers, hidden, n_heads)
            raise out_of_range("n_layers, hidden and n_heads of 'torchmil-transmil'", wanted, got)
        self.model = torchmil_model("TransMIL")(
            (encoder.out_features,),
            att_dim=hidden,
            n_layers=n_layers,
            n_heads=n_heads,
            n_landmarks=n_landmarks,
            dropout=dropout,
        )
        self.model.classifier = nn.Linear(hidden, num_classes)

    def score_padded(self, features: Float[Tensor, "b L D"], present: Bool[Tensor, "b L"]) -> Padded:
        """Return the logits of bags of equal size."""

        def of_one(bag: Tensor) -> Tensor:
            logits: Tensor = self.model(bag.unsqueeze(0)).squeeze(0)
            return logits

        return torch.vmap(of_one, randomness="different")(features), None


def torchmil_model(name: str) -> Any:
    """Return the class ``name`` of torchmil's models.

    Raises:
        ConfigError: torchmil is not installed.
    """
    with torch.device("cpu"):  # a saved model is first built without memory, where the package cannot be imported
        return getattr(import_extra("torchmil.models", f"torchmil's {name}", "torchmil"), name)
