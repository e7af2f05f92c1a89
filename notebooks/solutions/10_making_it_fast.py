"""The solution of notebook 10's exercise."""


def count_products(x_shape, weight_shape, input_grad):
    """Three matrix products of the same size: y, dweight, dx."""
    N, _, H, W = x_shape
    O, C, kh, kw = weight_shape
    forward = N * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw
    return (3 if input_grad else 2) * forward
