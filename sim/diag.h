/* SPDX-License-Identifier: MIT */
/* Diagnosis: a refused or suspicious call explains itself once, in one line. */
#ifndef SIM_DIAG_H
#define SIM_DIAG_H

#include <stdint.h>

/*
 * Print "verbena: MODEL: text" on standard error, once per `rule` in this
 * process. `rule` is a string constant, "R15: TN3205 ..." or a spec section,
 * and ends the line in parentheses. VERBENA_QUIET=1 silences it.
 */
void sim_diag(const char *model, const char *rule, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
