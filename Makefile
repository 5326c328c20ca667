# make run        build the kernels and check them: on the GPU if there is one, else in the emulator
# make test       build, lint, all tests but the slow ones
# make test-all   the same with the slow ones
# make build      the extension only          make lint    ruff, mypy, clang-format
# make mutants    bugs planted in the kernels' PTX and sources, each of which must be found
# make test-triton  the tests of the Triton and Gluon kernels, with every release of triton that they
#                 work with (TRITON="3.6.0 3.9.0": with these); downloads 200 MB for each, once
# make test-torch  the wheel without kernels, and the tests that meet PyTorch, with several releases of it
#                 (TORCHES="2.4.1 2.15.0": with these); downloads 2.5 to 3.5 GB for each, every time
# make test-models  models of transformers and diffusers, with several releases of both
#                 (MODELS="transformers==5.23.0 diffusers==0.42.1": with these); downloads 100 MB for each, once
# make report     registers, memory, spills and compile time of the latest build
# make clean      remove what builds wrote    make distclean    the virtual environment too
#
# Everything is installed into .venv: for `make run` what building and running takes, for `make test` the
# tests' packages too (tools/build/set_up.py). Where PYTHON has a torch that sees a GPU, or with SYSTEM=1, that
# interpreter is used as it is, and nothing is downloaded.
#
#   PYTHON=python3.12     the interpreter to start from (3.11 or newer)
#   TORCH=torch==2.13.0   what pip is asked for (without a GPU: its CPU build, if it can be had)
#   TORCH_CPU_INDEX=URL   where the CPU build is looked for; empty: nowhere
#   KERNELS=tune          which kernels (make run: prog; make test: prog without a GPU; otherwise all)
#   RUN_ARGS, PYTEST_ARGS more arguments for run_kernels.py and pytest
# TORCH_CUDA_ARCH_LIST, MAX_JOBS, CUDACXX and CUDA_HOME reach the build as they are.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
RUN_ARGS ?=
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

SEES_GPU := import sys, torch; sys.exit(not torch.cuda.is_available())
ifndef SYSTEM
SYSTEM := $(shell $(PYTHON) -c '$(SEES_GPU)' 2>/dev/null && echo 1)
endif
ifeq ($(SYSTEM),1)
PY := $(PYTHON)
CLANG_FORMAT := clang-format
else
PY := $(VENV)/bin/python
CLANG_FORMAT := $(VENV)/bin/clang-format
INSTALLED := $(VENV)/.installed-run
TEST_INSTALLED := $(VENV)/.installed-test
endif

# Tests that share one GPU run one after another. Without one, each worker takes neighbours first (worksteal):
# what the tests of a file share, such as a build, is made once and not by every worker.
WORKERS ?= $(if $(shell command -v nvidia-smi),0,auto)

# The repository's own packages, also where nothing is installed.
export PYTHONPATH := $(CURDIR)/py:$(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

# Hundreds of the tests' processes import what the first has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all test-triton test-torch test-models mutants build lint report clean distclean

run: export KERNELS ?= prog
run: build
	$(PY) tools/benchmark/run_kernels.py $(RUN_ARGS) --kernels "$$KERNELS" --device auto

# Without a GPU the tests compile the kernels that they need; of the library they load they run none.
test: export KERNELS ?= $(if $(filter 1,$(SYSTEM)),all,prog)
test: $(TEST_INSTALLED) build lint
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(PYTEST_ARGS)

test-all: $(TEST_INSTALLED) build lint
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-triton: $(TEST_INSTALLED)
	$(PY) -m tests.triton.releases $(TRITON) -- -n $(WORKERS) $(PYTEST_ARGS)

test-torch: $(TEST_INSTALLED)
	$(PY) -m tests.build.torch_releases $(TORCHES) -- $(PYTEST_ARGS)

test-models: $(TEST_INSTALLED)
	$(PY) -m tests.serving.model_releases $(MODELS) -- $(PYTEST_ARGS)

mutants: $(TEST_INSTALLED)
	$(PY) -m tests.emulator.campaign
	$(PY) -m tests.emulator.sm90.campaign
	$(PY) -m tests.emulator.sm90.backward_campaign
	$(PY) -m tests.emulator.backward_campaign
	$(PY) -m tests.emulator.serve.campaign
	$(PY) -m tests.emulator.sm90.gluon_mutants
	$(PY) -m tests.emulator.sources

build: $(INSTALLED)
	$(PY) -m flash_helpers.build

report: build
	$(PY) tools/build/build_report.py

lint: $(TEST_INSTALLED)
	@if [ "$(SYSTEM)" = 1 ] && ! $(PY) -c 'import clang_format, mypy, ruff' 2>/dev/null; then \
	  echo "lint skipped: $(PY) lacks ruff, mypy or clang-format"; exit 0; fi; \
	set -x; \
	$(PY) -m ruff check --no-cache .; \
	$(PY) -m ruff format --check .; \
	$(PY) -m mypy; \
	find csrc previous_kernels py tests -name '*.h' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cpp' | \
	  xargs $(CLANG_FORMAT) --dry-run --Werror

# Remade when the requirements change; a mark is written last, so an interrupted set-up is repeated.
$(VENV)/.installed-run: pyproject.toml setup.py tools/build/set_up.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { rm -rf $(VENV); echo "error: $(PYTHON) cannot create a virtual environment" \
	    "(Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PY) tools/build/set_up.py run --torch "$(TORCH)" --cpu-index "$(TORCH_CPU_INDEX)"
	$(PY) -m flash_helpers.build
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed-run
	$(PY) tools/build/set_up.py test --torch "$(TORCH)" --cpu-index "$(TORCH_CPU_INDEX)"
	@touch $@

clean:
	rm -rf build dist *.egg-info flash_attention/_C.*.so .mypy_cache .pytest_cache .ruff_cache

distclean: clean
	rm -rf $(VENV)
