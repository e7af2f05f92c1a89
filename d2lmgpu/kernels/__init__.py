"""Fast bodies of the layers, each for one kind of device."""
