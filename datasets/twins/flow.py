"""Lengthening a held series of sensor readings: the real links, a longer series."""

from __future__ import annotations

import numpy as np

from dgbench.kernels_cuda.twins import SLOT_TIME, uniforms
from dgbench.runtime.errors import InvalidInputError

PERSISTENCE = 0.885
"""Lag-1 coefficient of what the daily profile leaves (measured on the held PEMS08 series)."""
SHARED = 0.49
"""Correlation of that residual between two sensors (measured on the same)."""
SLOT_SENSOR = SLOT_TIME + 32
"""First slot of the random numbers of the sensors; the twelve before it are the shared ones."""
SLOT_COMMON = SLOT_SENSOR - 12


def lengthen(
    flow: np.ndarray,
    frames: int,
    *,
    day: int = 288,
    first: int = 0,
    seed: int = 1,
    persistence: float = PERSISTENCE,
    shared: float = SHARED,
) -> np.ndarray:
    """A longer series of the same sensors.

    The held frames are kept where they stand; every other frame is the sensor's mean over the
    held days at that time of the day, plus a residual of the sensor's own spread at that time. The
    residual is a lag-1 process, part of it common to all sensors, so that two sensors correlate
    by `shared`. Values are not negative, and are rounded if the held ones are integers.

    Args:
        flow: float or integer[held, sensors], at least one day of finite readings.
        frames: length of the result.
        day: frames of a day.
        first: where the held series begins in the result.
        seed: 0 .. 2**64 - 1.
        persistence: lag-1 coefficient in [0, 1).
        shared: correlation between sensors in [0, 1].

    Returns:
        [frames, sensors] of the dtype of `flow`.

    Raises:
        InvalidInputError: a series shorter than a day, that does not fit, or is not finite.
    """
    if flow.ndim != 2 or flow.shape[0] < day or day < 1:
        raise InvalidInputError(
            f"flow has shape {flow.shape}; [frames, sensors] with at least a day ({day}) is allowed"
        )
    if not np.isfinite(flow).all():
        raise InvalidInputError("flow holds values that are not finite")
    held = len(flow)
    if not 0 <= first <= frames - held:
        raise InvalidInputError(
            f"first, frames are {first}, {frames}; {held} held frames must fit: "
            f"0 <= first <= frames - {held}"
        )
    if not 0 <= persistence < 1 or not 0 <= shared <= 1:
        raise InvalidInputError(
            f"persistence, shared are {persistence}, {shared}; [0, 1) and [0, 1] are allowed"
        )
    mean, spread = _profile(flow.astype(np.float64), day, first)
    noise = np.sqrt(shared) * _normal(frames, 1, seed, SLOT_COMMON) + np.sqrt(
        1.0 - shared
    ) * _normal(frames, flow.shape[1], seed, SLOT_SENSOR)
    residual = _lag_one(noise, persistence)
    phase = np.arange(frames) % day
    out = np.maximum(mean[phase] + spread[phase] * residual, 0.0)
    if flow.dtype.kind in "iu":
        out = np.minimum(np.rint(out), np.iinfo(flow.dtype).max)
    out = out.astype(flow.dtype)
    out[first : first + held] = flow
    return out


def _profile(flow: np.ndarray, day: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each sensor at each time of the day: [day, sensors]."""
    phase = (np.arange(len(flow)) + first) % day
    count = np.bincount(phase, minlength=day)[:, None]
    mean = np.zeros((day, flow.shape[1]))
    np.add.at(mean, phase, flow)
    mean /= count
    spread = np.zeros_like(mean)
    np.add.at(spread, phase, (flow - mean[phase]) ** 2)
    return mean, np.sqrt(spread / np.maximum(count - 1, 1))


def _normal(frames: int, sensors: int, seed: int, slot: int) -> np.ndarray:
    """Close to normal: the sum of twelve uniform numbers, [frames, sensors]."""
    total = np.full(frames * sensors, -6.0)
    for i in range(12):
        total += uniforms(seed, 0, frames * sensors, slot + i)
    return total.reshape(frames, sensors)


def _lag_one(noise: np.ndarray, persistence: float) -> np.ndarray:
    """A stationary lag-1 process of unit variance along the first axis."""
    out = np.empty_like(noise)
    scale = np.sqrt(1.0 - persistence**2)
    out[0] = noise[0]
    for k in range(1, len(noise)):
        out[k] = persistence * out[k - 1] + scale * noise[k]
    return out
