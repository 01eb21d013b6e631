create table deleted (                             -- jobs that were deleted at their provider, by which run
    session     integer not null,
    id          text    not null,                  -- the provider's name for it
    run         text    not null,                  -- the run's name; empty: of no run
    upto        integer not null,                  -- the last run of the session that had begun by then
    status      integer not null,                  -- what the provider said: done, or 404 and 410: gone already
    at          real    not null,
    primary key (session, id, run)
) strict, without rowid;
