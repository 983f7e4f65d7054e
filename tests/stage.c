/* SPDX-License-Identifier: MIT */
/* Two transports in a deterministic run; see stage.h. */
#include "tests/stage.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/transport.h"
#include "tests/harness.h"
#include "tests/rig.h"

static uint64_t now(void *arg)
{
	(void)arg;
	return sim_play_now_ns();
}

static void idle(void *arg, uint64_t idle_ns, uint64_t until_ns)
{
	(void)arg;
	(void)idle_ns;
	sim_play_idle(until_ns);
}

static long boot_send(void *arg, const void *bytes, size_t len)
{
	struct stage_end *end = arg;
	long n = sim_stream_send(bytes, len);

	end->boot_sent += n > 0 ? (uint64_t)n : 0;
	return n;
}

static long boot_recv(void *arg, void *bytes, size_t len, bool is_peek)
{
	struct stage_end *end = arg;
	long n = sim_stream_recv(bytes, len, is_peek);

	end->boot_received += n > 0 && !is_peek ? (uint64_t)n : 0;
	return n;
}

static int boot_wait(void *arg, bool for_write, int timeout_ms)
{
	(void)arg;
	return sim_stream_wait(for_write,
			       sim_play_now_ns() +
				       (uint64_t)timeout_ms * 1000000);
}

static void boot_shutdown(void *arg)
{
	(void)arg;
	sim_stream_shutdown();
}

static struct vb_boot boot_of(struct stage_end *end)
{
	return (struct vb_boot){.arg = end,
				.send = boot_send,
				.recv = boot_recv,
				.wait = boot_wait,
				.shutdown = boot_shutdown};
}

void stage_init(struct stage *stage, const char *model, const char *plan)
{
	const char *bar = strchr(model, '|');
	char *first =
		strndup(model, bar ? (size_t)(bar - model) : strlen(model));
	struct sim_world_config config = {
		.model = {first, bar ? bar + 1 : model}};
	char error[SIM_ERROR_MAX] = "";
	int rc;

	setenv("VERBENA_QUIET", "1", 1);
	memset(stage, 0, sizeof(*stage));
	rc = sim_world_open(&config, &stage->world, error);
	free(first);
	CHECK(rc == 0, "%s", error);
	sim_world_use(stage->world);
	if (plan)
		rig_arm(stage->world, plan);
	stage->play.world = stage->world;
	stage->play.trace = open_memstream(&stage->trace, &stage->trace_bytes);
	for (int side = 0; side < 2; side++) {
		struct stage_end *end = &stage->end[side];

		end->stage = stage;
		end->side = side;
		end->boot = boot_of(end);
		end->options = (struct vb_options){
			.fd = -1,
			.boot = &end->boot,
			.verbs = spy_verbs(),
			.runtime = {.now_ns = now, .idle = idle},
			/* ::ffff:127.0.0.1 */
			.gid = {[10] = 0xff, 0xff, 127, 0, 0, 1},
			.timeout_ns = STAGE_TIMEOUT_NS,
			.grace_ns = STAGE_TIMEOUT_NS / 10,
			.stride_bytes = 4096,
		};
	}
}

/* All of it, or what the stream's end was. */
static int move_caps(const struct vb_boot *boot, uint8_t *bytes, bool is_send)
{
	for (size_t done = 0; done < VB_CAPS_BYTES;) {
		size_t left = VB_CAPS_BYTES - done;
		long n = is_send ? boot->send(boot->arg, bytes + done, left)
				 : boot->recv(boot->arg, bytes + done, left,
					      false);

		if (n == -EAGAIN)
			n = sim_stream_wait(is_send, SIM_NO_LIMIT) ? 0
								   : -ETIMEDOUT;
		else if (n == 0)
			n = -ECONNRESET;
		if (n < 0)
			return (int)n;
		done += (size_t)n;
	}
	return 0;
}

/* Probe, capabilities, activate. 0 when the script may start. */
static int set_up(struct stage_end *end)
{
	if (end->has_connect) {
		end->activated =
			vb_connect(&end->options, &end->transport, &end->cause);
		return end->activated;
	}
	end->probed = vb_probe(&end->options, end->caps, &end->transport,
			       &end->cause);
	end->rc = move_caps(&end->boot, end->caps, true);
	if (!end->rc)
		end->rc = move_caps(&end->boot, end->peer_caps, false);
	if (end->probed || end->rc)
		return -1;
	if (!end->skips_activate)
		end->activated = vb_activate(end->transport, end->peer_caps);
	return end->activated;
}

static void play_end(void *arg)
{
	struct stage_end *end = arg;
	int rc;

	spy_as(&end->spy);
	rc = set_up(end);
	if (rc == 0 && end->script)
		end->rc = end->script(end);
	if (!end->transport)
		return;
	if (!end->has_connect || end->rc)
		end->cause = *vb_cause(end->transport);
	snprintf(end->transport_name, sizeof(end->transport_name), "%s",
		 vb_transport_name(end->transport));
	end->frames_received = end->transport->frames_received;
	end->closed = vb_close(end->transport, NULL);
}

void stage_sleep(uint64_t ns)
{
	uint64_t end = sim_play_now_ns() + ns;

	while (sim_play_now_ns() < end)
		sim_play_idle(end);
}

void stage_run(struct stage *stage, enum sim_personality personality)
{
	struct sim_task tasks[2];

	for (int side = 0; side < 2; side++)
		tasks[side] = (struct sim_task){.host = side,
						.run = play_end,
						.arg = &stage->end[side]};
	stage->play.personality = personality;
	stage->played = sim_play(&stage->play, tasks, 2, &stage->result);
	fflush(stage->play.trace);
}

void stage_fini(struct stage *stage)
{
	fclose(stage->play.trace);
	free(stage->trace);
	CHECK_EQ(sim_world_object_count(stage->world), 0);
	sim_world_use(NULL);
	sim_world_close(stage->world);
}

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 2654435761u >> 13 ^ i >> 3);
}

void stage_fill_pattern(void *bytes, uint64_t from, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		((uint8_t *)bytes)[i] = byte_at(from + i);
}

bool stage_is_pattern(const void *bytes, uint64_t from, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (((const uint8_t *)bytes)[i] != byte_at(from + i))
			return false;
	return true;
}

int stage_send_pattern(struct vb_transport *t, uint64_t from, uint64_t len)
{
	uint8_t *bytes = malloc(len ? len : 1);
	int rc;

	stage_fill_pattern(bytes, from, len);
	rc = vb_send(t, bytes, len);
	free(bytes);
	return rc;
}

int stage_recv_pattern(struct vb_transport *t, uint64_t from, uint64_t len)
{
	uint8_t *bytes = malloc(len ? len : 1);
	int rc = vb_recv(t, bytes, len);

	if (!rc && !stage_is_pattern(bytes, from, len))
		rc = -EBADMSG;
	free(bytes);
	return rc;
}
