"""Warp-specialised attention for Hopper in Gluon: WS and its pipelined form WS PP.

from flash_attention import gluon
o = gluon.forward(q, k, v, ping_pong=True, causal=True)
tuned = gluon.best_config(q, k, v, ping_pong=True, causal=True)   # measured once, then cached
o = gluon.forward(q, k, v, ping_pong=True, causal=True, config=tuned.config)
"""

from .config import GluonForwardConfig, configs
from .launch import best_config, forward

__all__ = ["GluonForwardConfig", "best_config", "configs", "forward"]
