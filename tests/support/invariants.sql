-- Rows that break an invariant of docs/invariants.md: (invariant, detail). Run after every database test; an empty result is the pass.
-- One query over all tables, so that it sees one snapshot.
WITH final_run (status) AS (VALUES ('completed'), ('failed'), ('blocked'), ('cancelled')),
open_commands AS (SELECT * FROM runplane.commands WHERE state IN ('pending', 'acknowledged')),
open_intents AS (SELECT * FROM runplane.dispatch_intents WHERE state IN ('pending', 'dispatching', 'retry')),
-- What is asked of people, as the views have it and as the log tells it; rows of a rebuild are nobody's, a deleted session's go in their time.
requests AS (
  SELECT 'approval' AS kind, tenant_id, session_id, approval_id AS id, state::text, run_id, command_id, requested_sequence, resolved_sequence FROM runplane.approvals
  UNION ALL
  SELECT 'input request', tenant_id, session_id, request_id, state::text, run_id, command_id, requested_sequence, resolved_sequence FROM runplane.input_requests
),
request_events AS (
  SELECT CASE WHEN type LIKE 'approval/%' THEN 'approval' ELSE 'input request' END AS kind, type LIKE '%/requested' AS asks, tenant_id, session_id, sequence, run_id,
    coalesce(told ->> 'approval_id', told ->> 'approvalId', told ->> 'request_id', told ->> 'requestId') AS id, coalesce(told ->> 'resolution', told ->> 'outcome') AS state
  -- What an import brought may hold escapes that text cannot, anywhere; none of the fields asked for does.
  FROM (SELECT *, regexp_replace(data::text, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1?', 'g')::json AS told FROM runplane.session_events
    WHERE type IN ('approval/requested', 'approval/resolved', 'user-input/requested', 'user-input/resolved')) e
),
log AS (SELECT tenant_id, run_id, count(*) AS events, min(seq) AS first, max(seq) AS last FROM runplane.run_events GROUP BY tenant_id, run_id),
-- Where retention has removed events of a run, the last event that tells it: from there on the log is whole.
pruned AS (
  SELECT r.tenant_id, r.id AS run_id, r.events_pruned_through AS through, max(e.seq) AS told_at
  FROM runplane.runs r LEFT JOIN runplane.run_events e ON e.tenant_id = r.tenant_id AND e.run_id = r.id AND e.type = 'backend_status'
    AND e.payload ->> 'phase' = 'retention-events-pruned'
  WHERE r.events_pruned_at IS NOT NULL GROUP BY r.tenant_id, r.id, r.events_pruned_through
),
session_log AS (
  SELECT tenant_id, session_id, count(*) AS events, min(sequence) AS first, max(sequence) AS last FROM runplane.session_events GROUP BY tenant_id, session_id
),
-- What the outbox says of session logs, an event a row.
told_sessions AS (
  SELECT o.tenant_id, o.stream_id, o.sequence + i AS sequence, o.tx, o.position + i AS position, i = 0 AS is_first, o.type, o.event_id, o.run_id, o.command_id, o.data::text AS data
  FROM runplane.outbox_events o, generate_series(0, o.events - 1) i WHERE o.stream = 'session'
),
-- Below the floor the outbox may have nothing, and what it has is a stream's end.
floor AS (SELECT tx, position FROM runplane.outbox_floor),
run_outbox AS (SELECT tenant_id, stream_id AS run_id, min(sequence) AS first FROM runplane.outbox_events WHERE stream = 'run' GROUP BY tenant_id, stream_id),
-- Where a run begins and ends in the outbox. By itself: joined to pairs of runs, every event of a tenant met every end of it.
run_span AS MATERIALIZED (
  SELECT r.tenant_id, r.session_id, r.id, r.created_at, r.finished_at, min(o.tx) AS first_tx, max(o.tx) FILTER (WHERE o.type = 'terminal_status') AS end_tx
  FROM runplane.runs r JOIN runplane.outbox_events o ON o.tenant_id = r.tenant_id AND o.stream_id = r.id GROUP BY r.tenant_id, r.id
),
-- Runs whose removed events the outbox no longer has either: nobody can tell any more what they told.
forgotten AS (
  SELECT p.tenant_id, p.run_id FROM pruned p LEFT JOIN run_outbox x ON x.tenant_id = p.tenant_id AND x.run_id = p.run_id
  WHERE (SELECT tx FROM floor) > 0 AND coalesce(x.first, 2) > 1
),
removed_events AS (
  SELECT o.tenant_id, o.run_id, o.sequence, o.type, o.data, o.command_id
  FROM runplane.outbox_events o JOIN pruned p ON p.tenant_id = o.tenant_id AND p.run_id = o.stream_id
  WHERE o.stream = 'run' AND o.sequence < p.told_at
    AND NOT EXISTS (SELECT FROM runplane.run_events e WHERE e.tenant_id = o.tenant_id AND e.run_id = o.stream_id AND e.seq = o.sequence)
),
-- What a run's log has told: its events, and for those that retention has removed what stands of them in the outbox. So a removal weakens no check.
told AS NOT MATERIALIZED (
  SELECT tenant_id, run_id, seq, type, payload, command_id, tool_call_id, producer_epoch FROM runplane.run_events
  UNION ALL
  SELECT tenant_id, run_id, sequence, type, data, command_id, CASE WHEN type IN ('tool_call', 'tool_result') THEN data ->> 'callId' END, NULL FROM removed_events
)

SELECT 'LOG-1' AS invariant, 'run ' || r.id || ' counts ' || r.last_event_seq || ' events, its log has ' || coalesce(l.events, 0) || ' up to ' || coalesce(l.last, 0) AS detail
FROM runplane.runs r LEFT JOIN log l ON l.tenant_id = r.tenant_id AND l.run_id = r.id
WHERE r.events_pruned_at IS NULL
  AND (coalesce(l.events, 0), coalesce(l.last, 0), coalesce(l.first, 1)) IS DISTINCT FROM (r.last_event_seq, r.last_event_seq, 1::bigint)
UNION ALL
SELECT 'LOG-1', 'run ' || r.id || ' counts ' || r.last_event_seq || ' events, its pruned log has ' || coalesce(l.events, 0) || ' from ' || coalesce(l.first, 0)
  || ' up to ' || coalesce(l.last, 0) || ', told at ' || coalesce(p.told_at, 0)
FROM runplane.runs r JOIN pruned p ON p.tenant_id = r.tenant_id AND p.run_id = r.id LEFT JOIN log l ON l.tenant_id = r.tenant_id AND l.run_id = r.id
WHERE (l.events, l.last) IS DISTINCT FROM (r.last_event_seq - l.first + 1, r.last_event_seq) OR p.told_at IS NULL
  OR CASE WHEN p.through IS NULL THEN l.first <> p.told_at ELSE p.through <> p.told_at - 1 END
UNION ALL
SELECT 'LOG-1', 'run ' || e.run_id || ' has event ' || e.seq || ' and no row'
FROM runplane.run_events e WHERE NOT EXISTS (SELECT FROM runplane.runs r WHERE r.tenant_id = e.tenant_id AND r.id = e.run_id)
UNION ALL
SELECT 'LOG-1', 'run ' || r.id || ' counts ' || r.last_command_seq || ' commands, it has ' || count(c.id) || ' up to ' || coalesce(max(c.seq), 0)
FROM runplane.runs r LEFT JOIN runplane.commands c ON c.tenant_id = r.tenant_id AND c.run_id = r.id
GROUP BY r.tenant_id, r.id, r.last_command_seq HAVING (count(c.id), coalesce(max(c.seq), 0)) IS DISTINCT FROM (r.last_command_seq::bigint, r.last_command_seq)
UNION ALL
SELECT 'LOG-1', 'session ' || h.session_id || ' stands at ' || h.last_sequence || ', its log has ' || coalesce(l.events, 0) || ' from ' || coalesce(l.first, 0) || ' up to ' || coalesce(l.last, -1)
FROM runplane.session_heads h LEFT JOIN session_log l ON l.tenant_id = h.tenant_id AND l.session_id = h.session_id
WHERE h.deleted_at IS NULL AND (coalesce(l.events, 0), coalesce(l.last, -1), coalesce(l.first, 0)) IS DISTINCT FROM (h.last_sequence + 1, h.last_sequence, 0::bigint)
UNION ALL
SELECT 'LOG-1', 'session ' || l.session_id || ' has events and no head'
FROM session_log l WHERE NOT EXISTS (SELECT FROM runplane.session_heads h WHERE h.tenant_id = l.tenant_id AND h.session_id = l.session_id)
UNION ALL
SELECT 'LOG-1', 'session ' || s.session_id || ' has no log'
FROM runplane.sessions s WHERE NOT EXISTS (SELECT FROM runplane.session_heads h WHERE h.tenant_id = s.tenant_id AND h.session_id = s.session_id)
UNION ALL
SELECT 'LOG-1', 'append ' || e.append_id || ' of session ' || e.session_id || ' has ' || e.append_count || ' events from ' || e.sequence || ', its log ends with ' || l.last
FROM runplane.session_events e JOIN session_log l ON l.tenant_id = e.tenant_id AND l.session_id = e.session_id
WHERE e.append_count < 1 OR e.sequence + e.append_count - 1 > l.last
UNION ALL
SELECT 'LOG-2', 'event ' || e.sequence || ' of session ' || e.session_id || ' is in ' || count(o.position) || ' rows of the outbox'
FROM runplane.session_events e JOIN runplane.session_heads h ON h.tenant_id = e.tenant_id AND h.session_id = e.session_id
LEFT JOIN told_sessions o ON o.tenant_id = e.tenant_id AND o.stream_id = e.session_id AND o.sequence = e.sequence AND o.tx = e.tx AND o.position = e.position
WHERE NOT (e.sequence <= h.imported_through AND e.tx IS NULL)
GROUP BY e.tenant_id, e.session_id, e.sequence
HAVING count(o.position) <> 1 AND NOT (count(o.position) = 0 AND (min(e.tx), min(e.position)) <= (SELECT tx, position FROM floor))
UNION ALL
SELECT 'LOG-2', 'event ' || o.sequence || ' of session ' || o.stream_id || ' is in the outbox as another'
FROM told_sessions o
JOIN runplane.session_events e ON e.tenant_id = o.tenant_id AND e.session_id = o.stream_id AND e.sequence = o.sequence AND e.tx = o.tx AND e.position = o.position
WHERE (e.run_id, e.command_id, e.data::text) IS DISTINCT FROM (o.run_id, o.command_id, coalesce(o.data, e.data::text))
  OR o.is_first AND (e.type, replace(e.event_id::text, '-', '')) IS DISTINCT FROM (o.type, o.event_id)
UNION ALL
SELECT 'LOG-2', 'event ' || o.sequence || ' of session ' || o.stream_id || ' is in the outbox alone'
FROM told_sessions o
LEFT JOIN runplane.session_events e ON e.tenant_id = o.tenant_id AND e.session_id = o.stream_id AND e.sequence = o.sequence AND e.tx = o.tx AND e.position = o.position
WHERE e.sequence IS NULL
  AND NOT EXISTS (SELECT FROM runplane.session_heads h WHERE h.tenant_id = o.tenant_id AND h.session_id = o.stream_id AND h.deleted_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM runplane.session_tombstones d WHERE d.tenant_id = o.tenant_id AND d.session_id = o.stream_id AND o.sequence <= d.last_sequence)
UNION ALL
SELECT 'LOG-2', 'session ' || stream_id || ' tells its deletion at ' || sequence || ' without what must outlive its log'
FROM runplane.outbox_events WHERE stream = 'session' AND type = 'session/deleted' AND (data IS NULL OR events > 1)
UNION ALL
SELECT 'LOG-2', 'event ' || o.sequence || ' of session ' || h.session_id || ' left under another session, partition or shard than its own'
FROM runplane.outbox_events o JOIN runplane.session_heads h ON h.tenant_id = o.tenant_id AND h.session_id = o.stream_id
WHERE o.stream = 'session' AND (o.session_id, o.partition_key, o.shard) IS DISTINCT FROM (h.session_id, h.partition_key, h.shard)
UNION ALL
SELECT 'LOG-2', 'session ' || s.session_id || ' and the head of its log disagree about its project, partition or shard'
FROM runplane.sessions s JOIN runplane.session_heads h ON h.tenant_id = s.tenant_id AND h.session_id = s.session_id
WHERE (s.project_id, s.partition_key, s.shard) IS DISTINCT FROM (h.project_id, h.partition_key, h.shard)
UNION ALL
SELECT 'LOG-2', 'event ' || coalesce(e.seq, o.sequence) || ' of run ' || coalesce(e.run_id, o.stream_id) || ' and the outbox disagree'
FROM runplane.run_events e
FULL JOIN (SELECT * FROM runplane.outbox_events WHERE stream = 'run') o ON o.tenant_id = e.tenant_id AND o.stream_id = e.run_id AND o.sequence = e.seq
LEFT JOIN pruned p ON p.tenant_id = o.tenant_id AND p.run_id = o.stream_id
LEFT JOIN runplane.run_tombstones d ON d.tenant_id = o.tenant_id AND d.run_id = o.stream_id
WHERE (e.id, e.type, e.payload::text, e.command_id) IS DISTINCT FROM (o.event_id, o.type, o.data::text, o.command_id)
  AND NOT (e.id IS NULL AND (o.sequence < coalesce(p.told_at, 0) OR o.sequence <= coalesce(d.last_event_seq, 0)))
  AND NOT (o.event_id IS NULL AND (SELECT tx FROM floor) > 0
    AND e.seq < coalesce((SELECT x.first FROM run_outbox x WHERE x.tenant_id = e.tenant_id AND x.run_id = e.run_id), e.seq + 1))
UNION ALL
SELECT 'LOG-2', 'run ' || d.run_id || ' was removed at event ' || d.last_event_seq || ', the outbox has ' || count(o.sequence) || ' up to ' || coalesce(max(o.sequence), 0)
  || ', which tells it ' || count(o.sequence) FILTER (WHERE o.data ->> 'phase' = 'retention-deleted') || ' times'
FROM runplane.run_tombstones d LEFT JOIN runplane.outbox_events o ON o.tenant_id = d.tenant_id AND o.stream = 'run' AND o.stream_id = d.run_id
GROUP BY d.tenant_id, d.run_id, d.last_event_seq
HAVING (count(o.sequence), count(DISTINCT o.sequence), max(o.sequence), max(o.sequence) FILTER (WHERE o.data ->> 'phase' = 'retention-deleted'))
  IS DISTINCT FROM (d.last_event_seq, d.last_event_seq, d.last_event_seq, d.last_event_seq)
  AND NOT ((SELECT tx FROM floor) > 0 AND (count(o.sequence) = 0 OR (count(o.sequence), max(o.sequence), max(o.sequence) FILTER (WHERE o.data ->> 'phase' = 'retention-deleted'))
    IS NOT DISTINCT FROM (d.last_event_seq - min(o.sequence) + 1, d.last_event_seq, d.last_event_seq)))
UNION ALL
SELECT 'LOG-2', 'run ' || d.run_id || ' was removed, and there is a ' || x.what || ' of it'
FROM runplane.run_tombstones d JOIN (
  SELECT tenant_id, id AS run_id, 'row' AS what FROM runplane.runs
  UNION ALL SELECT tenant_id, run_id, 'command' FROM runplane.commands
  UNION ALL SELECT tenant_id, run_id, 'event' FROM runplane.run_events
  UNION ALL SELECT tenant_id, run_id, 'lease' FROM runplane.run_leases
  UNION ALL SELECT tenant_id, run_id, 'text to search' FROM runplane.run_search
) x ON x.tenant_id = d.tenant_id AND x.run_id = d.run_id
UNION ALL
SELECT 'LOG-2', 'run ' || r.id || ' is ' || r.status || ' and its log ends otherwise'
FROM runplane.runs r
LEFT JOIN (
  SELECT DISTINCT ON (tenant_id, run_id) tenant_id, run_id, payload ->> 'terminalStatus' AS status FROM told
  WHERE type = 'terminal_status' ORDER BY tenant_id, run_id, seq DESC
) t ON t.tenant_id = r.tenant_id AND t.run_id = r.id
WHERE CASE WHEN r.status::text IN (SELECT status FROM final_run) THEN r.status::text END IS DISTINCT FROM t.status
  AND NOT EXISTS (SELECT FROM forgotten f WHERE f.tenant_id = r.tenant_id AND f.run_id = r.id)
UNION ALL
SELECT 'LOG-2', 'command ' || c.id || ' is ' || c.state || ' and its run tells otherwise'
FROM runplane.commands c
LEFT JOIN LATERAL (
  SELECT e.payload ->> 'state' AS state FROM told e
  WHERE e.tenant_id = c.tenant_id AND e.run_id = c.run_id AND e.command_id = c.id AND e.type = 'backend_status' AND e.payload ->> 'phase' = 'command-terminal'
) t ON true
WHERE CASE WHEN c.state IN ('completed', 'failed', 'cancelled') THEN c.state::text END IS DISTINCT FROM t.state
  AND NOT EXISTS (SELECT FROM forgotten f WHERE f.tenant_id = c.tenant_id AND f.run_id = c.run_id)
UNION ALL
SELECT 'LOG-2', 'command ' || c.id || ' is acknowledged and its run does not tell it'
FROM runplane.commands c
WHERE c.state = 'acknowledged' AND NOT EXISTS (SELECT FROM told e WHERE e.tenant_id = c.tenant_id AND e.run_id = c.run_id
  AND e.command_id = c.id AND e.type = 'backend_status' AND e.payload ->> 'phase' = 'command-acknowledged')
UNION ALL
SELECT 'LOG-2', 'steer ' || c.id || ' is ' || c.state || ', its run tells ' || coalesce(t.phase, 'nothing')
FROM runplane.commands c
LEFT JOIN (
  SELECT DISTINCT ON (tenant_id, run_id, command_id) tenant_id, run_id, command_id, payload ->> 'phase' AS phase FROM told
  WHERE payload ->> 'phase' LIKE 'steer-%' ORDER BY tenant_id, run_id, command_id, seq DESC
) t ON t.tenant_id = c.tenant_id AND t.run_id = c.run_id AND t.command_id = c.id
WHERE c.type = 'steer' AND CASE WHEN c.state = 'completed' THEN t.phase IS DISTINCT FROM 'steer-consumed'
  WHEN c.failure_kind = 'steer-missed' THEN t.phase IS DISTINCT FROM 'steer-missed'
  WHEN c.state = 'acknowledged' THEN t.phase IS DISTINCT FROM 'steer-delivered' ELSE t.phase IN ('steer-consumed', 'steer-missed') END
  AND NOT EXISTS (SELECT FROM forgotten f WHERE f.tenant_id = c.tenant_id AND f.run_id = c.run_id)
UNION ALL
SELECT 'LOG-2', 'cancel request ' || q.id || ' stands at ' || q.stage || ', its run tells ' || coalesce(t.phase, 'nothing')
FROM runplane.cancel_requests q
LEFT JOIN (
  SELECT DISTINCT ON (tenant_id, run_id, payload ->> 'cancelRequestId') tenant_id, run_id, payload ->> 'cancelRequestId' AS request_id, payload ->> 'phase' AS phase FROM told
  WHERE payload ->> 'phase' LIKE 'cancel-%' ORDER BY tenant_id, run_id, payload ->> 'cancelRequestId', seq DESC
) t ON t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.request_id = q.id
WHERE t.phase IS DISTINCT FROM 'cancel-' || q.stage
  AND NOT EXISTS (SELECT FROM forgotten f WHERE f.tenant_id = q.tenant_id AND f.run_id = q.run_id)
UNION ALL
SELECT 'LOG-2', 'event ' || o.sequence || ' of run ' || r.id || ' left under another project, session, partition or shard than its run''s'
FROM runplane.outbox_events o JOIN runplane.runs r ON r.tenant_id = o.tenant_id AND r.id = o.stream_id
WHERE o.stream = 'run' AND (o.run_id, o.project_id, o.session_id, o.partition_key, o.shard) IS DISTINCT FROM (r.id, r.project_id, r.session_id, r.partition_key, r.shard)
UNION ALL
SELECT 'LOG-3', 'run ' || e.run_id || ' has ' || e.type || ' ' || coalesce(e.payload ->> 'phase', '') || ' behind its terminal_status'
FROM told e
JOIN told t ON t.tenant_id = e.tenant_id AND t.run_id = e.run_id AND t.type = 'terminal_status' AND t.seq < e.seq
WHERE NOT (e.type = 'backend_status' AND e.producer_epoch IS NULL
  AND e.payload ->> 'phase' IN ('cancel-terminalized', 'late-write-rejected', 'stale-writer-refused', 'retention-events-pruned', 'relay-event-dropped'))
UNION ALL
SELECT 'OWN-1', 'run ' || r.id || ' and its lease disagree: ' || r.status || ' epoch ' || r.claim_epoch || ', lease epoch ' || coalesce(k.epoch::text, 'none')
FROM runplane.runs r LEFT JOIN runplane.run_leases k ON k.tenant_id = r.tenant_id AND k.run_id = r.id
WHERE CASE WHEN r.status IN ('claimed', 'cancelling') THEN k.epoch IS DISTINCT FROM r.claim_epoch OR k.runner_id IS DISTINCT FROM r.claimed_by ELSE k.epoch IS NOT NULL END
UNION ALL
SELECT 'OWN-1', 'run ' || e.run_id || ' was written under epoch ' || e.producer_epoch || ' after epoch ' || max(b.producer_epoch)
FROM told e
JOIN told b ON b.tenant_id = e.tenant_id AND b.run_id = e.run_id AND b.seq < e.seq AND b.producer_epoch > e.producer_epoch
GROUP BY e.tenant_id, e.run_id, e.seq, e.producer_epoch
UNION ALL
SELECT 'OWN-1', 'run ' || r.id || ' is held under epoch ' || r.claim_epoch || ', its last claim was told under ' || coalesce(t.epoch, 'none')
FROM runplane.runs r
LEFT JOIN (
  SELECT DISTINCT ON (tenant_id, run_id) tenant_id, run_id, payload ->> 'epoch' AS epoch FROM told
  WHERE type = 'backend_status' AND payload ->> 'phase' = 'run-claimed' ORDER BY tenant_id, run_id, seq DESC
) t ON t.tenant_id = r.tenant_id AND t.run_id = r.id
WHERE r.status IN ('claimed', 'cancelling') AND t.epoch IS DISTINCT FROM r.claim_epoch::text
UNION ALL
SELECT 'OWN-1', 'intent ' || id || ' is ' || state || ', held by ' || coalesce(owner, 'nobody') || ' until ' || coalesce(expires_at::text, 'never')
FROM runplane.dispatch_intents WHERE (state = 'dispatching') <> (owner IS NOT NULL) OR (state = 'dispatching') <> (expires_at IS NOT NULL)
UNION ALL
SELECT 'OWN-1', 'the storage of session ' || s.session_id || ' is being deleted by ' || s.storage_lease_owner || ' while run ' || r.id || ' is open'
FROM runplane.sessions s JOIN runplane.runs r ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id
WHERE s.storage_lease_owner IS NOT NULL AND r.finished_at IS NULL
UNION ALL
SELECT 'OWN-1', 'session ' || session_id || ' is held by ' || coalesce(lease_owner, 'nobody') || ' under epoch ' || lease_epoch || ' until ' || coalesce(lease_expires_at::text, 'never')
FROM runplane.session_heads WHERE (lease_owner IS NULL) <> (lease_expires_at IS NULL) OR (lease_owner IS NOT NULL AND lease_epoch < 1)
UNION ALL
SELECT 'TURN-1', 'session ' || session_id || ' has ' || count(*) || ' open turns'
FROM open_commands WHERE type = 'turn' AND session_id IS NOT NULL GROUP BY tenant_id, session_id HAVING count(*) > 1
UNION ALL
SELECT 'TURN-1', 'session ' || s.session_id || ' is held by ' || coalesce(s.active_command_id, 'nobody') || ', its open turn is ' || coalesce(c.id, 'none')
FROM runplane.sessions s
LEFT JOIN open_commands c ON c.tenant_id = s.tenant_id AND c.session_id = s.session_id AND c.type = 'turn'
WHERE (s.active_run_id, s.active_command_id) IS DISTINCT FROM (c.run_id, c.id)
UNION ALL
SELECT 'END-1', 'run ' || r.id || ' is ' || r.status || ', finished_at ' || coalesce(r.finished_at::text, 'null') || ', holder ' || coalesce(r.claimed_by, 'nobody')
FROM runplane.runs r
WHERE (r.status::text IN (SELECT status FROM final_run)) <> (r.finished_at IS NOT NULL) OR (r.finished_at IS NOT NULL AND r.claimed_by IS NOT NULL)
UNION ALL
SELECT 'END-1', 'run ' || r.id || ' has ended with open ' || o.what
FROM runplane.runs r
JOIN (
  SELECT tenant_id, run_id, 'command ' || id AS what FROM open_commands
  UNION ALL SELECT tenant_id, run_id, 'intent ' || id FROM open_intents
  UNION ALL SELECT tenant_id, run_id, 'lease of ' || runner_id FROM runplane.run_leases
  UNION ALL SELECT c.tenant_id, c.run_id, 'tool call ' || c.tool_call_id FROM told c
    WHERE c.type = 'tool_call' AND NOT EXISTS (SELECT FROM told x
      WHERE x.tenant_id = c.tenant_id AND x.run_id = c.run_id AND x.tool_call_id = c.tool_call_id AND x.type = 'tool_result')
  UNION ALL SELECT q.tenant_id, q.run_id, 'cancel request ' || q.id FROM runplane.cancel_requests q WHERE q.stage <> 'terminalized'
  UNION ALL SELECT q.tenant_id, q.run_id, q.kind || ' ' || q.id FROM requests q WHERE q.state = 'pending'
) o ON o.tenant_id = r.tenant_id AND o.run_id = r.id
WHERE r.finished_at IS NOT NULL
UNION ALL
SELECT 'END-1', 'intent ' || i.id || ' is open and its command ' || c.id || ' has ended'
FROM open_intents i JOIN runplane.commands c ON c.tenant_id = i.tenant_id AND c.id = i.command_id WHERE c.finished_at IS NOT NULL
UNION ALL
SELECT 'END-1', 'command ' || e.command_id || ' of run ' || e.run_id || ' ended ' || count(*) || ' times'
FROM told e WHERE e.type = 'backend_status' AND e.payload ->> 'phase' = 'command-terminal'
GROUP BY e.tenant_id, e.run_id, e.command_id HAVING count(*) > 1
UNION ALL
SELECT 'END-1', 'steer ' || s.id || ' is open and its turn ' || c.id || ' has ended'
FROM open_commands s JOIN runplane.commands c ON c.tenant_id = s.tenant_id AND c.id = s.target_command_id WHERE s.type = 'steer' AND c.finished_at IS NOT NULL
UNION ALL
SELECT 'END-1', q.kind || ' ' || q.id || ' is open and its command ' || c.id || ' has ended'
FROM requests q JOIN runplane.commands c ON c.tenant_id = q.tenant_id AND c.id = q.command_id WHERE q.state = 'pending' AND c.finished_at IS NOT NULL
UNION ALL
SELECT 'OWN-1', 'place ' || slot || ' of ' || kind || ' ' || key || ' is held under epoch ' || epoch
FROM runplane.reservations WHERE owner IS NOT NULL AND epoch < 1
UNION ALL
SELECT 'OWN-1', owner || ' holds ' || count(*) || ' places of ' || kind || ' ' || key
FROM runplane.reservations WHERE expires_at > runplane.app_now() GROUP BY kind, key, owner HAVING count(*) > 1
UNION ALL
SELECT 'TEN-1', 'place ' || slot || ' of ' || kind || ' ' || key || ' belongs to tenant ' || coalesce(tenant_id, 'none')
FROM runplane.reservations WHERE key::json ->> 0 IS DISTINCT FROM tenant_id
UNION ALL
SELECT 'FEED-1', o.stream || ' ' || o.stream_id || ': ' || o.sequence || ' stands at (' || o.tx || ', ' || o.position || ') behind ' || o.before
FROM (
  SELECT stream, stream_id, sequence, tx, position, lag(sequence + events - 1) OVER w AS before, lag(type) OVER w AS type_before FROM runplane.outbox_events
  WINDOW w AS (PARTITION BY tenant_id, stream, stream_id ORDER BY tx, position)
) o
-- A session that was deleted may be made again, and counts from 0.
WHERE o.before >= o.sequence AND NOT (o.stream = 'session' AND o.type_before = 'session/deleted')
UNION ALL
SELECT 'FEED-1', 'session ' || h.session_id || ' remembers feed number ' || h.last_tx || ' and place (' || h.event_tx || ', ' || h.event_position
  || '), its last event has (' || e.tx || ', ' || e.position || ')'
FROM runplane.session_heads h
JOIN runplane.session_events e ON e.tenant_id = h.tenant_id AND e.session_id = h.session_id AND e.sequence = h.last_sequence
WHERE e.tx > h.last_tx OR (e.tx, e.position) IS DISTINCT FROM (h.event_tx, h.event_position) AND e.tx IS NOT NULL
UNION ALL
SELECT 'FEED-1', 'run ' || r.id || ' remembers feed number ' || r.last_tx || ', an event of it has ' || max(o.tx)
FROM runplane.runs r JOIN runplane.outbox_events o ON o.tenant_id = r.tenant_id AND o.stream = 'run' AND o.stream_id = r.id
GROUP BY r.tenant_id, r.id, r.last_tx HAVING max(o.tx) > r.last_tx
UNION ALL
SELECT 'FEED-1', 'run ' || a.id || ' of session ' || a.session_id || ' ended at feed number ' || a.end_tx || ', the next run ' || b.id || ' began at ' || b.first_tx
FROM run_span a JOIN run_span b ON b.tenant_id = a.tenant_id AND b.session_id = a.session_id AND a.finished_at < b.created_at
WHERE a.end_tx > b.first_tx
UNION ALL
SELECT 'FEED-1', 'session ' || session_id || ' has version ' || version || ' of change ' || changed_tx || ', and remembers feed number ' || last_tx
FROM runplane.sessions WHERE changed_tx > last_tx OR (version > 1 AND changed_tx = 0)
UNION ALL
SELECT 'IDEM-1', 'key ' || idempotency_key || ' of session ' || session_id || ' has ' || count(*) || ' commands'
FROM runplane.commands WHERE idempotency_key IS NOT NULL AND session_id IS NOT NULL AND type IN ('turn', 'steer')
GROUP BY tenant_id, session_id, idempotency_key HAVING count(*) > 1
UNION ALL
SELECT 'IDEM-1', 'key ' || idempotency_key || ' of run ' || run_id || ' has ' || count(*) || ' commands'
FROM runplane.commands WHERE idempotency_key IS NOT NULL GROUP BY tenant_id, run_id, idempotency_key HAVING count(*) > 1
UNION ALL
SELECT 'TEN-1', 'command ' || c.id || ' stands in session ' || coalesce(c.session_id, 'none') || ', its run in ' || coalesce(r.session_id, 'none')
FROM runplane.commands c JOIN runplane.runs r ON r.tenant_id = c.tenant_id AND r.id = c.run_id WHERE c.session_id IS DISTINCT FROM r.session_id
UNION ALL
SELECT 'TEN-1', 'steer ' || s.id || ' is for ' || coalesce(s.target_command_id, 'nothing') || ', which is no turn of its run'
FROM runplane.commands s
WHERE s.type = 'steer' AND NOT EXISTS (SELECT FROM runplane.commands c
  WHERE c.tenant_id = s.tenant_id AND c.run_id = s.run_id AND c.id = s.target_command_id AND c.type = 'turn')
UNION ALL
SELECT 'TEN-1', 'run ' || r.id || ' writes to partition ' || r.partition_key
FROM runplane.runs r WHERE r.partition_key <> r.tenant_id || '/' || coalesce(r.session_id, r.id)
UNION ALL
SELECT 'TEN-1', 'event ' || e.seq || ' of run ' || e.run_id || ' is about command ' || e.command_id || ', which is not its own'
FROM told e
WHERE e.command_id IS NOT NULL AND NOT EXISTS (SELECT FROM runplane.commands c WHERE c.tenant_id = e.tenant_id AND c.run_id = e.run_id AND c.id = e.command_id)
UNION ALL
SELECT 'VIEW-1', 'session ' || s.session_id || ' shows ' || coalesce(s.terminal_status, 'no outcome') || ', its last run ' || r.id || ' is ' || r.status
FROM runplane.sessions s JOIN runplane.runs r ON r.tenant_id = s.tenant_id AND r.id = s.last_run_id
WHERE s.terminal_status IS NOT NULL AND s.last_command_id IN (SELECT c.id FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id)
  AND r.finished_at IS NOT NULL AND s.terminal_status <> r.status::text
  AND NOT EXISTS (SELECT FROM told e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id AND e.command_id = s.last_command_id
    AND e.payload ->> 'phase' = 'command-terminal' AND e.payload ->> 'terminalStatus' = s.terminal_status)
UNION ALL
SELECT 'VIEW-1', 'session ' || s.session_id || ' shows run ' || r.id || ' of session ' || coalesce(r.session_id, 'none')
FROM (SELECT tenant_id, session_id, last_run_id AS run_id FROM runplane.sessions UNION SELECT tenant_id, session_id, active_run_id FROM runplane.sessions) s
JOIN runplane.runs r ON r.tenant_id = s.tenant_id AND r.id = s.run_id WHERE r.session_id IS DISTINCT FROM s.session_id
UNION ALL
SELECT 'VIEW-1', coalesce(q.kind, e.kind) || ' ' || coalesce(q.id, e.id) || ' of session ' || coalesce(q.session_id, e.session_id) || ' is ' || coalesce(q.state, 'nowhere')
  || ', asked at ' || coalesce(e.sequence::text, 'nothing') || ' and resolved as ' || coalesce(z.state, 'nothing')
FROM (SELECT * FROM requests WHERE ascii(tenant_id) >= 32) q
FULL JOIN (SELECT DISTINCT ON (kind, tenant_id, session_id, id) * FROM request_events WHERE asks ORDER BY kind, tenant_id, session_id, id, sequence) e
  ON e.kind = q.kind AND e.tenant_id = q.tenant_id AND e.session_id = q.session_id AND e.id = q.id
LEFT JOIN request_events z ON NOT z.asks AND z.kind = q.kind AND z.tenant_id = q.tenant_id AND z.session_id = q.session_id AND z.sequence = q.resolved_sequence
WHERE (e.sequence IS DISTINCT FROM q.requested_sequence OR e.run_id IS DISTINCT FROM q.run_id
    OR q.state <> 'pending' AND (z.id IS DISTINCT FROM q.id
      OR CASE WHEN z.state IN ('approved', 'rejected', 'answered', 'declined', 'expired', 'cancelled') THEN z.state <> q.state END))
  AND NOT EXISTS (SELECT FROM runplane.session_heads h WHERE h.tenant_id = coalesce(q.tenant_id, e.tenant_id)
    AND h.session_id = coalesce(q.session_id, e.session_id) AND h.deleted_at IS NOT NULL)
UNION ALL
SELECT 'VIEW-1', 'reader ' || c.reader_id || ' has read version ' || c.session_version || ' of session ' || s.session_id || ', which is at ' || s.version
FROM runplane.session_read_cursors c JOIN runplane.sessions s ON s.tenant_id = c.tenant_id AND s.session_id = c.session_id WHERE c.session_version > s.version
UNION ALL
SELECT 'VIEW-1', 'tenant ' || tenant_id || ' counts ' || coalesce(c.n, 0) || ' runs ' || status || ', it has ' || coalesce(r.n, 0)
FROM (SELECT tenant_id, status, sum(n) AS n FROM runplane.run_status_counts GROUP BY tenant_id, status) c
FULL JOIN (SELECT tenant_id, status, count(*) AS n FROM runplane.runs GROUP BY tenant_id, status) r USING (tenant_id, status)
WHERE coalesce(c.n, 0) <> coalesce(r.n, 0)
UNION ALL
SELECT 'VIEW-1', count(*) || ' rows of ' || v.what || ' were built for session ' || v.session_id || ', and no rebuild of it is under way'
FROM (
  SELECT tenant_id, session_id, 'channel_bindings' AS what FROM runplane.channel_bindings WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'channel_inbounds' AS what FROM runplane.channel_inbounds WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'channel_routes' AS what FROM runplane.channel_routes WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'channel_deliveries' AS what FROM runplane.channel_deliveries WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'context_windows' AS what FROM runplane.context_windows WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'context_notes' AS what FROM runplane.context_notes WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'context_history' AS what FROM runplane.context_history WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'approvals' AS what FROM runplane.approvals WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'input_requests' AS what FROM runplane.input_requests WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'submissions' AS what FROM runplane.submissions WHERE ascii(tenant_id) < 32
  UNION ALL SELECT tenant_id, session_id, 'session_views' AS what FROM runplane.session_views WHERE ascii(tenant_id) < 32
) v
WHERE NOT EXISTS (SELECT FROM runplane.session_rebuilds r WHERE chr(1) || r.tenant_id = v.tenant_id AND r.session_id = v.session_id AND r.state <> 'completed')
GROUP BY v.tenant_id, v.session_id, v.what
UNION ALL
SELECT 'FIFO-1', 'session ' || coalesce(h.session_id, s.session_id) || ' works on ' || coalesce(h.operation_id || ' at ' || h.place, 'nothing')
  || ', its oldest unfinished submission is ' || coalesce(s.operation_id || ' at ' || s.place, 'none')
FROM runplane.submission_heads h
FULL JOIN (
  SELECT DISTINCT ON (tenant_id, session_id) tenant_id, session_id, operation_id, kind, place FROM runplane.submissions
  WHERE state = 'pending' AND ascii(tenant_id) >= 32 ORDER BY tenant_id, session_id, place
) s ON s.tenant_id = h.tenant_id AND s.session_id = h.session_id
WHERE (h.operation_id, h.kind, h.place) IS DISTINCT FROM (s.operation_id, s.kind, s.place) AND NOT EXISTS (
  SELECT FROM runplane.session_heads l WHERE l.tenant_id = coalesce(h.tenant_id, s.tenant_id) AND l.session_id = coalesce(h.session_id, s.session_id) AND l.deleted_at IS NOT NULL)
UNION ALL
SELECT 'LOG-2', 'submission ' || s.operation_id || ' of session ' || s.session_id || ' is ' || s.state || ', the log tells ' || coalesce(a.type, 'nothing') || ' and ' || coalesce(e.type, 'no end')
FROM runplane.submissions s
JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL
LEFT JOIN runplane.session_events a ON a.tenant_id = s.tenant_id AND a.session_id = s.session_id AND a.sequence = s.accepted_sequence
LEFT JOIN runplane.session_events e ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id AND e.sequence = s.ended_sequence
WHERE s.from_event AND (a.type IS DISTINCT FROM 'submission/accepted' OR e.type IS DISTINCT FROM CASE WHEN s.state <> 'pending' THEN 'submission/' || s.state END)
  OR NOT s.from_event AND s.accepted_sequence >= 0
UNION ALL
SELECT 'FIFO-1', 'submission ' || s.operation_id || ' of session ' || s.session_id || ' stands at ' || s.place || ', where the log tells ' || coalesce(p.type || ' of ' || coalesce(p.data ->> 'operation_id', 'none'), 'nothing')
FROM runplane.submissions s
JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL
LEFT JOIN runplane.session_events p ON p.tenant_id = s.tenant_id AND p.session_id = s.session_id AND p.sequence = s.place
WHERE s.place <> s.accepted_sequence
  AND (s.place < s.accepted_sequence OR p.type IS DISTINCT FROM 'submission/requeued' OR coalesce(p.data ->> 'operation_id', p.data ->> 'operationId') IS DISTINCT FROM s.operation_id)
UNION ALL
SELECT 'OWN-1', 'submission ' || h.operation_id || ' of session ' || h.session_id || ' is ' || h.state || ' under epoch ' || h.epoch || ' after ' || h.attempts || ' attempts'
  || CASE WHEN h.ready_at < h.expires_at THEN ', and may be claimed before the claim ends' ELSE '' END
FROM runplane.submission_heads h
JOIN runplane.session_heads l ON l.tenant_id = h.tenant_id AND l.session_id = h.session_id
WHERE h.ready_at < h.expires_at OR h.attempts NOT BETWEEN (h.state = 'claimed')::int AND 10 OR h.epoch <= l.claim_epoch
UNION ALL
SELECT 'VIEW-1', 'session ' || l.session_id || ' counts ' || l.open_submissions || ' unfinished submissions, ' || l.open_turn_submissions || ' of them turns; it has '
  || count(s.operation_id) || ', ' || count(s.operation_id) FILTER (WHERE s.kind IN ('turn', 'user-input'))
FROM runplane.session_heads l
LEFT JOIN runplane.submissions s ON s.tenant_id = l.tenant_id AND s.session_id = l.session_id AND s.state = 'pending'
WHERE l.deleted_at IS NULL
GROUP BY l.tenant_id, l.session_id, l.open_submissions, l.open_turn_submissions
HAVING (count(s.operation_id), count(s.operation_id) FILTER (WHERE s.kind IN ('turn', 'user-input'))) IS DISTINCT FROM (l.open_submissions::bigint, l.open_turn_submissions::bigint)
UNION ALL
SELECT 'END-1', 'session ' || l.session_id || ' was deleted at ' || l.deleted_at || ', its control record says ' || coalesce(s.deleted_at::text, 'nothing')
  || ', its log ' || CASE WHEN e.type IS NULL THEN 'nothing' ELSE e.type END || CASE WHEN l.lease_owner IS NULL THEN '' ELSE ', ' || l.lease_owner || ' holds it' END
FROM runplane.session_heads l
JOIN runplane.sessions s ON s.tenant_id = l.tenant_id AND s.session_id = l.session_id
LEFT JOIN runplane.session_events e ON e.tenant_id = l.tenant_id AND e.session_id = l.session_id AND e.sequence = l.last_sequence
WHERE (l.deleted_at, l.copying) IS DISTINCT FROM (s.deleted_at, s.copying)
  OR l.deleted_at IS NOT NULL AND NOT l.copying AND (e.type IS DISTINCT FROM 'session/deleted' AND e.type IS NOT NULL OR l.lease_owner IS NOT NULL OR s.active_run_id IS NOT NULL)
UNION ALL
SELECT 'END-1', 'session ' || d.session_id || ' was erased, and there is a ' || x.what || ' of its life ' || d.incarnation
FROM runplane.session_tombstones d
CROSS JOIN LATERAL (
  SELECT 'head' AS what FROM runplane.session_heads l WHERE l.tenant_id = d.tenant_id AND l.session_id = d.session_id AND l.incarnation = d.incarnation
) x
UNION ALL
SELECT 'OWN-1', 'queue task ' || t.id || ' is ' || t.state || ' and names ' || coalesce(t.attempt_id, 'no attempt') || ', active are '
  || coalesce(string_agg(a.attempt_id || ' (' || a.state || ')', ', '), 'none')
FROM runplane.queue_tasks t
LEFT JOIN runplane.queue_attempts_all a ON a.tenant_id = t.tenant_id AND a.task_id = t.id AND a.terminal_at IS NULL
GROUP BY t.tenant_id, t.id, t.state, t.attempt_id
HAVING CASE
  WHEN t.state = 'running' THEN count(a.attempt_id) <> 1 OR bool_or(a.state = 'reserved') OR max(a.attempt_id) IS DISTINCT FROM t.attempt_id
  WHEN t.state IN ('failed', 'blocked') THEN count(a.attempt_id) > 1 OR bool_or(a.state <> 'reserved')
  ELSE count(a.attempt_id) > 0 END
UNION ALL
SELECT 'OWN-1', 'queue task ' || t.id || ' is held by ' || t.owner || ' under epoch ' || t.epoch || ', its attempt says ' || coalesce(a.owner, 'nobody') || ' and '
  || coalesce(a.epoch::text, 'none')
FROM runplane.queue_tasks t
LEFT JOIN runplane.queue_attempts_all a ON a.tenant_id = t.tenant_id AND a.task_id = t.id AND a.retry_index = t.last_retry_index
WHERE t.owner IS NOT NULL AND (a.owner, a.epoch) IS DISTINCT FROM (t.owner, t.epoch)
UNION ALL
SELECT 'OWN-1', 'lane ' || l.lane || ' of queue ' || l.queue || ' counts ' || l.running || ' tasks that run, it has ' || count(t.id)
FROM runplane.queue_lanes l
LEFT JOIN runplane.queue_tasks t ON t.tenant_id = l.tenant_id AND t.queue = l.queue
  AND CASE l.lane WHEN '' THEN t.places & 2 ELSE CASE WHEN t.lane = l.lane THEN t.places & 1 ELSE 0 END END > 0
GROUP BY l.tenant_id, l.queue, l.lane, l.running HAVING count(t.id) <> l.running
UNION ALL
SELECT 'END-1', 'queue task ' || t.id || ' is ' || t.state || ' and is counted among those that run'
FROM runplane.queue_tasks t WHERE t.places <> 0 AND t.state <> 'running'
UNION ALL
SELECT 'END-1', 'queue task ' || t.id || ' is ' || t.state || ', its attempt ' || t.attempt_id || ' ended ' || coalesce(a.state::text, 'nowhere')
FROM runplane.queue_tasks t
LEFT JOIN runplane.queue_attempts_all a ON a.tenant_id = t.tenant_id AND a.task_id = t.id AND a.attempt_id = t.attempt_id
WHERE t.state IN ('completed', 'failed', 'blocked') AND a.state::text IS DISTINCT FROM t.state::text
UNION ALL
SELECT 'LOG-1', 'queue task ' || t.id || ' counts attempts up to ' || t.last_retry_index || ', it has ' || count(a.attempt_id) || ' up to ' || coalesce(max(a.retry_index), -1)
  || ' under ' || count(DISTINCT a.attempt_id) || ' ids'
FROM runplane.queue_tasks t LEFT JOIN runplane.queue_attempts_all a ON a.tenant_id = t.tenant_id AND a.task_id = t.id
GROUP BY t.tenant_id, t.id, t.last_retry_index
HAVING (count(a.attempt_id), coalesce(max(a.retry_index), -1), count(DISTINCT a.attempt_id)) IS DISTINCT FROM
  (t.last_retry_index + 1::bigint, t.last_retry_index, t.last_retry_index + 1::bigint)
UNION ALL
SELECT 'LOG-1', 'queue task ' || t.id || ' is ' || t.state || ', held by ' || coalesce(t.owner, 'nobody') || ', its attempt stands '
  || CASE WHEN t.attempt_since IS NULL THEN 'elsewhere' ELSE 'in it' END || ' and was made by ' || coalesce(t.attempt_owner, 'its holder')
FROM runplane.queue_tasks t
WHERE CASE WHEN t.attempt_since IS NULL THEN t.attempt_owner IS NOT NULL WHEN t.state = 'running' THEN t.owner IS NULL OR t.attempt_owner IS NOT NULL
  ELSE t.state <> 'completed' OR t.attempt_owner IS NULL END
UNION ALL
SELECT 'TEN-1', 'attempt ' || a.attempt_id || ' is at no queue task of its tenant'
FROM runplane.queue_attempts a WHERE NOT EXISTS (SELECT FROM runplane.queue_tasks t WHERE t.tenant_id = a.tenant_id AND t.id = a.task_id)
UNION ALL
SELECT 'VIEW-1', 'reader ' || c.reader_id || ' has read version ' || c.task_version || ' of queue task ' || t.id || ', which is at ' || t.version
FROM runplane.queue_task_read_cursors c JOIN runplane.queue_tasks t ON t.tenant_id = c.tenant_id AND t.id = c.task_id WHERE c.task_version > t.version
UNION ALL
SELECT 'FEED-1', 'queue task ' || t.id || ' has version ' || t.version || ' and no place in the list of changes'
FROM runplane.queue_tasks t WHERE t.changed_tx <= 0
UNION ALL
SELECT 'RELAY-1', 'event (' || h.tx || ', ' || h.position || ') of ' || h.partition_key || ' is held for sink ' || h.sink || ' above the cursor of its shard'
FROM runplane.outbox_held h JOIN runplane.outbox_shards s ON s.sink = h.sink AND s.shard = h.shard WHERE (h.tx, h.position) > (s.tx, s.position)
UNION ALL
SELECT 'RELAY-1', 'key ' || h.partition_key || ' of sink ' || h.sink || ' is not blocked and has ' || count(*) || ' held events'
FROM runplane.outbox_held h
WHERE NOT EXISTS (SELECT FROM runplane.outbox_blocked_keys b WHERE b.sink = h.sink AND b.shard = h.shard AND b.partition_key = h.partition_key)
GROUP BY h.sink, h.partition_key
UNION ALL
SELECT 'RELAY-1', 'sink ' || k.name || ' has ' || count(s.shard) || ' shards'
FROM runplane.outbox_sinks k LEFT JOIN runplane.outbox_shards s ON s.sink = k.name GROUP BY k.name HAVING count(s.shard) <> 32
UNION ALL
SELECT 'RELAY-1', 'shard ' || s.shard || ' of sink ' || s.sink || ' stands above the horizon'
FROM runplane.outbox_shards s WHERE s.tx >= runplane.feed_horizon()
UNION ALL
SELECT 'OWN-1', 'shard ' || s.shard || ' of sink ' || s.sink || ' is held under epoch ' || s.epoch
FROM runplane.outbox_shards s WHERE s.owner IS NOT NULL AND s.epoch < 1
