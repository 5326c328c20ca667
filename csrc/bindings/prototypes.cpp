#include "prototypes.h"

#include <algorithm>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {

py::object sizes_of(TensorWords words) {
  return owned(Py_BuildValue("(LLLL)", static_cast<long long>(words[1]),
                             static_cast<long long>(words[2]), static_cast<long long>(words[3]),
                             static_cast<long long>(words[4])));
}

Prototypes::Prototypes(py::object make, NewTensors& new_tensors)
    : make_(std::move(make)), new_tensors_(new_tensors) {}

py::object Prototypes::empty(py::handle config, py::handle q, TensorWords q_words) {
  Known::Key key{};
  std::copy(q_words.begin(), q_words.end(), key.begin());
  key.back() = reinterpret_cast<std::int64_t>(config.ptr());
  return like(key, config, q_words, [&] { return called(make_, config, q, sizes_of(q_words)); });
}

py::object Prototypes::empty(py::handle config, py::handle q, TensorWords q_words,
                             TensorWords k_words, py::handle causal) {
  Known::Key key;
  *std::copy(k_words.begin(), k_words.end(),
             std::copy(q_words.begin(), q_words.end(), key.begin())) = is_true(causal);
  key.back() = reinterpret_cast<std::int64_t>(config.ptr());
  return like(key, config, q_words, [&] {
    return called(make_, config, q, sizes_of(q_words), sizes_of(k_words), causal);
  });
}

template <typename Ask>
py::object Prototypes::like(const Known::Key& key, py::handle config, TensorWords q_words,
                            Ask ask) {
  const py::object known = known_.get(key, config, [&] {
    const py::object like = ask();
    if (like.is_none()) return like;
    const py::object description = new_tensors_.description_of(like);
    return owned(PyTuple_Pack(2, like.ptr(), description.ptr()));
  });
  if (known.is_none()) return known;
  const auto [like, description] = elements<2>(known);
  return new_tensors_.make(description, like, device_of(q_words));
}

}  // namespace flash
