# draftd: one non-recursive makefile. `make help` lists the targets.
#
# make runs itself again only for another kind of build (sanitizers, fuzzing, the archive) or when packages may have to be
# installed before they can be looked up (demo, check).

VERSION := 1.0.0
PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
# One name for one folder, relative or not: the header dependencies in it say by name what is built anew.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
CC      ?= gcc
AR      ?= ar
# Debian's own interpreter: python3-msgpack, python3-pytest and python3-numpy are installed for it.
PYTHON  ?= /usr/bin/python3
# address, undefined or thread; each gets a build folder of its own.
SANITIZE ?=
# 1: programs that find their libraries in ../lib, for the archive
RELOCATABLE ?=
# operations of check-random, and what chooses them: nothing, for others every time
OPERATIONS ?= 300000
SEED ?=
# runs of each fuzz target
RUNS ?= 2000000
# test programs side by side. Most of them wait most of the time: more than there are processors.
JOBS ?= $(shell expr 2 \* $$(nproc))
# Where nvcc lives, and 0 for a draftd without the CUDA backend: as where there is no nvcc, and under sanitizers, which have
# nothing to see in it.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(or $(shell command -v nvcc),/usr/local/cuda/bin/nvcc)))
CUDA ?= $(if $(SANITIZE),0,$(if $(wildcard $(CUDA_HOME)/bin/nvcc),1,0))
# Of NCCL only the header is needed to build.
$(if $(filter 1,$(CUDA)),$(if $(wildcard $(addsuffix /nccl.h,$(CUDA_HOME)/include /usr/include /usr/local/include)),,\
	$(error The CUDA backend needs nccl.h: install libnccl-dev, or build without it by CUDA=0)))
# a Python with PyTorch and Triton, for check-gpu and bench-gpu
GPU_PYTHON ?= python3

, := ,

PKG_CONFIG ?= pkg-config
MSGPACK_PC := $(shell $(PKG_CONFIG) --exists msgpack-c && echo msgpack-c || echo msgpack)

WARN := -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wundef -Wvla \
        -Wwrite-strings
OPT  ?= -O2
HARDEN := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE -fno-plt
ifneq ($(SANITIZE),)
SAN    := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
OPT    := -O1
HARDEN := -fPIE
endif
CFLAGS   ?= -g
ALL_CFLAGS = -std=gnu11 $(OPT) $(WARN) $(HARDEN) $(SAN) $(CFLAGS) -I. -D_GNU_SOURCE \
             -DDRAFTD_VERSION='"$(VERSION)"' -ffp-contract=off -fvisibility=hidden -MMD -MP \
             $(PACKAGES_CFLAGS)
# DT_RPATH and not DT_RUNPATH: the libraries' own libraries are looked for there too. (libdraft, which Python loads, says it itself.)
RELOCATE := $(if $(RELOCATABLE),-Wl$(,)--disable-new-dtags -Wl$(,)-rpath$(,)'$$ORIGIN/../lib')
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now $(SAN) $(RELOCATE) $(LDFLAGS)

# ---- sources, by room ----

PROTO_SRC    := $(wildcard proto/*.c)
KERNELS_SRC  := $(wildcard kernels/*.c kernels/cpu/*.c)
DAEMON_SRC   := $(wildcard daemon/*.c)
CLIENT_SRC   := $(wildcard client/*.c)
DRAFTCTL_SRC := $(wildcard client/draftctl/*.c)
EXAMPLE_SRC  := $(wildcard client/examples/*.c)
UNIT_SRC     := $(wildcard tests/unit/*/*.c)
FUZZ_SRC     := $(wildcard tests/fuzz/fuzz_*.c)
BENCH_SRC    := $(wildcard tests/bench/*.c)
CUDA_SRC     := $(if $(filter 1,$(CUDA)),$(wildcard kernels/cuda/*.c kernels/cuda/*.cu))
GPU_TEST_SRC := $(wildcard tests/gpu/*.c tests/gpu/*.cu)

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(1)))
PROTO_OBJ    := $(call objects,$(PROTO_SRC))
KERNELS_OBJ  := $(call objects,$(KERNELS_SRC))
DAEMON_OBJ   := $(call objects,$(filter-out daemon/main.c,$(DAEMON_SRC)))
CLIENT_OBJ   := $(call objects,$(CLIENT_SRC))
CUDA_OBJ     := $(call objects,$(CUDA_SRC))
GPU_TEST_OBJ := $(call objects,$(GPU_TEST_SRC))
DRAFTCTL_OBJ := $(call objects,$(filter-out client/draftctl/main.c,$(DRAFTCTL_SRC)))

# What each room may use (and so what it is compiled and linked with). Goals that install packages or need none are let
# through without them.
PACKAGES := $(MSGPACK_PC) jansson libuv libsystemd inih
ifneq ($(filter-out deps demo check check-% clean help dist uninstall,$(or $(MAKECMDGOALS),all)),)
ifneq ($(shell $(PKG_CONFIG) --exists $(PACKAGES) && echo found),found)
$(error packages are missing ($(PACKAGES)): run `make deps`)
endif
endif
pc_libs = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
PROTO_LIBS   := $(call pc_libs,$(MSGPACK_PC))
KERNELS_LIBS := $(call pc_libs,jansson) -lpthread -lm
DAEMON_LIBS  := $(call pc_libs,libuv libsystemd inih)
CLIENT_LIBS  := $(call pc_libs,jansson)
CUDA_LIBS    := $(if $(CUDA_SRC),-L$(CUDA_HOME)/lib64 -lcudart_static -lpthread -ldl -lrt -lm)
PACKAGES_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)

LIBPROTO   := $(BUILD)/obj/libproto.a
LIBKERNELS := $(BUILD)/obj/libkernels.a
LIBDAEMON  := $(BUILD)/obj/libdaemon.a
LIBCLIENT  := $(BUILD)/obj/libclient.a
LIBDRAFTCTL := $(BUILD)/obj/libdraftctl.a
SONAME     := libdraft.so.0
PROGRAMS   := $(BUILD)/draftd $(BUILD)/draftctl $(BUILD)/$(SONAME)

# One short line a file; the whole commands with V=1.
quiet = $(if $(V),,@printf '  %-5s %s\n' $(1) $@;)

.PHONY: all
all: $(PROGRAMS) $(BUILD)/examples $(BUILD)/files ## build draftd, draftctl, libdraft, the examples and the manual pages

# ---- compiling ----

# The vector paths of the CPU backend, one file an instruction set, chosen at run time.
$(BUILD)/obj/kernels/cpu/%_avx2.o:   ISA := -mavx2 -mfma
$(BUILD)/obj/kernels/cpu/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
$(BUILD)/obj/kernels/cpu/%.o: OPT := $(if $(SANITIZE),-O2,-O3)
# The CUDA runtime is linked statically and finds the driver at run time: the program starts without one.
$(BUILD)/obj/kernels/cuda/%.o $(BUILD)/obj/tests/gpu/%.o: INCLUDE := -isystem $(CUDA_HOME)/include
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -I. -gencode=arch=compute_90a,code=sm_90a \
              -Xcompiler -fPIE,-fno-threadsafe-statics,-fno-exceptions
# libdraft's objects go into a shared library.
$(BUILD)/obj/client/%.o $(BUILD)/obj/proto/%.o: PIC := -fPIC

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(ALL_CFLAGS) $(INCLUDE) $(ISA) $(PIC) -c -o $@ $<
# The block kernel is made of instructions that only 9.0 has; the plain one runs on 10.x, too.
$(BUILD)/obj/kernels/cuda/plain_kernel.cu.o: NVCC_FLAGS += -gencode=arch=compute_100,code=sm_100
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call quiet,NVCC)$(CUDA_HOME)/bin/nvcc $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(LIBPROTO): $(PROTO_OBJ)
$(LIBKERNELS): $(KERNELS_OBJ)
$(LIBDAEMON): $(DAEMON_OBJ)
$(LIBCLIENT): $(CLIENT_OBJ)
$(LIBDRAFTCTL): $(DRAFTCTL_OBJ)
$(LIBPROTO) $(LIBKERNELS) $(LIBDAEMON) $(LIBCLIENT) $(LIBDRAFTCTL):
	@rm -f $@
	$(call quiet,AR)$(AR) rcs $@ $^

# The CUDA backend's objects come before libkernels, whose no_cuda.o is then left out. Every other program does without.
$(BUILD)/draftd: $(BUILD)/obj/daemon/main.o $(CUDA_OBJ) $(LIBDAEMON) $(LIBKERNELS) $(LIBPROTO) $(BUILD)/obj/cuda-$(CUDA)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(DAEMON_LIBS) $(KERNELS_LIBS) $(PROTO_LIBS) \
		$(CUDA_LIBS)
# Links again when CUDA changes.
$(BUILD)/obj/cuda-$(CUDA):
	@mkdir -p $(@D) && rm -f $(BUILD)/obj/cuda-* && touch $@

$(BUILD)/$(SONAME): $(CLIENT_OBJ) $(PROTO_OBJ) client/libdraft.map
	$(call quiet,LINK)$(CC) $(SAN) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=client/libdraft.map \
		-Wl,-z,relro,-z,now $(if $(SANITIZE),,-Wl,-z,defs) $(RELOCATE) $(LDFLAGS) -o $@ $(CLIENT_OBJ) $(PROTO_OBJ) \
		$(CLIENT_LIBS) $(PROTO_LIBS)
	@ln -sf $(SONAME) $(BUILD)/libdraft.so

# It copies to and from device memory as libdraft maps it, with the same file.
$(BUILD)/draftctl: $(BUILD)/obj/client/draftctl/main.o $(BUILD)/obj/client/driver.o $(LIBDRAFTCTL) $(LIBKERNELS) $(LIBPROTO) $(BUILD)/$(SONAME)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@ $(filter %.o %.a,$^) \
		-L$(BUILD) -ldraft $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS)

# Examples are built as a user would: the public header and the library, nothing else.
EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,$(EXAMPLE_SRC))
.PHONY: $(BUILD)/examples
$(BUILD)/examples: $(EXAMPLES)
$(BUILD)/examples/%: client/examples/%.c client/draft.h $(BUILD)/$(SONAME)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=c11 -O2 $(WARN) $(SAN) -Iclient -o $@ $< -L$(BUILD) -Wl,-rpath,'$$ORIGIN/..' -ldraft

# ---- tests ----

# One unit program a room, linked with that room and what it may use.
UNIT_PROGRAMS := $(patsubst %,$(BUILD)/tests/unit-%,$(sort $(notdir $(patsubst %/,%,$(dir $(UNIT_SRC))))))
ALL_LIBS = $(DAEMON_LIBS) $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS)
$(BUILD)/tests/unit-proto:    $(LIBPROTO)
$(BUILD)/tests/unit-kernels:  $(LIBKERNELS)
$(BUILD)/tests/unit-daemon:   $(LIBDAEMON) $(LIBKERNELS) $(LIBPROTO)
$(BUILD)/tests/unit-client:   $(LIBCLIENT) $(LIBPROTO)
$(BUILD)/tests/unit-draftctl: $(LIBDRAFTCTL) $(LIBCLIENT) $(LIBKERNELS) $(LIBPROTO)

# Stands in for NVIDIA's driver.
$(BUILD)/tests/unit-client: | $(BUILD)/tests/libcuda.so.1
$(BUILD)/tests/libcuda.so.1: tests/unit/client/libcuda/fake.c tests/unit/client/libcuda/fake.h
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_CFLAGS) -MF $(BUILD)/obj/libcuda.d -fPIC -fvisibility=default -shared -Wl,-soname,$(@F) -o $@ $<

unit_objects = $(call objects,$(wildcard tests/unit/$(1)/*.c))
.SECONDEXPANSION:
$(UNIT_PROGRAMS): $(BUILD)/tests/unit-%: $$(call unit_objects,$$*)
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(ALL_LIBS) $(call pc_libs,check)

# The real programs against Python: an independent codec, hostile clients, life and death of the daemon.
PYTEST := BUILD=$(abspath $(BUILD)) CUDA=$(CUDA) CC=$(CC) $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/integration
# In parts that run side by side; behind them, alone, the tests that measure time.
SIDE_BY_SIDE := $(foreach part,1/4 2/4 3/4 4/4,"PART=$(part) $(PYTEST) -m 'not alone'")
MEASURING := -- "$(PYTEST) -m alone"
SYMBOLS := tests/symbols.sh $(BUILD)/$(SONAME) client/draft.h
HEADER := CC=$(CC) tests/unit/client/header.sh client/draft.h

# What is loaded into a program under test: one counts its allocations, one lets a call fail.
PRELOAD := $(patsubst tests/preload/%.c,$(BUILD)/tests/%.so,$(wildcard tests/preload/*.c))
$(PRELOAD): $(BUILD)/tests/%.so: tests/preload/%.c
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 -O2 $(WARN) -D_GNU_SOURCE -fvisibility=hidden -fPIC -shared -o $@ $<

# Answers draft requests without drafting: what a load tool can reach.
DRAFT_ECHO := $(BUILD)/tests/draft_echo
$(DRAFT_ECHO): $(BUILD)/obj/tests/echo/draft_echo.o $(LIBPROTO)
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PROTO_LIBS)

# One session that uses all of libdraft.
SESSION := $(BUILD)/tests/session
$(SESSION): tests/session/session.c client/draft.h $(BUILD)/$(SONAME)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(ALL_CFLAGS) -MF $(BUILD)/obj/session.d $(ALL_LDFLAGS) -Iclient -o $@ $< -L$(BUILD) \
		-Wl,-rpath,'$$ORIGIN/..' -ldraft

.PHONY: unit integration check check-run
unit: $(UNIT_PROGRAMS) ## run the unit tests alone
	@tests/run -j $(JOBS) $^
TESTED := $(PRELOAD) $(DRAFT_ECHO) $(SESSION) all
integration: $(TESTED) ## run the integration tests alone, or one file of them (TEST=), with what it has to say
	@tests/run $(if $(TEST),"$(PYTEST)/$(TEST) -s",-j $(JOBS) "$(SYMBOLS)" "$(HEADER)" $(SIDE_BY_SIDE) $(MEASURING))
check-run: $(UNIT_PROGRAMS) $(TESTED)
	@tests/run -j $(JOBS) "$(SYMBOLS)" "$(HEADER)" $(UNIT_PROGRAMS) $(SIDE_BY_SIDE) $(MEASURING)

check: deps ## install what is missing, build, run every test that needs no GPU
	+@$(MAKE) --no-print-directory check-run

.PHONY: check-random check-random-run
check-random: deps ## OPERATIONS random ones of several clients, every reply predicted; SEED repeats a run; findings go to build/random
	+@$(MAKE) --no-print-directory check-random-run
check-random-run: all
	@tests/run "SEED=$(SEED) OPERATIONS=$(OPERATIONS) $(PYTEST)/test_random.py"

.PHONY: check-units check-units-run
check-units: deps ## the systemd units, their security score, users, folders and manual pages, as installed
	+@$(MAKE) --no-print-directory check-units-run
check-units-run: all
	@rm -rf $(BUILD)/units && $(MAKE) --no-print-directory -s install PREFIX=$(abspath $(BUILD))/units DESTDIR=
	@tests/run "tests/units.sh $(abspath $(BUILD))/units"

# A sanitizer's finding ends the process, and so fails the test that met it. Unit tests that try millions of numbers do with fewer
# under the slowest tools (tests/unit/kernels/suites.h).
SLOW_TOOL := DRAFTD_SLOW_TOOL=1
.PHONY: check-asan check-ubsan check-tsan check-faults check-faults-run check-valgrind check-valgrind-run
check-asan: deps ## the same under AddressSanitizer, with leak detection, and UndefinedBehaviorSanitizer
	+@UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) --no-print-directory BUILD=build/asan SANITIZE=address,undefined check-run
check-ubsan: deps ## the same under UndefinedBehaviorSanitizer alone
	+@UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) --no-print-directory BUILD=build/ubsan SANITIZE=undefined check-run
check-tsan: deps ## the same under ThreadSanitizer
	+@$(SLOW_TOOL) TSAN_OPTIONS=halt_on_error=1 $(MAKE) --no-print-directory BUILD=build/tsan SANITIZE=thread check-run

check-faults: deps ## each call that the system may refuse fails once, in draftd and its clients, under AddressSanitizer
	+@FAULT_STRIDE=1 $(MAKE) --no-print-directory BUILD=build/asan SANITIZE=address,undefined check-faults-run
check-faults-run: $(TESTED)
	@tests/run -j $(JOBS) $(foreach part,1/4 2/4 3/4 4/4,"PART=$(part) $(PYTEST)/test_faults.py")

.PHONY: check-hostile soak
check-hostile: deps ## 800 clients beside 200 hostile ones: none is refused, and their p99 at most doubles
	+@HOSTILE=200 $(MAKE) --no-print-directory TEST=test_crowd.py integration

soak: deps ## mixed load, killed clients, reloads, full queues for SECONDS=; under a tool with SANITIZE=thread BUILD=build/tsan
	+@SOAK_SECONDS=$(or $(SECONDS),1800) TSAN_OPTIONS=halt_on_error=1 $(MAKE) --no-print-directory TEST=test_soak.py integration

check-valgrind: deps ## unit tests and a session of the daemon under memcheck
	+@$(MAKE) --no-print-directory check-valgrind-run
VALGRIND := valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible \
            --suppressions=tests/valgrind.supp
check-valgrind-run: $(UNIT_PROGRAMS) all
	@$(SLOW_TOOL) CK_FORK=no CK_TIMEOUT_MULTIPLIER=50 tests/run -j $(JOBS) $(foreach t,$(UNIT_PROGRAMS),"$(VALGRIND) $(t)") \
		"DRAFTD_WRAPPER='$(VALGRIND)' $(PYTEST) -m valgrind"

# ---- tests that need a GPU; without one they say that they were waived ----

GPU_TESTS := $(BUILD)/tests/gpu
$(GPU_TESTS): $(GPU_TEST_OBJ) $(CUDA_OBJ) $(LIBKERNELS) $(LIBCLIENT) $(LIBPROTO)
	$(if $(CUDA_SRC),,$(error the GPU tests need nvcc: give CUDA_HOME, or put nvcc on the PATH))
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS) $(CUDA_LIBS)

# What is loaded into a draftd with GPUs: one lets a GPU fail, one a call of its driver.
GPU_PRELOAD := $(patsubst tests/gpu/preload/%.c,$(BUILD)/tests/%.so,$(wildcard tests/gpu/preload/*.c))
$(GPU_PRELOAD): $(BUILD)/tests/%.so: tests/gpu/preload/%.c
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 -O2 $(WARN) -D_GNU_SOURCE -isystem $(CUDA_HOME)/include -fvisibility=hidden -fPIC -shared -o $@ $<

.PHONY: check-gpu bench-gpu
check-gpu: $(GPU_TESTS) $(GPU_PRELOAD) all ## the CUDA backend on this machine's GPU: exactness, sharing, bounds, device regions, the service's sandbox, a lost GPU
	@$(GPU_TESTS) sharing golden tests/golden large odd ahead memory regions $(BUILD) tests/golden cycles $(BUILD) \
		devices=0,0 golden tests/golden devices=0,0,0,0 golden tests/golden devices=0,0,0,0,0,0,0,0 golden tests/golden
	@tests/gpu/sanitize.sh $(GPU_TESTS) tests/golden
	@$(GPU_PYTHON) tests/gpu/python_device.py
	@$(GPU_PYTHON) tests/gpu/sandbox.py
	@$(GPU_PYTHON) tests/gpu/sticky.py
	@$(GPU_PYTHON) tests/gpu/driver_faults.py
	@n=$$(nvidia-smi -L | wc -l); [ $$n -lt 2 ] || $(GPU_TESTS) devices=0,1 golden tests/golden large odd group
	@$(GPU_PYTHON) tests/gpu/several.py
	@$(GPU_PYTHON) tests/gpu/other_gpu.py
	@$(GPU_PYTHON) tests/gpu/restarts.py
bench-gpu: $(GPU_TESTS) ## microseconds a block on this machine's GPU, against the limit and the peers
	@$(GPU_PYTHON) tests/gpu/bench_gpu.py $(GPU_TESTS)

# ---- fuzzing: clang's libFuzzer, with address and undefined-behaviour checks ----

FUZZ_PROGRAMS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
FUZZ_MAKE = $(MAKE) --no-print-directory BUILD=build/fuzz CC=clang SANITIZE=fuzzer-no-link,address,undefined
# What goes through the corpora once has the same checks, and counts what it reaches besides; fuzz does without, to be faster.
CORPUS_MAKE = $(FUZZ_MAKE) BUILD=build/fuzz-corpus CFLAGS='-g -fprofile-instr-generate -fcoverage-mapping' \
              LDFLAGS=-fprofile-instr-generate
$(FUZZ_PROGRAMS): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(LIBDAEMON) $(LIBCLIENT) $(LIBKERNELS) $(LIBPROTO)
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(ALL_LIBS)

.PHONY: fuzz fuzz-run fuzz-regress fuzz-regress-run fuzz-coverage fuzz-coverage-run
fuzz: ## RUNS runs of every fuzz target; findings go to build/fuzz/findings
	+@$(FUZZ_MAKE) fuzz-run
fuzz-regress: ## every fuzz target over its corpus and its old findings, once
	+@$(CORPUS_MAKE) fuzz-regress-run
fuzz-run: $(FUZZ_PROGRAMS)
	@mkdir -p $(BUILD)/findings $(patsubst tests/fuzz/%.c,$(BUILD)/corpus/%,$(FUZZ_SRC))
	@tests/run $(foreach t,$(FUZZ_PROGRAMS),"$(t) -runs=$(RUNS) -print_final_stats=1 -verbosity=0 \
		-artifact_prefix=$(BUILD)/findings/ $(BUILD)/corpus/$(notdir $(t)) $(call seeds,$(t))")
fuzz-regress-run: $(FUZZ_PROGRAMS)
	@tests/run -j $(JOBS) $(foreach t,$(FUZZ_PROGRAMS),"LLVM_PROFILE_FILE=$(t).profraw $(t) -runs=0 -verbosity=0 $(call seeds,$(t))")
fuzz-coverage: ## what the corpora reach of proto/, a line a file; at least 95 % of all lines
	+@$(CORPUS_MAKE) fuzz-coverage-run
fuzz-coverage-run: $(FUZZ_PROGRAMS)
	@tests/run "tests/fuzz/coverage.sh $(BUILD)/profile $^"
seeds = $(wildcard tests/fuzz/corpus/$(notdir $(1)) tests/fuzz/regressions/$(notdir $(1)))

# ---- speed, and a first look ----

BENCH_PROGRAMS := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(BENCH_SRC))
$(BENCH_PROGRAMS): $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(LIBCLIENT) $(LIBKERNELS) $(LIBPROTO)
	@mkdir -p $(@D)
	$(call quiet,LINK)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS)

.PHONY: bench demo
bench: all $(BENCH_PROGRAMS) ## measure the CPU step and the wire
	@set -e; for b in $(BENCH_PROGRAMS); do BUILD=$(BUILD) $$b; echo; done

demo: deps ## install what is missing, build, draft a few tokens
	+@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) tests/demo.sh

# ---- what people who run it read and type, made from the option tables ----

OPTIONS := $(BUILD)/files/options
MAN := draftd.8 draftd.conf.5 draftctl.1 libdraft.3 draft-protocol.7
GENERATED := $(addprefix $(BUILD)/files/,$(MAN) draftd.conf draftd.bash draftctl.bash)
.PHONY: $(BUILD)/files
$(BUILD)/files: $(GENERATED)
$(OPTIONS): packaging/generate/options.sh packaging/generate/options.awk $(BUILD)/draftd $(BUILD)/draftctl
	@mkdir -p $(@D)
	$(call quiet,GEN)packaging/generate/options.sh $(BUILD)/draftd $(BUILD)/draftctl >$@.new && mv $@.new $@
# (whole or not at all: a page without its options must not stay)
generate = $(call quiet,GEN)awk -f packaging/generate/$(1) >$@.new && mv $@.new $@
$(filter %.5 %.8 %.1,$(GENERATED)): $(BUILD)/files/%: packaging/man/%.in $(OPTIONS) packaging/generate/man.awk
	$(call generate,man.awk $(OPTIONS) $<)
$(filter %.3 %.7,$(GENERATED)): $(BUILD)/files/%: packaging/man/%.in
	@mkdir -p $(@D) && cp $< $@
$(BUILD)/files/draftd.conf: $(OPTIONS) packaging/generate/conf.awk
	$(call generate,conf.awk $<)
$(BUILD)/files/%.bash: $(OPTIONS) packaging/generate/completion.bash packaging/generate/completion.awk
	$(call generate,completion.awk -v program=$* $(OPTIONS) packaging/generate/completion.bash)

# ---- packages, installing, archives ----

.PHONY: deps install uninstall dist tarball deb check-deb clean help
deps: ## install the Debian packages that building and testing need, if any is missing
	@packaging/deps.sh

BINDIR := $(PREFIX)/bin
LIBDIR := $(PREFIX)/lib
# Settings are where an operator looks for them, /etc, also below /usr/local.
CONFDIR := $(if $(filter /usr /usr/local,$(PREFIX)),,$(PREFIX))/etc/draftd
# systemd's own folders below /usr; elsewhere those of the same names, which it reads below /usr/local, too.
systemd_dir = $(or $(if $(filter /usr,$(PREFIX)),$(shell $(PKG_CONFIG) --variable=$(1) systemd 2>/dev/null)),$(PREFIX)/lib/$(2))
UNITDIR = $(call systemd_dir,systemdsystemunitdir,systemd/system)
SYSUSERSDIR = $(call systemd_dir,sysusersdir,sysusers.d)
TMPFILESDIR = $(call systemd_dir,tmpfilesdir,tmpfiles.d)
# Where Debian's Python looks: below /usr in one place for every version, below /usr/local in its own version's. The package looks
# for libdraft three folders up, in LIBDIR.
PYTHONDIR ?= $(LIBDIR)/$(or $(if $(filter-out /usr,$(PREFIX)),$(notdir $(realpath $(PYTHON)))),python3)/dist-packages
PYTHON_SRC := $(wildcard client/python/draft/*.py) client/python/draft/py.typed
DOCDIR := $(PREFIX)/share/doc/draftd
MANDIR := $(PREFIX)/share/man
COMPLETIONDIR := $(PREFIX)/share/bash-completion/completions
UNITS := draftd.service draftd.socket draftd@.service draftd@.socket draftd-metrics.service draftd-metrics.timer
# What the README leads to, at the same relative places.
DOCS := README.md LICENSE proto/PROTOCOL.md kernels/NUMERICS.md kernels/PERFORMANCE.md kernels/markov.h client/draft.h \
        client/draftctl/BENCH.md client/examples/draft.c client/examples/draft_torch.py client/python/README.md tests/integration/wire_codec.py
FILL = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@BINDIR@|$(BINDIR)|; s|@CONFDIR@|$(CONFDIR)|; \
       s|@DOCDIR@|$(DOCDIR)|'
ALONE   := s|@OF_GPU@||; s|@SOCKET_UNIT@|draftd.socket|; s|@SOCKET@|/run/draftd/draftd.sock|; s|@DEVICES@||
ONE_GPU := s|@OF_GPU@| on GPU %i|; s|@SOCKET_UNIT@|draftd@%i.socket|; s|@SOCKET@|/run/draftd/%i.sock|; s|@DEVICES@| --backend cuda --devices %i --tensor-parallel 0|
install: all ## install below $(DESTDIR)$(PREFIX), settings in $(DESTDIR)$(CONFDIR)
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(PREFIX)/include $(LIBDIR)/pkgconfig $(UNITDIR) $(CONFDIR))
	install -m 755 $(BUILD)/draftd $(BUILD)/draftctl $(DESTDIR)$(BINDIR)/
	install -m 755 $(BUILD)/$(SONAME) $(DESTDIR)$(LIBDIR)/
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libdraft.so
	install -m 644 client/draft.h $(DESTDIR)$(PREFIX)/include/
	$(FILL) client/libdraft.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libdraft.pc
	install -D -m 644 -t $(DESTDIR)$(PYTHONDIR)/draft $(PYTHON_SRC)
	for f in $(DOCS); do install -D -m 644 $$f $(DESTDIR)$(DOCDIR)/$$f || exit; done
	for f in $(MAN); do install -d $(DESTDIR)$(MANDIR)/man$${f##*.} && \
		$(FILL) $(BUILD)/files/$$f >$(DESTDIR)$(MANDIR)/man$${f##*.}/$$f || exit; done
	for p in draftd draftctl; do install -D -m 644 $(BUILD)/files/$$p.bash $(DESTDIR)$(COMPLETIONDIR)/$$p || exit; done
	for u in draftd.service draftd.socket; do \
		$(FILL) -e '$(ALONE)' packaging/systemd/$$u.in >$(DESTDIR)$(UNITDIR)/$$u && \
		$(FILL) -e '$(ONE_GPU)' packaging/systemd/$$u.in >$(DESTDIR)$(UNITDIR)/draftd@.$${u#*.} || exit; done
	$(FILL) packaging/systemd/draftd-metrics.service.in >$(DESTDIR)$(UNITDIR)/draftd-metrics.service
	install -m 644 packaging/systemd/draftd-metrics.timer $(DESTDIR)$(UNITDIR)/
	install -D -m 644 packaging/systemd/sysusers.conf $(DESTDIR)$(SYSUSERSDIR)/draftd.conf
	install -D -m 644 packaging/systemd/tmpfiles.conf $(DESTDIR)$(TMPFILESDIR)/draftd.conf
	[ -e $(DESTDIR)$(CONFDIR)/draftd.conf ] || install -m 644 $(BUILD)/files/draftd.conf $(DESTDIR)$(CONFDIR)/
uninstall: ## remove what install put there, except a draftd.conf that was edited
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/draftd bin/draftctl include/draft.h)
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,$(SONAME) libdraft.so pkgconfig/libdraft.pc)
	rm -f $(foreach m,$(MAN),$(DESTDIR)$(MANDIR)/man$(subst .,,$(suffix $(m)))/$(m)) $(addprefix $(DESTDIR)$(COMPLETIONDIR)/,draftd draftctl)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS)) $(DESTDIR)$(SYSUSERSDIR)/draftd.conf $(DESTDIR)$(TMPFILESDIR)/draftd.conf
	! cmp -s $(BUILD)/files/draftd.conf $(DESTDIR)$(CONFDIR)/draftd.conf || rm -f $(DESTDIR)$(CONFDIR)/draftd.conf
	rm -rf $(DESTDIR)$(DOCDIR) $(DESTDIR)$(PYTHONDIR)/draft

NAME := draftd-$(VERSION)
dist: ## the sources of the last commit: build/draftd-VERSION.tar.gz
	@mkdir -p build
	git archive --format=tar.gz --prefix=$(NAME)/ -o build/$(NAME).tar.gz HEAD
	@echo build/$(NAME).tar.gz
tarball: ## programs with their libraries, to unpack anywhere: build/draftd-VERSION-linux-ARCH.tar.gz
	+@$(MAKE) --no-print-directory BUILD=build/relocatable RELOCATABLE=1 all build/relocatable/bench/wire_echo \
		build/relocatable/tests/draft_echo $(if $(CUDA_SRC),build/relocatable/tests/gpu $(GPU_PRELOAD:$(BUILD)/%=build/relocatable/%))
	@packaging/tarball.sh build/relocatable build/$(NAME)-linux-$$(uname -m) $(DOCS)
deb: deps ## Debian packages, looked over with lintian: build/deb/*.deb
	@packaging/deps.sh deb
	@CUDA=$(CUDA) CUDA_HOME=$(CUDA_HOME) packaging/deb.sh build/deb
check-deb: ## install, run, upgrade, remove and purge the packages of `make deb` in a chroot (as root)
	@packaging/deps.sh deb
	@tests/run "tests/deb/run.sh build/deb"

clean: ## remove build/
	rm -rf build
help: ## this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 16
	@echo 'Variables: BUILD PREFIX DESTDIR CC CFLAGS LDFLAGS SANITIZE RUNS JOBS OPERATIONS SEED PYTHON CUDA CUDA_HOME GPU_PYTHON V'

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
