-- Retries, fallback and breakers.

create table detour (                              -- attempts that were no first ones, or went elsewhere than asked
    step        integer not null,
    n           integer not null,
    why         text    not null,                  -- what made it necessary
    candidate   text    not null default '',       -- provider/model that was asked, where it was not the agent's own
    lost        text    not null default '[]',     -- what of request or answer was lost in translation, as JSON
    primary key (step, n)
) strict, without rowid;

create table breaker (                             -- of a provider's model that is left alone, or was
    provider    text    not null,
    model       text    not null,
    state       text    not null,                  -- closed, open
    opened      integer not null,                  -- how often in a row it opened
    until       real    not null,                  -- when it is tried again
    since       real    not null,
    why         text    not null default '',
    primary key (provider, model)
) strict, without rowid;
