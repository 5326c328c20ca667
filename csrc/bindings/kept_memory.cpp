#include "kept_memory.h"

#include <map>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

struct Piece {
  py::object tensor;
  std::uint64_t address = 0;
  std::uint64_t n_bytes = 0;

  // What is too small is freed on its stream, behind the launches that need it.
  std::uint64_t at_least(std::uint64_t needed, py::handle make_zeros) {
    static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
    if (n_bytes < needed) {
      tensor = called(make_zeros, py::int_(needed));
      address = asked_number(tensor, data_ptr);
      n_bytes = needed;
    }
    return address;
  }
};

struct Pieces {
  Piece zeros;
  Piece scratch;
};

// Of each device and stream. Never freed: launches may be under way until the process ends.
using OfStreams = std::map<std::pair<std::int64_t, unsigned long long>, Pieces>;

}  // namespace

std::optional<KeptAddresses> kept_memory(const StreamQuestions& ask, std::int64_t device,
                                         void* stream, const KeptBytes& n_bytes,
                                         py::handle make_zeros) {
  static OfStreams* const of_streams = new OfStreams;
  int captured = 0;
  unsigned long long id = 0;
  if (ask.is_capturing(stream, &captured) != 0 || captured != 0) return std::nullopt;
  if (ask.id(stream, &id) != 0) return std::nullopt;
  Pieces& its = (*of_streams)[{device, id}];
  return KeptAddresses{.zeros = its.zeros.at_least(n_bytes.zeros, make_zeros),
                       .scratch = its.scratch.at_least(n_bytes.scratch, make_zeros)};
}

}  // namespace flash
