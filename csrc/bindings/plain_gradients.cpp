#include "plain_gradients.h"

#include <algorithm>
#include <array>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

enum Index { kQ, kK, kV, kO, kDO, kLse, kDLse, kDQ, kDK, kDV, kRowStats, kDQSums };

}  // namespace

struct PlainGradients::Call {
  Call(py::handle d_o, py::handle d_lse, py::handle saved_tensors, py::handle options,
       py::handle wanted_ones, bool swapped)
      : saved(elements<5>(saved_tensors)), wanted(elements<3>(wanted_ones)), heads_first(swapped) {
    const auto [scale, is_causal, is_deterministic] = elements<3>(options);
    softmax_scale = scale, causal = is_causal, deterministic = is_deterministic;
    inputs = {saved[0], saved[1], saved[2], saved[3], d_o, saved[4], d_lse};
  }

  std::array<py::handle, 5> saved;
  std::array<py::handle, 3> wanted;
  bool heads_first;
  py::handle softmax_scale, causal, deterministic;
  std::array<py::handle, BackwardCalls::kInputs> inputs;  // as Index
};

PlainGradients::PlainGradients(LaunchCache<BackwardCalls>& cache, const Surroundings& around,
                               NewTensors& new_tensors, BackwardWays ways)
    : cache_(cache),
      around_(around),
      new_tensors_(new_tensors),
      ways_(std::move(ways)),
      row_stats_(ways_.row_stats_prototype, new_tensors),
      d_q_sums_(ways_.d_q_sums_prototype, new_tensors) {}

bool PlainGradients::is_negated(py::handle tensor) const {
  return is_true(called(around_.is_negated, tensor));
}

py::object PlainGradients::config_of(const Call& call, const Query& query) {
  const TensorWords q = query.words(kQ), k = query.words(kK);
  decltype(configs_)::Key key;
  std::copy(k.begin(), k.end(), std::copy(q.begin(), q.end(), key.begin()));
  key.back() = 2 * is_true(call.causal) + is_true(call.deterministic);
  return configs_.get(key, py::none(), [&] {
    return called(ways_.choose, call.saved[kQ], sizes_of(q), sizes_of(k), call.causal,
                  call.deterministic);
  });
}

py::object PlainGradients::launch(const Call& call) {
  Query query;
  for (int i = 0; i < BackwardCalls::kInputs; ++i) {
    const bool of_rows = i == kLse || i == kDLse;
    if (!cache_.add(query, i, call.inputs[i], call.heads_first && !of_rows)) return py::none();
  }
  const py::object config = config_of(call, query);
  if (config.is_none() || !is_usual_scale(call.softmax_scale) ||
      !cache_.begin(query, config, call.softmax_scale, call.causal)) {
    return py::none();
  }
  std::array<py::object, 3> made;
  for (int i = 0; i < 3; ++i) {
    made[i] = is_true(call.wanted[i])
                  ? new_tensors_.like(call.saved[i], query.words(kQ + i), call.heads_first)
                  : py::none();
    if (!cache_.add(query, kDQ + i, made[i], call.heads_first)) return py::none();
  }
  const auto scratch = [&](Prototypes& prototypes) {
    return prototypes.empty(config, call.saved[kQ], query.words(kQ), query.words(kK), call.causal);
  };
  const py::object row_stats = scratch(row_stats_), d_q_sums = scratch(d_q_sums_);
  if (!cache_.add(query, kRowStats, row_stats) || !cache_.add(query, kDQSums, d_q_sums) ||
      !cache_.launch(query)) {
    return py::none();
  }
  return owned(PyTuple_Pack(4, made[0].ptr(), made[1].ptr(), made[2].ptr(), Py_None));
}

py::object PlainGradients::launch_quietly(const Call& call) {
  const py::handle d_o = call.inputs[kDO];
  if (d_o.is_none() || !around_.is_quiet() || says_yes(around_.is_grad_enabled) ||
      is_negated(d_o)) {
    return py::none();
  }
  return launch(call);
}

py::object PlainGradients::attend(py::handle d_o, py::handle d_lse, py::handle saved,
                                  py::handle options, py::handle wanted) {
  return launch_quietly(Call(d_o, d_lse, saved, options, wanted, false));
}

py::object PlainGradients::attend_heads_first(py::handle d_o, py::handle d_lse, py::handle saved,
                                              py::handle options, py::handle wanted) {
  return launch_quietly(Call(d_o, d_lse, saved, options, wanted, true));
}

py::object PlainGradients::compute(py::handle d_o, py::handle d_lse, py::handle saved,
                                   py::handle options, py::handle wanted, py::handle heads_first) {
  const Call call(d_o, d_lse, saved, options, wanted, is_true(heads_first));
  if (d_o.is_none() || is_negated(d_o) ||
      std::any_of(call.saved.begin(), call.saved.end() - 1,
                  [&](py::handle tensor) { return is_negated(tensor); })) {
    return py::none();
  }
  return launch(call);
}

}  // namespace flash
