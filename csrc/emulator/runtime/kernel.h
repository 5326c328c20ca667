// Everything that a translated kernel includes.
#pragma once

#include "device_calls.h"
#include "kernel_info.h"
#include "memory.h"
#include "scalar.h"
#include "sm90_calls.h"
#include "types.h"
