create table pin (                                 -- sessions that are kept, whatever the rules of retention say
    session     integer primary key references session (id),
    actor       text    not null,
    reason      text    not null default '',
    at          real    not null
) strict;

create table doomed (                              -- sessions that are gone for everybody, while rows of them are left
    session     integer primary key,
    key         text    not null,
    at          real    not null
) strict;

create table pruned (                              -- what steps were that are there no more, summed up
    kind        text    not null,                  -- sent: attempts; given: replays; asked: steps
    day         text    not null,                  -- UTC, as 2026-01-31
    provider    text    not null,
    model       text    not null,
    session     integer not null,                  -- while it lives; 0: it does not
    times       integer not null,
    failed      integer not null,
    tokens      text    not null,                  -- sums as JSON, in the order of core.usage.Tokens
    uncounted   integer not null,
    usd         real    not null,
    unpriced    integer not null,
    primary key (kind, day, provider, model, session)
) strict, without rowid;

create table bygone (                              -- answers of pruned steps that agents were not given as they came
    name        text    not null,                  -- under which their provider may keep them; empty: not known
    dialect     text    not null,
    primary key (name, dialect)
) strict, without rowid;
