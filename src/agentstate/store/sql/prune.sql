-- Statements of retention: what stands in the way of pruning, the rows that go, the contents that nothing refers to.

-- name: counts
select (select count(*) from session), (select count(*) from step);

-- name: rows_of_sessions
select id, key, status, steps, created_at, updated_at from session order by id;

-- name: all_labels
select session, name from label order by session, name;

-- name: all_pins
select session from pin;

-- name: all_pending
select session, count(*) from approval where state = 'pending' group by session;

-- name: all_doubts
select s.session, count(*) from effect e join step s on s.id = e.step
where s.state = 'in_flight' or (s.state = 'interrupted' and e.class = 'once' and e.settled = '') group by s.session;

-- name: all_messages
select session, count(*) from outbox where delivered_at is null and dead_at is null and session <> '' group by session;

-- name: all_forks
select distinct p.session, b.session from branch b join branch p on p.id = b.parent where p.session <> b.session;

-- name: all_raises
select distinct session from approval
where kind = 'budget' and state = 'edited' and created_at >= :day and json_extract(rule, '$.limit') like 'day%';

-- name: all_uses
select r.session, max(v.at) from served v join run r on r.id = v.run group by r.session;

-- name: stands
select s.id, s.key, s.status, s.steps, s.created_at, s.updated_at,
       (select json_group_array(name) from label where session = s.id),
       (select count(*) from pin where session = s.id),
       (select count(*) from approval where session = s.id and state = 'pending'),
       (select count(*) from step t join effect e on e.step = t.id where t.session = s.id and
            (t.state = 'in_flight' or (t.state = 'interrupted' and e.class = 'once' and e.settled = ''))),
       (select count(*) from outbox where session = s.key and delivered_at is null and dead_at is null),
       (select count(*) from approval where session = s.id and kind = 'budget' and state = 'edited'
            and created_at >= :day and json_extract(rule, '$.limit') like 'day%'),
       (select max(v.at) from run r join served v on v.run = r.id where r.session = s.id)
from session s where s.id = :session;

-- name: forks_of
select distinct k.key from branch p join branch b on b.parent = p.id join session k on k.id = b.session
where p.session = :session and b.session <> :session order by k.key;

-- name: forks_at
select b.id, b.parent, b.upto from branch p join branch b on b.parent = p.id
where p.session = :session and b.session <> :session;

-- name: pin
insert into pin (session, actor, reason, at) values (:session, :actor, :reason, :now)
on conflict (session) do update set actor = excluded.actor, reason = excluded.reason, at = excluded.at;

-- name: unpin
delete from pin where session = ?;

-- name: pinned
select p.session, k.key, p.actor, p.reason, p.at from pin p join session k on k.id = p.session order by k.key;

-- name: session_cost
select sum(a.cost) from step s join attempt a on a.step = s.id where s.session = ?;

-- name: branches_in
select id from branch where session = ?;

-- name: approvals_in
select id from approval where session = ? order by created_at, id;

-- name: doom
insert into doomed (session, key, at) values (:session, :key, :now);

-- name: doomed
select session, key from doomed order by session;

-- name: end_runs
update run set state = 'ended', supervisor = null where session = ? and state = 'open';

-- name: ceiling
insert into meta (key, value)
values (:key, max(:most, coalesce((select cast(value as integer) from meta where key = :key), 0)))
on conflict (key) do update set value = excluded.value;

-- name: some_steps
select id from step where session = :session order by number limit :limit;

-- name: some_hand_outs
select v.run, v.step from run r join served v on v.run = r.id where r.session = :session limit :limit;

-- name: sums_sent
select date(a.started_at, 'unixepoch') as day, a.provider as provider, coalesce(nullif(a.model, ''), s.model) as name,
       count(*), sum(a.status not between 200 and 299 or a.error <> ''), added_up(a.usage), sum(a.cost),
       sum(a.cost is null and (a.status between 200 and 299
                           or (a.status = 0 and (a.body is not null or s.state = 'interrupted'))))
from attempt a join step s on s.id = a.step
where s.id in (select value from json_each(:steps)) and a.finished_at is not null
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'))
group by day, provider, name;

-- name: sums_given
select date(v.at, 'unixepoch') as day, a.provider as provider, coalesce(nullif(a.model, ''), s.model) as name,
       sum(v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited'))),
       0, '[0,0,0,0,0,0]', sum(a.cost * (v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')))),
       sum(case when s.state = 'completed' and a.cost is null
                then v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')) end)
from served v join step s on s.id = v.step join attempt a on a.step = s.id and a.n = s.attempts
where v.step in (select value from json_each(:steps))
  and (:pairs is null or exists (select 1 from json_each(:pairs) x
                                 where json_extract(x.value, '$[0]') = v.run and json_extract(x.value, '$[1]') = v.step))
  and v.outcome <> 'carried' and v.joins + (v.outcome in ('replay', 'joined', 'memo', 'edited')) > 0
group by day, provider, name;

-- name: sums_asked
select date(s.created_at, 'unixepoch') as day, '', '', count(*), 0, '[0,0,0,0,0,0]', 0.0, 0
from step s where s.id in (select value from json_each(:steps)) and s.state <> 'held'
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'))
group by day;

-- name: sum_of
select times, failed, tokens, uncounted, usd, unpriced from pruned
where kind = :kind and day = :day and provider = :provider and model = :model and session = :session;

-- name: keep_sum
insert or replace into pruned (kind, day, provider, model, session, times, failed, tokens, uncounted, usd, unpriced)
values (:kind, :day, :provider, :model, :session, :times, :failed, :tokens, :uncounted, :usd, :unpriced);

-- name: sums_of_session
select kind, day, provider, model, times, failed, tokens, uncounted, usd, unpriced from pruned where session = ?;

-- name: drop_sums
delete from pruned where session = ?;

-- name: all_sums
select case :by when 'day' then p.day when 'provider' then p.provider when 'model' then p.model
                when 'session' then coalesce(k.key, '') when 'label' then coalesce(l.name, '') else '' end,
       p.times, p.failed, p.tokens, p.uncounted, p.usd, p.unpriced
from pruned p left join session k on k.id = p.session and p.session <> 0
left join label l on :by = 'label' and l.session = k.id
where p.kind = :kind and p.day >= date(:since, 'unixepoch') and p.day < date(min(:until, 253402214400), 'unixepoch')
  and (:session = '' or k.key = :session);

-- name: leave_names
insert or ignore into bygone (name, dialect)
select coalesce(w.name, ''), s.dialect
from (select step, mode, body from release union all select step, mode, body from job_release) r
join step s on s.id = r.step left join withheld w on w.step = s.id
where r.step in (select value from json_each(:steps)) and (r.mode <> 'answer' or r.body is not null);

-- name: drop_votes_of
delete from vote where approval in (select id from approval where step in (select value from json_each(:steps)));

-- name: off_steps
select s.id, s.branch, s.number from step s
where s.session = :session and s.state in ('completed', 'failed', 'interrupted')
  and not exists (select 1 from attempt a where a.step = s.id and coalesce(a.finished_at, 1e15) > :before)
  and not exists (select 1 from served v where v.step = s.id and v.at > :before)
  and not exists (select 1 from approval a where a.step = s.id)
  and not exists (select 1 from effect e where e.step = s.id)
  and not exists (select 1 from invocation i where i.step = s.id)
  and not exists (select 1 from held h where h.step = s.id)
  and not exists (select 1 from withheld w where w.step = s.id)
  and not exists (select 1 from rating r where r.session = s.session and r.step = s.id)
  and not exists (select 1 from step_label l where l.step = s.id)
  and not exists (select 1 from revision r where r.step = s.id)
order by s.number;

-- name: supervised
select session, supervisor from run where state = 'open' and supervisor is not null;

-- name: old_rollbacks
select distinct session from branch where reason not in ('first', 'fork') and created_at <= :before order by session;

-- name: node_rows
select id, parent, hash from node where id in (select value from json_each(?)) order by id desc;

-- name: touched_nodes
select id from temp.touched_node where id in (select value from json_each(?));

-- name: drop_nodes
delete from node where id in (select value from json_each(?));

-- name: drop_blobs
delete from blob where id in (select value from json_each(?)) and id not in (select id from temp.touched_blob)
returning hash;
