# SPDX-License-Identifier: MIT
# Verbena: one Makefile, sources by wildcard, one build directory a MODE.
MODE ?= debug
B    := build/$(MODE)
CC   ?= gcc
V    ?= 0
Q    := $(if $(filter 1,$V),,@)

MODES := debug release asan tsan cov
$(if $(filter $(MODE),$(MODES)),,$(error MODE=$(MODE): not one of $(MODES)))

OPT_debug   := -O1
OPT_release := -O2 -DNDEBUG_TRACE
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
OPT_tsan    := -O1 -fsanitize=thread
OPT_cov     := -O0 --coverage
CFLAGS  := -std=gnu11 -g -fPIC $(OPT_$(MODE)) -Wall -Wextra -Werror -Wshadow \
           -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -I.
LDFLAGS := $(OPT_$(MODE)) -Wl,-z,now -Wl,-z,defs

# Rooms. The front (verbs_*.c) is only in the library that programs load, and
# in the tests; the tool links the core of sim, so that it can never shadow
# the real libibverbs.
LIB   := $(wildcard lib/*.c)
BOOT  := sim/boot.c
FRONT := $(wildcard sim/verbs_*.c)
CORE  := $(filter-out $(BOOT) $(FRONT),$(wildcard sim/*.c))
FAULT := $(wildcard fault/*.c)
MAIN  := fault/main.c $(wildcard fault/cmd_*.c)
obj    = $(patsubst %.c,$(B)/%.o,$1)

.PHONY: all
all: $(B)/libibverbs.so.1 $(B)/verbena-boot.so $(B)/libverbena.a $(B)/verbena

$(B)/%.o: %.c Makefile
	$(Q)mkdir -p $(@D)
	$(Q)echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/libibverbs.so.1: $(call obj,$(CORE) $(FRONT)) sim/libibverbs.map
	$(Q)echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
	  -Wl,--version-script=sim/libibverbs.map -o $@ $(filter %.o,$^) -lpthread

$(B)/verbena-boot.so: $(call obj,$(CORE) $(BOOT))
	$(Q)echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $^ -ldl -lpthread

$(B)/libverbena.a: $(call obj,$(LIB))
	$(Q)echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/verbena: $(call obj,$(FAULT) $(CORE)) $(B)/libverbena.a
	$(Q)echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ljansson -ldl -lpthread

-include $(patsubst %.c,$(B)/%.d,$(LIB) $(wildcard sim/*.c) $(FAULT))

.PHONY: deps demo clean
deps:
	$(Q)ci/deps.sh

demo: deps
	$(Q)$(MAKE) --no-print-directory -j2 all
	$(Q)$(B)/verbena demo

clean:
	$(Q)rm -rf build
