/* SPDX-License-Identifier: MIT */
/*
 * Plan text to plan: one line a fault, every error with line and column.
 *
 *   [id:] WHERE WHICH EFFECT [key=value...] [after=ID] [times=K|sticky]
 *   [expect=VERDICT|VERDICT@host]
 */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct word {
	const char *at;
	size_t len;
};

struct parser {
	const char *name;
	const char *line_start;
	const char *at; /* next character of this line */
	int line;
	struct fault_plan *plan;
	char *error;
	/* Which keys were given on this line. */
	bool has_at, has_value, has_len, has_times, has_after, has_expect;
	bool is_range; /* the event was given as a range, or with a length */
	bool has_version;
};

static int fail(struct parser *p, const char *at, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct parser *p, const char *at, const char *format, ...)
{
	va_list args;
	int used = snprintf(p->error, FAULT_ERROR_MAX, "%s:%d:%d: ", p->name,
			    p->line, (int)(at - p->line_start) + 1);

	va_start(args, format);
	if (used > 0 && used < FAULT_ERROR_MAX)
		vsnprintf(p->error + used, FAULT_ERROR_MAX - (size_t)used,
			  format, args);
	va_end(args);
	return -EINVAL;
}

static bool is_end(char c)
{
	return c == 0 || c == '\n' || c == '#';
}

/* A '#' starts a comment only where a word could start: "#5" is a number of
 * an event, and follows a site. */
static bool next_word(struct parser *p, struct word *word)
{
	while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')
		p->at++;
	word->at = p->at;
	word->len = strcspn(p->at, " \t\r\n");
	if (is_end(*p->at) &&
	    !(*p->at == '#' && (isdigit(p->at[1]) || p->at[1] == '*')))
		return false;
	p->at += word->len;
	return true;
}

static bool equals(struct word word, const char *text)
{
	return strlen(text) == word.len && memcmp(word.at, text, word.len) == 0;
}

/* "key=rest": true, with the rest in *value. */
static bool has_key(struct word word, const char *key, struct word *value)
{
	size_t n = strlen(key);

	if (word.len <= n || memcmp(word.at, key, n) != 0 || word.at[n] != '=')
		return false;
	value->at = word.at + n + 1;
	value->len = word.len - n - 1;
	return true;
}

static int parse_number(struct parser *p, struct word word, uint64_t *value)
{
	char text[32];
	char *end;

	if (word.len == 0 || word.len >= sizeof(text) || !isdigit(word.at[0]))
		return fail(p, word.at, "'%.*s' is not a number",
			    (int)(word.len < 40 ? word.len : 40), word.at);
	memcpy(text, word.at, word.len);
	text[word.len] = 0;
	if (text[0] == '0' && isdigit(text[1]))
		return fail(p, word.at,
			    "'%s' is not a number: octal is not "
			    "known here, 0x is",
			    text);
	errno = 0;
	*value = strtoull(text, &end, 0);
	if (*end || errno)
		return fail(p, word.at, "'%s' is not a number", text);
	return 0;
}

static int parse_small(struct parser *p, struct word word, uint64_t least,
		       uint64_t most, uint32_t *value)
{
	uint64_t wide = 0;
	int rc = parse_number(p, word, &wide);

	if (rc)
		return rc;
	if (wide < least || wide > most)
		return fail(p, word.at, "%llu is not in %llu..%llu",
			    (unsigned long long)wide, (unsigned long long)least,
			    (unsigned long long)most);
	*value = (uint32_t)wide;
	return 0;
}

/* --- header lines ------------------------------------------------------- */

static int copy_word(struct parser *p, struct word word, char *to, size_t size)
{
	if (word.len == 0 || word.len >= size)
		return fail(p, word.at, "a name here has 1 to %zu characters",
			    size - 1);
	memcpy(to, word.at, word.len);
	to[word.len] = 0;
	return 0;
}

static int parse_param(struct parser *p, struct word word)
{
	struct fault_plan *plan = p->plan;
	const char *equal = memchr(word.at, '=', word.len);
	struct fault_param *param = &plan->param[plan->param_count];
	struct word key, value;
	int rc;

	if (!equal)
		return fail(p, word.at, "expected key=value");
	if (plan->param_count == FAULT_PARAM_MAX)
		return fail(p, word.at, "more than %d parameters",
			    FAULT_PARAM_MAX);
	key = (struct word){word.at, (size_t)(equal - word.at)};
	value = (struct word){equal + 1, word.len - key.len - 1};
	rc = copy_word(p, key, param->key, sizeof(param->key));
	for (int i = 0; !rc && i < plan->param_count; i++)
		if (strcmp(plan->param[i].key, param->key) == 0)
			return fail(p, word.at, "'%s' given twice", param->key);
	if (!rc)
		rc = parse_number(p, value, &param->value);
	if (!rc)
		plan->param_count++;
	return rc;
}

static int parse_scenario(struct parser *p, struct word first)
{
	struct word word;
	int rc;

	if (p->plan->scenario[0])
		return fail(p, first.at, "a second scenario line");
	if (!next_word(p, &word))
		return fail(p, p->at, "expected the name of a scenario");
	rc = copy_word(p, word, p->plan->scenario, sizeof(p->plan->scenario));
	while (!rc && next_word(p, &word))
		rc = parse_param(p, word);
	return rc;
}

static int parse_device(struct parser *p, struct word first)
{
	static const char *const sides[SIM_HOST_COUNT] = {"a", "b"};
	struct word word, model;
	bool any = false;

	while (next_word(p, &word)) {
		int host = 0;

		while (host < SIM_HOST_COUNT &&
		       !has_key(word, sides[host], &model))
			host++;
		if (host == SIM_HOST_COUNT)
			return fail(p, word.at, "expected a=MODEL or b=MODEL");
		if (p->plan->device[host][0])
			return fail(p, word.at, "a second model for host %s",
				    sides[host]);
		if (copy_word(p, model, p->plan->device[host],
			      sizeof(p->plan->device[host])))
			return -EINVAL;
		any = true;
	}
	return any ? 0 : fail(p, first.at, "device needs a=MODEL or b=MODEL");
}

static int parse_seed(struct parser *p, struct word first)
{
	struct word word;

	if (p->plan->has_seed)
		return fail(p, first.at, "a second seed line");
	if (!next_word(p, &word))
		return fail(p, p->at, "expected a number");
	p->plan->has_seed = true;
	return parse_number(p, word, &p->plan->seed);
}

static int parse_version(struct parser *p, struct word first)
{
	struct word word;

	if (!next_word(p, &word) || !equals(word, "1"))
		return fail(p, first.at, "this is for plans of version 1");
	if (p->has_version)
		return fail(p, first.at, "a second plan line");
	p->has_version = true;
	return 0;
}

/* --- WHERE -------------------------------------------------------------- */

static int parse_call(struct parser *p, struct word name,
		      struct sim_fault *fault)
{
	for (int call = 0; call < SIM_CALL_COUNT; call++) {
		if (!equals(name, fault_call_word(call)))
			continue;
		fault->site = SIM_SITE_CALL;
		fault->object = (uint32_t)call;
		return 0;
	}
	return fail(p, name.at,
		    "no verb '%.*s' can be struck; see `verbena "
		    "sites`",
		    (int)(name.len < 40 ? name.len : 40), name.at);
}

static int parse_qp(struct parser *p, struct word site, struct sim_fault *fault)
{
	const char *dot = memchr(site.at, '.', site.len);
	struct word number, end;

	if (!dot)
		return fail(p, site.at, "expected qpN.tx or qpN.rx");
	number = (struct word){site.at + 2, (size_t)(dot - site.at) - 2};
	end = (struct word){dot + 1, site.len - (size_t)(dot - site.at) - 1};
	if (equals(end, "tx"))
		fault->site = SIM_SITE_QP_TX;
	else if (equals(end, "rx"))
		fault->site = SIM_SITE_QP_RX;
	else
		return fail(p, end.at, "a queue pair has tx and rx, not '%.*s'",
			    (int)(end.len < 40 ? end.len : 40), end.at);
	return parse_small(p, number, 0, 1000000, &fault->object);
}

static int parse_where(struct parser *p, struct word word,
		       struct sim_fault *fault)
{
	struct word site;

	if (word.len < 3 || word.at[1] != '.' || word.at[0] < 'a' ||
	    word.at[0] >= 'a' + SIM_HOST_COUNT)
		return fail(p, word.at,
			    "expected a site such as a.qp0.tx, "
			    "b.verbs.reg_mr or a.boot.in");
	fault->host = (uint8_t)(word.at[0] - 'a');
	site = (struct word){word.at + 2, word.len - 2};
	if (equals(site, "boot.in") || equals(site, "boot.out")) {
		fault->site = equals(site, "boot.in") ? SIM_SITE_BOOT_IN
						      : SIM_SITE_BOOT_OUT;
		return 0;
	}
	if (site.len > 6 && memcmp(site.at, "verbs.", 6) == 0)
		return parse_call(p, (struct word){site.at + 6, site.len - 6},
				  fault);
	if (site.len > 2 && memcmp(site.at, "qp", 2) == 0)
		return parse_qp(p, site, fault);
	return fail(p, site.at, "unknown site '%.*s'; see `verbena sites`",
		    (int)(site.len < 40 ? site.len : 40), site.at);
}

/* --- WHICH -------------------------------------------------------------- */

static int parse_offset(struct parser *p, struct word word,
			struct sim_fault *fault)
{
	const char *plus = memchr(word.at, '+', word.len);
	struct word first = {word.at + 1, word.len - 1};
	uint64_t len = 1;
	int rc;

	if (word.at[0] != '@')
		return fail(p, word.at,
			    "a stream is struck at @OFFSET or "
			    "@OFFSET+LENGTH");
	if (plus) {
		struct word count = {plus + 1,
				     word.len - (size_t)(plus - word.at) - 1};

		first.len = (size_t)(plus - word.at) - 1;
		rc = parse_number(p, count, &len);
		if (!rc && len == 0)
			rc = fail(p, count.at, "a length of 0");
		if (rc)
			return rc;
	}
	p->is_range = plus != NULL;
	rc = parse_number(p, first, &fault->first);
	if (!rc && (len > INT64_MAX || fault->first > INT64_MAX - len))
		rc = fail(p, first.at, "offset out of range");
	fault->last = fault->first + len - 1;
	fault->times = SIM_NO_LIMIT;
	return rc;
}

static int parse_ordinal(struct parser *p, struct word word,
			 struct sim_fault *fault)
{
	struct word first = {word.at + 1, word.len - 1};
	const char *dots = memmem(word.at, word.len, "..", 2);
	int rc;

	if (word.at[0] != '#')
		return fail(p, word.at, "an event is #N, #N..M, #N.. or #*/K");
	fault->times = 1;
	p->is_range = dots || memchr(word.at, '*', word.len);
	if (word.len >= 2 && word.at[1] == '*') {
		struct word every = {word.at + 3, word.len - 3};

		fault->last = SIM_NO_LIMIT;
		fault->times = SIM_NO_LIMIT;
		if (word.len < 4 || word.at[2] != '/')
			return fail(p, word.at, "every K-th is #*/K");
		rc = parse_number(p, every, &fault->every);
		if (!rc && fault->every == 0)
			rc = fail(p, every.at, "every 0-th is none");
		return rc;
	}
	if (dots)
		first.len = (size_t)(dots - word.at) - 1;
	rc = parse_number(p, first, &fault->first);
	fault->last = fault->first;
	if (!rc && fault->first > INT64_MAX)
		rc = fail(p, first.at, "number out of range");
	if (rc || !dots)
		return rc;
	fault->times = SIM_NO_LIMIT;
	fault->last = SIM_NO_LIMIT;
	if (dots + 2 == word.at + word.len)
		return 0;
	struct word last = {dots + 2, word.len - (size_t)(dots - word.at) - 2};

	rc = parse_number(p, last, &fault->last);
	if (!rc && fault->last < fault->first)
		rc = fail(p, last.at, "the range ends before it starts");
	if (!rc && fault->last == fault->first)
		fault->times = 1;
	return rc;
}

/* --- EFFECT and its keys ------------------------------------------------ */

static const enum sim_kind site_kinds[] = {
#define X(name, word, kind, what) [SIM_SITE_##name] = SIM_KIND_##kind,
	SIM_SITES(X)
#undef X
};

static const struct {
	enum sim_kind kind;
	const char *args;
} effect_rows[] = {
#define X(name, word, kind, args, what) \
	[SIM_EFFECT_##name] = {SIM_KIND_##kind, args},
	SIM_EFFECTS(X)
#undef X
};

static int unknown_effect(struct parser *p, struct word word,
			  enum sim_kind kind)
{
	char list[128] = "";
	size_t used = 0, len;

	for (int i = 0; i < SIM_EFFECT_COUNT; i++)
		if (effect_rows[i].kind == kind)
			used += (size_t)snprintf(list + used,
						 sizeof(list) - used, "%s%s",
						 used ? ", " : "",
						 fault_effect_word(i, &len));
	return fail(p, word.at, "'%.*s' is no effect of this site; it takes %s",
		    (int)(word.len < 40 ? word.len : 40), word.at, list);
}

static int parse_errno(struct parser *p, struct word word,
		       struct sim_fault *fault)
{
	/* The second names of two numbers. */
	if (equals(word, "EWOULDBLOCK") || equals(word, "ENOTSUP")) {
		fault->value = equals(word, "ENOTSUP") ? ENOTSUP : EAGAIN;
		return 0;
	}

	for (int error = 1; error < 256; error++) {
		const char *name = strerrorname_np(error);

		if (name && equals(word, name)) {
			fault->value = (uint32_t)error;
			return 0;
		}
	}
	return fail(p, word.at, "'%.*s' is not the name of an errno",
		    (int)(word.len < 40 ? word.len : 40), word.at);
}

static int parse_effect(struct parser *p, struct word word,
			struct sim_fault *fault)
{
	enum sim_kind kind = site_kinds[fault->site];
	struct word value;

	for (int i = 0; i < SIM_EFFECT_COUNT; i++) {
		size_t len;
		const char *text = fault_effect_word(i, &len);

		if (effect_rows[i].kind != kind)
			continue;
		fault->effect = (uint8_t)i;
		if (i == SIM_EFFECT_FAIL && has_key(word, "fail", &value))
			return parse_errno(p, value, fault);
		if (i != SIM_EFFECT_FAIL && len == word.len &&
		    memcmp(text, word.at, len) == 0)
			return 0;
	}
	return unknown_effect(p, word, kind);
}

/* A key may be given once: true when it is new. */
static int once(struct parser *p, struct word word, bool *is_given)
{
	if (*is_given)
		return fail(p, word.at, "'%.*s' given twice",
			    (int)strcspn(word.at, "= \t\n"), word.at);
	*is_given = true;
	return 0;
}

/* "corrupt at= set=" is the spec's other way to write "set at= value=". */
static bool is_set(enum sim_effect effect, struct word word, struct word *value)
{
	return ((effect == SIM_EFFECT_CORRUPT || effect == SIM_EFFECT_SET) &&
		has_key(word, "set", value)) ||
	       (effect == SIM_EFFECT_SET && has_key(word, "value", value));
}

static int parse_arg(struct parser *p, struct word word,
		     struct sim_fault *fault, bool *is_arg)
{
	enum sim_effect effect = fault->effect;
	bool has_place =
		effect == SIM_EFFECT_CORRUPT || effect == SIM_EFFECT_SET;
	struct word value;

	*is_arg = true;
	if (has_place && has_key(word, "at", &value))
		return once(p, word, &p->has_at)
			       ? -EINVAL
			       : parse_number(p, value, &fault->at);
	if ((effect == SIM_EFFECT_CORRUPT || effect == SIM_EFFECT_FLIP) &&
	    has_key(word, "xor", &value))
		return once(p, word, &p->has_value)
			       ? -EINVAL
			       : parse_small(p, value, 1, 255, &fault->value);
	if (is_set(effect, word, &value)) {
		if (once(p, word, &p->has_value))
			return -EINVAL;
		fault->effect = SIM_EFFECT_SET;
		return parse_small(p, value, 0, 255, &fault->value);
	}
	if (effect == SIM_EFFECT_TRUNC && has_key(word, "len", &value))
		return once(p, word, &p->has_len)
			       ? -EINVAL
			       : parse_number(p, value, &fault->at);
	*is_arg = false;
	return 0;
}

static int check_args(struct parser *p, struct word effect_word,
		      const struct sim_fault *fault)
{
	enum sim_effect effect = fault->effect;
	bool needs_at =
		effect == SIM_EFFECT_CORRUPT || effect == SIM_EFFECT_SET;
	bool needs_value = needs_at || effect == SIM_EFFECT_FLIP;

	if (p->is_range &&
	    (effect == SIM_EFFECT_EOF || effect == SIM_EFFECT_STALL))
		return fail(p, effect_word.at,
			    "%.*s is at one offset, without "
			    "a length",
			    (int)effect_word.len, effect_word.at);
	if ((needs_at && !p->has_at) || (needs_value && !p->has_value) ||
	    (effect == SIM_EFFECT_TRUNC && !p->has_len))
		return fail(p, effect_word.at, "%.*s needs %s",
			    (int)effect_word.len, effect_word.at,
			    effect_rows[effect].args);
	return 0;
}

/* --- what may follow any effect ----------------------------------------- */

static int parse_after(struct parser *p, struct word id,
		       struct sim_fault *fault)
{
	for (int i = 0; i < p->plan->line_count; i++) {
		if (!equals(id, p->plan->line[i].fault.id))
			continue;
		fault->after = (int8_t)i;
		return 0;
	}
	return fail(p, id.at, "after='%.*s': no line above has this id",
		    (int)(id.len < 40 ? id.len : 40), id.at);
}

static int parse_expect(struct parser *p, struct word value,
			struct fault_line *line)
{
	const char *end = value.at + value.len;
	const char *sign = memchr(value.at, '@', value.len);
	const char *words_end = sign ? sign : end;

	line->expect_host = -1;
	if (sign) {
		if (end - sign != 2 || sign[1] < 'a' ||
		    sign[1] >= 'a' + SIM_HOST_COUNT)
			return fail(p, sign, "expected @a or @b");
		line->expect_host = sign[1] - 'a';
	}
	for (const char *at = value.at; at <= words_end;) {
		size_t len = strcspn(at, "|@ \t\r\n");
		int verdict;

		if (at + len > words_end)
			len = (size_t)(words_end - at);
		verdict = fault_verdict_parse(at, len);
		if (verdict < 0)
			return fail(p, at,
				    "'%.*s' is no verdict: pass, fail, "
				    "timeout, corrupt or crash",
				    (int)len, at);
		line->expect |= 1u << verdict;
		at += len + 1;
	}
	return 0;
}

static int parse_times(struct parser *p, struct word word, struct word value,
		       struct fault_line *line)
{
	struct sim_fault *fault = &line->fault;
	int rc;

	if (site_kinds[fault->site] == SIM_KIND_STREAM)
		return fail(p, word.at,
			    "a byte passes only once: a stream "
			    "takes no times=");
	if (line->is_sticky)
		return fail(p, word.at,
			    "sticky is for ever: it takes no "
			    "times=");
	if (once(p, word, &p->has_times))
		return -EINVAL;
	rc = parse_number(p, value, &fault->times);
	if (!rc && (fault->times == 0 || fault->times > INT64_MAX))
		rc = fail(p, value.at, "times out of range");
	/* "#3 times=2" strikes the events 3 and 4. */
	if (!rc && fault->last == fault->first)
		fault->last = fault->first + fault->times - 1;
	return rc;
}

static int parse_sticky(struct parser *p, struct word word,
			struct fault_line *line)
{
	if (p->has_times || line->is_sticky)
		return fail(p, word.at, "sticky is for ever: it goes alone");
	if (p->is_range)
		return fail(p, word.at,
			    "sticky needs a first event, #N or "
			    "@OFFSET, not a range");
	line->is_sticky = true;
	line->fault.last = SIM_NO_LIMIT;
	line->fault.times = SIM_NO_LIMIT;
	return 0;
}

static int parse_tail(struct parser *p, struct word word,
		      struct fault_line *line)
{
	struct word value;

	if (equals(word, "sticky"))
		return parse_sticky(p, word, line);
	if (has_key(word, "times", &value))
		return parse_times(p, word, value, line);
	if (has_key(word, "after", &value))
		return once(p, word, &p->has_after)
			       ? -EINVAL
			       : parse_after(p, value, &line->fault);
	if (has_key(word, "expect", &value))
		return once(p, word, &p->has_expect)
			       ? -EINVAL
			       : parse_expect(p, value, line);
	return fail(p, word.at, "unexpected '%.*s'",
		    (int)(word.len < 40 ? word.len : 40), word.at);
}

/* --- lines -------------------------------------------------------------- */

static bool has_id(const struct fault_plan *plan, const char *id)
{
	for (int i = 0; i < plan->line_count; i++)
		if (strcmp(plan->line[i].fault.id, id) == 0)
			return true;
	return false;
}

/* Given, or the first free one from f1 on. */
static int set_id(struct parser *p, struct word word, struct fault_line *line)
{
	char *id = line->fault.id;
	int rc;

	for (int n = 1; !word.len && (n == 1 || has_id(p->plan, id)); n++)
		snprintf(id, sizeof(line->fault.id), "f%d", n);
	if (!word.len)
		return 0;
	rc = copy_word(p, word, id, sizeof(line->fault.id));
	if (!rc &&
	    strspn(id, "abcdefghijklmnopqrstuvwxyz"
		       "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != word.len)
		rc = fail(p, word.at, "an id is of letters, digits, _ and -");
	if (!rc && has_id(p->plan, id))
		rc = fail(p, word.at, "a second line with id '%s'", id);
	return rc;
}

static int parse_fault(struct parser *p, struct word word)
{
	struct fault_line *line = &p->plan->line[p->plan->line_count];
	struct word id = {word.at, 0}, effect;
	int rc;

	if (p->plan->line_count == SIM_FAULT_MAX)
		return fail(p, word.at, "more than %d fault lines",
			    SIM_FAULT_MAX);
	memset(line, 0, sizeof(*line));
	line->fault.after = -1;
	line->fault.every = 1;
	line->expect_host = -1;
	line->text_line = p->line;
	p->has_at = p->has_value = p->has_len = false;
	p->has_times = p->has_after = p->has_expect = p->is_range = false;
	if (word.len > 1 && word.at[word.len - 1] == ':') {
		id.len = word.len - 1;
		if (!next_word(p, &word))
			return fail(p, p->at, "expected a site");
	}
	rc = set_id(p, id, line);
	if (!rc)
		rc = parse_where(p, word, &line->fault);
	if (rc)
		return rc;
	if (!next_word(p, &word))
		return fail(p, p->at, "expected which event: #N or @OFFSET");
	rc = site_kinds[line->fault.site] == SIM_KIND_STREAM
		     ? parse_offset(p, word, &line->fault)
		     : parse_ordinal(p, word, &line->fault);
	if (rc)
		return rc;
	if (!next_word(p, &effect))
		return fail(p, p->at, "expected an effect");
	rc = parse_effect(p, effect, &line->fault);
	while (!rc && next_word(p, &word)) {
		bool is_arg;

		rc = parse_arg(p, word, &line->fault, &is_arg);
		if (!rc && !is_arg)
			rc = parse_tail(p, word, line);
	}
	if (!rc)
		rc = check_args(p, effect, &line->fault);
	if (!rc)
		p->plan->line_count++;
	return rc;
}

static int parse_line(struct parser *p)
{
	static const struct {
		const char *word;
		int (*parse)(struct parser *p, struct word first);
	} headers[] = {
		{"plan", parse_version},
		{"scenario", parse_scenario},
		{"device", parse_device},
		{"seed", parse_seed},
	};
	struct word word, rest;
	int rc = 0;

	if (!next_word(p, &word))
		return 0;
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		if (!equals(word, headers[i].word))
			continue;
		if (p->plan->line_count)
			return fail(p, word.at, "'%s' after a fault line",
				    headers[i].word);
		rc = headers[i].parse(p, word);
		if (!rc && next_word(p, &rest))
			rc = fail(p, rest.at, "unexpected '%.*s'",
				  (int)(rest.len < 40 ? rest.len : 40),
				  rest.at);
		return rc;
	}
	return parse_fault(p, word);
}

int fault_plan_parse(const char *name, const char *text,
		     struct fault_plan *plan, char error[FAULT_ERROR_MAX])
{
	struct parser parser = {.name = name, .plan = plan, .error = error};
	int rc = 0;

	memset(plan, 0, sizeof(*plan));
	for (const char *at = text; !rc && *at;) {
		size_t len = strcspn(at, "\n");

		parser.line++;
		parser.line_start = parser.at = at;
		rc = parse_line(&parser);
		at += len + (at[len] == '\n');
	}
	return rc;
}
