# Thin: everything real is in CMake and scripts/. `make run` and `make test` work on a fresh clone.
PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)
# Programs that test one GPU side by side: most of each one's time is the reference's, on the host.
CUDA_JOBS ?= 4
PREFIX ?= /usr/local
SOAK_SECONDS ?= 3600
HUNT_PROBLEMS ?= 1000000
HUNT_SEED ?= 1
HUNT_PYTHON_PROBLEMS ?= 20000

.PHONY: run test test-sanitize test-aarch64 test-torch test-cuda test-torch-cuda check-reproducible docs wheel build setup install clean format tidy fuzz soak hunt hunt-python accuracy accuracy-cuda help

run: build ## set up, build, check all ops and types, then train a network and write a report
	$(BUILD)/bin/convgrad verify
	$(BUILD)/bin/convgrad train --html $(BUILD)/report.html
	@echo "How fast each layer ran, and why: open $(CURDIR)/$(BUILD)/report.html in a browser."

test: build ## set up, build, and pass all tests
	ctest --preset $(PRESET) -j $(JOBS)

test-sanitize: setup ## pass all C++ tests under the address, undefined-behaviour, leak and thread sanitizers
	scripts/sanitize.sh all asan
	scripts/sanitize.sh all tsan

test-aarch64: ## build for 64-bit ARM and pass the tests of ops, graphs, plans and kernels under QEMU
	scripts/setup.sh aarch64
	JOBS=$(JOBS) scripts/test_aarch64.sh

check-reproducible: setup ## build twice in two places and compare every byte
	scripts/reproducible.sh

test-torch: setup ## pass the tests of the Python package that need PyTorch (several GB to download)
	python/tests/run.sh build/torch-venv python/tests/requirements-torch.txt "" python/tests/with_torch

test-cuda: build ## pass the tests of the CUDA engine on this machine's GPU, which must be there
	rm -f $(BUILD)/cuda_kernels.txt
	CONVGRAD_REQUIRE_GPU=1 CONVGRAD_CUDA_KERNELS=$(CURDIR)/$(BUILD)/cuda_kernels.txt \
	  ctest --preset $(PRESET) -j $(CUDA_JOBS) -R '^(cuda_test:|train:command$$)' --no-tests=error
	tests/cuda/kernels.sh $(BUILD)/cuda_kernels.txt
	tests/cuda/sanitize.sh $(BUILD)/bin/cuda_test

test-torch-cuda: build ## pass the tests of the Python package with PyTorch on this machine's GPU (CONVGRAD_KEEP_VENV=1: in build/torch-venv as it is)
	CONVGRAD_REQUIRE_GPU=1 python/tests/run.sh build/torch-venv python/tests/requirements-torch.txt \
	  $(CURDIR)/$(BUILD)/python/tests/objects.txt python/tests/with_torch/test_torch_cuda.py python/tests/with_torch/test_torch_bench.py

accuracy: build ## measure errors against f64 and rewrite the tables of docs/accuracy.md
	tests/accuracy/write_tables.sh $(BUILD)/bin/convgrad_accuracy docs/accuracy.md

accuracy-cuda: build ## the same for the CUDA engine, on this machine's GPU, and for an installed cuDNN 9
	$(BUILD)/bin/convgrad_accuracy --engine cuda --measure docs/measured/accuracy_cuda.csv
	-$(BUILD)/bin/convgrad_accuracy --engine cuda+cudnn --measure docs/measured/accuracy_cuda.csv --only cuda.cudnn
	$(BUILD)/bin/convgrad_accuracy --measured docs/measured/accuracy_cuda.csv --write docs/accuracy.md

docs: ## build the site of the documents, with search and the API reference, into build/site
	@scripts/docs.sh

wheel: setup ## build a Python wheel for other machines into build/wheel, and try it in a clean environment
	scripts/wheel.sh

soak: build ## random layers for SOAK_SECONDS (an hour): same bits, memory and handles flat
	$(BUILD)/bin/convgrad_soak $(SOAK_SECONDS)

hunt: build ## HUNT_PROBLEMS=1000000 random problems (from HUNT_SEED on) against an f64 evaluation of its own
	CONVGRAD_HUNT_DROP_IN=$(BUILD)/lib/libconvgrad_onednn.so $(BUILD)/bin/convgrad_hunt $(HUNT_PROBLEMS) $(HUNT_SEED)

hunt-python: build ## HUNT_PYTHON_PROBLEMS=20000 of them through the Python package, after its tests
	ctest --preset $(PRESET) -R '^python$$'
	build/python-venv/bin/python tests/hunt/hunt.py $(HUNT_PYTHON_PROBLEMS) $(HUNT_SEED)

build: setup ## set up and build (PRESET=release, debug, asan or tsan)
	cmake --preset $(PRESET) -Wno-dev
	cmake --build --preset $(PRESET) -j $(JOBS)

setup: ## install missing system packages, or name them
	@scripts/setup.sh

install: build ## install library, headers and command into PREFIX (DESTDIR works)
	cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove everything that was built
	rm -rf build

format: ## format all C++ files
	@scripts/format.sh

tidy: build ## run clang-tidy
	@scripts/tidy.sh $(BUILD)

fuzz: setup ## fuzz every interface for FUZZ_SECONDS=3600 (FUZZ_TARGETS= some of them); needs clang
	@JOBS=$(JOBS) scripts/fuzz.sh

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile
