"""Wrong answers to the exercises of notebook 4. A docstring is a part of what the check should say."""

import numpy as np

import d2lmgpu as d2l


def split_batch__numpy_splits_evenly_or_not_at_all(X, y, devices):
    """9 examples on 2 devices: it raised ValueError"""
    X_parts, y_parts = np.split(X, len(devices)), np.split(y, len(devices))
    return [list(map(d2l.put, parts, devices)) for parts in (X_parts, y_parts)][0], list(map(d2l.put, y_parts, devices))


def split_batch__the_last_gets_the_rest(X, y, devices):
    """shards of [4, 4, 4, 4, 4, 4, 4, 10] examples; all devices wait for the largest"""
    size, k = len(X) // len(devices), len(devices)
    bounds = [(i * size, (i + 1) * size if i < k - 1 else len(X)) for i in range(k)]
    return tuple([d2l.put(A[a:b], d) for (a, b), d in zip(bounds, devices, strict=True)] for A in (X, y))


def split_batch__the_rest_is_lost(X, y, devices):
    """9 examples on 2 devices: shards of [4, 4] examples, 8 in all"""
    size = len(X) // len(devices)
    return tuple([d2l.put(A[i * size : (i + 1) * size], d) for i, d in enumerate(devices)] for A in (X, y))


def split_batch__left_on_the_host(X, y, devices):
    """put(part, device) copies a part there"""
    return np.array_split(X, len(devices)), np.array_split(y, len(devices))


def split_batch__labels_in_another_order(X, y, devices):
    """have another image's label"""
    k = len(devices)
    X_shards = [d2l.put(part, d) for part, d in zip(np.array_split(X, k), devices, strict=True)]
    return X_shards, [d2l.put(part, d) for part, d in zip(np.array_split(y[::-1], k), devices, strict=True)]


def allreduce__for_device_0_only(data):
    """once the sum is on device 0, copy it to the others"""
    _add_on_the_first(data)


def allreduce__over_the_host(data):
    """the numbers went through the host"""
    total = sum(map(d2l.to_host, data))
    for array in data:
        array[:] = d2l.put(total, array.device)


def allreduce__past_the_record(data):
    """reading .raw bypasses the rules, and on a GPU this would fail"""
    total = sum(array.raw for array in data)
    for array in data:
        array.raw[:] = total


def allreduce__rebinds_the_list(data):
    """data[i][:] = ... writes into the existing one"""
    _add_on_the_first(data)
    for i in range(1, len(data)):
        data[i] = d2l.put(data[0], data[i].device)


def allreduce__adds_where_it_should_copy(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    _add_on_the_first(data)
    for array in data[1:]:
        array[:] += d2l.put(data[0], array.device)


def allreduce__for_two_devices(data):
    """k may be more than two: add all of them"""
    first, last = data[0], data[-1]
    if first is last:
        return
    total = first + d2l.put(last, first.device)
    for array in data:
        array[:] = d2l.put(total, array.device)


def allreduce__the_mean(data):
    """sgd divides by the whole minibatch"""
    _add_on_the_first(data)
    data[0][:] /= len(data)
    for array in data[1:]:
        array[:] = d2l.put(data[0], array.device)


def allreduce__mixes_places(data):
    """you cannot mix arrays of two devices"""
    for array in data[1:]:
        data[0][:] += array


def allreduce__expects_two_devices(data):
    """Hint: run the function yourself on such a case"""
    data[0][:] += d2l.put(data[1], data[0].device)
    data[1][:] = d2l.put(data[0], data[1].device)


def allreduce__a_name_that_is_not_there(data):
    """run the function yourself on such a case"""
    data[0][:] += add_up(data[1:])  # noqa: F821


def update_replicas__without_allreduce(device_params, device_grads, lr, batch_size):
    """it uses only its own gradient"""
    _update(device_params, device_grads, lr, batch_size)


def update_replicas__only_the_first(device_params, device_grads, lr, batch_size):
    """the step of cpu(1): ["""
    _sum(device_grads)
    d2l.sgd(device_params[0], device_grads[0], lr, batch_size)


def update_replicas__divides_by_the_shard(device_params, device_grads, lr, batch_size):
    """divide by the size of the whole minibatch"""
    _sum(device_grads)
    _update(device_params, device_grads, lr, batch_size / len(device_params))


def update_replicas__averages_over_devices_too(device_params, device_grads, lr, batch_size):
    """divide once, by the number of examples, not also by k"""
    _sum(device_grads)
    _update(device_params, device_grads, lr / len(device_params), batch_size)


def update_replicas__does_not_divide(device_params, device_grads, lr, batch_size):
    """divide by their number, as sgd does"""
    _sum(device_grads)
    _update(device_params, device_grads, lr, 1)


def update_replicas__uphill(device_params, device_grads, lr, batch_size):
    """SGD subtracts the gradient"""
    _sum(device_grads)
    _update(device_params, device_grads, -lr, batch_size)


def update_replicas__rebinds_the_names(device_params, device_grads, lr, batch_size):
    """p[:] = ... writes into its array, p = ... only makes p name another array"""
    _sum(device_grads)
    for params, grads in zip(device_params, device_grads, strict=True):
        for param, grad in zip(params, grads, strict=True):
            param = param - lr / batch_size * grad  # noqa: PLW2901


def update_replicas__rebinds_the_lists(device_params, device_grads, lr, batch_size):
    """work in place"""
    _sum(device_grads)
    for params, grads in zip(device_params, device_grads, strict=True):
        for i, grad in enumerate(grads):
            params[i] = params[i] - lr / batch_size * grad


def update_replicas__allreduces_devices_instead_of_parameters(device_params, device_grads, lr, batch_size):
    """an allreduce takes a list with one array from each device, all of one shape"""
    for grads in device_grads:
        d2l.allreduce(grads)
    _update(device_params, device_grads, lr, batch_size)


def associative_sum__float64_rounds_too(device_terms, allreduce):
    """round each term separately to a whole multiple of one unit, before you add it to anything"""
    arrays = [np.sum(terms, axis=0, dtype=float) for terms in device_terms]
    allreduce(arrays)
    return arrays[0].astype(np.float32)


def associative_sum__a_unit_for_each_number_of_devices(device_terms, allreduce):
    """the unit must not depend on the number of devices"""
    return _whole_sum(device_terms, allreduce, 2.0**-26 * len(device_terms)).astype(np.float32)


def associative_sum__integers_of_32_bits(device_terms, allreduce):
    """integers wrap"""
    return _whole_sum(device_terms, allreduce, 2.0**-28, np.int32).astype(np.float32)


def associative_sum__too_coarse(device_terms, allreduce):
    """use a smaller unit, and round to the nearest"""
    return _whole_sum(device_terms, allreduce, 2.0**-10).astype(np.float32)


def associative_sum__without_the_allreduce(device_terms, allreduce):
    """add up each device's terms in one array, and pass the list of these arrays to allreduce once"""
    whole = sum(np.rint(term * 2.0**40).astype(np.int64) for terms in device_terms for term in terms)
    return (whole * 2.0**-40).astype(np.float32)


def associative_sum__in_float64(device_terms, allreduce):
    """return float32"""
    return _whole_sum(device_terms, allreduce, 2.0**-40)


def split_batch__flattened(X, y, devices):
    """keep the other axes of X"""
    return d2l.split_batch(X.reshape(len(X), -1), y, devices)


def _sum(device_grads):
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))


def _update(device_params, device_grads, lr, batch_size):
    for params, grads in zip(device_params, device_grads, strict=True):
        d2l.sgd(params, grads, lr, batch_size)


def _whole_sum(device_terms, allreduce, unit, kind=np.int64):
    arrays = [sum(np.rint(term / unit).astype(np.int64).astype(kind) for term in terms) for terms in device_terms]
    allreduce(arrays)
    return arrays[0] * unit


def _add_on_the_first(data):
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
