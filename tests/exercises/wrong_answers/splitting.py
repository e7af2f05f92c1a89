"""Wrong answers to the exercises of notebook 3. A docstring is a part of what the check should say."""

import numpy as np

import d2lmgpu as d2l


def layer_split_bytes__forward_only(outputs, cuts, batch_size):
    """a gradient comes back for every number that is sent"""
    return 4 * batch_size * sum(outputs[cut - 1] for cut in cuts)


def layer_split_bytes__behind_the_cut(outputs, cuts, batch_size):
    """the outputs of the layer after the cut"""
    return 2 * 4 * batch_size * sum(outputs[cut] for cut in cuts)


def layer_split_bytes__numbers(outputs, cuts, batch_size):
    """numbers, not bytes"""
    return 2 * batch_size * sum(outputs[cut - 1] for cut in cuts)


def layer_split_bytes__of_one_example(outputs, cuts, batch_size):
    """960 instead of 6,720: these are the bytes of one example"""
    return 2 * 4 * sum(outputs[cut - 1] for cut in cuts)


def layer_split_bytes__all_layers(outputs, cuts, batch_size):
    """outputs that stay on a device are not sent"""
    return 2 * 4 * batch_size * sum(outputs)


def layer_split_bytes__the_first_cut_only(outputs, cuts, batch_size):
    """then add up the cuts"""
    return 2 * 4 * batch_size * outputs[cuts[0] - 1]


def dense_by_inputs__the_bias_on_every_device(x, weight, bias, devices):
    """the bias is counted 2 times"""
    return sum(
        d2l.put(product + d2l.put(bias, product.device), devices[0]) for product in _products(x, weight, devices)
    )


def dense_by_inputs__without_bias(x, weight, bias, devices):
    """the bias is missing"""
    return sum(d2l.put(product, devices[0]) for product in _products(x, weight, devices))


def dense_by_inputs__splits_the_outputs(x, weight, bias, devices):
    """it raised ValueError"""
    k = len(devices)
    x_parts, weight_parts = np.array_split(x, k, axis=1), np.array_split(weight, k, axis=1)
    parts = [d2l.put(a, d) @ d2l.put(b, d) for a, b, d in zip(x_parts, weight_parts, devices, strict=True)]
    return sum(d2l.put(part, devices[0]) for part in parts) + d2l.put(bias, devices[0])


def dense_by_inputs__concatenates(x, weight, bias, devices):
    """y has shape (4, 6) instead of (4, 3)"""
    return np.concatenate([d2l.put(product, devices[0]) for product in _products(x, weight, devices)], axis=1)


def dense_by_inputs__on_one_device(x, weight, bias, devices):
    """cpu(1) has nothing to do"""
    return d2l.put(x, devices[0]) @ d2l.put(weight, devices[0]) + d2l.put(bias, devices[0])


def dense_by_inputs__the_whole_weight_everywhere(x, weight, bias, devices):
    """a device needs only its part of x and weight"""
    k = len(devices)
    bounds = np.array_split(np.arange(len(weight)), k)
    y = d2l.put(bias, devices[0])
    for rows, device in zip(bounds, devices, strict=True):
        here = slice(rows[0], rows[-1] + 1)
        product = d2l.put(x, device)[:, here] @ d2l.put(weight, device)[here]
        y = y + d2l.put(product, devices[0])
    return y


def dense_by_inputs__over_the_host(x, weight, bias, devices):
    """each other device sends its product"""
    y = d2l.put(bias, devices[0])
    for product in _products(x, weight, devices):
        y = y + d2l.put(d2l.to_host(product), devices[0])
    return y


def dense_by_inputs__left_on_the_host(x, weight, bias, devices):
    """y is on the host"""
    return x @ weight + bias


def _products(x, weight, devices):
    """Each device's part of x times its rows of the weight."""
    parts = zip(np.array_split(x, len(devices), axis=1), np.array_split(weight, len(devices)), devices, strict=True)
    return [d2l.put(columns, device) @ d2l.put(rows, device) for columns, rows, device in parts]
