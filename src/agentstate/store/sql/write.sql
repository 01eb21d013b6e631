-- Statements of the writer thread. Each fact of journal.py is one or several of these in one transaction.

-- name: set_meta
insert into meta (key, value) values (:key, :value) on conflict (key) do update set value = excluded.value;

-- name: get_meta
select value from meta where key = ?;

-- name: seal_runs
update run set base = 0 where state = 'open';

-- name: add_session
insert into session (id, key, created_at, updated_at)
values (1 + max((select coalesce(max(id), 0) from session), (select coalesce(max(cast(value as integer)), 0) from meta where key = 'last_session')),
        :key, :now, :now);

-- name: add_branch
insert into branch (id, session, parent, upto, reason, opening, created_at, made_by)
values (1 + max((select coalesce(max(id), 0) from branch), (select coalesce(max(cast(value as integer)), 0) from meta where key = 'last_branch')),
        :session, :parent, :upto, :reason, :opening, :now, :by);

-- name: set_head
update session set head = :head, updated_at = :now where id = :session;

-- name: set_opening
update branch set opening = :opening where id = :branch and opening is null;

-- name: set_status
update session set status = :status, note = :note, updated_at = :now where id = :session;

-- name: touch_session
update session set updated_at = :now where id = :session;

-- name: status_of
select status, note from session where id = ?;

-- name: has_other_status
select 1 from session where id = ? and status <> ?;

-- name: add_run
insert into run (id, session, name, named, evidence, owner, supervisor, siblings, base, hint_min, hint_max, started_at)
values (1 + max((select coalesce(max(id), 0) from run), (select coalesce(max(cast(value as integer)), 0) from meta where key = 'last_run')),
        :session, :name, :named, :evidence, :owner, :supervisor, :siblings, :base, :hint, :hint, :now);

-- name: set_owner
update run set owner = :owner where id = :run and owner = '';

-- name: set_run_state
update run set state = :state, ended_at = :now, exit_code = coalesce(:exit_code, exit_code) where id = :run;

-- name: set_divergence
update run set divergence = :report where id = :run and divergence is null;

-- name: session_of_run
select session from run where id = ?;

-- name: widen_hint
update run set hint_min = min(coalesce(hint_min, :hint), :hint), hint_max = max(coalesce(hint_max, :hint), :hint) where id = :run;

-- name: tick
update session set clock = :tick, updated_at = :now where id = :session;

-- name: counters
select steps, clock from session where id = ?;

-- name: last_ids
select max((select coalesce(max(id), 0) from step), (select coalesce(max(cast(value as integer)), 0) from meta where key = 'last_step')),
       max((select coalesce(max(id), 0) from node), (select coalesce(max(cast(value as integer)), 0) from meta where key = 'last_node'));

-- name: add_blob
insert into blob (hash, codec, size, data) values (?, ?, ?, ?) on conflict (hash) do nothing;

-- name: find_blob
select id from blob where hash = ?;

-- name: put_message
insert into put_message (node, hash, parent, blob_hash, codec, size, data) values (?, ?, ?, ?, ?, ?, ?);

-- name: find_node
select id from node where hash = ?;

-- name: begin_step
insert into begin_step (id, session, number, branch, run, kind, dialect, method, path, model, stream, fingerprint, tip,
                        frame, node, started, hint, retry_key, created_at, provider, outcome)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: again
update step set state = 'in_flight', attempts = attempts + 1, finished = 0, stream = :stream
where id = :step and state = :was returning attempts, number;

-- name: add_attempt
insert into attempt (step, n, run, provider, started_at) values (:step, :n, :run, :provider, :now);

-- name: end_attempt
update attempt set status = :status, head = :head, body = :body, error = :error, finished_at = :now, model = :model,
                   usage = :usage, cost = :cost, prices = :prices
where step = :step and n = :n and finished_at is null
      and exists (select 1 from step s where s.id = :step and s.state = 'in_flight' and s.attempts = :n)
returning n;

-- name: next_attempt
update step set attempts = attempts + 1 where id = :step and state = 'in_flight' and attempts = :n returning attempts, number;

-- name: add_detour
insert into detour (step, n, why, candidate, lost) values (:step, :n, :why, :candidate, :lost);

-- name: set_lost
update detour set lost = :lost where step = :step and n = :n;

-- name: set_breaker
insert into breaker (provider, model, state, opened, until, since, why) values (:provider, :model, :state, :opened, :until, :since, :why)
on conflict (provider, model) do update set state = excluded.state, opened = excluded.opened, until = excluded.until,
                                            since = excluded.since, why = excluded.why;

-- name: end_step
insert into end_step (step, n, status, head, released, model, usage, cost, prices, error, broken, finished_at, session,
                      state, stream, finished, hash, codec, size, data)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_call
insert into call (step, choice, place, call_id, name) values (?, ?, ?, ?, ?);

-- name: add_invocation
insert into invocation (step, choice, place, arguments, digest) values (?, ?, ?, ?, ?)
on conflict (step, choice, place) do update set arguments = excluded.arguments, digest = excluded.digest;

-- name: drop_invocations
delete from invocation where step = ?;

-- name: set_result
update invocation set result = :result, failed = :failed, seen_at = :now
where step = :step and choice = :choice and place = :place and result is null;

-- name: add_label
insert into label (session, name) values (?, ?) on conflict do nothing;

-- name: drop_label
delete from label where session = ? and name = ?;

-- name: rate
insert into rating (session, step, verdict, note, rated_by, at)
values (coalesce((select session from step where id = :step), :session), :step, :verdict, :note, :by, :now)
on conflict (session, step) do update set verdict = excluded.verdict, note = excluded.note, rated_by = excluded.rated_by,
                                          at = excluded.at;

-- name: unrate
delete from rating where step = :step and session = coalesce((select session from step where id = :step), :session);

-- name: add_step_label
insert into step_label (step, name, labelled_by, at) values (:step, :name, :by, :now) on conflict do nothing;

-- name: drop_step_label
delete from step_label where step = :step and name = :name;

-- name: hold_step
update step set state = 'held' where id = ?;

-- name: send_held
update step set state = 'in_flight', stream = :stream where id = :step and state = 'held' returning attempts, number;

-- name: set_provider
update attempt set provider = :provider, run = :run, started_at = :now where step = :step and n = :n;

-- name: ask
insert into approval (id, session, step, kind, choice, place, call_id, tool, arguments, schema, digest, rule, on_reject,
                      quorum, approvers, created_at, expires_at, state, decided_by, reason, decided_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: reopen
update approval set state = 'pending', effective = null, decided_by = '', reason = '', decided_at = null, rule = :rule,
                    quorum = :quorum, approvers = :approvers, expires_at = :expires
where id = :id and state in ('approved', 'edited');

-- name: drop_votes
delete from vote where approval = ?;

-- name: vote
insert into vote (approval, approver, action, arguments, reason, at) values (?, ?, ?, ?, ?, ?)
on conflict (approval, approver) do update set action = excluded.action, arguments = excluded.arguments,
                                               reason = excluded.reason, at = excluded.at;

-- name: decide
update approval set state = :state, effective = :effective, decided_by = :by, reason = :reason, decided_at = :now
where id = :id and state = 'pending';

-- name: pending_of
select id from approval where step = ? and state = 'pending' limit 1;

-- name: disabled_approvers
select name from approver where disabled_at is not null;

-- name: pending_in
select a.id, s.branch, s.number from approval a join step s on s.id = a.step where a.session = ? and a.state = 'pending';

-- name: ask_again
update approval set state = 'pending', reason = '', decided_at = null,
                    expires_at = case when expires_at is null then null else :now + expires_at - created_at end
where id = :id and state = 'expired' returning id;

-- name: copy_labels
insert into label (session, name) select :session, name from label where session = :source;

-- name: set_numbers
update session set steps = :steps, clock = (select clock from session where id = :source) where id = :session;

-- name: add_revision
insert into revision (branch, step, body, changed, made_by, reason, made_at)
values (:branch, :step, :body, :changed, :by, :reason, :now);

-- name: leave_behind
insert into left_behind (branch, revised, step, held) values (?, ?, ?, ?);

-- name: add_revised_call
insert into revised_call (branch, step, choice, place, call_id, name, arguments, digest) values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_revised_result
update revised_call set result = :result, failed = :failed, seen_at = :now
where branch = :branch and step = :step and choice = :choice and place = :place and result is null;

-- name: withhold
insert into release (step, mode, at) values (?, 'held', ?);

-- name: release
update release set mode = :mode, body = :body, said = :said, at = :now where step = :step and mode = 'held';

-- name: withhold_job
insert into job_release (step, id, mode, at) values (:step, :id, 'held', :now);

-- name: release_job
update job_release set mode = :mode, body = :body, said = :said, at = :now where step = :step and mode = 'held';

-- name: name_withheld
insert into withheld (name, step) values (?, ?) on conflict do nothing;

-- name: refuse
insert into release (step, mode, said, at) values (:step, :mode, :said, :now);

-- name: add_approver
insert into approver (name, role, token, slack, discord, created_at) values (:name, :role, :token, :slack, :discord, :now);

-- name: disable_approver
update approver set disabled_at = :now where name = :name and disabled_at is null;

-- name: rotate_approver
update approver set token = :token where name = :name and disabled_at is null;

-- name: last_audit
select id, hash from audit order by id desc limit 1;

-- name: add_audit
insert into audit (id, at, actor, action, subject, detail, previous, hash) values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: post
insert into outbox (alert, target, event, session, subject, payload, created_at, next_at) values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: try_message
update outbox set attempts = attempts + 1 where id = ? and delivered_at is null and dead_at is null returning attempts;

-- name: deliver_message
update outbox set delivered_at = :now, dead_at = null, error = '' where id = :id;

-- name: postpone_message
update outbox set next_at = :next, error = :error where id = :id;

-- name: bury_message
update outbox set dead_at = :now, error = :error where id = :id and delivered_at is null;

-- name: revive_message
update outbox set dead_at = null, attempts = 0, next_at = :now where id = :id and dead_at is not null;

-- name: hold
insert into held (id, session, step, job) values (:id, :session, :step, :job)
on conflict (session, id) do update set step = excluded.step, job = excluded.job, body = null, finished_at = null;

-- name: finish_job
update held set status = :status, head = :head, body = :body, finished_at = :now where session = :session and id = :id and body is null
returning step;

-- name: delete_job
insert into deleted (session, id, run, upto, status, at)
values (:session, :id, :run, (select coalesce(max(id), 0) from run where session = :session), :status, :now)
on conflict (session, id, run) do update set upto = excluded.upto, status = min(status, excluded.status), at = excluded.at;

-- name: fail_job
update step set state = 'failed' where id = :step and state = 'completed';

-- name: price_job
update attempt set model = :model, usage = :usage, cost = :cost, prices = :prices
where step = :step and n = (select attempts from step where id = :step);

-- name: serve
insert into served (run, step, outcome, match, hint, at) values (:run, :step, :outcome, :match, :hint, :now)
on conflict (run, step) do update set hint = excluded.hint, cut_at = 0, delivered = 0, joins = joins + 1, at = excluded.at;

-- name: cut
update served set cut_at = :now where run = :run and step = :step;

-- name: delivered
update served set delivered = 1 where run = ? and step = ?;

-- name: claim_cuts
update served set cut_at = 0 where run = :run;

-- name: interrupt_attempts
update attempt set error = 'the proxy ended before the answer was complete', finished_at = :now
where finished_at is null and step in (select id from step where state = 'in_flight');

-- name: interrupt_steps
update step set state = 'interrupted' where state = 'in_flight';

-- name: interrupt_attempt
update attempt set error = 'its end could not be recorded', finished_at = :now where step = :step and finished_at is null;

-- name: interrupt_step
update step set state = 'interrupted' where id = :step and state = 'in_flight' returning session;

-- name: equal_calls
select count(*) from step where branch = :branch and fingerprint = :fingerprint and number < :number;

-- name: add_effect
insert into effect (step, server, tool, class, key, occurrence, arguments, holder, owner, sending, leave)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: claim_effect
update effect set class = :class, key = :key, arguments = :arguments, holder = :holder, owner = :owner, sending = :sending,
                  settled = case when :settled <> '' then :settled else settled end
where step = :step;

-- name: effect_of
select e.occurrence, e.key, s.branch, e.arguments from effect e join step s on s.id = e.step where e.step = ?;

-- name: without_holder
update effect set holder = '', owner = '', sending = x'' where step = ?;

-- name: unfinish
update step set state = 'in_flight' where id = :step and attempts = :n and state in ('interrupted', 'held', 'failed');

-- name: unfinish_attempt
update attempt set finished_at = null, error = '' where step = :step and n = :n;

-- name: see_effect
update effect set seen_at = :now, failed = :failed, settled = case when :settled <> '' then :settled else settled end
where step = :step;

-- name: overtake
update approval set state = 'expired', reason = 'its own result came in', decided_at = :now
where step = :step and kind = 'doubt' and state = 'pending' returning id;

-- name: reserve
insert into reservation (step, n, session, day, usd, tokens) values (?, ?, ?, ?, ?, ?)
on conflict (step, n) do update set session = excluded.session, day = excluded.day, usd = excluded.usd, tokens = excluded.tokens;

-- name: carry_reservation
update reservation set n = :n where step = :step and n = :n - 1;

-- name: release_reservation
delete from reservation where step = ? and n = ? returning usd, tokens, day;

-- name: drop_reservations
delete from reservation where step = ?;

-- name: drop_all_reservations
delete from reservation;

-- name: reach
insert into reached (name, which, most, at) values (:limit, :which, :most, :now) on conflict do nothing;

-- name: budget_questions
select id, state, rule from approval where step = ? and kind = 'budget' order by place;

-- name: made_at
select created_at from step where id >= ? order by id limit 1;

-- name: spent_in_session
select a.usage, a.cost from step s join attempt a on a.step = s.id where s.session = :which;

-- name: spent_in_day
select usage, cost from attempt where step >= :first and started_at >= :start and started_at < :end
union all
select usage, cost from attempt where n > 1 and started_at >= :start and started_at < :end and step < :first;

-- name: steps_in_session
select count(*) from step s where s.session = :which and s.state <> 'held'
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'));

-- name: steps_in_day
select count(*) from step s where s.id >= :first and s.created_at >= :start and s.created_at < :end and s.state <> 'held'
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'));

-- name: pruned_in_session
select kind, times, tokens, usd from pruned where session = :which and kind in ('sent', 'asked');

-- name: pruned_in_day
select kind, times, tokens, usd from pruned where day = date(:start, 'unixepoch') and kind in ('sent', 'asked');

-- name: reserved_in_session
select sum(usd), sum(tokens) from reservation where session = :which;

-- name: reserved_in_day
select sum(usd), sum(tokens) from reservation where day = :which;

-- name: raised_in_session
select p.rule, b.codec, b.size, b.data from approval p join blob b on b.id = p.effective
where p.session = :which and p.kind = 'budget' and p.state = 'edited' and json_extract(p.rule, '$.limit') like 'session%';

-- name: raised_in_day
select p.rule, b.codec, b.size, b.data from approval p join blob b on b.id = p.effective
where p.kind = 'budget' and p.state = 'edited' and p.created_at >= :start and p.created_at < :end
  and json_extract(p.rule, '$.limit') like 'day%';
