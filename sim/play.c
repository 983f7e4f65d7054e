/* SPDX-License-Identifier: MIT */
/*
 * Deterministic runs: tasks are threads, exactly one has the baton, and the
 * clock is a number. The rules, numbered, are in README.md.
 */
#define _GNU_SOURCE
#include "sim/play.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "sim/rand.h"

#define EVENT_LIMIT    10000000u
#define TIME_LIMIT_NS  3600000000000ull
#define LATE_NS	       1000u	/* rule 6; any number above 0 would do */
#define CLOCK_STEP_NS  1000000u /* rule 4 */
#define LAST_CALLS     10000
#define TIMERS_MAX     1000000 /* in a row, and no task the wiser */
#define POLLS_MAX      1000    /* rule 4 */
#define WATCHDOG_S     60
#define PREEMPT_ONE_IN 4

enum task_state { TASK_READY, TASK_WAITING, TASK_DONE };

struct task {
	struct sim_task what;
	pthread_t thread;
	pthread_cond_t wake;
	enum task_state state;
	uint64_t until_ns;
	uint64_t seen;	     /* of what happened to its host */
	uint32_t found_none; /* polls in a row, since then */
	bool reads_clock;    /* since its last wait */
	const char *waits_for;
	uint32_t polled; /* handle of the queue it polled last */
	int calls_after_end;
};

struct sim_playing {
	struct sim_play config;
	struct sim_play_result result;
	struct task task[SIM_TASK_MAX];
	int count;
	int started;
	int left; /* of those, not at their end */
	uint64_t happened[SIM_HOST_COUNT];
	uint32_t timers;      /* that ran since a task did */
	uint64_t timer_hooks; /* those of `hooks` that timers made */
	bool is_over;
	int rc;
	_Atomic uint64_t hooks; /* come to, for the watchdog */
	/* What the mutex guards: who has the baton, -1 nobody. */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	int running;
};

struct sim_playing *sim_playing;
static __thread struct task *me;

/* --- who is next ---------------------------------------------------------- */

static bool is_runnable(const struct sim_playing *p, const struct task *task)
{
	switch (task->state) {
	case TASK_READY:
		return true;
	case TASK_WAITING:
		return p->is_over ||
		       p->happened[task->what.host] != task->seen ||
		       sim_now_ns() >= task->until_ns;
	case TASK_DONE:
		return false;
	}
	return false;
}

static void end_run(struct sim_playing *p, int rc)
{
	p->result.time_ns = sim_now_ns();
	p->is_over = true;
	p->rc = rc;
	/* Whoever asks finds every deadline past. */
	sim_clock_set(sim_now_ns() + 2 * TIME_LIMIT_NS);
}

/* "a waits for a completion (qp0: 1 send, 16 receives outstanding)". */
static void tell_waits(struct sim_playing *p, FILE *out)
{
	struct sim_world *w = p->config.world;
	const char *comma = "";

	for (int i = 0; i < p->count; i++) {
		const struct task *task = &p->task[i];

		if (task->state == TASK_DONE)
			continue;
		fprintf(out, "%s%c waits for %s", comma, 'a' + task->what.host,
			task->waits_for);
		comma = "; ";
		for (uint32_t n = 0; task->polled && n < sim_top(w, SIM_QP);
		     n++) {
			struct sim_qp *qp = &w->seg->qp[n];

			if (atomic_load(&qp->object.handle) &&
			    (qp->send_cq == task->polled ||
			     qp->recv_cq == task->polled))
				fprintf(out,
					" (qp%u: %u sends, %u receives "
					"outstanding)",
					qp->ordinal, qp->sq.tail - qp->sq.head,
					qp->rq.tail - qp->rq.head);
		}
	}
}

static void end_in_deadlock(struct sim_playing *p, const char *why)
{
	FILE *out = fmemopen(p->result.text, sizeof(p->result.text), "w");

	p->result.is_deadlock = true;
	if (out) {
		fprintf(out, "deadlock at %llu ns%s: ",
			(unsigned long long)sim_now_ns(), why);
		tell_waits(p, out);
		fclose(out);
		/* Of many tasks, not all are in it. */
		if (p->result.text[sizeof(p->result.text) - 2])
			memcpy(p->result.text + sizeof(p->result.text) - 4,
			       "...", 4);
	}
	sim_trace(-1, "end", "deadlock", 0, "-");
	end_run(p, -EDEADLK);
}

static void end_at_limit(struct sim_playing *p, const char *what)
{
	snprintf(p->result.text, sizeof(p->result.text),
		 "no end after %llu events and %llu ns: the limit of %s",
		 (unsigned long long)sim_trace_lines(),
		 (unsigned long long)sim_now_ns(), what);
	end_run(p, -ELOOP);
}

/* The queue whose waiting sends have to be looked at first, or NULL. */
static struct sim_cq *first_due(struct sim_world *w, uint64_t *due)
{
	struct sim_cq *first = NULL;

	*due = SIM_NO_LIMIT;
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];
		uint64_t at = atomic_load(&cq->deadline_ns);

		if (!atomic_load(&cq->object.handle) || at >= *due)
			continue;
		*due = at;
		first = cq;
	}
	return first;
}

/* Rule 5: nobody can go on now, so the clock moves to where something can. */
static void advance(struct sim_playing *p)
{
	struct sim_world *w = p->config.world;
	uint64_t due, next;
	struct sim_cq *cq = first_due(w, &due);

	next = due;
	for (int i = 0; i < p->count; i++)
		if (p->task[i].state == TASK_WAITING &&
		    p->task[i].until_ns < next)
			next = p->task[i].until_ns;
	if (next == SIM_NO_LIMIT) {
		end_in_deadlock(p, "");
		return;
	}
	if (p->timers == TIMERS_MAX) {
		end_in_deadlock(p, " (timers run on and on)");
		return;
	}
	if (next > p->config.time_limit_ns) {
		end_at_limit(p, "time");
		return;
	}
	if (next > sim_now_ns())
		sim_clock_set(next);
	if (cq && due <= sim_now_ns()) {
		p->timers++;
		p->timer_hooks++; /* not the tasks' doing */
		atomic_fetch_add(&p->hooks, 1);
		sim_run_timers(w, cq, sim_now_ns());
	}
}

/* Rule 3: the next in turn after the one that has the baton; itself last. */
static int choose(struct sim_playing *p)
{
	int from = p->running;

	p->timers = 0;
	while (p->left > 0) {
		for (int i = 1; i <= p->count; i++) {
			int next = (from + i) % p->count;

			if (is_runnable(p, &p->task[next]))
				return next;
		}
		advance(p);
	}
	return -1;
}

/* --- the baton ------------------------------------------------------------ */

/* With the lock held, until this task has the baton. */
static void await_baton(struct sim_playing *p, struct task *task)
{
	while (p->running != (int)(task - p->task))
		pthread_cond_wait(&task->wake, &p->lock);
}

static void hand_over(struct sim_playing *p)
{
	int next = choose(p);

	if (next == p->running)
		return;
	if (next >= 0)
		sim_trace(p->task[next].what.host, "turn", "task",
			  p->result.turns++, "%d", next);
	pthread_mutex_lock(&p->lock);
	p->running = next;
	pthread_mutex_unlock(&p->lock);
	/* Not with the lock, which is the first that it takes. */
	pthread_cond_signal(next < 0 ? &p->ended : &p->task[next].wake);
	if (me->state == TASK_DONE)
		return;
	pthread_mutex_lock(&p->lock);
	await_baton(p, me);
	pthread_mutex_unlock(&p->lock);
}

static void finish(struct sim_playing *p)
{
	me->state = TASK_DONE;
	p->left--;
	sim_trace(me->what.host, "end", "task", (uint64_t)(me - p->task), "-");
	hand_over(p);
}

static void *run_task(void *arg)
{
	struct sim_playing *p = sim_playing;

	me = arg;
	sim_host_set(me->what.host);
	pthread_mutex_lock(&p->lock);
	await_baton(p, me);
	pthread_mutex_unlock(&p->lock);
	me->what.run(me->what.arg);
	finish(p);
	return NULL;
}

/* Each hook begins with this. A task that does not heed the end is ended. */
static bool is_over(struct sim_playing *p)
{
	uint64_t hooks = atomic_fetch_add(&p->hooks, 1);

	if (!p->is_over && sim_trace_lines() > p->config.event_limit)
		end_at_limit(p, "events");
	else if (!p->is_over &&
		 hooks - p->timer_hooks > 10 * p->config.event_limit)
		end_at_limit(p, "calls");
	if (!p->is_over)
		return false;
	if (++me->calls_after_end > LAST_CALLS) {
		finish(p);
		pthread_exit(NULL);
	}
	return true;
}

/* --- hooks --- */

int sim_play_host(void)
{
	return me ? me->what.host : -1;
}

void sim_play_happened(uint32_t host)
{
	sim_playing->happened[host]++;
}

void sim_play_changed(void)
{
	sim_playing->result.changed++;
}

static bool is_chosen(const struct sim_play *config, uint64_t call)
{
	if (config->personality != SIM_PREEMPT)
		return false;
	if (!config->switches)
		return sim_rand(config->seed, call) % PREEMPT_ONE_IN == 0;
	for (int i = 0; i < config->switch_count; i++)
		if (config->switches[i] == call)
			return true;
	return false;
}

void sim_play_call(void)
{
	struct sim_playing *p = sim_playing;
	uint64_t call;

	if (!me || is_over(p))
		return;
	call = p->result.calls++;
	if (!is_chosen(&p->config, call))
		return;
	sim_trace(me->what.host, "switch", "call", call, "-");
	hand_over(p);
}

bool sim_play_wait(const char *what, uint64_t until_ns)
{
	struct sim_playing *p = sim_playing;
	uint64_t *happened;

	if (!me || is_over(p))
		return !me;
	happened = &p->happened[me->what.host];
	/* Who need not wait lets others run all the same. */
	if (*happened == me->seen && sim_now_ns() < until_ns)
		me->state = TASK_WAITING;
	me->waits_for = what;
	me->until_ns = until_ns;
	hand_over(p);
	me->state = TASK_READY;
	me->seen = *happened;
	me->found_none = 0;
	me->reads_clock = false;
	return !p->is_over;
}

/* Is there anything on this task's host that it has not polled yet? */
static bool has_completions(struct sim_world *w)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];

		if (atomic_load(&cq->object.handle) &&
		    cq->object.host == (uint32_t)me->what.host &&
		    !sim_cq_is_empty(w, cq))
			return true;
	}
	return false;
}

/* Rule 4. */
bool sim_play_found_nothing(struct sim_world *w, const struct sim_cq *cq)
{
	struct sim_playing *p = sim_playing;
	uint64_t until = SIM_NO_LIMIT;

	if (!me || is_over(p))
		return !me;
	me->polled = atomic_load(&cq->object.handle);
	if (p->happened[me->what.host] != me->seen) {
		me->seen = p->happened[me->what.host];
		me->found_none = 0;
	}
	me->found_none++;
	if (me->found_none <=
		    sim_object_count(sim_host_of(w, cq->object.host), SIM_CQ) ||
	    (me->found_none < POLLS_MAX && has_completions(w)))
		return true;
	if (me->reads_clock)
		until = sim_now_ns() + CLOCK_STEP_NS;
	return sim_play_wait("a completion", until);
}

bool sim_play_await_bytes(const char *what, int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	if (!me || (fcntl(fd, F_GETFL) & O_NONBLOCK))
		return true;
	while (poll(&poll_fd, 1, 0) == 0)
		if (!sim_play_wait(what, SIM_NO_LIMIT))
			return false;
	return true;
}

bool sim_play_is_over(void)
{
	return sim_playing->is_over;
}

void sim_play_idle(uint64_t until_ns)
{
	if (sim_playing)
		sim_play_wait("something to do", until_ns);
}

uint64_t sim_play_now_ns(void)
{
	if (me)
		me->reads_clock = true;
	return sim_now_ns();
}

/* --- the run --- */

static int check(const struct sim_play *play, const struct sim_task *tasks,
		 int count)
{
	if (sim_playing)
		return -EBUSY;
	if (!play->world || play->world->fd >= 0 || count < 1 ||
	    count > SIM_TASK_MAX)
		return -EINVAL;
	for (int i = 0; i < count; i++)
		if (tasks[i].host < 0 || tasks[i].host >= SIM_HOST_COUNT ||
		    !tasks[i].run)
			return -EINVAL;
	return 0;
}

/* A loop that comes to no hook cannot be stopped, only named. */
static void await_end(struct sim_playing *p)
{
	pthread_mutex_lock(&p->lock);
	while (p->running >= 0) {
		uint64_t hooks = atomic_load(&p->hooks);
		struct timespec until;

		sim_clock_after(WATCHDOG_S, &until);
		if (pthread_cond_timedwait(&p->ended, &p->lock, &until) !=
			    ETIMEDOUT ||
		    atomic_load(&p->hooks) != hooks || p->running < 0)
			continue;
		fprintf(stderr,
			"verbena: task %d (host %c) has come to no hook for "
			"%d s: it neither polls nor waits\n",
			p->running, 'a' + p->task[p->running].what.host,
			WATCHDOG_S);
		abort();
	}
	pthread_mutex_unlock(&p->lock);
}

static void start_tasks(struct sim_playing *p, const struct sim_task *tasks)
{
	p->running = -1;
	for (int i = 0; i < p->count; i++) {
		struct task *task = &p->task[i];

		task->what = tasks[i];
		pthread_cond_init(&task->wake, NULL);
		if (!p->rc)
			p->rc = -pthread_create(&task->thread, NULL, run_task,
						task);
		if (p->rc)
			task->state = TASK_DONE;
		else
			p->started++;
	}
	p->left = p->started;
	/* Not all of them: those that are there are only told so. */
	if (p->rc)
		end_run(p, p->rc);
	pthread_mutex_lock(&p->lock);
	if (p->started > 0)
		p->running = 0;
	pthread_cond_signal(&p->task[0].wake);
	pthread_mutex_unlock(&p->lock);
}

static void join_tasks(struct sim_playing *p)
{
	await_end(p);
	for (int i = 0; i < p->started; i++)
		pthread_join(p->task[i].thread, NULL);
	for (int i = 0; i < p->count; i++)
		pthread_cond_destroy(&p->task[i].wake);
}

static void play_out(struct sim_playing *p, const struct sim_task *tasks)
{
	struct sim_world *w = p->config.world;
	uint64_t late_ns = w->seg->late_ns;

	sim_clock_set(0);
	sim_trace_open(p->config.trace);
	sim_stream_open(w);
	atomic_fetch_or(&w->seg->watched, SIM_WATCH_RUN);
	w->seg->late_ns = p->config.personality == SIM_LATE ? LATE_NS : 0;
	sim_playing = p;
	start_tasks(p, tasks);
	join_tasks(p);
	sim_playing = NULL;
	w->seg->late_ns = late_ns;
	atomic_fetch_and(&w->seg->watched, ~SIM_WATCH_RUN);
	if (!p->is_over)
		p->result.time_ns = sim_now_ns();
	p->result.hash = sim_trace_hash();
	p->result.events = sim_trace_lines();
	sim_clock_free();
}

int sim_play(const struct sim_play *play, const struct sim_task *tasks,
	     int count, struct sim_play_result *result)
{
	struct sim_playing *p;
	int rc = check(play, tasks, count);

	if (rc)
		return rc;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->config = *play;
	p->count = count;
	if (!p->config.event_limit)
		p->config.event_limit = EVENT_LIMIT;
	if (!p->config.time_limit_ns)
		p->config.time_limit_ns = TIME_LIMIT_NS;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->ended, NULL);
	play_out(p, tasks);
	pthread_cond_destroy(&p->ended);
	pthread_mutex_destroy(&p->lock);
	*result = p->result;
	rc = p->rc;
	free(p);
	return rc;
}
