// Everything that a translated kernel includes.
#pragma once

#include "arithmetic.h"
#include "atomics.h"
#include "conversions.h"
#include "device_calls.h"
#include "float_math.h"
#include "kernel_info.h"
#include "memory.h"
#include "sm90_calls.h"
#include "types.h"
