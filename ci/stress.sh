#!/bin/sh
# SPDX-License-Identifier: MIT
# Processes that die, for SECONDS (60): see stress.c.
VERBENA_QUIET=1 exec build/release/verbena run -w stress$$ -- \
	build/release/ci/stress "${SECONDS:-60}"
