"""Hopper: mbarriers, bulk copies through tensor maps, warpgroup matmuls (csrc/emulator/sm90)."""
