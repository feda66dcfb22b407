"""What to do about instances whose shape a model does not take."""

from __future__ import annotations


def advise_on_shape(model_shape: tuple[int, ...], bag_shape: tuple[int, ...]) -> str:
    """Return how to get instances of the shape that a model takes, as the end of an error.

    >>> advise_on_shape((28, 28, 1), (32, 32, 3))
    'give the images the size and the channels of those of training'
    >>> advise_on_shape((512,), (32, 32, 3))
    'the model takes features, not images: encode the images as those of training'

    Args:
        model_shape: shape of an instance, as the model takes it; an image if it has more than one axis.
        bag_shape: shape of an instance of the bags.
    """
    if len(model_shape) > 1 and len(bag_shape) > 1:
        return "give the images the size and the channels of those of training"
    if len(bag_shape) > 1:
        return "the model takes features, not images: encode the images as those of training"
    if len(model_shape) > 1:
        return "the model takes images, not features: pass the images themselves"
    return "extract these features with the encoder that the model was trained on"
