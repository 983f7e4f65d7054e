/* SPDX-License-Identifier: MIT */
/* Configurations: defaults, and what a device can do of them (rows C). */
#include "lib/registry.h"

#include <errno.h>
#include <string.h>

#include "lib/runtime.h"

#define PSN_MASK 0xffffffu

/* splitmix64: any seed will do, and one gives one sequence. */
static uint64_t next(uint64_t *seed)
{
	uint64_t z = (*seed += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint32_t next_psn(uint64_t *seed)
{
	static uint64_t common; /* of those who give none */
	uint64_t now;

	if (seed)
		return (uint32_t)next(seed) & PSN_MASK;
	now = vb_now_ns() ^ (uint64_t)(uintptr_t)&common;
	now += __atomic_add_fetch(&common, 1, __ATOMIC_RELAXED) << 32;
	return (uint32_t)next(&now) & PSN_MASK;
}

/* The values of spec/registry.md, 1.5 (HEAD). */
void vb_config_init(struct vb_config *config, uint64_t *seed)
{
	*config = (struct vb_config){
		.max_send_wr = 512,
		.max_recv_wr = 512,
		.max_send_sge = 30,
		.max_recv_sge = 30,
		.psn = next_psn(seed),
		.port_num = 1,
		.path_mtu = IBV_MTU_4096,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.qp_timeout = 14, /* 67 ms */
		.min_rnr_timer = 12,
		.max_rd_atomic = 16,
		.max_dest_rd_atomic = 16,
	};
}

int vb_config_default(struct vb_registry *registry, const char *key,
		      uint64_t *seed, struct vb_config *config)
{
	int index, rc = vb_registry_take(registry);

	if (rc)
		return rc;
	vb_config_init(config, seed);
	index = vb_registry_backend(registry, key);
	if (index < 0)
		rc = vb_registry_fail(-ENOENT, "no backend '%s'",
				      key ? key : "");
	else if (registry->backend[index]->defaults)
		registry->backend[index]->defaults(config);
	pthread_mutex_unlock(&registry->lock);
	return rc;
}

static uint64_t positive(int limit)
{
	return limit > 0 ? (uint64_t)limit : 0;
}

/* The fields that have a limit, and what it is on this device. */
static int limits_of(const struct vb_config *config,
		     const struct vb_device_info *info,
		     struct vb_excess rows[8])
{
	const struct vb_port *port = vb_info_port(info, config->port_num);
	int count = 0;

#define ROW(name, most) \
	rows[count++] = (struct vb_excess){#name, config->name, (most)}
	ROW(max_send_wr, positive(info->max_qp_wr));
	ROW(max_recv_wr, positive(info->max_qp_wr));
	ROW(max_send_sge, positive(info->max_sge));
	ROW(max_recv_sge, positive(info->max_sge));
	ROW(psn, PSN_MASK);
	if (!port) {
		ROW(port_num, (uint64_t)info->port_count);
		return count;
	}
	ROW(path_mtu, port->active_mtu);
	if (config->pkey_index >= port->pkey_count)
		ROW(pkey_index, port->pkey_count ? port->pkey_count - 1u : 0);
#undef ROW
	return count;
}

int vb_config_check(const struct vb_config *config,
		    const struct vb_device_info *info, struct vb_excess *excess,
		    int max)
{
	struct vb_excess rows[8];
	int count = limits_of(config, info, rows), found = 0;

	for (int i = 0; i < count; i++) {
		bool is_place = strcmp(rows[i].field, "port_num") == 0;

		/* A port that is not there may have any number. */
		if (rows[i].value <= rows[i].limit && !is_place)
			continue;
		if (found < max)
			excess[found] = rows[i];
		found++;
	}
	if (found && max > 0)
		vb_registry_fail(-EINVAL,
				 "%s: %s is %llu, the device grants %llu",
				 info->name, excess[0].field,
				 (unsigned long long)excess[0].value,
				 (unsigned long long)excess[0].limit);
	return found;
}

void vb_config_clamp(struct vb_config *config,
		     const struct vb_device_info *info)
{
	const struct vb_port *port = vb_info_port(info, config->port_num);
	uint32_t wr = (uint32_t)positive(info->max_qp_wr);
	uint32_t sge = (uint32_t)positive(info->max_sge);

#define CLAMP(field, most)          \
	if (config->field > (most)) \
	config->field = (most)
	CLAMP(max_send_wr, wr);
	CLAMP(max_recv_wr, wr);
	CLAMP(max_send_sge, sge);
	CLAMP(max_recv_sge, sge);
	if (port)
		CLAMP(path_mtu, port->active_mtu);
#undef CLAMP
}
