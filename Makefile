# SPDX-License-Identifier: MIT
# Verbena: one Makefile, sources by wildcard, one build directory a MODE.
MODE ?= debug
B    := build/$(MODE)
CC   ?= gcc
Q    := $(if $(filter 1,$(V)),,@)
MAKEFLAGS += --no-print-directory

MODES := debug release asan tsan cov
$(if $(filter $(MODE),$(MODES)),,$(error MODE=$(MODE): not one of $(MODES)))

OPT_debug   := -O1
# A `rep stos` for each small struct cost a fifth of a message.
OPT_x86_64  := -mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign
OPT_release := -O2 -flto=auto -ffat-lto-objects -fno-semantic-interposition \
               $(OPT_$(shell uname -m))
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
OPT_tsan    := -O1 -fsanitize=thread
OPT_cov     := -O0 --coverage
CFLAGS  := -std=gnu11 -g -fPIC $(OPT_$(MODE)) -Wall -Wextra -Werror -Wshadow \
           -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -I. $(EXTRA)
LDFLAGS := $(OPT_$(MODE)) -Wl,-z,now -Wl,-z,defs

# Rooms. The front (verbs_*.c) is only in the library that programs load, and
# in the tests; the tool links the core of sim, so that it can never shadow
# the real libibverbs.
LIB   := $(wildcard lib/*.c)
LOADED := sim/boot.c sim/paths.c
FRONT := $(wildcard sim/verbs_*.c)
CORE  := $(filter-out $(LOADED) $(FRONT),$(wildcard sim/*.c))
FAULT := $(wildcard fault/*.c)
MAIN  := fault/main.c $(wildcard fault/cmd_*.c)
obj    = $(patsubst %.c,$(B)/%.o,$1)
SIMS  := $(addprefix $(B)/,libibverbs.so.1 verbena-boot.so verbena-paths.so)

.PHONY: all deps demo check conform bench stress survive goodput hash fuzz interop asan tsan valgrind tidy install clean help
all: $(SIMS) $(B)/libverbena.so.0 $(B)/libverbena.a $(B)/verbena ; @:

$(B)/%.o: %.c Makefile
	$(Q)mkdir -p $(@D)
	$(Q)echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/libibverbs.so.1: $(call obj,$(CORE) $(FRONT)) sim/libibverbs.map
$(B)/libverbena.so.0: $(call obj,$(LIB)) lib/libverbena.map
$(B)/verbena-boot.so: $(call obj,$(CORE) sim/boot.c)
$(B)/verbena-paths.so: $(call obj,sim/paths.c)
$(SIMS) $(B)/libverbena.so.0:
	$(Q)echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $(filter %.o,$^) \
	  $(patsubst %,-Xlinker --version-script=%,$(filter %.map,$^)) -ldl -lpthread

$(B)/libverbena.a: $(call obj,$(LIB))
	$(Q)echo "  AR    $@"
	$(Q)rm -f $@ && ld -r -o $(B)/lib/all.o $^ && ar rcs $@ $(B)/lib/all.o

$(B)/verbena: $(call obj,$(FAULT) $(CORE)) $(B)/libverbena.a
	$(Q)echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ljansson -ldl -lpthread

# --- tests: one set of bodies, two runners --------------------------------
TESTS   := $(wildcard tests/*.c tests/*/*.c)
CRIT    := $(patsubst %.c,$(B)/crit/%.o,$(TESTS))
PLAIN   := $(call obj,$(TESTS))
TESTED  := $(call obj,$(filter-out $(MAIN),$(FAULT)) $(CORE) $(FRONT)) \
           $(B)/libverbena.a
TEST_CFLAGS := -DBUILD_DIR='"$(abspath $(B))"' -Wno-missing-prototypes

$(PLAIN): CFLAGS += $(TEST_CFLAGS)

$(B)/crit/%.o: %.c Makefile
	$(Q)mkdir -p $(@D)
	$(Q)echo "  CC    $< (Criterion)"
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -DHARNESS_CRITERION -MMD -MP -c $< -o $@

$(B)/tests/criterion: $(CRIT) $(TESTED)
$(B)/tests/criterion: RUNNER := -lcriterion
$(B)/tests/plain: $(PLAIN) $(TESTED)
$(B)/tests/criterion $(B)/tests/plain:
	$(Q)echo "  LINK  $@"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RUNNER) -ljansson -ldl -lpthread

-include $(patsubst %.o,%.d,$(call obj,$(LIB) $(wildcard sim/*.c) $(FAULT)) $(CRIT) $(PLAIN))

# Programs of ours that run on the provider like anybody's.
$(B)/ci/%: ci/%.c ci/no_vm.h $(B)/libverbena.a
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@ $< $(B)/libverbena.a -libverbs -ldl -lpthread

deps: ; $(Q)ci/deps.sh

demo: deps
	$(Q)$(MAKE) -j2 all
	$(Q)$(B)/verbena demo

# The memory checkers judge by their reports, Criterion has the last word.
check: deps
	$(Q)$(MAKE) -j2 all $(B)/tests/plain $(B)/tests/criterion
	$(Q)$(MAKE) -j2 MODE=release all
	$(Q)$(MAKE) tidy asan valgrind
	$(Q)$(B)/tests/criterion -j2

conform: deps
	$(Q)$(MAKE) -j2 MODE=debug all build/debug/ci/no_vm
	$(Q)UNDER='$(UNDER)' ci/conform.sh

bench: deps
	$(Q)ci/deps.sh bench
	$(Q)$(MAKE) -j2 MODE=release all $(addprefix build/release/,tests/plain ci/bench_scale ci/bench_probe ci/bench_raw)
	$(Q)$(MAKE) -j2 MODE=release B=build/untapped EXTRA=-DSIM_UNTAPPED all
	$(Q)ci/bench.py

stress survive goodput: deps
	$(Q)$(MAKE) -j2 MODE=release all build/release/ci/$@
	$(Q)ci/$@.[ps]*

asan tsan valgrind: deps
	$(Q)$(MAKE) -j2 MODE=$(@:valgrind=debug) all build/$(@:valgrind=debug)/tests/plain
	$(Q)ci/gates.sh $@

tidy hash fuzz interop: deps ; $(Q)ci/$@.sh

# Of the static library, too, only what the map names can be seen.
PREFIX ?= /usr/local
TO     := $(DESTDIR)$(PREFIX)
install: all
	install -D -t $(TO)/bin $(B)/verbena
	install -D -t $(TO)/lib/verbena $(SIMS)
	install -D -m 644 -t $(TO)/lib $(B)/libverbena.so.0 $(B)/libverbena.a
	ln -sf libverbena.so.0 $(TO)/lib/libverbena.so
	objcopy -R '.gnu.*lto_*' $$(sed -n 's/.*\(vb_.*\);/-G \1/p' lib/libverbena.map) \
	  $(TO)/lib/libverbena.a
	install -D -m 644 -t $(TO)/include lib/verbena.h
	install -D -m 644 -t $(TO)/share/man/man3 lib/verbena.3
	sed 's|@PREFIX@|$(PREFIX)|' lib/verbena.pc.in | \
	  install -D -m 644 /dev/stdin $(TO)/lib/pkgconfig/verbena.pc

clean: ; $(Q)rm -rf build

help:
	@echo "make demo      a desync bug, reproduced with no hardware"
	@echo "make check     all tests, style and memory checkers; make bench: its speed"
	@echo "make conform   other people's programs; make interop: llama.cpp's transport"
	@echo "make stress    processes that are killed; make survive: peers that are lost"
	@echo "make fuzz      wrong bytes; make goodput: lib beside perftest"
	@echo "make asan|tsan|valgrind|tidy   one checker; make hash: one trace"
	@echo "make, make clean, make install (to PREFIX, default /usr/local)"
	@echo "MODE=debug|release|asan|tsan|cov chooses build/MODE; V=1 shows commands"
