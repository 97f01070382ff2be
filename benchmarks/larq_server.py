"""Larq Compute Engine on ReActNet-A and Bi-Real Net 18, in an environment of its own: it answers a line with a line.

    python benchmarks/larq_server.py     (tensorflow-cpu 2.15.1, larq 0.14.0, larq-compute-engine 0.16.0; knows nothing of bcnn)

    reads  {"network": "reactnet-a"}                 builds, converts and checks it     answers  {"checked": "..."}
    reads  {"run": "reactnet-a"}                     runs it twice, times the second    answers  {"wall": s, "cpu": s}

One thread, `use_indirect_bgemm=True` (its fast path; without it a 3x3 convolution takes longer). The networks get what helps
Larq and changes no shape: pads of +1, which its kernels need no correction for, and the first bias of an RPReLU inside the batch norm.
`use_xnnpack` is on, its fast path for real convolutions. Weights are random: time does not depend on them.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["OMP_NUM_THREADS"] = "1"

import larq as lq
import larq_compute_engine as lce
import numpy as np
import tensorflow as tf
from larq_compute_engine.tflite.python.interpreter import Interpreter

layers = tf.keras.layers
# Two correct runs round differently, which flips signs near zero; a wrong layer leaves no correlation.
CORRELATION = 0.95


class Bias(layers.Layer):
    """One a channel."""

    def build(self, shape):
        self.bias = self.add_weight("bias", shape[-1:], initializer=tf.random_normal_initializer(0, 0.1))

    def call(self, x):
        return x + self.bias


def norm(x):
    random = tf.random_uniform_initializer(0.5, 1.5)
    made = layers.BatchNormalization(gamma_initializer=random, moving_variance_initializer=random)
    return made(x)


def binary(x, out, kernel, stride=1):
    made = lq.layers.QuantConv2D(
        out, kernel, strides=stride, padding="same", pad_values=1.0, use_bias=False,
        input_quantizer="ste_sign", kernel_quantizer="ste_sign", kernel_initializer="random_normal",
    )  # fmt: skip
    return norm(made(x))


def rprelu(x):
    return Bias()(layers.PReLU(shared_axes=[1, 2], alpha_initializer=tf.constant_initializer(0.25))(x))


def real(x, out, kernel, stride=1):
    return norm(layers.Conv2D(out, kernel, strides=stride, padding="same", use_bias=False)(x))


def decoder(x):
    return layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))


def reactnet_a():
    image = tf.keras.Input((224, 224, 3))
    x = real(image, 32, 3, 2)
    outs = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
    for out, stride in zip(outs, strides, strict=True):
        channels = x.shape[-1]
        shortcut = layers.AveragePooling2D(2)(x) if stride == 2 else x
        x = rprelu(binary(Bias()(x), channels, 3, stride) + shortcut)
        bits = Bias()(x)
        if out == channels:
            x = rprelu(binary(bits, out, 1) + x)
        else:
            x = rprelu(layers.Concatenate()([binary(bits, channels, 1) + x, binary(bits, channels, 1) + x]))
    return tf.keras.Model(image, decoder(x))


def birealnet_18():
    image = tf.keras.Input((224, 224, 3))
    x = layers.MaxPooling2D(3, 2, padding="same")(real(image, 64, 7, 2))
    for out in (64, 128, 256, 512):
        for unit in range(4):
            down = unit == 0 and out > 64
            shortcut = real(layers.AveragePooling2D(2)(x), out, 1) if down else x
            x = binary(x, out, 3, 2 if down else 1) + shortcut
    return tf.keras.Model(image, decoder(x))


NETWORKS = {"reactnet-a": reactnet_a, "birealnet-18": birealnet_18}


def made(name):
    """An interpreter, an image, and what it was checked against."""
    tf.keras.utils.set_random_seed(0)
    model = NETWORKS[name]()
    flat = lce.convert_keras_model(model)
    interpreter = Interpreter(flat, num_threads=1, use_indirect_bgemm=True, use_xnnpack=True)
    image = np.random.default_rng(0).normal(size=(1, 224, 224, 3)).astype(np.float32)
    same = float(np.corrcoef(interpreter.predict(image).ravel(), np.asarray(model(image)).ravel())[0, 1])
    if not same > CORRELATION:
        raise SystemExit(f"{name}: its logits have a correlation of {same:.3f} with those of Keras")
    binary_convolutions = flat.count(b"LceBconv2d") > 0
    return (
        interpreter,
        image,
        f"Keras, correlation of the logits {same:.4f}, binary convolutions: {binary_convolutions}",
    )


def main():
    ready = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "network" in asked:
            name = asked["network"]
            interpreter, image, checked = made(name)
            ready[name] = (interpreter, image)
            answer = {"checked": checked}
        else:
            interpreter, image = ready[asked["run"]]
            interpreter.predict(image)  # brings its data back into the caches
            cpu, wall = time.process_time(), time.perf_counter()
            interpreter.predict(image)
            answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
