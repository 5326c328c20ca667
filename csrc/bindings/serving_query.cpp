#include "serving_query.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "flash/core/args.h"
#include "launch_cache.h"
#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

// Where arguments with several names are: one of them is given, at the most.
bool one_of(const ServingArguments& given, std::initializer_list<Given> names, py::handle& found) {
  found = py::none();
  for (const Given name : names) {
    if (given[name].is_none()) continue;
    if (!found.is_none()) return false;
    found = given[name];
  }
  return true;
}

bool is_int(py::handle object, std::int64_t& value) {
  if (!PyLong_CheckExact(object.ptr())) return false;
  int overflow = 0;
  value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow == 0;
}

bool is_bool(py::handle object, std::int64_t& value) {
  value = object.ptr() == Py_True;
  return PyBool_Check(object.ptr());
}

bool is_float(py::handle object, std::int64_t& value) {
  if (is_int(object, value)) return value == 0;  // as 0.0
  if (!PyFloat_CheckExact(object.ptr())) return false;
  value = std::bit_cast<std::int64_t>(PyFloat_AS_DOUBLE(object.ptr()));
  return true;
}

// None and negative numbers are no limit, but have words of their own.
bool is_limit(py::handle object, std::int64_t& value) {
  value = std::numeric_limits<std::int64_t>::min();
  return object.is_none() || is_int(object, value);
}

bool is_left_out(py::handle object) {
  return object.is_none() || object.ptr() == Py_False ||
         (PyFloat_CheckExact(object.ptr()) && PyFloat_AS_DOUBLE(object.ptr()) == 0.0) ||
         (PyLong_CheckExact(object.ptr()) && PyObject_Not(object.ptr()) == 1);
}

bool are_left_out(py::handle tuple) {
  if (!PyTuple_CheckExact(tuple.ptr())) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.ptr()); ++i) {
    if (!is_left_out(PyTuple_GET_ITEM(tuple.ptr(), i))) return false;
  }
  return true;
}

bool is_empty(const dlpack::Tensor& tensor) {
  return std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool ServingQuery::read(const TensorReader& reader, const ServingArguments& given,
                        const TellingSizes& telling) {
  if (!read_tensors(reader, given) || !read_numbers(given) || !read_sizes(telling)) return false;
  stream_ = reader.current_stream(device());
  add(reinterpret_cast<std::int64_t>(stream_));
  std::int64_t mask = 0;
  for (int i = 0; i < kTensors; ++i) mask |= std::int64_t{present_[i]} << i;
  add(mask);
  const bool own_keys = tensors_[kK].ndim == 4 && !has(kTable) && !has(kSlots);
  add_rows(kQ, true);
  for (const Tensor which : {kK, kV}) {
    add_rows(which, true);
    // A cache of a place for each sequence has as many.
    add(own_keys ? tensors_[which].shape[0] - batch_ : 0);
  }
  if (has(kO)) add_rows(kO, true);
  if (has(kQv)) add_rows(kQv, true);
  for (const Tensor which :
       {kCuSeqlensQ, kCuSeqlensK, kSequsedQ, kSequsedK, kLeftpad, kSlots, kTable}) {
    if (has(which)) add_indices(which);
  }
  if (has(kSinks)) {
    add(kind_word(tensors_[kSinks]));
    add(tensors_[kSinks].shape[0]);
    add(tensors_[kSinks].strides[0]);
  }
  return true;
}

bool ServingQuery::read_tensors(const TensorReader& reader, const ServingArguments& given) {
  py::handle table, sinks;
  if (!one_of(given, {Given::kBlockTable, Given::kPageTable}, table) ||
      !one_of(given, {Given::kSAux, Given::kLearnableSink, Given::kSinks}, sinks)) {
    return false;
  }
  std::int64_t d_v = 0;
  const bool is_whole = is_int(given[Given::kQv], d_v);
  py::handle lengths = given[Given::kSequsedK];
  if (given[Given::kForCaches].ptr() == Py_True && is_int(lengths, keys_of_all_)) {
    if (keys_of_all_ < 0) return false;
    lengths = py::none();
  }
  const struct {
    Tensor which;
    py::handle object;
    int least_dims, most_dims;
  } all[] = {
      {kQ, given[Given::kQ], 3, 4},
      {kK, given[Given::kK], 3, 4},
      {kV, given[Given::kV], 3, 4},
      {kO, given[Given::kOut], 3, 4},
      {kCuSeqlensQ, given[Given::kCuSeqlensQ], 1, 1},
      {kCuSeqlensK, given[Given::kCuSeqlensK], 1, 1},
      {kSequsedQ, given[Given::kSequsedQ], 1, 1},
      {kSequsedK, lengths, 1, 1},
      {kLeftpad, given[Given::kLeftpad], 1, 1},
      {kSlots, given[Given::kSlots], 1, 1},
      {kTable, table, 2, 2},
      {kSinks, sinks, 1, 1},
      {kQv, is_whole ? py::none() : given[Given::kQv], 3, 4},
  };
  sinks_ = sinks;
  for (const auto& [which, object, least_dims, most_dims] : all) {
    if (object.is_none()) continue;
    dlpack::Tensor& tensor = tensors_[which];
    if (!reader.read(object, tensor) || tensor.ndim < least_dims || tensor.ndim > most_dims ||
        is_empty(tensor)) {
      return false;
    }
    present_[which] = true;
  }
  if (is_whole && !part_latents(d_v)) return false;
  return has(kQ) && has(kK) && has(kV) && tensors_[kK].ndim == tensors_[kV].ndim &&
         tensors_[kK].shape[0] == tensors_[kV].shape[0] &&
         is_packed() == (tensors_[kQ].ndim == 3) && is_shaped_like_result() &&
         is_shaped_like_latents();
}

bool ServingQuery::part_latents(std::int64_t d_v) {
  if (!has(kQ) || !has(kK) || has(kV)) return false;
  if (!parts_of_q_.make(tensors_[kQ], d_v) || !parts_of_k_.make(tensors_[kK], d_v)) return false;
  tensors_[kQv] = parts_of_q_.first;
  tensors_[kQ] = parts_of_q_.rest;
  tensors_[kV] = parts_of_k_.first;
  tensors_[kK] = parts_of_k_.rest;
  present_[kQv] = present_[kV] = true;
  return true;
}

bool ServingQuery::is_shaped_like_latents() const {
  if (!has(kQv)) return true;
  const dlpack::Tensor &q = tensors_[kQ], &qv = tensors_[kQv];
  return q.ndim == qv.ndim && std::equal(q.shape, q.shape + q.ndim - 1, qv.shape);
}

bool ServingQuery::is_shaped_like_result() const {
  if (!has(kO)) return true;
  const dlpack::Tensor &o = tensors_[kO], &q = tensors_[kQ], &v = tensors_[kV];
  if (o.ndim != q.ndim || o.shape[o.ndim - 1] != v.shape[v.ndim - 1]) return false;
  if (!std::equal(q.shape, q.shape + q.ndim - 1, o.shape)) return false;
  // However many of its first dimension there are, none may lie in another.
  std::int64_t reach = 0;
  for (int i = 1; i < o.ndim; ++i) reach += (o.shape[i] - 1) * o.strides[i];
  return o.shape[0] == 1 || o.strides[0] > reach;
}

bool ServingQuery::read_numbers(const ServingArguments& given) {
  if (!are_left_out(given[Given::kRefused]) || !is_usual_scale(given[Given::kScale])) return false;
  std::int64_t scale = 0, causal, left, right, softcap, n_splits, for_caches, n_results;
  if (!given[Given::kScale].is_none() && !is_float(given[Given::kScale], scale)) return false;
  const py::handle window = given[Given::kWindow];
  if (!PyTuple_CheckExact(window.ptr()) || PyTuple_GET_SIZE(window.ptr()) != 2) return false;
  const auto [first, second] = elements<2>(window);
  if (!is_bool(given[Given::kCausal], causal) || !is_limit(first, left) ||
      !is_limit(second, right) || !is_float(given[Given::kSoftcap], softcap) ||
      !is_int(given[Given::kNumSplits], n_splits) ||
      !is_bool(given[Given::kForCaches], for_caches) ||
      !is_int(given[Given::kResults], n_results)) {
    return false;
  }
  n_results_ = static_cast<int>(n_results);
  // A scale that is given is positive.
  for (const std::int64_t word : {scale, causal, left, right, softcap, n_splits, for_caches,
                                  n_results, std::int64_t{keys_of_all_ >= 0}}) {
    add(word);
  }
  return true;
}

bool ServingQuery::read_sizes(const TellingSizes& telling) {
  const dlpack::Tensor &q = tensors_[kQ], &k = tensors_[kK];
  batch_ = is_packed() ? tensors_[kCuSeqlensQ].shape[0] - 1 : q.shape[0];
  n_rows_ = is_packed() ? q.shape[0] : q.shape[0] * q.shape[1];
  most_keys_ = k.ndim == 3 ? k.shape[0] : k.shape[1];
  if (has(kTable)) most_keys_ *= tensors_[kTable].shape[1];
  if (keys_of_all_ > most_keys_) return false;
  if (keys_of_all_ >= 0) most_keys_ = keys_of_all_;
  most_keys_ = std::min<std::int64_t>(most_keys_, kMaxSeqlen);
  const std::int64_t heads = q.shape[q.ndim - 2], kv_heads = k.shape[k.ndim - 2];
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (batch_ < 1 || batch_ > kMost || n_rows_ * heads > kMost) return false;
  // As ServeSizes.most_units(); no factor is beyond 2^31.
  const std::int64_t tiles = n_rows_ * heads / 16 + batch_ * kv_heads;
  if (tiles > telling.most_units / (most_keys_ / 32 + 2)) return false;
  // What the choice of a kernel asks of sizes: how many rows the average sequence has, and whether
  // there are many KV heads, or how few, and with how many keys.
  add(std::min(ceil_div(n_rows_ * heads, kv_heads * batch_), telling.most_rows));
  add(std::min(ceil_div(n_rows_, batch_), telling.most_rows));
  add(std::min(n_rows_ / batch_, telling.most_rows));
  const std::int64_t heads_of_all = batch_ * kv_heads;
  if (heads_of_all > telling.cut_heads) {
    add(heads_of_all >= telling.pair_heads ? -2 : heads_of_all >= telling.many_heads ? -1 : 0);
  } else {
    const std::int64_t few = std::min(heads_of_all, telling.few_heads + 1);
    add(2 * few + (most_keys_ <= telling.few_keys ? 1 : 0));
  }
  return true;
}

void ServingQuery::add_rows(Tensor which, bool any_size) {
  const dlpack::Tensor& tensor = tensors_[which];
  add(kind_word(tensor));
  for (int i = 0; i < tensor.ndim; ++i) {
    // Of a dimension of one element no kernel is told the stride.
    const bool one = tensor.shape[i] == 1;
    const bool free = any_size && i == 0;
    add(free && !one ? -1 : tensor.shape[i]);
    add(one ? 0 : tensor.strides[i]);
  }
}

void ServingQuery::add_indices(Tensor which) {
  const dlpack::Tensor& tensor = tensors_[which];
  const int last = tensor.ndim - 1;
  add(kind_word(tensor));
  add(tensor.shape[0] - batch_);
  add(tensor.shape[last] == 1 ? 1 : tensor.strides[last]);
}

ServingQuery::Key ServingQuery::key_of_sizes() const {
  Key key = key_;
  key[kWords - 3] = batch_;
  key[kWords - 2] = n_rows_;
  key[kWords - 1] = most_keys_;
  return key;
}

bool ServingQuery::lies_well() const {
  for (int i = 0; i < kTensors; ++i) {
    if (!present_[i]) continue;
    const std::uintptr_t address = address_of(tensors_[i]);
    if (address == 0 || !is_aligned(tensors_[i], address)) return false;
    if (i != kO && has(kO) &&
        overlap(address_of(tensors_[kO]), extent_bytes(tensors_[kO]), address,
                extent_bytes(tensors_[i]))) {
      return false;
    }
  }
  return true;
}

bool ServingQuery::converts_sinks() const {
  if (!has(kSinks)) return false;
  const dlpack::Tensor& sinks = tensors_[kSinks];
  const bool is_fp32 = sinks.dtype.code == dlpack::kFloat && sinks.dtype.bits == 32;
  return !is_fp32 || !is_contiguous(sinks);
}

void ServingQuery::put_into(ServeArgs& args) const {
  std::array<std::uintptr_t, kPointers> pointers;
  std::memcpy(&pointers, &args, sizeof(pointers));
  for (int i = 0; i < kPointers; ++i) {
    if (present_[i] && !(i == kSinks && converts_sinks())) pointers[i] = address_of(tensors_[i]);
  }
  std::memcpy(static_cast<void*>(&args), &pointers, sizeof(pointers));
  if (has(kQv)) args.qv = reinterpret_cast<const void*>(address_of(tensors_[kQv]));
  args.batch = static_cast<std::int32_t>(batch_);
  args.n_rows = static_cast<std::int32_t>(n_rows_);
  args.seqlen_k = static_cast<std::int32_t>(most_keys_);
  if (has(kTable)) args.table_stride = tensors_[kTable].strides[0];
  if (is_packed() && n_results_ > 1) args.lse_stride_head = n_rows_;
}

}  // namespace flash
