-- Statements of readers. Each answers one question of journal.py.

-- name: session
select id, key, status, head, clock, steps, note, created_at, updated_at from session where key = ?;

-- name: session_of
select id, key, status, head, clock, steps, note, created_at, updated_at from session where id = ?;

-- name: sessions
select s.id, s.key, s.status, s.head, s.clock, s.steps, s.note, s.created_at, s.updated_at from session s
where (:status = '' or s.status = :status)
  and (:updated is null or s.updated_at < :updated or (s.updated_at = :updated and s.id < :id))
order by s.updated_at desc, s.id desc limit :limit;

-- name: branches
select id, parent, upto, reason, opening, created_at, session, made_by from branch where session = ?;

-- name: run_by_name
select id, name, named, evidence, owner, supervisor, state, siblings, base, hint_min, hint_max, divergence, exit_code,
       started_at, ended_at
from run where session = ? and name = ?;

-- name: runs
select id, name, named, evidence, owner, supervisor, state, siblings, base, hint_min, hint_max, divergence, exit_code,
       started_at, ended_at
from run where session = ? order by id desc limit ?;

-- name: entries
select s.id, s.number, s.run, s.state, a.status, s.started, s.finished, coalesce(v.hint, s.hint), s.retry_key, a.broken, v.cut_at, v.delivered,
       r.mode
from step s
join attempt a on a.step = s.id and a.n = s.attempts
left join release r on r.step = s.id
left join served v on v.run = :run and v.step = s.id
where s.branch = :branch and s.fingerprint = :fingerprint and s.number < :upto
order by s.number;

-- name: fingerprints
select fingerprint from step where branch = :branch and number < :upto;

-- name: served_to_any
select distinct step from served where step in (select value from json_each(:steps)) and run in (select value from json_each(:runs));

-- name: went_on
select 1 from served w join step t on t.id = w.step where w.run = :run and w.step > :step and t.started > :finished limit 1;

-- name: deaths
select count(*) from served v
where v.step = :step and v.run <> :run and v.cut_at = 0
  and not exists (select 1 from served w where w.run = v.run and w.at > v.at);

-- name: last_given
select step, count(*) from (
    select v.step, max(v.at) from served v join run r on r.id = v.run
    where r.session = :session and v.outcome <> 'carried' and r.id < (select max(id) from run where session = :session)
    group by v.run
) group by step;

-- name: unread
select s.id, s.number, s.started, s.finished, s.tip, s.run
from step s
where s.session = (select session from branch where id = :branch) and s.number >= :from and s.number < :upto
  and s.branch = :branch and s.state = 'completed' and s.run < :run and s.dialect <> 'pure' and s.kind <> 'tool'
  and s.run not in (select value from json_each(:siblings))
  and not exists (select 1 from served v where v.run = :run and v.step = s.id)
  and not exists (select 1 from served v where v.step = s.id and v.run in (select value from json_each(:siblings)))
  -- What an earlier run left behind when it diverged and went on is no longer missed.
  and not exists (select 1 from run d where d.session in (:session, s.session) and d.id < :run and s.number < d.base
                  and d.divergence is not null and json_extract(d.divergence, '$.policy') <> 'strict'
                  and not exists (select 1 from served w where w.run = d.id and w.step = s.id))
order by s.number limit :limit;

-- name: first_unread_number
select min(s.number) from step s
where s.session = :session and s.number >= :from and s.number < :base and s.kind <> 'tool'
  and not exists (select 1 from served v where v.run = :run and v.step = s.id);

-- name: first_unread_on
select min(s.number) from step s
where s.session = (select session from branch where id = :branch) and s.branch = :branch and s.number >= :from
  and s.number < :base and s.kind <> 'tool'
  and not exists (select 1 from served v where v.run = :run and v.step = s.id);

-- name: call_names
select step, name from call where step in (select value from json_each(:steps)) order by step, choice, place;

-- name: call_owners
select c.step, c.call_id, c.name, s.session from call c join step s on s.id = c.step
where c.call_id in (select value from json_each(:ids))
  and (s.session = :session or exists (select 1 from json_each(:shared) f where f.value ->> 0 = s.branch and s.number < f.value ->> 1));

-- name: overlapped
select s.id from step s
where s.session = (select session from branch where id = :branch) and s.branch = :branch
  and s.number between :number - 64 and :number + 64
  and s.state = 'completed' and s.finished > :started and s.finished < :finished;

-- name: served_steps
select step from served where run = :run and step in (select value from json_each(:steps));

-- name: loose_cut
select max(cut_at) from served where run = :run and cut_at > (select max(at) from served where run = :run);

-- name: served_count
select count(*) from (select 1 from served where run = ? limit 2);

-- name: opening_after
select fingerprint from step
where session = (select session from branch where id = :branch) and branch = :branch and number < :upto order by number limit 1;

-- name: answer
select a.status, a.head, b.codec, b.size, b.data, s.stream, a.model, s.number, s.started, s.finished, s.branch, a.usage, a.cost, s.dialect, s.state, b.hash,
       r.mode, r.said, s.attempts
from step s join attempt a on a.step = s.id and a.n = s.attempts
left join release r on r.step = s.id
left join blob b on b.id = coalesce(r.body, a.body)
where s.id = ?;

-- name: received
select a.status, a.head, b.codec, b.size, b.data, s.stream, a.model, s.number, s.started, s.finished, s.branch, a.usage, a.cost, s.dialect, s.state, b.hash,
       null, '{}', s.attempts
from step s join attempt a on a.step = s.id and a.n = s.attempts
left join blob b on b.id = a.body
where s.id = ?;

-- name: run_of
select run from step where id = ?;

-- name: retold
select r.step, s.branch, s.number, r.mode from release r join step s on s.id = r.step
where s.session = ? and (r.mode = 'continue' or (r.body is not null and r.mode in ('answer', 'message'))) order by s.number;

-- name: has_withheld
select 1 from (select step, mode, body from release union all select step, mode, body from job_release) r
join step s on s.id = r.step where s.session = ? and (r.mode <> 'answer' or r.body is not null) limit 1;

-- name: retold_on
select r.step, s.branch, s.number, r.mode from release r join step s on s.id = r.step
where s.branch = :branch and s.number < :upto
  and (r.mode = 'continue' or (r.body is not null and r.mode in ('answer', 'message'))) order by s.number;

-- name: has_withheld_on
select 1 from (select step, mode, body from release union all select step, mode, body from job_release) r
join step s on s.id = r.step where s.branch = :branch and s.number < :upto and (r.mode <> 'answer' or r.body is not null) limit 1;

-- name: withholds_in
select 1 from (select step, mode, body from release union all select step, mode, body from job_release) r
join step s on s.id = r.step where s.dialect = :dialect and (r.mode <> 'answer' or r.body is not null)
union all
select 1 from bygone where dialect = :dialect limit 1;

-- name: was_withheld
select 1 from withheld where name = ? limit 1;

-- name: withheld_as
select 1 from withheld w
join (select step, mode, body from release union all select step, mode, body from job_release) r on r.step = w.step
where w.name = :name and (r.mode <> 'answer' or r.body is not null)
union all
select 1 from bygone where name = :name limit 1;

-- name: labels
select name from label where session = ? order by name;

-- name: approval
select a.id, a.session, t.key, a.step, s.number, a.kind, a.choice, a.place, a.call_id, a.tool, b.codec, b.size, b.data, c.codec, c.size, c.data,
       a.digest, a.rule, a.on_reject, a.quorum, a.approvers, a.state, e.codec, e.size, e.data, a.decided_by, a.reason, a.created_at, a.expires_at, a.decided_at
from approval a join step s on s.id = a.step join session t on t.id = a.session join blob b on b.id = a.arguments
left join blob c on c.id = a.schema left join blob e on e.id = a.effective
where a.id = ?;

-- name: approvals_of
select id from approval where step = ? order by choice, place, kind;

-- name: asked_about
select id from approval where step in (select value from json_each(:steps)) order by step, choice, place, kind;

-- name: refused
select a.tool, b.codec, b.size, b.data, a.reason, a.decided_by
from served v join approval a on a.step = v.step join blob b on b.id = a.arguments
where v.run = ? and a.state = 'rejected' and a.kind = 'call' and a.decided_by <> 'policy';

-- name: approvals
select a.id from approval a join session t on t.id = a.session
where (:state = '' or a.state = :state) and (:session = '' or t.key = :session)
  and (:created is null or a.created_at > :created or (a.created_at = :created and a.id > :id))
order by a.created_at, a.id limit :limit;

-- name: decided_approvals
select a.id from approval a join session t on t.id = a.session
where a.state <> 'pending' and (:state = '' or a.state = :state) and (:session = '' or t.key = :session)
  and (:decided is null or a.decided_at < :decided or (a.decided_at = :decided and a.id < :id))
order by a.decided_at desc, a.id desc limit :limit;

-- name: decided_since
select state, count(*) from approval where state <> 'pending' and decided_at >= ? group by state;

-- name: released_as
select mode, at from (
    select 0 as place, mode, at from job_release where step = ?
    union all
    select 1, mode, at from release where step = ?
) order by place limit 1;

-- name: expired
select id, step from approval where state = 'pending' and expires_at is not null and expires_at <= ? order by expires_at limit 100;

-- name: next_expiry
select min(expires_at) from approval where state = 'pending' and expires_at is not null;

-- name: votes
select v.approver, v.action, b.codec, b.size, b.data, v.reason, v.at from vote v left join blob b on b.id = v.arguments
where v.approval = ? order by v.at;

-- name: audit
select id, at, actor, action, subject, detail, previous, hash from audit where id > :after order by id limit :limit;

-- name: open_invocations
select c.call_id, i.step, i.choice, i.place
from call c join invocation i on i.step = c.step and i.choice = c.choice and i.place = c.place
join step s on s.id = c.step
where c.call_id in (select value from json_each(:ids)) and s.session = :session and i.result is null
  and exists (select 1 from served v where v.run = :run and v.step = c.step)
order by i.step;

-- name: made_before
with recursive up (id, parent) as (
    select id, parent from branch where id = :head
    union all
    select b.id, b.parent from up join branch b on b.id = up.parent
), generation (id) as (
    select id from up where parent is null
    union all
    select b.id from generation join branch b on b.parent = generation.id
)
select number, codec, size, data from (
    select s.number, b.codec, b.size, b.data, i.seen_at
    from invocation i join step s on s.id = i.step join call c on c.step = i.step and c.choice = i.choice and c.place = i.place
    join blob b on b.id = i.result
    where i.digest = :digest and i.failed = 0 and s.branch in (select id from generation)
      and not exists (select 1 from served v where v.run = :run and v.step = i.step)
    union all
    select s.number, b.codec, b.size, b.data, i.seen_at
    from revised_call i join step s on s.id = i.step join blob b on b.id = i.result
    where i.digest = :digest and i.failed = 0 and i.branch in (select id from generation)
      and not exists (select 1 from served v where v.run = :run and v.step = i.step)
) order by seen_at desc limit 1;

-- name: approver_by_token
select name, role, token, slack, discord, created_at, disabled_at from approver where token = ? and disabled_at is null;

-- name: approver
select name, role, token, slack, discord, created_at, disabled_at from approver where name = ?;

-- name: approvers
select name, role, token, slack, discord, created_at, disabled_at from approver order by name;

-- name: approvers_by_slack
select name, role, token, slack, discord, created_at, disabled_at from approver where slack = ? and disabled_at is null;

-- name: approvers_by_discord
select name, role, token, slack, discord, created_at, disabled_at from approver where discord = ? and disabled_at is null;

-- name: invocations_of
select i.step, i.choice, i.place, c.call_id, c.name, a.codec, a.size, a.data, r.codec, r.size, r.data, i.failed, i.seen_at
from invocation i join call c on c.step = i.step and c.choice = i.choice and c.place = i.place
join blob a on a.id = i.arguments left join blob r on r.id = i.result
where i.step in (select value from json_each(:steps)) order by i.step, i.choice, i.place;

-- name: answered
select id from step where run = ? and fingerprint = ? and state = 'completed' and session = (select session from run where id = ?)
order by number desc limit ?;

-- name: last_calls
select i.step, i.digest, i.result from invocation i join served v on v.step = i.step
where v.run = :run and i.step > :after order by i.step desc, i.choice, i.place limit :limit;

-- name: next_message
select id, alert, target, event, session, subject, payload, attempts, created_at, next_at, delivered_at, dead_at, error
from outbox where target = ? and delivered_at is null and dead_at is null order by id limit 1;

-- name: waiting_targets
select distinct target from outbox where delivered_at is null and dead_at is null;

-- name: waiting_messages
select (select count(*) from outbox where delivered_at is null and dead_at is null),
       (select count(*) from outbox where dead_at is not null);

-- name: approval_states
select state, count(*) from approval group by state;

-- name: outbox_message
select id, alert, target, event, session, subject, payload, attempts, created_at, next_at, delivered_at, dead_at, error
from outbox where id = ?;

-- name: outbox_messages
select id, alert, target, event, session, subject, payload, attempts, created_at, next_at, delivered_at, dead_at, error
from outbox
where (:before = 0 or id < :before)
  and (:state = '' or :state = case when delivered_at is not null then 'delivered' when dead_at is not null then 'dead' else 'pending' end)
order by id desc limit :limit;

-- name: held
select h.step, h.job, h.status, h.head, b.codec, b.size, b.data, s.number, j.mode, j.said, g.codec, g.size, g.data
from held h join step s on s.id = h.step left join blob b on b.id = h.body
left join job_release j on j.step = h.step and j.id = h.id and h.job = 1 left join blob g on g.id = j.body
where h.session = ? and h.id = ?;

-- name: job_owner
select t.key from held h join session t on t.id = h.session where h.id = ? and h.job = 1 order by h.session limit 1;

-- name: job_end
select j.id, h.status, h.head, b.codec, b.size, b.data
from job_release j join step s on s.id = j.step join held h on h.session = s.session and h.id = j.id
join blob b on b.id = h.body where j.step = ?;

-- name: deletion
select max(upto), max(run = :run), max(status < 300) from deleted where session = :session and id = :id;

-- name: was_given
select 1 from served where run = :run and step = :step;

-- name: request
select s.dialect, s.method, s.path, s.frame, s.node, s.fingerprint, s.tip from step s where s.id = ?;

-- name: blob
select codec, size, data, hash from blob where id = ?;

-- name: transcript
with recursive up (id, parent, blob, depth) as (
    select id, parent, blob, 0 from node where id = :node
    union all
    select n.id, n.parent, n.blob, up.depth + 1 from node n join up on n.id = up.parent
)
select b.codec, b.size, b.data from up join blob b on b.id = up.blob order by up.depth desc;

-- name: steps
select s.id, s.number, s.branch, s.run, s.kind, s.state, s.dialect, s.path, s.model, s.stream, s.fingerprint, s.attempts,
       s.created_at, s.hint, a.status, a.model, a.usage, a.cost, a.error, a.started_at, a.finished_at, a.body, a.provider,
       a.prices
from step s join attempt a on a.step = s.id and a.n = s.attempts
where s.session = :session and s.number >= :from and s.number <= :upto
order by s.number limit :limit;

-- name: step_by_number
select id from step where session = ? and number = ?;

-- name: run_counts
select v.outcome, count(*), sum(v.joins), sum(a.cost * nullif(v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')), 0)),
       sum(case when s.state = 'completed' and a.cost is null then v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')) end)
from served v join step s on s.id = v.step join attempt a on a.step = s.id and a.n = s.attempts
where v.run = ? group by v.outcome;

-- name: run_paid
select count(*), sum(cost), sum(case when cost is null and status between 200 and 299 then 1 else 0 end) from attempt a
where a.run = ? and a.provider <> '' and a.step in (select step from served where run = ?);

-- name: sent
select case :by when 'day' then date(a.started_at, 'unixepoch') when 'provider' then a.provider when 'session' then coalesce(k.key, '')
                when 'model' then coalesce(nullif(a.model, ''), s.model) when 'label' then coalesce(l.name, '')
                else '' end as name,
       count(*), sum(a.status not between 200 and 299 or a.error <> ''), added_up(a.usage), sum(a.cost),
       sum(a.cost is null and (a.status between 200 and 299
                           or (a.status = 0 and (a.body is not null or s.state = 'interrupted'))))
from attempt a join step s on s.id = a.step left join session k on k.id = s.session
left join label l on :by = 'label' and l.session = k.id
where a.started_at >= :since and a.started_at < :until and (:session = '' or k.key = :session)
  and a.finished_at is not null
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'))
group by 1 order by 1;

-- name: spared
with given as (
    select v.step, v.run, v.at, v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')) as times
    from served v where v.at >= :since and v.at < :until and v.outcome <> 'carried'
)
select case :by when 'day' then date(g.at, 'unixepoch') when 'provider' then a.provider when 'session' then coalesce(k.key, '')
                when 'model' then coalesce(nullif(a.model, ''), s.model) when 'label' then coalesce(l.name, '')
                else '' end as name,
       sum(g.times), sum(a.cost * g.times), sum(case when s.state = 'completed' and a.cost is null then g.times end)
from given g join step s on s.id = g.step join attempt a on a.step = s.id and a.n = s.attempts
join run r on r.id = g.run left join session k on k.id = r.session
left join label l on :by = 'label' and l.session = k.id
where g.times > 0 and (:session = '' or k.key = :session)
group by 1 order by 1;

-- name: session_totals
select count(*), sum(case when s.state = 'failed' then 1 else 0 end),
       (select sum(a.cost) from attempt a join step t on t.id = a.step where t.session = :session),
       (select count(*) from run r where r.session = :session)
from step s where s.session = :session;

-- name: served_of_steps
select v.step, r.name, v.outcome, v.match, v.cut_at, v.joins, v.at from served v join run r on r.id = v.run
where v.step in (select value from json_each(:steps)) order by v.at;

-- name: attempts_of
select a.n, a.provider, a.status, a.model, a.error, a.cost, a.started_at, a.finished_at, coalesce(d.why, ''),
       coalesce(d.candidate, ''), coalesce(d.lost, '[]')
from attempt a left join detour d on d.step = a.step and d.n = a.n where a.step = ? order by a.n;

-- name: effect
select e.step, e.server, e.tool, e.class, e.key, e.occurrence, b.codec, b.size, b.data, e.holder, e.owner, e.sending, e.leave, e.settled,
       e.failed, e.seen_at, s.state, s.attempts, s.number, s.session, s.branch, s.dialect, x.key
from effect e join step s on s.id = e.step join session x on x.id = s.session join blob b on b.id = e.arguments
where e.step = ?;

-- name: holders
select step, holder, owner, sending from effect where step in (select value from json_each(:steps)) and holder <> '';

-- name: leaves
select a.id, s.branch from approval a join invocation i on i.step = a.step and i.choice = a.choice and i.place = a.place
join step s on s.id = a.step
where a.session = :session and a.kind in ('call', 'duplicate') and a.state in ('approved', 'edited')
  and i.digest = :digest
  and not exists (select 1 from effect e where e.leave = a.id)
order by a.decided_at limit 100;

-- name: left_in_doubt
select e.step from effect e join step s on s.id = e.step
where s.state = 'interrupted' and e.class = 'once'
  and not exists (select 1 from approval a where a.step = e.step and a.kind = 'doubt' and a.place = s.attempts)
order by e.step limit 1000;

-- name: call_made_before
with recursive up (id, parent) as (
    select id, parent from branch where id = :head
    union all
    select b.id, b.parent from up join branch b on b.id = up.parent
), generation (id) as (
    select id from up where parent is null
    union all
    select b.id from generation join branch b on b.parent = generation.id
)
select s.id, s.number, s.branch, s.state from step s join effect e on e.step = s.id
where s.fingerprint = :fingerprint and s.branch in (select id from generation)
  and s.state in ('completed', 'in_flight', 'interrupted') and e.failed = 0
  and not exists (select 1 from served v where v.run = :run and v.step = s.id)
order by s.number desc limit 20;

-- name: effects
select e.step from effect e join step s on s.id = e.step where s.session = :session and s.number > :after
order by s.number limit :limit;

-- name: runs_before
select id, name, named, evidence, owner, supervisor, state, siblings, base, hint_min, hint_max, divergence, exit_code,
       started_at, ended_at
from run where session = :session and id < :before order by id desc limit :limit;

-- name: detour
select why, candidate, lost from detour where step = ? and n = ?;

-- name: breakers
select provider, model, state, opened, until, since, why from breaker order by provider, model;

-- name: changed_session
select (select key from session where id = :session), (select name from run where id = :run);

-- name: changed_step
select n.key, s.number, (select name from run where id = case when :run > 0 then :run else s.run end)
from step s join session n on n.id = s.session where s.id = :step;

-- name: changed_approval
select n.key, s.number, r.name, a.state
from approval a join step s on s.id = a.step join session n on n.id = a.session left join run r on r.id = s.run
where a.id = ?;

-- name: made_at
select created_at from step where id >= ? order by id limit 1;

-- name: last_step
select coalesce(max(id), 0) from step;

-- name: attempts_since
select a.step, a.n, a.provider, coalesce(d.candidate, ''), s.model, s.state, a.status, a.error, a.started_at,
       a.finished_at, a.prices
from attempt a join step s on s.id = a.step left join detour d on d.step = a.step and d.n = a.n
where a.step >= :first and a.started_at >= :since and s.kind = 'model'
  and (a.finished_at is not null or s.state = 'in_flight')
  and not (a.status = 0 and exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                                    and p.state in ('rejected', 'expired')))
order by a.step, a.n;

-- name: attempt_head
select head, finished_at from attempt where step = ? and n = ?;

-- name: last_proposing
select c.step, s.number, k.key, k.id, count(*) from call c join step s on s.id = c.step join session k on k.id = s.session
where c.step < :below group by c.step order by c.step desc limit :limit;

-- name: ratings
select step, verdict, note, rated_by, at from rating where session = ?;

-- name: ratings_on
select r.step, r.verdict, r.note, r.rated_by, r.at from step s join rating r on r.session = s.session and r.step = s.id
where s.branch = :branch and s.number < :upto;

-- name: step_labels_on
select l.step, l.name from step s join step_label l on l.step = s.id where s.branch = :branch and s.number < :upto
order by l.step, l.name;

-- name: step_labels
select l.step, l.name from step_label l join step s on s.id = l.step where s.session = ? order by l.step, l.name;

-- name: sessions_in_order
select s.id, s.key, s.status, s.head, s.clock, s.steps, s.note, s.created_at, s.updated_at from session s
where s.id > :after and (:status = '' or s.status = :status)
order by s.id limit :limit;

-- name: branch
select id, parent, upto, reason, opening, created_at, session, made_by from branch where id = ?;

-- name: fork_of
select id, parent, upto, reason, opening, created_at, session, made_by from branch where session = ? and reason = 'fork';

-- name: revisions
select branch, step, body, changed, made_by, reason, made_at from revision
where branch in (select value from json_each(:branches));

-- name: revisions_of
select r.branch, r.step, r.body, r.changed, r.made_by, r.reason, r.made_at from revision r where r.step = ? order by r.branch;

-- name: left_behind
select branch, revised, step, held from left_behind where branch in (select value from json_each(:branches));

-- name: steps_on
select s.id, s.number, s.branch, s.run, s.kind, s.state, s.dialect, s.path, s.model, s.stream, s.fingerprint, s.attempts,
       s.created_at, s.hint, a.status, a.model, a.usage, a.cost, a.error, a.started_at, a.finished_at, a.body, a.provider,
       a.prices
from step s join attempt a on a.step = s.id and a.n = s.attempts
where s.session = (select session from branch where id = :branch) and s.branch = :branch and s.number >= :from
  and s.number < :upto order by s.number limit :limit;

-- name: step_on
select id from step where session = (select session from branch where id = :branch) and branch = :branch and number = :number;

-- name: points_on
select s.id, s.number, s.kind, s.state, s.dialect, s.node, coalesce(r.mode, ''),
       (select sum(a.cost) from attempt a where a.step = s.id),
       exists (select 1 from attempt a where a.step = s.id and a.cost is null and a.status between 200 and 299),
       exists (select 1 from approval p where p.step = s.id and p.state = 'pending')
from step s left join release r on r.step = s.id
where s.session = (select session from branch where id = :branch) and s.branch = :branch and s.number < :upto
order by s.number;

-- name: ended_at
select a.finished_at from step s join attempt a on a.step = s.id and a.n = s.attempts where s.id = ?;

-- name: steps_by_branch
select branch, count(*) from step where session = ? group by branch;

-- name: goes_on_from
with recursive up (id, parent) as (
    select id, parent from node where id = :node
    union all
    select n.id, n.parent from node n join up on n.id = up.parent
)
select 1 from up where id = :above and id <> :node limit 1;

-- name: held_names
select id, job from held where step = ?;

-- name: names_of_runs
select distinct r.id, r.name from run r where r.id in (select value from json_each(:runs));

-- name: revised_calls
select c.choice, c.place, c.call_id, c.name, b.codec, b.size, b.data from revised_call c join blob b on b.id = c.arguments
where c.branch = ? and c.step = ? order by c.choice, c.place;

-- name: given_since
select r.session, v.at from served v join run r on r.id = v.run
where v.step = ? and v.outcome <> 'carried' and v.at >= ? order by v.at limit 1000;

-- name: head_at
select id from branch where session = ? and created_at <= ? order by id desc limit 1;

-- name: withdrawn_in
select a.id, s.branch, s.number from approval a join step s on s.id = a.step left join release r on r.step = s.id
where a.session = ? and a.state = 'expired' and a.reason in ('the step was rolled back', 'the answer that it goes on from was edited')
  and (r.mode = 'held' or s.state = 'held'
       or (s.kind = 'tool' and s.state in ('failed', 'interrupted') and (a.kind <> 'doubt' or a.place = s.attempts)));

-- name: calls_of
select choice, place, call_id, name from call where step = ? order by choice, place;

-- name: open_revised
select c.call_id, c.step, c.branch, c.choice, c.place from revised_call c
where c.branch in (select value from json_each(:branches)) and c.call_id in (select value from json_each(:ids)) and c.result is null
  -- Also of a run to which the step was given before: what counts is when it was given last.
  and exists (select 1 from served v join revision r on r.branch = c.branch and r.step = c.step
              where v.run = :run and v.step = c.step and v.outcome <> 'carried' and v.at >= r.made_at)
order by c.branch;

-- name: fork_names
select key from session where key >= :from and key < :before;

-- name: compared_steps
select s.id, s.number, s.kind, s.state, s.dialect, s.path, s.fingerprint, s.stream, s.model, a.model, a.status, a.usage,
       case when s.attempts = 1 then a.cost else (select sum(t.cost) from attempt t where t.step = s.id) end,
       a.started_at, a.finished_at, a.error, a.body, r.mode, r.body
from step s join attempt a on a.step = s.id and a.n = s.attempts left join release r on r.step = s.id
where s.branch = :branch and s.number < :upto order by s.number;

-- name: compared_of_run
select s.id, s.number, s.kind, s.state, s.dialect, s.path, s.fingerprint, s.stream, s.model, a.model, a.status, a.usage,
       case when s.attempts = 1 then a.cost else (select sum(t.cost) from attempt t where t.step = s.id) end,
       a.started_at, a.finished_at, a.error, a.body, r.mode, r.body
from served v join step s on s.id = v.step join attempt a on a.step = s.id and a.n = s.attempts
left join release r on r.step = s.id
where v.run = :run order by s.number;

-- name: compared_step
select s.id, s.number, s.kind, s.state, s.dialect, s.path, s.fingerprint, s.stream, s.model, a.model, a.status, a.usage,
       case when s.attempts = 1 then a.cost else (select sum(t.cost) from attempt t where t.step = s.id) end,
       a.started_at, a.finished_at, a.error, a.body, r.mode, r.body
from step s join attempt a on a.step = s.id and a.n = s.attempts left join release r on r.step = s.id
where s.id = :step;
