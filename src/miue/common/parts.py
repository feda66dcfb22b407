"""The parts that a model is made of, by name. A new network, method, encoder, score or reader is a line here.

Parts are named by import path, so that a name is known, for a help text say, before its module is loaded.
"""

from __future__ import annotations

from typing import Any

from miue.common.registry import Registry

NETWORKS: Registry[Any] = Registry(
    "network",
    "miue.networks",
    {
        "mean": "miue.networks.pooling:MeanNetwork",
        "max": "miue.networks.pooling:MaxNetwork",
        "pooled": "miue.networks.pooling:PooledNetwork",
        "attention": "miue.networks.attention:AttentionNetwork",
        "gated-attention": "miue.networks.attention:GatedAttentionNetwork",
        "dsmil": "miue.networks.dual_stream:DualStreamNetwork",
        "one-sided-max": "miue.networks.one_sided:OneSidedMaxNetwork",
        "one-sided-log-sum-exp": "miue.networks.one_sided:OneSidedLogSumExpNetwork",
        "one-sided-noisy-or": "miue.networks.one_sided:OneSidedNoisyOrNetwork",
        "one-sided-attention": "miue.networks.one_sided:OneSidedAttentionNetwork",
        "one-sided-mean": "miue.networks.one_sided:OneSidedMeanNetwork",
        "torchmil-abmil": "miue.networks.torchmil:TorchmilABMIL",
        "torchmil-dsmil": "miue.networks.torchmil:TorchmilDSMIL",
        "torchmil-transmil": "miue.networks.torchmil:TorchmilTransMIL",
        "torchmil-clam-sb": "miue.networks.torchmil:TorchmilCLAM",
    },
    aliases={"abmil": "attention", "gated-abmil": "gated-attention"},
)

ENCODERS: Registry[Any] = Registry(
    "encoder",
    "miue.encoders",
    {
        "mlp": "miue.networks.encoders.vectors:MLP",
        "lenet": "miue.networks.encoders.images:LeNet",
        "alexnet": "miue.networks.encoders.images:AlexNet",
        "compact": "miue.networks.encoders.images:CompactCNN",
        "identity": "miue.networks.encoders.vectors:Identity",
    },
    reserved=("auto",),
)

METHODS: Registry[Any] = Registry(
    "method",
    "miue.methods",
    {
        "softmax": "miue.methods.softmax:Softmax",
        "cumulative-links": "miue.methods.cumulative_links:CumulativeLinks",
        "deep-ensemble": "miue.methods.deep_ensemble:DeepEnsemble",
        "mc-dropout": "miue.methods.mc_dropout:MCDropout",
        "laplace": "miue.methods.laplace:Laplace",
        "sngp": "miue.methods.sngp:SNGP",
        "one-sided-gp": "miue.methods.one_sided_gp:OneSidedGP",
        "edl": "miue.methods.edl:EDL",
        "i-edl": "miue.methods.edl:FisherEDL",
        "r-edl": "miue.methods.edl:RelaxedEDL",
        "daedl": "miue.methods.density_aware_edl:DensityAwareEDL",
        "bayes-mil": "miue.methods.bayes_mil:BayesMIL",
        "mirel": "miue.methods.mirel:MIREL",
        "pooled-logistic": "miue.methods.pooled:PooledLogistic",
        "pooled-forest": "miue.methods.pooled:PooledForest",
    },
    aliases={"deterministic": "softmax"},
)

DISTANCES: Registry[Any] = Registry(
    "distance",
    "miue.scores",
    {
        "knn": "miue.scores.nearest_neighbors:NearestNeighbors",
        "mahalanobis": "miue.scores.mahalanobis:Mahalanobis",
        "class-mahalanobis": "miue.scores.mahalanobis:ClassConditionalMahalanobis",
        "reconstruction": "miue.scores.principal_components:Reconstruction",
        "statistics": "miue.scores.whitening:ImageStatistics",
        "typicality": "miue.scores.typicality:Typicality",
        "combined": "miue.scores.combined:Combined",
        "vim": "miue.scores.energy:VirtualLogit",
        "energy": "miue.scores.energy:Energy",
        "ddu": "miue.scores.mahalanobis:ClassDensity",
    },
    reserved=("none",),
)

READERS: Registry[Any] = Registry(
    "reader",
    "miue.readers",
    {
        ".h5": "miue.io.formats.hdf5:open_hdf5",
        ".hdf5": "miue.io.formats.hdf5:open_hdf5",
        ".pt": "miue.io.formats.tensors:open_torch",
        ".pth": "miue.io.formats.tensors:open_torch",
        ".npy": "miue.io.formats.numpy_files:open_npy",
        ".npz": "miue.io.formats.numpy_files:open_npz",
        ".safetensors": "miue.io.formats.tensors:open_safetensors",
        ".zarr": "miue.io.formats.spatial_data:open_spatial_data",
    },
    named=(r"\.[^.\s/\\]+", "an ending of file names that begins with its only dot, such as '.npz'"),
)

BASELINES = ("pooled-logistic", "pooled-forest")
"""Methods without a trained network, which a network should beat."""
