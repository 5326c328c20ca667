// The part of the Python module that takes calls like those that were remembered from their
// arguments to the launch.
#pragma once

#include <pybind11/pybind11.h>

namespace flash {

// After the launch caches.
void def_short_ways(pybind11::module_& module);

}  // namespace flash
