"""Attention as operations of PyTorch, `flash_attention::fwd` and `flash_attention::bwd`: what
torch.compile, torch.export, make_fx, torch.jit.trace, torch.func, DTensor and modes see of
`flash_attn_func`, which calls them where one of these is at work and launches by itself where none
is."""
