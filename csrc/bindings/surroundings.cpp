#include "surroundings.h"

#include <algorithm>

#include "python_calls.h"

namespace flash {
namespace {

// A variable that PyTorch does not have in this release is quiet.
bool is_quiet_setting(const Setting& setting) {
  PyObject* const value =
      PyDict_GetItemWithError(setting.variables.ptr(), setting.name.ptr());  // borrowed
  if (value == nullptr) {
    if (PyErr_Occurred() != nullptr) throw PythonErrorSet{};
    return true;
  }
  return are_equal(value, setting.quiet);
}

}  // namespace

bool Surroundings::is_quiet() const {
  return std::none_of(quiet.begin(), quiet.end(), says_yes) &&
         std::all_of(settings.begin(), settings.end(), is_quiet_setting);
}

}  // namespace flash
