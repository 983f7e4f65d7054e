/* SPDX-License-Identifier: MIT */
/*
 * The bootstrap stream of a deterministic run: what a TCP connection between
 * the two hosts would carry, in memory, with the taps of boot.c on it.
 */
#include "sim/play.h"

#include <errno.h>
#include <string.h>

#define ROOM 65536

/* One direction; its sender is the host it is numbered by. */
struct pipe {
	uint8_t bytes[ROOM];
	uint64_t head, tail;
	bool has_sent_all; /* the sender has said so */
	bool is_ended;	   /* nothing comes after the tail */
	bool is_reset;	   /* the reader went: nobody takes more */
	struct sim_way out, in;
};

static struct sim_world *world;
static struct pipe pipes[SIM_HOST_COUNT];

void sim_stream_open(struct sim_world *w)
{
	world = w;
	for (int host = 0; host < SIM_HOST_COUNT; host++) {
		struct pipe *pipe = &pipes[host];

		pipe->head = pipe->tail = 0;
		pipe->has_sent_all = pipe->is_ended = pipe->is_reset = false;
		pipe->out = (struct sim_way){SIM_SITE_BOOT_OUT,
					     SIM_EFFECT_COUNT, false, 0};
		pipe->in = (struct sim_way){SIM_SITE_BOOT_IN, SIM_EFFECT_COUNT,
					    false, 0};
	}
}

static struct pipe *outgoing(void)
{
	return &pipes[sim_play_host()];
}

static struct pipe *incoming(void)
{
	return &pipes[1 - sim_play_host()];
}

/* Only tasks have an end of it. */
static bool has_end(void)
{
	return sim_playing && sim_play_host() >= 0;
}

static void tell_peer(void)
{
	sim_play_happened((uint32_t)(1 - sim_play_host()));
}

static void end_pipe(struct pipe *pipe)
{
	if (!pipe->is_ended)
		tell_peer();
	pipe->is_ended = true;
}

static size_t put(struct pipe *pipe, const uint8_t *bytes, size_t len)
{
	uint64_t room = ROOM - (pipe->tail - pipe->head);
	size_t taken = len < room ? len : (size_t)room;

	for (size_t i = 0; i < taken; i++)
		pipe->bytes[(pipe->tail + i) % ROOM] = bytes[i];
	return taken;
}

/* Strike what was put; what a line withholds is swallowed, as by a wire. */
static void send_on(struct pipe *pipe, size_t taken)
{
	int host = sim_play_host();

	for (size_t i = 0; i < taken; i++) {
		uint8_t *byte = &pipe->bytes[pipe->tail % ROOM];

		if (sim_way_is_stopped(world, host, &pipe->out) ||
		    sim_way_pass(world, host, &pipe->out, byte, 1) == 0)
			break;
		pipe->tail++;
	}
	/* Also when the next byte would be withheld. */
	if (sim_way_is_stopped(world, host, &pipe->out) &&
	    pipe->out.stop == SIM_EFFECT_EOF)
		end_pipe(pipe);
}

long sim_stream_send(const void *bytes, size_t len)
{
	struct pipe *pipe;
	uint64_t at;
	size_t taken;

	if (!has_end())
		return -ENOTCONN;
	sim_play_call();
	pipe = outgoing();
	at = pipe->tail;
	if (pipe->is_reset || pipe->has_sent_all || sim_play_is_over())
		return -EPIPE;
	if (len == 0)
		return 0;
	taken = put(pipe, bytes, len);
	if (taken == 0)
		return -EAGAIN;
	sim_trace(sim_play_host(), "out", "stream", at, "len=%zu", taken);
	send_on(pipe, taken);
	tell_peer();
	return (long)taken;
}

long sim_stream_recv(void *bytes, size_t len, bool is_peek)
{
	int host = sim_play_host();
	struct pipe *pipe;
	uint8_t *to = bytes;
	size_t got = 0;

	if (!has_end())
		return -ENOTCONN;
	sim_play_call();
	pipe = incoming();
	if (sim_play_is_over())
		return -ECONNRESET;
	if (len == 0)
		return 0;
	if (sim_way_is_stopped(world, host, &pipe->in))
		return pipe->in.stop == SIM_EFFECT_EOF ? 0 : -EAGAIN;
	if (pipe->head == pipe->tail)
		return pipe->is_ended ? 0 : -EAGAIN;
	while (got < len && pipe->head + got < pipe->tail) {
		to[got] = pipe->bytes[(pipe->head + got) % ROOM];
		got++;
	}
	if (is_peek)
		return (long)sim_way_foretell(world, host, &pipe->in, to, got);
	got = sim_way_pass(world, host, &pipe->in, to, got);
	sim_trace(host, "in", "stream", pipe->head, "len=%zu", got);
	pipe->head += got;
	tell_peer();
	return got ? (long)got : pipe->in.stop == SIM_EFFECT_EOF ? 0 : -EAGAIN;
}

static bool is_ready(bool for_write)
{
	struct pipe *in = incoming(), *out = outgoing();

	if (for_write)
		return out->is_reset || out->tail - out->head < ROOM;
	if (sim_way_is_stopped(world, sim_play_host(), &in->in))
		return in->in.stop == SIM_EFFECT_EOF;
	return in->head != in->tail || in->is_ended;
}

int sim_stream_wait(bool for_write, uint64_t until_ns)
{
	const char *what =
		for_write ? "room in the stream" : "bytes of the stream";

	if (!has_end())
		return 0;
	while (!is_ready(for_write) && sim_now_ns() < until_ns)
		if (!sim_play_wait(what, until_ns))
			break;
	return is_ready(for_write);
}

void sim_stream_end(void)
{
	if (!has_end())
		return;
	sim_trace(sim_play_host(), "out", "stream", outgoing()->tail, "end");
	outgoing()->has_sent_all = true;
	end_pipe(outgoing());
}

void sim_stream_shutdown(void)
{
	struct pipe *in;

	if (!has_end())
		return;
	in = incoming();
	sim_stream_end();
	in->head = in->tail;
	in->is_ended = true;
	in->is_reset = true;
	tell_peer();
}
