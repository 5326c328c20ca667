"""How exact the kernels and their peers are, on inputs that tell them apart."""
