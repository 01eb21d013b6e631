alter table attempt add column prices text not null default '';
create index attempt_again on attempt (started_at) where n > 1;

create table reservation (                         -- what calls in flight may cost at most, until they have ended
    step        integer not null,
    n           integer not null,                  -- the attempt
    session     integer not null,
    day         integer not null,                  -- days (UTC) since the epoch
    usd         real    not null,
    tokens      integer not null,
    primary key (step, n)
) strict, without rowid;

create table reached (                             -- limits that people were told of
    name        text    not null,                  -- session_usd, day_steps, ...
    which       integer not null,                  -- the session, or the day
    most        real    not null,                  -- the limit as it was then
    at          real    not null,
    primary key (name, which, most)
) strict, without rowid;

drop view end_step;

create view end_step as
select a.*, s.session, s.state, s.stream, s.finished, b.hash, b.codec, b.size, b.data
from step s, attempt a, blob b where 0;

create trigger end_step_insert instead of insert on end_step begin
    select raise(abort, 'the step is not in flight any more')
        where not exists (select 1 from step s join attempt a on a.step = s.id and a.n = new.n
                          where s.id = new.step and s.state = 'in_flight' and a.finished_at is null);
    insert into blob (hash, codec, size, data) select new.hash, new.codec, new.size, new.data where new.hash is not null
        on conflict (hash) do nothing;
    update session set clock = new.finished, updated_at = new.finished_at where id = new.session;
    update attempt set status = new.status, head = new.head, body = (select id from blob where hash = new.hash),
                       released = new.released, model = new.model, usage = new.usage, cost = new.cost,
                       prices = new.prices, error = new.error, broken = new.broken, finished_at = new.finished_at
        where step = new.step and n = new.n;
    update step set state = new.state, finished = new.finished, stream = new.stream where id = new.step;
end;
