/* SPDX-License-Identifier: MIT */
/*
 * Datagrams (5.5): one packet, to whoever has the number and the key, or to
 * each member of a multicast group; whatever does not fit is lost in silence.
 */
#include "sim/deliver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define GRH_BYTES     40
#define IPV4_BYTES    20
#define MULTICAST_QPN 0xffffffu

/* RoCE v2 over IPv4: its header is in the last 20 bytes, the first 20 are not
 * written (5.5). */
static void fill_ipv4(const struct sim_av *av, const uint8_t *sgid,
		      uint8_t header[IPV4_BYTES], uint32_t len)
{
	uint16_t total = htons((uint16_t)(len + IPV4_BYTES));
	uint16_t sum;

	memset(header, 0, IPV4_BYTES);
	header[0] = 0x45;
	header[1] = av->traffic_class;
	memcpy(header + 2, &total, sizeof(total));
	header[8] = av->hop_limit;
	header[9] = IPPROTO_UDP;
	memcpy(header + 12, sgid + 12, 4);
	memcpy(header + 16, av->dgid + 12, 4);
	sum = (uint16_t)~sim_ipv4_sum(header);
	memcpy(header + 10, &sum, sizeof(sum));
}

uint16_t sim_ipv4_sum(const uint8_t header[IPV4_BYTES])
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_BYTES; i += 2) {
		uint16_t word;

		memcpy(&word, header + i, sizeof(word));
		sum += word;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16));
}

/* The 40 bytes before the data: a header where one was sent, else garbage
 * that stays what it was. */
static void fill_grh(struct delivery *d, uint8_t grh[GRH_BYTES])
{
	const struct sim_av *av = &d->wqe->op.ud.av;
	const uint8_t *sgid = sim_gid_at(d->host, av->sgid_index);
	bool is_v2 = sim_is_v2(d->host, av->sgid_index);
	uint16_t len = htons((uint16_t)d->wqe->len);
	uint32_t first;

	memset(grh, 0, GRH_BYTES);
	if (is_v2 && sim_is_ipv4(sgid)) {
		fill_ipv4(av, sgid, grh + GRH_BYTES - IPV4_BYTES, d->wqe->len);
		return;
	}
	first = htonl(6u << 28 | (uint32_t)av->traffic_class << 20 |
		      (av->flow_label & 0xfffff));
	memcpy(grh, &first, sizeof(first));
	memcpy(grh + 4, &len, sizeof(len));
	grh[6] = is_v2 ? IPPROTO_UDP : 0x1b;
	grh[7] = av->hop_limit;
	memcpy(grh + 8, sgid, 16);
	memcpy(grh + 24, av->dgid, 16);
}

static bool is_for(struct delivery *d, const struct sim_qp *peer)
{
	uint32_t state = atomic_load(&peer->state);
	uint32_t qkey = d->wqe->op.ud.qkey;

	/* Bit 31: the queue pair's own key is what is sent. */
	if (qkey >> 31)
		qkey = d->qp->attr.qkey;
	return atomic_load(&peer->object.handle) && peer->type == IBV_QPT_UD &&
	       state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
	       peer->attr.qkey == qkey;
}

/* Header and data into the receive's buffers. */
static bool fill(struct delivery *d, struct sim_wqe *recv)
{
	uint8_t grh[GRH_BYTES];
	struct sim_span head = {.addr = (uintptr_t)grh, .length = GRH_BYTES};
	struct sim_copy copy = {.from_proc = d->w->proc,
				.to_proc = d->peer->object.proc,
				.from = &head,
				.to = d->to,
				.from_count = 1};
	int count = sim_spans_of(d->w, d->recv_pd, recv, IBV_ACCESS_LOCAL_WRITE,
				 d->to);
	uint64_t skip = GRH_BYTES;
	int at = 0;

	if (count < 0)
		return false;
	(void)sim_parcels_land_at(d->w, d->peer->object.proc, d->to, count);
	copy.to_count = count;
	if (d->wqe->op.ud.av.is_global) {
		fill_grh(d, grh);
		if (sim_copy(d->w, &copy) != SIM_COPY_OK)
			return false;
	}
	while (at < count && d->to[at].length <= skip)
		skip -= d->to[at++].length;
	if (at < count) {
		d->to[at].addr += skip;
		d->to[at].length -= skip;
	}
	memmove(d->to, d->to + at, sizeof(d->to[0]) * (size_t)(count - at));
	d->to_count = count - at;
	d->to_proc = d->peer->object.proc;
	return sim_copy_data(d) == SIM_COPY_OK;
}

/* One receiver; the send lock is held. */
static void deliver_to(struct delivery *d, struct sim_qp *peer)
{
	uint64_t len = d->len;
	struct sim_wqe *recv;
	uint32_t flags = d->wqe->op.ud.av.is_global ? IBV_WC_GRH : 0;

	d->peer = peer;
	if (!sim_take_unless_stopped(d->w, &peer->rq_lock))
		return;
	if (!is_for(d, peer) || !sim_open_recv(d)) {
		sim_drop(&peer->rq_lock);
		return;
	}
	recv = sim_recv_head(d);
	if (recv && recv->len >= len + GRH_BYTES) {
		bool is_filled = fill(d, recv);

		if (is_filled)
			sim_strike_bytes(d);
		d->len = len + GRH_BYTES;
		sim_push_recv_cqe(d, recv,
				  is_filled ? IBV_WC_SUCCESS
					    : IBV_WC_LOC_PROT_ERR,
				  flags);
		d->len = len;
	}
	sim_close_recv(d);
	sim_drop(&peer->rq_lock);
	sim_wake_sleeper(d); /* others may come, and no acknowledge */
}

static void deliver_group(struct delivery *d)
{
	for (int i = 0; i < SIM_MCAST_MAX; i++) {
		struct sim_mcast *member = &d->w->seg->mcast[i];
		struct sim_qp *peer =
			sim_qp_get(d->w, atomic_load(&member->qp));

		if (peer && peer != d->qp &&
		    memcmp(member->gid, d->wqe->op.ud.av.dgid, 16) == 0)
			deliver_to(d, peer);
	}
}

static void deliver_one(struct delivery *d)
{
	struct sim_qp *peer = sim_qp_by_num(d->w, d->wqe->op.ud.qpn);

	if (peer && sim_reaches(d->host, &d->wqe->op.ud.av,
				sim_host_of(d->w, peer->object.host)))
		deliver_to(d, peer);
}

/* Lost on the wire; a datagram arrives at nobody, so only `tx` sees it. */
static bool is_dropped(struct delivery *d)
{
	struct sim_fault *fault =
		sim_tap_take(d->w, &d->wqe->tx_mask, SIM_EFFECT_DROP);

	if (fault)
		sim_tap_fired(fault, d->wqe->tx_ordinal, true);
	return fault != NULL;
}

bool sim_step_datagram(struct delivery *d)
{
	/* Nobody's flow rules steer raw packets, so nobody gets them. */
	bool is_raw = d->qp->type == IBV_QPT_RAW_PACKET;
	uint32_t mtu = 128u << d->host->port_attr.active_mtu;
	bool is_long = !is_raw && d->len > mtu;

	if (is_long && !d->model->loses_long_datagrams) {
		sim_fail_sender(d, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	d->from_proc = d->qp->object.proc;
	d->from_count = sim_spans_of(d->w, d->qp->pd, d->wqe, 0, d->from);
	if (d->from_count < 0) {
		sim_fail_sender(d, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	if (!is_dropped(d) && !is_long && !is_raw) {
		if (d->wqe->op.ud.qpn == MULTICAST_QPN)
			deliver_group(d);
		else
			deliver_one(d);
	}
	sim_end_head(d, IBV_WC_SUCCESS);
	return true;
}
