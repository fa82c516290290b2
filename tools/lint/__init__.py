"""Static checks of Metal source on machines without a Metal compiler; the command is metal_lint.py."""
