/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs of open devices: made, connected and closed as sections 2.2 and
 * 2.3 of spec/registry.md say. What differs by kind is in a table here; what
 * differs by device is its backend's.
 */
#include "lib/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QPN_MASK  0xffffffu
#define PSN_MASK  0xffffffu
#define HOP_LIMIT 255

enum state { RESET, CONNECTED, STUCK };

struct vb_qp {
	struct vb_domain *domain;
	struct ibv_cq *send_cq, *recv_cq;
	bool owns_send_cq, owns_recv_cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	enum vb_qp_kind kind;
	enum state state;
	uint8_t sgid_index;
	struct vb_endpoint here;
};

/* The way from RESET, and the attributes that each kind sets on it. */
#define STEPS 3
static const struct step {
	enum ibv_qp_state to;
	const char *name;
} steps[STEPS] = {
	{IBV_QPS_INIT, "modify_qp to INIT"},
	{IBV_QPS_RTR, "modify_qp to RTR"},
	{IBV_QPS_RTS, "modify_qp to RTS"},
};

#define PLACE (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define START (IBV_QP_STATE | IBV_QP_SQ_PSN)

static const struct kind {
	const char *name;
	enum ibv_qp_type type;
	bool has_ah; /* its peer is an address handle, not in its attributes */
	int mask[STEPS];
} kinds[] = {
	[VB_QP_RC] = {.name = "RC",
		      .type = IBV_QPT_RC,
		      .mask = {PLACE | IBV_QP_ACCESS_FLAGS,
			       VB_PATH_MASK | IBV_QP_MAX_DEST_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER,
			       START | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				       IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC}},
	[VB_QP_UC] = {.name = "UC",
		      .type = IBV_QPT_UC,
		      .mask = {PLACE | IBV_QP_ACCESS_FLAGS, VB_PATH_MASK,
			       START}},
	[VB_QP_SRD] = {.name = "SRD",
		       .type = IBV_QPT_DRIVER,
		       .has_ah = true,
		       .mask = {PLACE | IBV_QP_QKEY, IBV_QP_STATE, START}},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* --- what can be said before anything is made --- */

/* Of these, what is too much is refused here; depths and SGEs are the device's
 * to refuse, and path_mtu is shortened. */
static int check_config(const struct vb_shared *shared)
{
	static const char *const ours[] = {"psn", "port_num", "pkey_index"};
	const struct vb_device_info *info = &shared->info;
	struct vb_excess it[8];
	int count = vb_config_check(&shared->config, info, it, 8);

	for (int i = 0; i < count; i++)
		for (int n = 0; n < 3; n++)
			if (strcmp(it[i].field, ours[n]) == 0)
				return vb_registry_fail(
					-EINVAL,
					"%s: %s is %llu, the device grants "
					"%llu",
					info->name, ours[n],
					(unsigned long long)it[i].value,
					(unsigned long long)it[i].limit);
	return 0;
}

static int check_kind(const struct vb_shared *shared, enum vb_qp_kind kind)
{
	const struct vb_backend *backend = shared->backend;
	const struct vb_verbs *verbs = shared->registry->verbs;
	unsigned has = backend->qp_kinds ? backend->qp_kinds
					 : 1u << VB_QP_RC | 1u << VB_QP_UC;

	if (!(has & 1u << kind))
		return vb_registry_fail(-EOPNOTSUPP,
					"%s: backend %s has no %s queue pairs",
					shared->info.name, backend->key,
					kinds[kind].name);
	if (kinds[kind].has_ah && (!verbs->create_ah || !verbs->destroy_ah))
		return vb_registry_fail(-EOPNOTSUPP,
					"%s: the library has no create_ah, "
					"which %s needs",
					shared->info.name, kinds[kind].name);
	return 0;
}

static int ask_backend(const struct vb_shared *shared, enum vb_qp_kind kind)
{
	char reason[128] = "";
	int rc = 0;

	if (shared->backend->qp_check)
		rc = shared->backend->qp_check(shared->registry->verbs,
					       shared->context, kind,
					       &shared->config, reason);
	return rc ? vb_registry_fail(rc, "%s: %s", shared->info.name, reason)
		  : 0;
}

/* A queue of its own holds what its work queue does, and never nothing. */
static uint32_t entries(uint32_t depth)
{
	return depth ? depth : 1;
}

static int check_cq(const struct vb_shared *shared, const char *field,
		    uint32_t depth)
{
	int most = shared->info.max_cqe;

	if (most > 0 && entries(depth) <= (uint32_t)most)
		return 0;
	return vb_registry_fail(-EINVAL,
				"%s: %s is %u, a completion queue of the "
				"device has at most %d",
				shared->info.name, field, depth, most);
}

static const struct vb_gid *gid_at(const struct vb_port *port, uint32_t index)
{
	for (int i = 0; i < port->gid_count; i++)
		if (port->gids[i].index == index)
			return &port->gids[i];
	return NULL;
}

static int choose_gid(const struct vb_qp *qp, const struct vb_port *port,
		      const struct vb_gid **gid)
{
	const struct vb_device_info *info = &qp->domain->shared->info;
	const struct vb_config *config = &qp->domain->shared->config;
	uint32_t index = config->has_gid_index ? config->gid_index : 0;

	if (!config->has_gid_index && !kinds[qp->kind].has_ah)
		return vb_gid_choose(info, port->num, false, gid);
	*gid = gid_at(port, index);
	return *gid ? 0
		    : vb_registry_fail(-ENOENT,
				       "port %d of %s has no GID at index %u",
				       port->num, info->name, index);
}

/* What of this end is known before it is there. InfiniBand does without a GID.
 */
static int find_source(struct vb_qp *qp)
{
	const struct vb_shared *shared = qp->domain->shared;
	const struct vb_port *port =
		vb_info_port(&shared->info, shared->config.port_num);
	const struct vb_gid *gid = NULL;
	int rc = choose_gid(qp, port, &gid);

	qp->here.psn = shared->config.psn;
	qp->here.lid = port->lid;
	if (rc && !kinds[qp->kind].has_ah && port->lid &&
	    !shared->config.has_gid_index &&
	    port->link_layer == IBV_LINK_LAYER_INFINIBAND)
		return 0;
	if (rc)
		return rc;
	if (gid->index > UINT8_MAX)
		return vb_registry_fail(-ENOENT,
					"%s: GID index %u is more than an "
					"address holds",
					shared->info.name, gid->index);
	qp->here.has_gid = true;
	memcpy(qp->here.gid, gid->raw, 16);
	qp->sgid_index = (uint8_t)gid->index;
	return 0;
}

static int check(struct vb_qp *qp)
{
	const struct vb_shared *shared = qp->domain->shared;
	int rc = check_kind(shared, qp->kind);

	if (!rc)
		rc = check_config(shared);
	if (!rc)
		rc = find_source(qp);
	if (!rc && qp->owns_send_cq)
		rc = check_cq(shared, "max_send_wr",
			      shared->config.max_send_wr);
	if (!rc && qp->owns_recv_cq)
		rc = check_cq(shared, "max_recv_wr",
			      shared->config.max_recv_wr);
	return rc ? rc : ask_backend(shared, qp->kind);
}

/* --- making and closing --- */

static int make_cq(struct vb_shared *shared, uint32_t depth, struct ibv_cq **cq)
{
	errno = 0;
	*cq = shared->registry->verbs->create_cq(shared->context,
						 (int)entries(depth), NULL,
						 NULL, 0);
	return *cq ? 0
		   : vb_shared_failed(shared, errno ? errno : ENOMEM,
				      "create_cq");
}

static int make_qp(struct vb_qp *qp)
{
	struct vb_shared *shared = qp->domain->shared;
	const struct vb_backend *backend = shared->backend;
	const struct vb_verbs *verbs = shared->registry->verbs;
	const struct vb_config *config = &shared->config;
	struct ibv_qp_init_attr attr = {
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.cap = {.max_send_wr = config->max_send_wr,
			.max_recv_wr = config->max_recv_wr,
			.max_send_sge = config->max_send_sge,
			.max_recv_sge = config->max_recv_sge},
		.qp_type = kinds[qp->kind].type,
	};
	char what[96];
	int error;

	errno = 0;
	qp->qp = backend->qp_create ? backend->qp_create(verbs, qp->domain->pd,
							 qp->kind, &attr)
				    : verbs->create_qp(qp->domain->pd, &attr);
	if (qp->qp)
		return 0;
	error = errno ? errno : ENOMEM;
	snprintf(what, sizeof(what),
		 "create_qp (%s, %u sends of %u SGEs, %u receives of %u)",
		 kinds[qp->kind].name, attr.cap.max_send_wr,
		 attr.cap.max_send_sge, attr.cap.max_recv_wr,
		 attr.cap.max_recv_sge);
	return vb_shared_failed(shared, error, what);
}

/* The first failure of several. */
static int first(int before, int now)
{
	return before ? before : now;
}

/* Its own queues; the queue pair is gone. */
static int close_cqs(struct vb_qp *qp)
{
	struct vb_shared *shared = qp->domain->shared;
	const struct vb_verbs *verbs = shared->registry->verbs;
	struct ibv_cq *own[] = {qp->owns_send_cq ? qp->send_cq : NULL,
				qp->owns_recv_cq ? qp->recv_cq : NULL};
	int rc = 0, failed;

	for (int i = 0; i < 2; i++) {
		failed = own[i] ? verbs->destroy_cq(own[i]) : 0;
		if (failed)
			rc = first(rc, vb_shared_failed(shared, failed,
							"destroy_cq"));
	}
	return rc;
}

static int make(struct vb_qp *qp)
{
	struct vb_shared *shared = qp->domain->shared;
	const struct vb_config *config = &shared->config;
	int rc = 0;

	if (qp->owns_send_cq)
		rc = make_cq(shared, config->max_send_wr, &qp->send_cq);
	if (!rc && qp->owns_recv_cq)
		rc = make_cq(shared, config->max_recv_wr, &qp->recv_cq);
	if (!rc)
		rc = make_qp(qp);
	return rc;
}

/* Undo a `make` that failed: its cause stays the last error. */
static void unmake(struct vb_qp *qp)
{
	char cause[256];

	snprintf(cause, sizeof(cause), "%s", vb_last_error());
	close_cqs(qp);
	vb_registry_fail(0, "%s", cause);
}

int vb_qp_create(struct vb_domain *domain, enum vb_qp_kind kind,
		 struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
		 struct vb_qp **out)
{
	struct vb_qp *qp;
	int rc;

	if (!domain || !out || (unsigned)kind >= KINDS)
		return vb_registry_fail(-EINVAL, "a queue pair has a domain "
						 "and a kind");
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return vb_registry_fail(-ENOMEM, "no memory for a queue pair");
	qp->domain = domain;
	qp->kind = kind;
	qp->send_cq = send_cq;
	qp->recv_cq = recv_cq;
	qp->owns_send_cq = !send_cq;
	qp->owns_recv_cq = !recv_cq;
	rc = check(qp);
	if (rc)
		goto err_free;
	rc = make(qp);
	if (rc)
		goto err_unmake;
	qp->here.qpn = qp->qp->qp_num;
	__atomic_add_fetch(&domain->refs, 1, __ATOMIC_ACQ_REL);
	__atomic_add_fetch(&domain->qps, 1, __ATOMIC_ACQ_REL);
	*out = qp;
	return 0;

err_unmake:
	unmake(qp);
err_free:
	free(qp);
	return rc;
}

static int drop_ah(struct vb_qp *qp)
{
	struct vb_shared *shared = qp->domain->shared;
	struct ibv_ah *ah = qp->ah;
	int rc;

	if (!ah)
		return 0;
	qp->ah = NULL;
	rc = shared->registry->verbs->destroy_ah(ah);
	return rc ? vb_shared_failed(shared, rc, "destroy_ah") : 0;
}

int vb_qp_close(struct vb_qp *qp)
{
	struct vb_shared *shared;
	int rc;

	if (!qp)
		return 0;
	shared = qp->domain->shared;
	rc = shared->registry->verbs->destroy_qp(qp->qp);
	if (rc) /* it may still be sent to: everything stays */
		return vb_shared_failed(shared, rc, "destroy_qp");
	rc = drop_ah(qp);
	rc = first(rc, close_cqs(qp));
	__atomic_sub_fetch(&qp->domain->qps, 1, __ATOMIC_ACQ_REL);
	rc = first(rc, vb_domain_put(qp->domain));
	free(qp);
	return rc;
}

/* --- connecting --- */

static int check_peer(const struct vb_qp *qp, const struct vb_endpoint *peer)
{
	const char *name = qp->domain->shared->info.name;

	if (peer->qpn > QPN_MASK || peer->psn > PSN_MASK)
		return vb_registry_fail(-EINVAL,
					"%s: the peer's QPN 0x%x or PSN 0x%x "
					"has more than 24 bits",
					name, peer->qpn, peer->psn);
	if (!peer->has_gid && (kinds[qp->kind].has_ah || !peer->lid))
		return vb_registry_fail(-EINVAL,
					"%s: the peer of an %s queue pair "
					"gave no %s",
					name, kinds[qp->kind].name,
					kinds[qp->kind].has_ah ? "GID"
							       : "GID or LID");
	return 0;
}

/* For SRD all but these four is zero. */
static struct ibv_ah_attr address_of(const struct vb_qp *qp,
				     const struct vb_endpoint *peer)
{
	struct ibv_ah_attr ah = {
		.port_num = qp->domain->shared->config.port_num,
		.is_global = peer->has_gid,
	};

	if (!kinds[qp->kind].has_ah)
		ah.dlid = peer->lid;
	if (!peer->has_gid)
		return ah;
	memcpy(ah.grh.dgid.raw, peer->gid, 16);
	ah.grh.sgid_index = qp->sgid_index;
	if (!kinds[qp->kind].has_ah)
		ah.grh.hop_limit = HOP_LIMIT;
	return ah;
}

static uint8_t path_mtu(const struct vb_shared *shared)
{
	const struct vb_config *config = &shared->config;
	uint8_t most =
		vb_info_port(&shared->info, config->port_num)->active_mtu;

	return most && config->path_mtu > most ? most : config->path_mtu;
}

/* A UC queue pair is only written to. */
static unsigned access_of(const struct vb_qp *qp)
{
	unsigned access = vb_shared_access(qp->domain->shared);

	return qp->kind == VB_QP_UC ? access & (IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_WRITE)
				    : access;
}

/* The attributes of all steps at once; each step's mask says which are meant.
 */
static struct ibv_qp_attr attributes(const struct vb_qp *qp,
				     const struct vb_endpoint *peer)
{
	const struct vb_config *config = &qp->domain->shared->config;
	struct ibv_qp_attr attr = {
		.pkey_index = config->pkey_index,
		.port_num = config->port_num,
		.sq_psn = config->psn,
	};

	if (kinds[qp->kind].has_ah) {
		attr.qkey = VB_SRD_QKEY;
		return attr;
	}
	attr.qp_access_flags = access_of(qp);
	attr.ah_attr = address_of(qp, peer);
	attr.path_mtu = (enum ibv_mtu)path_mtu(qp->domain->shared);
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	if (qp->kind != VB_QP_RC)
		return attr;
	attr.max_dest_rd_atomic = config->max_dest_rd_atomic;
	attr.min_rnr_timer = config->min_rnr_timer;
	attr.timeout = config->qp_timeout;
	attr.retry_cnt = config->retry_cnt;
	attr.rnr_retry = config->rnr_retry;
	attr.max_rd_atomic = config->max_rd_atomic;
	return attr;
}

static int make_ah(struct vb_qp *qp, const struct vb_endpoint *peer)
{
	struct vb_shared *shared = qp->domain->shared;
	struct ibv_ah_attr attr = address_of(qp, peer);

	errno = 0;
	qp->ah = shared->registry->verbs->create_ah(qp->domain->pd, &attr);
	return qp->ah ? 0
		      : vb_shared_failed(shared, errno ? errno : ENOMEM,
					 "create_ah");
}

static int modify(struct vb_qp *qp, const struct step *step,
		  struct ibv_qp_attr *attr, int mask)
{
	struct vb_shared *shared = qp->domain->shared;
	char what[64];
	int rc;

	attr->qp_state = step->to;
	rc = shared->registry->verbs->modify_qp(qp->qp, attr, mask);
	if (!rc)
		return 0;
	snprintf(what, sizeof(what), "%s, %s queue pair 0x%x,", step->name,
		 kinds[qp->kind].name, qp->here.qpn);
	return vb_shared_failed(shared, rc, what);
}

/* Back to RESET after `rc`, whose line stays the last error. */
static int withdraw(struct vb_qp *qp, int rc, bool has_moved)
{
	static const struct step reset = {IBV_QPS_RESET, "modify_qp to RESET"};
	struct ibv_qp_attr attr = {0};
	char cause[256];

	snprintf(cause, sizeof(cause), "%s", vb_last_error());
	if (has_moved && modify(qp, &reset, &attr, IBV_QP_STATE) != 0) {
		qp->state = STUCK;
		rc = -ENOTRECOVERABLE;
	}
	drop_ah(qp);
	return vb_registry_fail(rc, "%s%s", cause,
				qp->state == STUCK ? "; and it does not reset"
						   : "");
}

int vb_qp_connect(struct vb_qp *qp, const struct vb_endpoint *peer)
{
	struct ibv_qp_attr attr;
	int rc, i;

	if (!qp || !peer)
		return vb_registry_fail(-EINVAL, "connect: a queue pair and "
						 "its peer are needed");
	if (qp->state != RESET)
		return vb_registry_fail(qp->state == STUCK ? -ENOTRECOVERABLE
							   : -EISCONN,
					"%s: queue pair 0x%x is %s",
					qp->domain->shared->info.name,
					qp->here.qpn,
					qp->state == STUCK
						? "not in RESET any more"
						: "connected");
	rc = check_peer(qp, peer);
	if (rc)
		return rc;
	/* First, so that its failure leaves the queue pair as it is. */
	if (kinds[qp->kind].has_ah)
		rc = make_ah(qp, peer);
	if (rc)
		return rc;
	attr = attributes(qp, peer);
	for (i = 0; i < STEPS; i++) {
		rc = modify(qp, &steps[i], &attr, kinds[qp->kind].mask[i]);
		if (rc)
			return withdraw(qp, rc, i > 0);
	}
	qp->state = CONNECTED;
	return 0;
}

/* --- what it is --- */

int vb_qp_endpoint(const struct vb_qp *qp, struct vb_endpoint *endpoint)
{
	if (!qp || !endpoint)
		return vb_registry_fail(-EINVAL, "an endpoint is of a queue "
						 "pair");
	*endpoint = qp->here;
	return 0;
}

struct ibv_qp *vb_qp_handle(const struct vb_qp *qp)
{
	return qp->qp;
}

struct ibv_cq *vb_qp_send_cq(const struct vb_qp *qp)
{
	return qp->send_cq;
}

struct ibv_cq *vb_qp_recv_cq(const struct vb_qp *qp)
{
	return qp->recv_cq;
}

struct ibv_ah *vb_qp_ah(const struct vb_qp *qp)
{
	return qp->ah;
}
