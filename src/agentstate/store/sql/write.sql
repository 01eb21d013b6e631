-- Statements of the writer thread. Each fact of journal.py is one or several of these in one transaction.

-- name: add_session
insert into session (key, created_at, updated_at) values (:key, :now, :now);

-- name: add_branch
insert into branch (session, parent, upto, reason, opening, created_at) values (:session, :parent, :upto, :reason, :opening, :now);

-- name: set_head
update session set head = :head, updated_at = :now where id = :session;

-- name: set_opening
update branch set opening = :opening where id = :branch and opening is null;

-- name: set_status
update session set status = :status, note = :note, updated_at = :now where id = :session;

-- name: add_run
insert into run (session, name, named, evidence, owner, supervisor, siblings, base, hint_min, hint_max, started_at)
values (:session, :name, :named, :evidence, :owner, :supervisor, :siblings, :base, :hint, :hint, :now);

-- name: set_owner
update run set owner = :owner where id = :run and owner = '';

-- name: set_run_state
update run set state = :state, ended_at = :now, exit_code = coalesce(:exit_code, exit_code) where id = :run;

-- name: set_supervisor
update run set supervisor = :supervisor where id = :run;

-- name: set_divergence
update run set divergence = :report where id = :run and divergence is null;

-- name: widen_hint
update run set hint_min = min(coalesce(hint_min, :hint), :hint), hint_max = max(coalesce(hint_max, :hint), :hint) where id = :run;

-- name: tick
update session set clock = clock + 1, updated_at = :now where id = :session returning clock;

-- name: tick_and_number
update session set clock = clock + 1, steps = steps + 1, updated_at = :now where id = :session returning clock, steps - 1;

-- name: add_blob
insert into blob (hash, codec, size, data) values (?, ?, ?, ?) on conflict (hash) do nothing;

-- name: find_blob
select id from blob where hash = ?;

-- name: add_node
insert into node (hash, parent, blob) values (?, ?, ?);

-- name: find_node
select id from node where hash = ?;

-- name: add_step
insert into step (session, number, branch, run, kind, state, dialect, method, path, model, stream, fingerprint, tip,
                  frame, node, started, hint, retry_key, created_at)
values (:session, :number, :branch, :run, :kind, 'in_flight', :dialect, :method, :path, :model, :stream, :fingerprint,
        :tip, :frame, :node, :started, :hint, :retry_key, :now);

-- name: again
update step set state = 'in_flight', attempts = attempts + 1, started = :started, finished = 0, stream = :stream
where id = :step and state = :was returning attempts, number;

-- name: add_attempt
insert into attempt (step, n, run, provider, started_at) values (:step, :n, :run, :provider, :now);

-- name: end_attempt
update attempt set status = :status, head = :head, body = :body, released = :released, model = :model, usage = :usage,
                   cost = :cost, error = :error, broken = :broken, finished_at = :now
where step = :step and n = :n and finished_at is null;

-- name: end_step
update step set state = :state, finished = :finished, stream = :stream where id = :step and state = 'in_flight';

-- name: add_call
insert into call (step, choice, place, call_id, name) values (?, ?, ?, ?, ?);

-- name: serve
insert into served (run, step, outcome, match, hint, at) values (:run, :step, :outcome, :match, :hint, :now)
on conflict (run, step) do update set cut = 0, joins = joins + 1, at = excluded.at;

-- name: cut
update served set cut = 1 where run = :run and step = :step;

-- name: claim_cuts
update served set cut = 0 where run = :run;

-- name: interrupt_attempts
update attempt set error = 'the proxy ended before the answer was complete', finished_at = :now
where finished_at is null and step in (select id from step where state = 'in_flight');

-- name: interrupt_steps
update step set state = 'interrupted' where state = 'in_flight';

-- name: interrupt_attempt
update attempt set error = 'its end could not be recorded', finished_at = :now where step = :step and finished_at is null;

-- name: interrupt_step
update step set state = 'interrupted' where id = :step and state = 'in_flight';
