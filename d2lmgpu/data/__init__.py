"""Data: Fashion-MNIST, pictures in folders, minibatches, and random changes to images."""
