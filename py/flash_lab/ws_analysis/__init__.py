"""Warp-specialised attention on Hopper, with and without ping-pong: the tool
tools/benchmark/flash-attention-WS-hopper.py. Measuring, peers, plots and ncu are bench's."""
