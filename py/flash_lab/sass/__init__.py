"""Machine code of kernels: disassembled, read, counted, compared. Pure functions over text, but for
`disassembler` and `sources`, which run tools and read files."""
