-- Statements of readers behind pages and lists: sums over a session, tapes, who was given what, searches.

-- name: overview
with shown as (
    select s.id, s.key, s.status, s.head, s.clock, s.steps, s.note, s.created_at, s.updated_at,
           (select count(*) from approval a where a.session = s.id and a.state = 'pending') as held,
           case
               when exists (select 1 from approval a where a.session = s.id and a.state = 'pending') then 'held'
               when s.status = 'PAUSED' then 'paused'
               when s.status = 'FAILED' then 'failed'
               when s.status = 'COMPLETED' then 'done'
               when s.id in (select value from json_each(:live)) then 'live'
               when (select r.exit_code from run r where r.session = s.id order by r.id desc limit 1) <> 0 then 'failed'
               when s.updated_at >= :recent
                    and exists (select 1 from run r where r.session = s.id and r.state = 'open') then 'live'
               else 'idle'
           end as state
    from session s
    where (:key = '' or s.key = :key) and (:status = '' or s.status = :status)
      and s.updated_at >= :since and s.updated_at < :until
      and (:updated is null or s.updated_at < :updated or (s.updated_at = :updated and s.id < :id))
      and (:label = '' or exists (select 1 from label l where l.session = s.id and l.name = :label))
      and (:model = '' or exists (select 1 from step t where t.session = s.id and t.model = :model)
           or exists (select 1 from step t join attempt a on a.step = t.id where t.session = s.id and a.model = :model))
      and (:like = '' or s.key like :like escape '\'
           or exists (select 1 from label l where l.session = s.id and l.name like :like escape '\')
           or exists (select 1 from step t where t.session = s.id and t.model like :like escape '\'))
)
select id, key, status, head, clock, steps, note, created_at, updated_at, state, held from shown
where :state = '' or state in (select value from json_each(:state))
order by updated_at desc, id desc limit :limit;

-- name: session_sums
select count(*), sum(a.cost), added_up(a.usage),
       sum(a.cost is null and (a.status between 200 and 299
                           or (a.status = 0 and (a.body is not null or s.state = 'interrupted'))))
from step s join attempt a on a.step = s.id
where s.session = :session and a.finished_at is not null
  and not exists (select 1 from approval p where p.step = s.id and p.kind in ('request', 'budget')
                  and p.state in ('rejected', 'expired'));

-- name: session_spared
with given as (
    select v.step, v.joins + (v.outcome in ('replay', 'joined', 'memo')) as times
    from run r join served v on v.run = r.id where r.session = :session and v.outcome <> 'carried'
)
select sum(g.times), sum(a.cost * g.times), sum(case when s.state = 'completed' and a.cost is null then g.times end)
from given g join step s on s.id = g.step join attempt a on a.step = s.id and a.n = s.attempts where g.times > 0;

-- name: session_served
select count(*), sum(v.joins) from run r join served v on v.run = r.id where r.session = ?;

-- name: session_runs
select count(*) from run where session = ?;

-- name: tape
select s.number, s.state, s.model,
       exists (select 1 from served v where v.step = s.id and (v.joins > 0 or v.outcome in ('replay', 'joined', 'memo'))),
       exists (select 1 from approval a where a.step = s.id and a.state = 'pending')
from step s where s.session = :session order by s.number desc limit :limit;

-- name: pending_count
select count(*) from approval where state = 'pending';

-- name: live_count
select count(*) from session s
where s.id in (
    select value from json_each(:live)
    union
    select t.id from session t
    where t.updated_at >= :recent and exists (select 1 from run r where r.session = t.id and r.state = 'open')
      and coalesce((select r.exit_code from run r where r.session = t.id order by r.id desc limit 1), 0) = 0
)
  and s.status = 'RUNNING'
  and not exists (select 1 from approval a where a.session = s.id and a.state = 'pending');

-- name: label_names
select name, count(*) from label group by name order by count(*) desc, name limit :limit;

-- name: forwards
select v.run, count(*), min(v.at), max(v.at), sum(a.cost)
from run r join served v on v.run = r.id join step s on s.id = v.step join attempt a on a.step = s.id and a.n = s.attempts
where r.session = :session and v.outcome = 'replay' group by v.run;

-- name: given_in
select v.step, v.run, v.outcome, v.joins, v.at from served v
where v.step in (select value from json_each(:steps)) and v.outcome <> 'carried';

-- name: detoured
select step, max(candidate) from detour where step in (select value from json_each(:steps)) group by step;

-- name: nodes_under
with recursive up (id) as (
    select node from step where id in (select value from json_each(:steps)) and node is not null
    union
    select n.parent from up join node n on n.id = up.id where n.parent is not null
)
select n.id, n.parent, n.blob from up join node n on n.id = up.id;

-- name: bodies_of
select s.id, s.node, s.frame, coalesce(r.body, a.body) from step s join attempt a on a.step = s.id and a.n = s.attempts
left join release r on r.step = s.id where s.id in (select value from json_each(:steps)) order by s.number;

-- name: blobs_of
select id, codec, size, data from blob where id in (select value from json_each(:ids));

-- name: effect_names
select e.step, e.server, e.tool, e.failed, b.codec, b.size, b.data from effect e join blob b on b.id = e.arguments
where e.step in (select value from json_each(:steps));

-- name: pending_in
select id, step, tool from approval where session = ? and state = 'pending' order by created_at, id;

-- name: models_in
select distinct coalesce(nullif(a.model, ''), s.model) from step s join attempt a on a.step = s.id and a.n = s.attempts
where s.session = :session and s.kind <> 'tool' limit :limit;

-- name: fork_points
select distinct k.key, b.upto from branch p join branch b on b.parent = p.id join session k on k.id = b.session
where p.session = :session and b.session <> :session order by b.upto, k.key;
