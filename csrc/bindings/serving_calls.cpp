#include "serving_calls.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>

#include "python_calls.h"
#include "serve_launcher.h"

namespace py = pybind11;

namespace flash {
namespace {

constexpr std::size_t kOPartial = 0, kLsePartial = 1, kArrivals = 2;  // of Scratch

// A graph needs memory of its own: it may be replayed beside other calls.
bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  // The launch, or another, reports what is wrong.
  return cudaGetLastError() == cudaErrorStreamCaptureImplicit;
}

}  // namespace

ServingCalls::ServingCalls(py::object tensor_type, py::capsule exchange_api,
                           const Surroundings& around, const NewTensors& new_tensors,
                           ServingWays ways)
    : reader_(std::move(tensor_type), std::move(exchange_api)),
      around_(around),
      new_tensors_(new_tensors),
      ways_(std::move(ways)) {
  reader_.read_too(ways_.parameter);
}

py::object ServingCalls::attend(const ServingArguments& given) {
  ServingQuery query;
  if (!query.read(reader_, given, ways_.telling)) return py::none();
  const Call* const call = find(query);
  if (call == nullptr || !query.lies_well() || is_captured(query.stream()) || is_seen(given)) {
    return py::none();
  }
  return launch(*call, query, given);
}

void ServingCalls::remember(const ServingArguments& given, std::size_t kernel_id,
                            const ServeArgs& args, Scratch scratch, bool keeps_scratch,
                            bool by_sizes) {
  ServingQuery query;
  if (!query.read(reader_, given, ways_.telling) || is_captured(query.stream())) return;
  ServeArgs own = args;
  query.put_into(own);
  if (std::memcmp(&own, &args, sizeof(args)) != 0) return;
  Scratch descriptions;
  if (!keeps_scratch) {
    std::transform(scratch.begin(), scratch.end(), descriptions.begin(), [&](py::handle like) {
      return like.is_none() ? py::none() : new_tensors_.description_of(like);
    });
  }
  py::object dtype = owned(PyObject_GetAttrString(given[Given::kQ].ptr(), "dtype"));
  if (calls_.size() >= kMaxCalls) calls_.clear();
  calls_.insert_or_assign(by_sizes ? query.key_of_sizes() : query.key(),
                          Call{.kernel_id = kernel_id,
                               .args = args,
                               .scratch = std::move(scratch),
                               .descriptions = std::move(descriptions),
                               .keeps_scratch = keeps_scratch,
                               .dtype = std::move(dtype)});
}

const ServingCalls::Call* ServingCalls::find(const ServingQuery& query) const {
  auto found = calls_.find(query.key());
  if (found == calls_.end()) found = calls_.find(query.key_of_sizes());
  return found == calls_.end() ? nullptr : &found->second;
}

bool ServingCalls::is_seen(const ServingArguments& given) const {
  if (!around_.is_quiet()) return true;
  bool asks_gradient = false;
  for (const Given name : {Given::kQ, Given::kK, Given::kV, Given::kOut, Given::kSAux,
                           Given::kLearnableSink, Given::kSinks, Given::kQv}) {
    const py::handle tensor = given[name];
    if (tensor.is_none() || PyLong_CheckExact(tensor.ptr())) continue;
    if (is_true(called(around_.is_negated, tensor))) return true;
    asks_gradient = asks_gradient || requires_grad(tensor);
  }
  return asks_gradient && says_yes(around_.is_grad_enabled);
}

py::object ServingCalls::launch(Call call, const ServingQuery& query,
                                const ServingArguments& given) const {
  ServeArgs& args = call.args;
  query.put_into(args);
  py::object o = py::reinterpret_borrow<py::object>(given[Given::kOut]);
  if (o.is_none()) {
    o = new_output(call, query, given);
    put_address(o, args.o);
  }
  py::object lse = py::none();
  if (query.n_results() > 1) {
    lse = new_lse(query, given);
    put_address(lse, args.lse);
  }
  py::object sinks;
  if (query.converts_sinks()) {
    sinks = called(ways_.read_sinks, query.sinks());
    put_address(sinks, args.sinks);
  }
  Scratch made;
  if (!call.keeps_scratch) {
    made = new_scratch(call, query);
    put_address(made[kOPartial], args.o_partial);
    put_address(made[kLsePartial], args.lse_partial);
    put_address(made[kArrivals], args.arrivals);
  }
  launch_serving(call.kernel_id, args, query.device().id, query.stream());
  if (query.n_results() == 1) return o;
  return query.n_results() == 2 ? owned(PyTuple_Pack(2, o.ptr(), lse.ptr()))
                                : owned(PyTuple_Pack(3, o.ptr(), lse.ptr(), Py_None));
}

ServingCalls::Scratch ServingCalls::new_scratch(const Call& call, const ServingQuery& query) const {
  Scratch made;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const py::object& like = call.scratch[i];
    made[i] =
        like.is_none() ? like : new_tensors_.make(call.descriptions[i], like, query.device().id);
  }
  return made;
}

py::object ServingCalls::new_output(const Call& call, const ServingQuery& query,
                                    const ServingArguments& given) const {
  const dlpack::Tensor &q = query[ServingQuery::kQ], &v = query[ServingQuery::kV];
  std::array<std::int64_t, 4> sizes;
  std::copy_n(q.shape, q.ndim, sizes.begin());
  sizes[q.ndim - 1] = v.shape[v.ndim - 1];
  return new_tensors_.contiguous(given[Given::kQ], std::span(sizes).first(q.ndim), call.dtype,
                                 q.device.id);
}

py::object ServingCalls::new_lse(const ServingQuery& query, const ServingArguments& given) const {
  const dlpack::Tensor& q = query[ServingQuery::kQ];
  const auto make = [&](std::initializer_list<std::int64_t> sizes) {
    return new_tensors_.contiguous(given[Given::kQ], std::span(sizes.begin(), sizes.size()),
                                   ways_.float32, q.device.id);
  };
  return q.ndim == 3 ? make({q.shape[1], q.shape[0]}) : make({q.shape[0], q.shape[2], q.shape[1]});
}

template <typename T>
void ServingCalls::put_address(py::handle tensor, T*& pointer) const {
  if (tensor.is_none()) return;
  dlpack::Tensor found;
  if (!reader_.read(tensor, found)) {
    PyErr_SetString(PyExc_RuntimeError, "what a call's memory is made with is no plain tensor");
    throw PythonErrorSet{};
  }
  pointer = reinterpret_cast<T*>(address_of(found));
}

}  // namespace flash
