// How the kernel that makes RowStats (row_dots.cuh) is launched. Plain C++.
#pragma once

namespace flash {

// Lanes that share a row: the most, up to 8, among which its 16-byte chunks come out even.
constexpr int lanes_of_row(int d_head) { return d_head % 64 == 0 ? 8 : 4; }

}  // namespace flash
