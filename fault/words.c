/* SPDX-License-Identifier: MIT */
/* The words of plans and verdicts, generated from their lists. */
#include "fault/fault.h"

#include <string.h>

static const char *const verdicts[] = {
#define X(name, word, what) [FAULT_##name] = word,
	FAULT_VERDICTS(X)
#undef X
};

static const char *const effects[] = {
#define X(name, word, ...) [SIM_EFFECT_##name] = word,
	SIM_EFFECTS(X)
#undef X
};

static const char *const calls[] = {
#define X(name, word) [SIM_CALL_##name] = word,
	SIM_CALLS(X)
#undef X
};

const char *fault_verdict_name(enum fault_verdict verdict)
{
	return (unsigned)verdict < FAULT_VERDICT_COUNT ? verdicts[verdict]
						       : "unknown";
}

int fault_verdict_parse(const char *word, size_t len)
{
	for (int i = 0; i < FAULT_VERDICT_COUNT; i++)
		if (strlen(verdicts[i]) == len &&
		    memcmp(verdicts[i], word, len) == 0)
			return i;
	return -1;
}

/* Without the "=ERRNO" that the list shows to people. */
const char *fault_effect_word(enum sim_effect effect, size_t *len)
{
	*len = strcspn(effects[effect], "=");
	return effects[effect];
}

const char *fault_call_word(enum sim_call call)
{
	return calls[call];
}
