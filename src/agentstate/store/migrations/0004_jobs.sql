create table job_release (                         -- what agents are given of a job whose end was held
    step        integer primary key,
    id          text    not null,                  -- the provider's name for it
    mode        text    not null,                  -- as in release
    body        integer,                           -- blob: the answer as it is given; null: as it was received
    said        text    not null default '{}',
    at          real    not null
) strict;

create table withheld (                            -- names under which providers keep answers that were held
    name        text    not null,                  -- of the answer, or of the conversation that it is a part of
    step        integer not null,
    primary key (name, step)
) strict, without rowid;
insert into withheld (name, step) select h.id, h.step from held h join release r on r.step = h.step;
create index held_job on held (id) where job = 1;
