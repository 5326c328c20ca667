#include "spare_tensors.h"

#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

// A reference of the tuple, and of its elements: our own, the tuple's.
bool has_one_reference(py::handle object) { return Py_REFCNT(object.ptr()) == 1; }

}  // namespace

SpareTensors::SpareTensors(const LaunchCache<ForwardCalls>& cache, SpareWays ways)
    : cache_(cache), ways_(std::move(ways)) {}

bool SpareTensors::is_free(const py::object& tensors) const {
  if (!has_one_reference(tensors)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors.ptr()); ++i) {
    const py::handle tensor = PyTuple_GET_ITEM(tensors.ptr(), i);
    if (!has_one_reference(tensor)) return false;
    const py::object owners = called(ways_.use_count, tensor);
    if (!PyLong_Check(owners.ptr()) || PyLong_AsLong(owners.ptr()) != 1) return false;
  }
  return true;
}

py::object SpareTensors::of(py::handle q) {
  LaunchCache<ForwardCalls>::Query query;
  if (!cache_.add(query, 0, q)) return called(ways_.make, q);
  const std::int64_t kind = query.words(0)[0];
  const auto found = kept_.find(kind);
  if (found != kept_.end()) {
    return is_free(found->second) ? found->second : called(ways_.make, q);
  }
  py::object made = called(ways_.make_kept, q);  // which may come back here
  if (!PyTuple_Check(made.ptr())) return called(ways_.make, q);
  kept_.insert_or_assign(kind, made);
  return made;
}

}  // namespace flash
