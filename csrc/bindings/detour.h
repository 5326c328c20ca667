// A C function of another Python module whose calls are offered to a function of ours first.
#pragma once

#include <pybind11/pytypes.h>

namespace flash {

// The function stays the object that others hold, look up and compare with, and its hash stays, in
// which the address of its C code counts: what is set is where Python looks first when it calls the
// object, which is empty for functions of this kind. At most one at a time in a process.
class Detour {
 public:
  // `function`: of C, taking a tuple and a dictionary: TypeError for another, RuntimeError where
  // there is a detour. `first` gets each call's arguments; where it returns None the function
  // itself runs.
  Detour(pybind11::object function, pybind11::object first);
  Detour(const Detour&) = delete;
  ~Detour() { end(); }

  // Calls go to the function alone again; nothing where they do.
  void end();

 private:
  pybind11::object function_;  // null after the end
};

}  // namespace flash
