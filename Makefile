# draftd: one non-recursive makefile. `make help` lists the targets.

VERSION := 1.0.0
PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
CC      ?= gcc
AR      ?= ar
# Debian's own interpreter: python3-msgpack and python3-pytest are installed for it.
PYTHON  ?= /usr/bin/python3
# address, undefined or thread; each gets a build folder of its own.
SANITIZE ?=

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
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now $(SAN) $(LDFLAGS)

# ---- sources, by room ----

PROTO_SRC    := $(wildcard proto/*.c)
KERNELS_SRC  := $(wildcard kernels/*.c kernels/cpu/*.c)
DAEMON_SRC   := $(wildcard daemon/*.c)
CLIENT_SRC   := $(wildcard client/*.c)
DRAFTCTL_SRC := $(wildcard client/draftctl/*.c)
EXAMPLE_SRC  := $(wildcard client/examples/*.c)
ROOMS        := proto kernels daemon client
UNIT_SRC     := $(wildcard tests/unit/*/*.c)

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
PROTO_OBJ    := $(call objects,$(PROTO_SRC))
KERNELS_OBJ  := $(call objects,$(KERNELS_SRC))
DAEMON_OBJ   := $(call objects,$(filter-out daemon/main.c,$(DAEMON_SRC)))
CLIENT_OBJ   := $(call objects,$(CLIENT_SRC))
DRAFTCTL_OBJ := $(call objects,$(DRAFTCTL_SRC))

# What each room may use (and so what it is compiled and linked with).
pc_cflags = $(shell $(PKG_CONFIG) --cflags $(1))
pc_libs   = $(shell $(PKG_CONFIG) --libs $(1))
PROTO_LIBS   := $(call pc_libs,$(MSGPACK_PC))
KERNELS_LIBS := $(call pc_libs,jansson) -lpthread -lm
DAEMON_LIBS  := $(call pc_libs,libuv libsystemd inih)
CLIENT_LIBS  := $(call pc_libs,jansson)
PACKAGES_CFLAGS := $(call pc_cflags,$(MSGPACK_PC) jansson libuv libsystemd inih)

LIBPROTO   := $(BUILD)/obj/libproto.a
LIBKERNELS := $(BUILD)/obj/libkernels.a
LIBDAEMON  := $(BUILD)/obj/libdaemon.a
LIBCLIENT  := $(BUILD)/obj/libclient.a
SONAME     := libdraft.so.0
PROGRAMS   := $(BUILD)/draftd $(BUILD)/draftctl $(BUILD)/$(SONAME)

.PHONY: all
all: $(PROGRAMS) $(BUILD)/examples

# ---- compiling ----

# The vector paths of the CPU backend, one file an instruction set, chosen at run time.
$(BUILD)/obj/kernels/cpu/%_avx2.o:   ISA := -mavx2 -mfma
$(BUILD)/obj/kernels/cpu/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
$(BUILD)/obj/kernels/cpu/%.o: OPT := $(if $(SANITIZE),-O1,-O3)
# libdraft's objects go into a shared library.
$(BUILD)/obj/client/%.o $(BUILD)/obj/proto/%.o: PIC := -fPIC

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ISA) $(PIC) -c -o $@ $<

$(LIBPROTO): $(PROTO_OBJ)
$(LIBKERNELS): $(KERNELS_OBJ)
$(LIBDAEMON): $(DAEMON_OBJ)
$(LIBCLIENT): $(CLIENT_OBJ)
$(LIBPROTO) $(LIBKERNELS) $(LIBDAEMON) $(LIBCLIENT):
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/draftd: $(BUILD)/obj/daemon/main.o $(LIBDAEMON) $(LIBKERNELS) $(LIBPROTO)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(KERNELS_LIBS) $(PROTO_LIBS)

$(BUILD)/$(SONAME): $(CLIENT_OBJ) $(PROTO_OBJ) client/libdraft.map
	$(CC) $(SAN) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=client/libdraft.map \
		-Wl,-z,relro,-z,now $(if $(SANITIZE),,-Wl,-z,defs) $(LDFLAGS) -o $@ $(CLIENT_OBJ) $(PROTO_OBJ) \
		$(CLIENT_LIBS) $(PROTO_LIBS)
	@ln -sf $(SONAME) $(BUILD)/libdraft.so

$(BUILD)/draftctl: $(DRAFTCTL_OBJ) $(LIBKERNELS) $(LIBPROTO) $(BUILD)/$(SONAME)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@ $(DRAFTCTL_OBJ) $(LIBKERNELS) $(LIBPROTO) \
		-L$(BUILD) -ldraft $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS)

# Examples are built as a user would: the public header and the library, nothing else.
EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,$(EXAMPLE_SRC))
.PHONY: $(BUILD)/examples
$(BUILD)/examples: $(EXAMPLES)
$(BUILD)/examples/%: client/examples/%.c client/draft.h $(BUILD)/$(SONAME)
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 $(WARN) $(SAN) -Iclient -o $@ $< -L$(BUILD) -Wl,-rpath,'$$ORIGIN/..' -ldraft

# ---- unit tests: one program a room ----

CHECK_LIBS = $(call pc_libs,check)
UNIT_PROGRAMS := $(patsubst %,$(BUILD)/tests/unit-%,$(sort $(notdir $(patsubst %/,%,$(dir $(UNIT_SRC))))))
UNIT_LINK := $(LIBDAEMON) $(LIBCLIENT) $(LIBKERNELS) $(LIBPROTO)

.SECONDEXPANSION:
$(UNIT_PROGRAMS): $(BUILD)/tests/unit-%: $$(patsubst %.c,$$(BUILD)/obj/%.o,$$(wildcard tests/unit/%/*.c)) $(UNIT_LINK)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(KERNELS_LIBS) $(CLIENT_LIBS) $(PROTO_LIBS) $(CHECK_LIBS)

.PHONY: unit
unit: $(UNIT_PROGRAMS)
	@set -e; for t in $^; do $$t; done

.PHONY: clean
clean:
	rm -rf build

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
