#include "errors.h"

#include <stdarg.h>
#include <stdio.h>

#include <algorithm>

#include "block.h"

namespace emulator {

namespace {

void set_error(const Lane* lane, ErrorKind kind, u32 site, const char* format, va_list arguments) {
  ErrorRecord& error = lane->block->error;
  error.kind = kind;
  error.site = site;
  std::copy_n(lane->block->position.ctaid, 3, error.ctaid);
  std::copy_n(lane->tid, 3, error.tid);
  vsnprintf(error.message, sizeof error.message, format, arguments);
}

}  // namespace

void record_error(const Lane* lane, ErrorKind kind, u32 site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(lane, kind, site, format, arguments);
  va_end(arguments);
}

void fail(Lane* lane, ErrorKind kind, u32 site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(lane, kind, site, format, arguments);
  va_end(arguments);
  switch_context(lane->context, lane->block->scheduler);
  __builtin_unreachable();
}

}  // namespace emulator
